package e2e

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is almost right is refused with its code, and nothing of it is written.
func TestRefusedWrites(t *testing.T) {
	t.Parallel()
	s := shared(t)
	db := newDB(t, s)
	prices := create(t, s, db, "prices", "region STRING, id BIGINT, name STRING NOT NULL, cents INT", "region,id", 2)
	ships := create(t, s, db, "ships", "id BIGINT, seen BIGINT, port STRING", "id", 1,
		obj{"properties": obj{"table.merge-engine": "versioned", "table.merge-engine.versioned.ver-column": "seen"}})
	totals := create(t, s, db, "totals", "id BIGINT, n INT, d DECIMAL(3,0)", "id", 1,
		obj{"properties": obj{"table.merge-engine": "aggregation", "fields.n.agg": "sum", "fields.d.agg": "product"}})
	kept := create(t, s, db, "kept", "id BIGINT, v STRING", "id", 1, obj{"properties": obj{"table.delete.behavior": "DISABLE"}})
	totals.write(t, `[{"id":1,"n":2147483647,"d":"99"}]`)
	kept.write(t, `[{"id":1,"v":"a"}]`)
	ships.write(t, `[{"id":1,"seen":5,"port":"Bergen"}]`)
	numbered := create(t, s, db, "numbered", "id BIGINT, v STRING", "", 1)
	s.ok(t, "POST", numbered.path()+"/records", recordsBody(`[{"id":1}]`), "X-Writer-Id", "w", "X-Writer-Seq", "7")
	s.ok(t, "POST", numbered.path()+"/records", recordsBody(`[{"id":2}]`), "Idempotency-Key", "k")
	for _, c := range []struct {
		name, code string
		status     int
		tb         table
		body       any
		headers    []string
	}{
		{"stray values in a partial update", "unknown_field", 422, prices, recordsBody(`[{"region":"eu","id":1,"cents":5,"name":"x"}]`, `"columns":["region","id","cents"]`), nil},
		{"a partial update without part of the key", "missing_key", 422, prices, recordsBody(`[{"id":1,"cents":5}]`, `"columns":["id","cents"]`), nil},
		{"a partial update without a NOT NULL column", "missing_column", 422, prices, recordsBody(`[{"region":"eu","id":1,"cents":5}]`, `"columns":["region","id","cents"]`), nil},
		{"a partial update of a versioned row", "partial_update_not_allowed", 422, ships, recordsBody(`[{"id":1,"port":"Oslo"}]`, `"columns":["id","port"]`), nil},
		{"a sum beyond its type", "integer_overflow", 422, totals, recordsBody(`[{"id":1,"n":1}]`), nil},
		{"a product beyond its digits", "integer_overflow", 422, totals, recordsBody(`[{"id":1,"d":"99"}]`), nil},
		{"a delete where there are none", "delete_disabled", 422, kept, recordsBody(`[{"id":1}]`, `"mode":"delete"`), nil},
		{"a delete among upserts", "delete_disabled", 422, kept, recordsBody(`[{"_change_type":"-D","id":1}]`), nil},
		{"a late sequence", "out_of_order_sequence", 409, numbered, recordsBody(`[{"id":3}]`), []string{"X-Writer-Id", "w", "X-Writer-Seq", "3"}},
		{"a key with another body", "idempotency_key_reused", 422, numbered, recordsBody(`[{"id":3}]`), []string{"Idempotency-Key", "k"}},
		{"a key that is none", "invalid_value", 422, numbered, recordsBody(`[{"id":3}]`), []string{"Idempotency-Key", "kéy"}},
		{"a key and a writer", "invalid_request", 400, numbered, recordsBody(`[{"id":3}]`), []string{"Idempotency-Key", "k2", "X-Writer-Id", "w", "X-Writer-Seq", "8"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.fails(t, c.status, c.code, "POST", c.tb.path()+"/records", c.body, c.headers...)
		})
	}
	require.Empty(t, prices.scan(t, obj{}))
	require.Equal(t, []string{`{"id":1,"n":2147483647,"d":"99"}`}, totals.scan(t, obj{}))
	require.Equal(t, []string{`{"id":1,"v":"a"}`}, kept.scan(t, obj{}))
	require.Equal(t, "2", numbered.count(t, ""))

	// NULL is the lowest version: it loses against any, and wins against none but NULL.
	ships.write(t, `[{"id":1,"seen":null,"port":"Oslo"},{"id":2,"seen":null,"port":"Oslo"},{"id":2,"seen":null,"port":"Moss"}]`)
	require.Equal(t, []string{`{"id":1,"seen":5,"port":"Bergen"}`, `{"id":2,"seen":null,"port":"Moss"}`}, ships.scan(t, obj{}))
}

