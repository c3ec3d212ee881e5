package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func (tb table) alter(t testing.TB, ops ...obj) obj {
	t.Helper()
	return tb.s.ok(t, "PATCH", tb.path(), obj{"ops": ops})
}

// A table changes under its data: old rows are read with the new columns, dropped and
// re-added names are other columns, renames and wider types keep what was written,
// and writers and readers go on.
func TestAlterTable(t *testing.T) {
	s := shared(t)
	tb := create(t, s, newDB(t, s), "customers", "id BIGINT, name STRING, n INT, price DECIMAL(8,2), f FLOAT, home ROW<street STRING, zip INT>", "id", 2)
	tb.write(t, `[{"id":1,"name":"ada","n":2147483647,"price":"1.50","f":0.5,"home":{"street":"a","zip":1}}]`)
	before := tb.changelog(t, "from=earliest")
	got := tb.alter(t,
		obj{"op": "add_column", "column": obj{"name": "email", "type": "STRING"}, "after": "name"},
		obj{"op": "rename_column", "name": "name", "to": "full_name"},
		obj{"op": "alter_type", "name": "n", "type": "BIGINT"},
		obj{"op": "alter_type", "name": "price", "type": "DECIMAL(12,2)"},
		obj{"op": "alter_type", "name": "f", "type": "DOUBLE"},
		obj{"op": "set_comment", "name": "email", "comment": "where to write"},
		obj{"op": "set_properties", "properties": obj{"owner": "sales"}},
	)
	require.Equal(t, "2", fmt.Sprint(got["version"]))
	require.Equal(t, "2", fmt.Sprint(got["schema_id"]))
	require.Equal(t, []string{`{"id":1,"full_name":"ada","email":null,"n":2147483647,"price":"1.50","f":0.5,"home":{"street":"a","zip":1}}`}, tb.scan(t, obj{}))
	tb.write(t, `[{"id":2,"full_name":"bob","email":"b@x","n":2147483648,"price":"1234567890.25","f":1e300},{"id":1,"full_name":"ada","email":"a@x"}]`)
	require.Equal(t, []string{`{"id":1,"email":"a@x"}`, `{"id":2,"email":"b@x"}`}, tb.lookup(t, `[{"id":1},{"id":2}],"columns":["id","email"]`))
	require.Equal(t, []string{`{"id":2}`}, tb.scan(t, obj{"columns": []string{"id"}, "filter": "n > 2147483647"}))
	require.Equal(t, []string{`{"id":1}`}, tb.scan(t, obj{"columns": []string{"id"}, "filter": "email = 'a@x'"}))
	require.NotEmpty(t, before.next)
	var types []string
	for _, c := range tb.changelog(t, "from="+before.next).changes {
		types = append(types, c.Type)
	}
	require.ElementsMatch(t, []string{"+I", "-U", "+U"}, types)

	tb.alter(t, obj{"op": "drop_column", "name": "email"}, obj{"op": "add_column", "column": obj{"name": "email", "type": "INT"}, "first": true},
		obj{"op": "drop_column", "name": "home.zip"}, obj{"op": "add_column", "column": obj{"name": "home.city", "type": "STRING"}},
		obj{"op": "reset_properties", "keys": []string{"owner"}})
	require.Equal(t, []string{
		`{"email":null,"id":1,"full_name":"ada","n":null,"price":null,"f":null,"home":null}`,
		`{"email":null,"id":2,"full_name":"bob","n":2147483648,"price":"1234567890.25","f":1e+300,"home":null}`,
	}, tb.scan(t, obj{}))
	require.Equal(t, `{"email":null,"home":{"street":"a","city":null}}`, firstRow(t, tb.allChanges(t, "earliest"), "email", "home"))
	schemas := s.ok(t, "GET", tb.path()+"/schemas", nil)["schemas"].([]any)
	require.Len(t, schemas, 3)
	require.Equal(t, "2", fmt.Sprint(s.ok(t, "GET", tb.path()+"/schemas/2", nil)["schema_id"]))
}

// What would lose data, breaks a key or hangs on another version is refused, whole.
func TestAlterRefused(t *testing.T) {
	s := shared(t)
	tb := create(t, s, newDB(t, s), "t", "id BIGINT, dt STRING, v STRING, n BIGINT", "id,dt", 1, obj{"partition_by": []string{"dt"}})
	a := s.do(t, "GET", tb.path(), nil)
	tag := a.header.Get("ETag")
	require.Equal(t, `"1"`, tag)
	for name, c := range map[string]struct {
		code string
		op   obj
	}{
		"no such step":         {"invalid_value", obj{"op": "juggle"}},
		"no step":              {"invalid_value", nil},
		"unknown field":        {"unknown_field", obj{"op": "drop_column", "name": "v", "colour": 1}},
		"a key column":         {"invalid_schema", obj{"op": "drop_column", "name": "id"}},
		"a partition column":   {"invalid_schema", obj{"op": "rename_column", "name": "dt", "to": "day"}},
		"unknown column":       {"unknown_column", obj{"op": "drop_column", "name": "w"}},
		"narrower":             {"invalid_schema", obj{"op": "alter_type", "name": "n", "type": "INT"}},
		"another type":         {"invalid_schema", obj{"op": "alter_type", "name": "v", "type": "INT"}},
		"NOT NULL":             {"invalid_schema", obj{"op": "add_column", "column": obj{"name": "w", "type": "INT", "nullable": false}}},
		"there already":        {"invalid_schema", obj{"op": "add_column", "column": obj{"name": "v", "type": "INT"}}},
		"but for case":         {"invalid_schema", obj{"op": "rename_column", "name": "v", "to": "N"}},
		"a reserved name":      {"invalid_name", obj{"op": "rename_column", "name": "v", "to": "_bucket"}},
		"after nothing":        {"unknown_column", obj{"op": "add_column", "column": obj{"name": "w", "type": "INT"}, "after": "x"}},
		"an unknown property":  {"invalid_property", obj{"op": "set_properties", "properties": obj{"table.colour": "red"}}},
		"an immutable setting": {"invalid_property", obj{"op": "set_properties", "properties": obj{"table.merge-engine": "first_row"}}},
	} {
		t.Run(name, func(t *testing.T) {
			ops := []obj{{"op": "add_column", "column": obj{"name": "fine", "type": "INT"}}, c.op}
			if c.op == nil {
				ops = []obj{}
			}
			s.fails(t, 422, c.code, "PATCH", tb.path(), obj{"ops": ops})
		})
	}
	require.Equal(t, "1", fmt.Sprint(s.ok(t, "GET", tb.path(), nil)["version"]), "all or none")
	fine := obj{"ops": []obj{{"op": "add_column", "column": obj{"name": "fine", "type": "INT"}}}}
	s.fails(t, http.StatusPreconditionFailed, "version_mismatch", "PATCH", tb.path(), fine, "If-Match", `"7"`)
	s.fails(t, 422, "invalid_value", "PATCH", tb.path(), fine, "If-Match", `seven`)
	s.ok(t, "PATCH", tb.path(), fine, "If-Match", tag)
	s.fails(t, http.StatusPreconditionFailed, "version_mismatch", "PATCH", tb.path(), obj{"ops": []obj{{"op": "drop_column", "name": "fine"}}}, "If-Match", tag)
	s.fails(t, 404, "table_not_found", "PATCH", tb.path()+"x", fine)
}
