package openapi

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	millrace "github.com/millrace/millrace"
)

// everything is the word of x-millrace-on.
const everything = "everything"

// Operation is one operation of the document.
type Operation struct {
	ID      string // snake_case; the Flight action is "millrace." + ID
	Method  string // GET, POST …
	Path    string // with {parameters}, from /
	Summary string
	Tags    []string
	// Rule is what its caller needs: on what the path names, or on each thing that is listed or
	// that the body names, or, with Everything, on all there is.
	Rule       millrace.Rule
	Everything bool
	// Unary says that it answers with one JSON document, or with nothing: such
	// operations are Flight actions too.
	Unary bool
	// HasBody says that it takes a JSON body.
	HasBody     bool
	PathParams  []string // in the order of the path
	QueryParams []string
	// HeaderParams are what makes the operation safe or conditional; how its body is
	// encoded is not among them.
	HeaderParams []string
}

// Operations lists every operation, in the order of the document. The caller
// must not change it.
func Operations() []Operation { return operations() }

var operations = sync.OnceValue(func() []Operation {
	type media map[string]json.RawMessage
	type param struct {
		Ref  string `json:"$ref"`
		Name string `json:"name"`
		In   string `json:"in"`
	}
	type operation struct {
		ID          string   `json:"operationId"`
		Summary     string   `json:"summary"`
		Verb        string   `json:"x-millrace-verb"`
		On          string   `json:"x-millrace-on"`
		Tags        []string `json:"tags"`
		Parameters  []param  `json:"parameters"`
		RequestBody struct {
			Content media `json:"content"`
		} `json:"requestBody"`
		Responses map[string]struct {
			Content media `json:"content"`
		} `json:"responses"`
	}
	var doc struct {
		Paths      json.RawMessage `json:"paths"`
		Components struct {
			Parameters map[string]param `json:"parameters"`
		} `json:"components"`
	}
	mustDecode(JSON(), &doc)
	var out []Operation
	for path, item := range members(doc.Paths) {
		var shared []param
		for method, raw := range members(item) {
			if method == "parameters" {
				mustDecode(raw, &shared)
				continue
			}
			var o operation
			mustDecode(raw, &o)
			rule, err := millrace.ParseRule(o.Verb)
			if err != nil || o.On != "" && o.On != everything {
				panic(fmt.Sprintf("openapi: openapi.yaml: %s has no x-millrace-verb, or one on what is not there: %v", o.ID, err))
			}
			op := Operation{
				ID: o.ID, Method: strings.ToUpper(method), Path: path, Summary: o.Summary, Tags: o.Tags,
				Rule: rule, Everything: o.On == everything,
			}
			_, op.HasBody = o.RequestBody.Content["application/json"]
			for status, r := range o.Responses {
				_, isJSON := r.Content["application/json"]
				if strings.HasPrefix(status, "2") && (isJSON || status == "204") {
					op.Unary = !slices.Contains(o.Tags, "Service") && !slices.Contains(o.Tags, "Iceberg")
				}
			}
			for _, p := range slices.Concat(shared, o.Parameters) {
				if name, ok := strings.CutPrefix(p.Ref, "#/components/parameters/"); ok {
					p = doc.Components.Parameters[name]
				}
				switch p.In {
				case "path":
					op.PathParams = append(op.PathParams, p.Name)
				case "query":
					op.QueryParams = append(op.QueryParams, p.Name)
				case "header":
					if p.Name != "Content-Encoding" {
						op.HeaderParams = append(op.HeaderParams, p.Name)
					}
				}
			}
			out = append(out, op)
		}
	}
	return out
})

// members ranges over the members of a JSON object in their order.
func members(object json.RawMessage) func(yield func(string, json.RawMessage) bool) {
	return func(yield func(string, json.RawMessage) bool) {
		dec := json.NewDecoder(strings.NewReader(string(object)))
		if _, err := dec.Token(); err != nil {
			panic(fmt.Sprintf("openapi: %v", err))
		}
		for dec.More() {
			key, err := dec.Token()
			if err != nil {
				panic(fmt.Sprintf("openapi: %v", err))
			}
			var value json.RawMessage
			if err := dec.Decode(&value); err != nil {
				panic(fmt.Sprintf("openapi: %v", err))
			}
			if !yield(key.(string), value) {
				return
			}
		}
	}
}

func mustDecode(data []byte, into any) {
	if err := json.Unmarshal(data, into); err != nil {
		panic(fmt.Sprintf("openapi: openapi.yaml: %v", err)) // embedded: a bug in the build
	}
}
