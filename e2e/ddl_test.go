package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/stretchr/testify/require"
)

// Databases and tables: created, found, listed in pages, described, dropped; existing ones and conditions as in contract.md.
func TestDDLREST(t *testing.T) {
	t.Parallel()
	s := shared(t)
	db := newDB(t, s)
	tables := "/v1/databases/" + db + "/tables"
	require.Equal(t, db, s.ok(t, "GET", "/v1/databases/"+db, nil)["name"])

	body := `{"name":"orders","comment":"all of them","buckets":6,"bucket_key":["cust"],"primary_key":["cust","id"],
		"columns":[{"name":"id","type":"int"},{"name":"cust","type":"VARCHAR","comment":"who"},{"name":"lines","type":"ARRAY<ROW<sku STRING NOT NULL, qty DECIMAL(9,2)>>"},{"name":"at","type":"TIMESTAMP_LTZ(3)"}],
		"properties":{"table.log.ttl":"7d","owner":"shop"}}`
	a := s.do(t, "POST", tables, body)
	require.Equal(t, 201, a.status, "%s", a.body)
	require.NotEmpty(t, a.header.Get("Location"))
	made := a.object(t)
	got := s.do(t, "GET", tables+"/orders", nil)
	require.JSONEq(t, string(a.body), string(got.body))
	require.Equal(t, fmt.Sprintf(`"%v"`, made["version"]), got.header.Get("ETag"))
	for member, want := range map[string]string{
		"name": `"orders"`, "database": `"` + db + `"`, "kind": `"keyed"`, "primary_key": `["cust","id"]`, "bucket_key": `["cust"]`, "buckets": "6",
		"comment": `"all of them"`, "partition_by": "[]", "schema_id": "1", "properties": `{"owner":"shop","table.log.ttl":"7d"}`,
	} {
		b, err := json.Marshal(made[member])
		require.NoError(t, err)
		require.JSONEq(t, want, string(b), member)
	}
	columns := made["columns"].([]any)
	require.Equal(t, "INT", columns[0].(obj)["type"])
	require.Equal(t, false, columns[0].(obj)["nullable"], "key columns are NOT NULL")
	require.Equal(t, "STRING", columns[1].(obj)["type"])
	require.Equal(t, "who", columns[1].(obj)["comment"])
	require.Equal(t, "ARRAY<ROW<sku STRING NOT NULL, qty DECIMAL(9,2)>>", columns[2].(obj)["type"])
	require.Equal(t, true, columns[3].(obj)["nullable"])

	require.Equal(t, 200, s.do(t, "POST", tables+"?if_not_exists=true", body).status)
	s.fails(t, 409, "table_already_exists", "POST", tables, body)
	for i := range 5 {
		create(t, s, db, fmt.Sprintf("t%d", i), "a INT", "", 1)
	}
	var listed []string
	for token := ""; ; {
		page := s.ok(t, "GET", tables+"?limit=2&page_token="+token, nil)
		for _, tb := range page["tables"].([]any) {
			listed = append(listed, tb.(obj)["name"].(string))
		}
		if token, _ = page["next_page_token"].(string); token == "" {
			break
		}
	}
	require.Equal(t, "orders t0 t1 t2 t3 t4", strings.Join(listed, " "))
	buckets := s.ok(t, "GET", tables+"/orders/buckets", nil)["buckets"].([]any)
	require.Len(t, buckets, 6)
	require.Equal(t, "3", buckets[3].(obj)["bucket_key"])
	require.Len(t, s.ok(t, "GET", tables+"/orders/schemas", nil)["schemas"], 1)
	require.Len(t, s.ok(t, "GET", tables+"/orders/schemas/1", nil)["columns"], 4)

	s.fails(t, 409, "database_not_empty", "DELETE", "/v1/databases/"+db, nil)
	s.ok(t, "DELETE", tables+"/t0", nil)
	s.fails(t, 404, "table_not_found", "DELETE", tables+"/t0", nil)
	s.ok(t, "DELETE", tables+"/t0?if_exists=true", nil)
	s.ok(t, "DELETE", "/v1/databases/"+db+"?cascade=true", nil)
	s.fails(t, 404, "database_not_found", "GET", tables, nil)
}

