package openapi

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/errs"
)

func load(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(JSON())
	require.NoError(t, err)
	return doc
}

// The document that is served is valid OpenAPI 3.1, examples included, as another implementation reads it.
func TestDocumentIsValid(t *testing.T) {
	doc := load(t)
	require.NoError(t, doc.Validate(t.Context(), openapi3.EnableExamplesValidation(), openapi3.EnableSchemaDefaultsValidation()))
	require.True(t, strings.HasPrefix(doc.OpenAPI, "3.1"))
	checked := 0
	for name, s := range doc.Components.Schemas { // Validate leaves the "examples" of schemas alone
		for _, example := range s.Value.Examples {
			require.NoError(t, doc.ValidateSchemaJSON(s.Value, example), name)
			checked++
		}
		for property, p := range s.Value.Properties {
			for _, example := range p.Value.Examples {
				require.NoError(t, doc.ValidateSchemaJSON(p.Value, example), "%s.%s", name, property)
				checked++
			}
		}
	}
	require.Greater(t, checked, 30)
}

// JSON keeps the order of the source and loses nothing that kin-openapi reads from the YAML.
func TestJSONEqualsSource(t *testing.T) {
	fromYAML, err := openapi3.NewLoader().LoadFromData(source)
	require.NoError(t, err)
	a, err := json.Marshal(fromYAML)
	require.NoError(t, err)
	b, err := json.Marshal(load(t))
	require.NoError(t, err)
	require.JSONEq(t, string(a), string(b))
	text := string(JSON())
	require.Less(t, strings.Index(text, `"/v1/info"`), strings.Index(text, `"/v1/databases"`))
	require.Less(t, strings.Index(text, `"/v1/databases"`), strings.Index(text, `"/v1/cluster"`))
}

var snakeCase = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)

// Every operation has a unique id in snake_case, a summary, declared tags, a success, and a refusal that says why.
func TestOperationsAreComplete(t *testing.T) {
	doc := load(t)
	var declared []string
	for _, tag := range doc.Tags {
		require.NotEmpty(t, tag.Description, tag.Name)
		declared = append(declared, tag.Name)
	}
	seen := map[string]bool{}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			where := method + " " + path
			require.Regexp(t, snakeCase, op.OperationID, where)
			require.False(t, seen[op.OperationID], "%s stands twice", op.OperationID)
			seen[op.OperationID] = true
			require.NotEmpty(t, op.Summary, where)
			require.NotEmpty(t, op.Tags, where)
			require.Subset(t, declared, op.Tags, where)
			var success, refusal bool
			for status, r := range op.Responses.Map() {
				success = success || strings.HasPrefix(status, "2")
				if strings.HasPrefix(status, "4") {
					refusal = true
					_, problem := r.Value.Content["application/problem+json"]
					require.True(t, problem || slices.Contains(op.Tags, "Iceberg"), "%s %s is not problem+json", where, status)
				}
			}
			require.True(t, success, where)
			require.True(t, refusal, "%s says nothing about being refused", where)
		}
	}
}

// Each code that a response names is a code of that HTTP status, so the document and the error table cannot part.
func TestResponseCodesMatchErrorTable(t *testing.T) {
	byCode := map[string]errs.Kind{}
	for _, k := range errs.Kinds() {
		byCode[string(k.Code)] = k
	}
	quoted := regexp.MustCompile("`([a-z_]+)`")
	checked := 0
	for path, item := range load(t).Paths.Map() {
		for method, op := range item.Operations() {
			for status, r := range op.Responses.Map() {
				want, err := strconv.Atoi(status)
				if err != nil || want < 400 {
					continue
				}
				for _, m := range quoted.FindAllStringSubmatch(*r.Value.Description, -1) {
					k, isCode := byCode[m[1]]
					if m[1] == "offsets" {
						continue
					}
					require.True(t, isCode, "%s %s %s names %q", method, path, status, m[1])
					require.Equal(t, want, k.HTTP, "%s %s: %s", method, path, m[1])
					checked++
				}
			}
		}
	}
	require.Greater(t, checked, 100)
}

// The enum of error codes is the error table, in its order.
func TestErrorEnumEqualsTable(t *testing.T) {
	var want []any
	for _, k := range errs.Kinds() {
		want = append(want, string(k.Code))
	}
	require.Equal(t, want, load(t).Components.Schemas["ErrorCode"].Value.Enum)
}

// Bodies of requests refuse members they do not know; answers may grow.
func TestOnlyRequestsAreClosed(t *testing.T) {
	doc := load(t)
	requests := []string{"CreateDatabase", "CreateTable", "NewColumn", "AlterTable", "AlterOp", "CreatePartition", "WriteRequest", "LookupRequest", "PrefixLookupRequest", "ReadRequest", "SQLRequest", "NewGrant", "Quota"}
	for name, s := range doc.Components.Schemas {
		if s.Value.Type == nil || !s.Value.Type.Is("object") {
			continue
		}
		closed := s.Value.AdditionalProperties.Has != nil && !*s.Value.AdditionalProperties.Has
		require.Equal(t, slices.Contains(requests, name), closed, name)
	}
}

// Operations says the same as the document as another implementation reads it.
func TestOperations(t *testing.T) {
	doc := load(t)
	ops := Operations()
	n := 0
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			n++
			i := slices.IndexFunc(ops, func(o Operation) bool { return o.ID == op.OperationID })
			require.GreaterOrEqual(t, i, 0, op.OperationID)
			o := ops[i]
			require.Equal(t, method, o.Method)
			require.Equal(t, path, o.Path)
			require.Equal(t, op.Tags, o.Tags)
			var inPath, inQuery []string
			for _, p := range slices.Concat(item.Parameters, op.Parameters) {
				switch p.Value.In {
				case "path":
					inPath = append(inPath, p.Value.Name)
				case "query":
					inQuery = append(inQuery, p.Value.Name)
				}
			}
			require.Equal(t, inPath, o.PathParams, o.ID)
			require.Equal(t, inQuery, o.QueryParams, o.ID)
			for _, p := range o.PathParams {
				require.Contains(t, o.Path, "{"+p+"}")
			}
		}
	}
	require.Len(t, ops, n)
	find := func(id string) Operation {
		return ops[slices.IndexFunc(ops, func(o Operation) bool { return o.ID == id })]
	}
	require.Equal(t, "get_info", ops[0].ID, "the order of the document")
	require.True(t, find("create_table").Unary)
	require.True(t, find("create_table").HasBody)
	require.True(t, find("drop_table").Unary)
	require.True(t, find("get_changelog").Unary)
	require.False(t, find("get_changelog").HasBody)
	require.False(t, find("healthz").Unary)
	require.True(t, find("execute_sql").Unary)
	require.Equal(t, http.MethodPatch, find("patch_row_by_key").Method)
}