// A definition that makes no sense is refused when the table is created.
func TestRefusedTables(t *testing.T) {
	t.Parallel()
	s := shared(t)
	db := newDB(t, s)
	keyed := func(more obj) obj {
		o := obj{"name": "t", "columns": columnList("id BIGINT, n INT, s STRING, f DOUBLE, dt STRING"), "primary_key": []string{"id"}}
		maps.Copy(o, more)
		return o
	}
	properties := func(kv ...string) obj {
		p := obj{}
		for i := 0; i < len(kv); i += 2 {
			p[kv[i]] = kv[i+1]
		}
		return keyed(obj{"properties": p})
	}
	for name, c := range map[string]struct {
		code string
		body obj
	}{
		"an engine that is none":              {"invalid_property", properties("table.merge-engine", "lottery")},
		"versions of nothing":                 {"invalid_property", properties("table.merge-engine", "versioned")},
		"versions that are text":              {"invalid_property", properties("table.merge-engine", "versioned", "table.merge-engine.versioned.ver-column", "s")},
		"versions in the key":                 {"invalid_property", properties("table.merge-engine", "versioned", "table.merge-engine.versioned.ver-column", "id")},
		"a sum of text":                       {"invalid_property", properties("table.merge-engine", "aggregation", "fields.s.agg", "sum")},
		"a sum of the key":                    {"invalid_property", properties("table.merge-engine", "aggregation", "fields.id.agg", "sum")},
		"an aggregate of nothing":             {"invalid_property", properties("table.merge-engine", "aggregation", "fields.x.agg", "sum")},
		"an aggregate without its engine":     {"invalid_property", properties("fields.n.agg", "sum")},
		"an image that is none":               {"invalid_property", properties("table.changelog.image", "SELFIE")},
		"a partition column that is none":     {"invalid_schema", keyed(obj{"partition_by": []string{"x"}})},
		"a partition column outside the key":  {"invalid_schema", keyed(obj{"partition_by": []string{"dt"}})},
		"a partition by DOUBLE":               {"invalid_schema", keyed(obj{"partition_by": []string{"f"}, "primary_key": []string{"id", "f"}})},
		"auto-partition without partitions":   {"invalid_property", properties("table.auto-partition.enabled", "true", "table.auto-partition.time-unit", "DAY")},
		"a time to live that is none":         {"invalid_property", properties("table.log.ttl", "soon")},
		"a lake in Paimon":                    {"not_implemented", properties("table.datalake.enabled", "true", "table.datalake.format", "paimon")},
		"a lake as fresh as nothing":          {"invalid_property", properties("table.datalake.enabled", "true", "table.datalake.freshness", "0s")},
		"times that the lake cannot hold":     {"unsupported_by_lake", obj{"name": "t", "columns": columnList("id TIMESTAMP(9)"), "properties": obj{"table.datalake.enabled": "true"}}},
		"an auto-increment key":               {"invalid_schema", obj{"name": "t", "columns": []obj{{"name": "id", "type": "BIGINT", "auto_increment": true}}, "primary_key": []string{"id"}}},
		"an auto-increment text":              {"invalid_schema", obj{"name": "t", "columns": []obj{{"name": "id", "type": "BIGINT"}, {"name": "n", "type": "STRING", "auto_increment": true}}, "primary_key": []string{"id"}}},
		"an auto-increment log":               {"invalid_schema", obj{"name": "t", "columns": []obj{{"name": "id", "type": "BIGINT", "auto_increment": true}}}},
		"image WAL for aggregates":            {"invalid_property", properties("table.merge-engine", "aggregation", "table.changelog.image", "WAL")},
		"a bucket key outside the key":        {"invalid_schema", keyed(obj{"bucket_key": []string{"n"}})},
		"a delete behaviour of a log":         {"invalid_property", obj{"name": "t", "columns": columnList("id BIGINT"), "properties": obj{"table.delete.behavior": "IGNORE"}}},
		"partitions that are dynamic, or not": {"invalid_property", properties("table.partition.dynamic", "perhaps")},
	} {
		t.Run(name, func(t *testing.T) {
			status := 422
			if c.code == "not_implemented" {
				status = 501
			}
			s.fails(t, status, c.code, "POST", "/v1/databases/"+db+"/tables", c.body)
		})
	}
	require.Empty(t, s.ok(t, "GET", "/v1/databases/"+db+"/tables", nil)["tables"])
}