// What a table may not be, each with its code.
func TestDDLRefusals(t *testing.T) {
	t.Parallel()
	s := shared(t)
	db := newDB(t, s)
	deep := strings.Repeat("ARRAY<", 17) + "INT" + strings.Repeat(">", 17)
	var many []obj
	for i := range 2001 {
		many = append(many, obj{"name": fmt.Sprintf("c%d", i), "type": "INT"})
	}
	for name, c := range map[string]struct {
		code string
		body obj
	}{
		"no columns":                    {"invalid_schema", obj{"columns": []obj{}}},
		"no such type":                  {"invalid_schema", obj{"columns": columnList("a BLOB")}},
		"too deep":                      {"invalid_schema", obj{"columns": columnList("a " + deep)}},
		"too many columns":              {"invalid_schema", obj{"columns": many}},
		"twice the same":                {"invalid_schema", obj{"columns": columnList("a INT, a INT")}},
		"key that is no column":         {"invalid_schema", obj{"columns": columnList("a INT"), "primary_key": []string{"b"}}},
		"key twice":                     {"invalid_schema", obj{"columns": columnList("a INT"), "primary_key": []string{"a", "a"}}},
		"nullable key":                  {"invalid_schema", obj{"columns": []obj{{"name": "a", "type": "INT", "nullable": true}}, "primary_key": []string{"a"}}},
		"float key":                     {"invalid_schema", obj{"columns": columnList("a DOUBLE"), "primary_key": []string{"a"}}},
		"nested key":                    {"invalid_schema", obj{"columns": columnList("a ARRAY<INT>"), "primary_key": []string{"a"}}},
		"boolean bucket key":            {"invalid_schema", obj{"columns": columnList("a BOOLEAN, b INT"), "bucket_key": []string{"a"}}},
		"bucket key outside the key":    {"invalid_schema", obj{"columns": columnList("a INT, b INT"), "primary_key": []string{"a"}, "bucket_key": []string{"b"}}},
		"no buckets":                    {"invalid_schema", obj{"columns": columnList("a INT"), "buckets": 0}},
		"too many buckets":              {"invalid_schema", obj{"columns": columnList("a INT"), "buckets": 4097}},
		"unknown table property":        {"invalid_property", obj{"columns": columnList("a INT"), "properties": obj{"table.log.tll": "7d"}}},
		"unreadable property":           {"invalid_property", obj{"columns": columnList("a INT"), "properties": obj{"table.log.ttl": "soon"}}},
		"decimal that holds nothing":    {"invalid_schema", obj{"columns": columnList("a DECIMAL(39,0)")}},
		"unknown member":                {"unknown_field", obj{"columns": columnList("a INT"), "bukkets": 1}},
		"buckets said twice, otherwise": {"invalid_property", obj{"columns": columnList("a INT"), "buckets": 2, "properties": obj{"bucket.num": "3"}}},
	} {
		t.Run(name, func(t *testing.T) {
			c.body["name"] = "t"
			s.fails(t, 422, c.code, "POST", "/v1/databases/"+db+"/tables", c.body)
		})
	}
	a := s.do(t, "GET", "/v1/databases/"+db+"/tables", nil)
	require.Empty(t, rowsOf(t, a.body, "tables"))
}

// Every unary operation is an action of Flight; ListActions, ListFlights and GetSchema tell the truth.
func TestDDLFlight(t *testing.T) {
	t.Parallel()
	s := shared(t)
	c := s.dial(t)
	db := newDB(t, s) + "_f"
	ctx := within(t, patience)
	st, err := c.ListActions(ctx, &flight.Empty{})
	require.NoError(t, err)
	actions := map[string]bool{}
	for {
		a, err := st.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		require.NotEmpty(t, a.Description, a.Type)
		actions[a.Type] = true
	}
	for _, op := range []string{"create_database", "drop_database", "create_table", "get_table", "list_tables", "drop_table", "get_offsets", "lookup_rows", "count_rows", "put_row"} {
		require.True(t, actions["millrace."+op], op)
	}
	_, err = c.action(t, "millrace.create_database", obj{"name": db})
	require.NoError(t, err)
	made, err := c.action(t, "millrace.create_table", obj{"database": db, "name": "t", "columns": columnList("id BIGINT, v STRING, m DECIMAL(9,2), at TIMESTAMP_LTZ(3)"), "primary_key": []string{"id"}, "buckets": 2})
	require.NoError(t, err)
	require.JSONEq(t, string(s.do(t, "GET", "/v1/databases/"+db+"/tables/t", nil).body), string(made))
	tb := table{s, db, "t"}
	_, err = c.action(t, "millrace.put_row", obj{"database": db, "table": "t", "row": obj{"id": 1, "v": "a"}})
	require.NoError(t, err)
	for range 2 {
		made, err = c.action(t, "millrace.put_row", obj{"database": db, "table": "t", "row": obj{"id": 1, "v": "a"}, "idempotency_key": "k"})
		require.NoError(t, err)
	}
	require.Contains(t, string(made), `"replayed":1`)
	tb.write(t, `[{"id":2,"v":"b"}]`)
	counted, err := c.action(t, "millrace.count_rows", obj{"database": db, "table": "t"})
	require.NoError(t, err)
	require.JSONEq(t, `{"count":`+tb.count(t, "")+`}`, string(counted))

	res, err := c.GetSchema(ctx, pathOf(tb))
	require.NoError(t, err)
	schema, err := flight.DeserializeSchema(res.Schema, nil)
	require.NoError(t, err)
	require.Equal(t, "id,v,m,at", names(schema))
	md := schema.Metadata()
	for key, want := range map[string]string{"millrace.table": db + ".t", "millrace.kind": "keyed", "millrace.primary_key": `["id"]`, "millrace.buckets": "2", "millrace.schema_id": "1"} {
		got, ok := md.GetValue(key)
		require.True(t, ok, key)
		require.Equal(t, want, got, key)
	}
	typ, _ := schema.Field(2).Metadata.GetValue("millrace.type")
	require.Equal(t, "DECIMAL(9,2)", typ)

	flights, err := c.ListFlights(ctx, &flight.Criteria{Expression: []byte(db)})
	require.NoError(t, err)
	var listed []string
	for {
		info, err := flights.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		listed = append(listed, strings.Join(info.FlightDescriptor.Path, "."))
	}
	require.Equal(t, []string{db + ".t"}, listed)
	_, err = c.action(t, "millrace.drop_database", obj{"database": db, "cascade": true})
	require.NoError(t, err)
	s.fails(t, 404, "database_not_found", "GET", "/v1/databases/"+db, nil)
}
