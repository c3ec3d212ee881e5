package icebergrest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

func decodeJSON(text []byte) (v any, err error) {
	return v, json.Unmarshal(text, &v)
}

// Iceberg's own document, as of 2026-08-21, knows every operation that we list, and
// every answer of ours has a status and a body that the document has for the operation.
func TestAnswersAreThoseOfTheSpecification(t *testing.T) {
	text, err := os.ReadFile("testdata/spec/rest-catalog-open-api.yaml")
	if err != nil {
		t.Fatal(err)
	}
	// The document refers to a parameter where a header belongs.
	text = bytes.ReplaceAll(text, []byte("$ref: '#/components/parameters/etag'"), []byte("schema: {type: string}"))
	document, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		t.Fatal(err)
	}
	// Names of types are of two of its kinds at once.
	types := document.Components.Schemas["Type"].Value
	types.AnyOf, types.OneOf = types.OneOf, nil
	metadata, err := os.ReadFile("testdata/spec/metadata.json")
	if err != nil {
		t.Fatal(err)
	}
	h, c := newTest(t, testLake{"orders": string(metadata), "lost": "!corrupt_data", "far": "!unavailable"}, map[string]string{"s3.endpoint": "http://127.0.0.1:9000"})
	makeDatabase(t, c, "retail", "what is sold", "orders", "lost", "far", "plain")
	requests := map[string][]string{
		"/v1/config":       {"", "?warehouse=w"},
		namespaces:         {"", "?parent=retail", "?parent=nowhere", "?pageToken=&pageSize=1", "?pageToken=%21"},
		namespace:          {"retail", "nowhere", "retail%1Fdeeper"},
		tables:             {"retail", "nowhere", "retail?pageToken=&pageSize=1"},
		table:              {"retail orders", "retail orders?snapshots=refs", "retail lost", "retail far", "retail nothing", "nowhere orders", "retail orders?snapshots=some"},
		table + "/metrics": {"retail orders", "retail nothing"},
		views:              {"retail", "nowhere"},
		view:               {"retail v"},
	}
	parameter := regexp.MustCompile(`\{(namespace|table|view)\}`)
	for _, op := range operations() {
		item := document.Paths.Value(op.path)
		if item == nil || item.GetOperation(op.method) == nil {
			t.Errorf("the specification has no %s %s", op.method, op.path)
			continue
		}
		if len(requests[op.path]) == 0 {
			t.Errorf("%s is not asked for", op.path)
		}
		for _, request := range requests[op.path] {
			names, query, _ := strings.Cut(request, "?")
			values := strings.Fields(names)
			target := Root + strings.Replace(parameter.ReplaceAllStringFunc(op.path, func(string) string {
				v := values[0]
				values = values[1:]
				return v
			}), "/{prefix}", "", 1) + "?" + query
			w := ask(t, h, op.method, target)
			response := item.GetOperation(op.method).Responses.Value(strconv.Itoa(w.Code))
			if response == nil && w.Code >= 500 {
				response = item.GetOperation(op.method).Responses.Value("5XX")
			}
			if response == nil {
				t.Errorf("%s %s: the specification has no %d", op.method, target, w.Code)
				continue
			}
			media := response.Value.Content.Get("application/json")
			if media == nil || op.method == http.MethodHead {
				if op.method != http.MethodHead && w.Body.Len() > 0 {
					t.Errorf("%s %s: %d has a body", op.method, target, w.Code)
				}
				continue
			}
			body, err := decodeJSON(w.Body.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			schema := media.Schema.Value
			if w.Code >= 400 { // some operations forget the object around it
				schema = document.Components.Schemas["IcebergErrorResponse"].Value
			}
			if err := schema.VisitJSON(body); err != nil {
				t.Errorf("%s %s: %d: %v", op.method, target, w.Code, err)
			}
		}
	}
	if body, err := decodeJSON([]byte(`{"identifiers":[{"name":"x"}]}`)); err != nil || document.Components.Schemas["ListTablesResponse"].Value.VisitJSON(body) == nil {
		t.Error("a name without its namespace passes")
	}
}
