package catalog

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/millrace/millrace/errs"
)

// specOf decodes a "create table" body on top of a keyed table t(id BIGINT, name
// STRING, f DOUBLE, b BOOLEAN, a ARRAY<INT>), so that a case says only what differs.
func specOf(t *testing.T, body string) Spec {
	t.Helper()
	spec := Spec{Name: "t", Columns: cols("id", "BIGINT", "name", "STRING", "f", "DOUBLE", "b", "BOOLEAN", "a", "ARRAY<INT>"), PrimaryKey: []string{"id"}}
	if err := json.Unmarshal([]byte(body), &spec); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return spec
}

// Every mistake in a table specification is refused with the contract's code and
// a message that names the thing at fault.
func TestSpecErrors(t *testing.T) {
	manyColumns := make([]string, 2001)
	for i := range manyColumns {
		manyColumns[i] = fmt.Sprintf(`{"name":"c%d","type":"INT"}`, i)
	}
	wideRow := "ROW<" + strings.TrimSuffix(strings.Repeat("f_ INT, ", 1), ", ") + ">"
	for i := range 1999 {
		wideRow = strings.TrimSuffix(wideRow, ">") + fmt.Sprintf(", f%d INT>", i)
	}
	for _, c := range []struct {
		body string
		code errs.Code
		says string
	}{
		{`{"name":""}`, errs.InvalidName, "empty"},
		{`{"name":"1t"}`, errs.InvalidName, "1t"},
		{`{"name":"a/../b"}`, errs.InvalidName, "a/../b"},
		{`{"name":"__x"}`, errs.InvalidName, "reserved"},
		{`{"name":"_bucket"}`, errs.InvalidName, "reserved"},
		{`{"name":"` + strings.Repeat("x", 201) + `"}`, errs.InvalidName, "201"},
		{`{"columns":[]}`, errs.InvalidSchema, "at least one column"},
		{`{"columns":[` + strings.Join(manyColumns, ",") + `],"primary_key":[]}`, errs.InvalidSchema, "2001 columns"},
		{`{"columns":[{"name":"id","type":"INT"},{"name":"_change_type","type":"INT"}]}`, errs.InvalidName, "_change_type"},
		{`{"columns":[{"name":"id","type":"INT"},{"name":"id","type":"INT"}]}`, errs.InvalidSchema, "twice"},
		{`{"columns":[{"name":"id","type":"INT"},{"name":"ID","type":"INT"}]}`, errs.InvalidSchema, "case only"},
		{`{"columns":[{"name":"id","type":"UUID"}]}`, errs.InvalidSchema, "UUID"},
		{`{"columns":[{"name":"id","type":"DECIMAL(39,0)"}]}`, errs.InvalidSchema, "DECIMAL"},
		{`{"columns":[{"name":"id","type":"INT"},{"name":"x","type":"` + strings.Repeat("ARRAY<", 17) + "INT" + strings.Repeat(">", 17) + `"}]}`, errs.InvalidSchema, "16"},
		{`{"columns":[{"name":"id","type":"INT"},{"name":"x1","type":"` + wideRow + `"},{"name":"x2","type":"` + wideRow + `"},{"name":"x3","type":"` +
			wideRow + `"},{"name":"x4","type":"` + wideRow + `"},{"name":"x5","type":"` + wideRow + `"}]}`, errs.InvalidSchema, "10006"},
		{`{"primary_key":["nope"]}`, errs.InvalidSchema, "nope"},
		{`{"primary_key":["ID"]}`, errs.InvalidSchema, "ID"},
		{`{"primary_key":["id","id"]}`, errs.InvalidSchema, "twice"},
		{`{"primary_key":["f"]}`, errs.InvalidSchema, "DOUBLE"},
		{`{"primary_key":["a"]}`, errs.InvalidSchema, "ARRAY"},
		{`{"columns":[{"name":"id","type":"INT","nullable":true}]}`, errs.InvalidSchema, "NOT NULL"},
		{`{"primary_key":["id","b"]}`, errs.InvalidSchema, "BOOLEAN"},
		{`{"bucket_key":["name"]}`, errs.InvalidSchema, "not in the primary key"},
		{`{"bucket_key":["id","id"]}`, errs.InvalidSchema, "twice"},
		{`{"primary_key":[],"bucket_key":["b"]}`, errs.InvalidSchema, "BOOLEAN"},
		{`{"primary_key":[],"bucket_key":["f"]}`, errs.InvalidSchema, "DOUBLE"},
		{`{"primary_key":[],"bucket_key":["nope"]}`, errs.InvalidSchema, "nope"},
		{`{"buckets":0}`, errs.InvalidSchema, "1 to 4096"},
		{`{"buckets":4097}`, errs.InvalidSchema, "1 to 4096"},
		{`{"buckets":-1}`, errs.InvalidSchema, "1 to 4096"},
		{`{"properties":{"bucket.num":"4097"}}`, errs.InvalidSchema, "1 to 4096"},
		{`{"properties":{"bucket.num":"x"}}`, errs.InvalidProperty, "bucket.num"},
		{`{"buckets":3,"properties":{"bucket.num":"4"}}`, errs.InvalidProperty, "same setting"},
		{`{"bucket_key":["id"],"properties":{"bucket.key":"name"}}`, errs.InvalidProperty, "same setting"},
		{`{"properties":{"bucket.key":"id,"}}`, errs.InvalidSchema, "not a column"},
		{`{"properties":{"table.nope":"1"}}`, errs.InvalidProperty, "table.nope"},
		{`{"properties":{"bucket.nope":"1"}}`, errs.InvalidProperty, "bucket.nope"},
		{`{"properties":{"fields.name.nope":"1"}}`, errs.InvalidProperty, "fields.name.nope"},
		{`{"properties":{"fields.nope.agg":"sum"}}`, errs.InvalidProperty, "not a column"},
		{`{"properties":{"fields.name.agg":"median"}}`, errs.InvalidProperty, "listagg"},
		{`{"properties":{"fields.name.agg":"max"}}`, errs.InvalidProperty, "aggregation"},
		{`{"properties":{"":"1"}}`, errs.InvalidProperty, "key of a property"},
		{`{"properties":{"table.log.ttl":"7 days"}}`, errs.InvalidProperty, "duration"},
		{`{"properties":{"table.changelog.image":"HALF"}}`, errs.InvalidProperty, "FULL, WAL"},
		{`{"properties":{"table.delete.behavior":"MAYBE"}}`, errs.InvalidProperty, "ALLOW, IGNORE, DISABLE"},
		{`{"properties":{"table.changelog.skip-unchanged":"yes"}}`, errs.InvalidProperty, "true or false"},
		{`{"properties":{"table.merge-engine":"newest"}}`, errs.InvalidProperty, "first_row"},
		{`{"properties":{"table.merge-engine.versioned.ver-column":"name"}}`, errs.InvalidProperty, "versioned"},
		{`{"properties":{"table.merge-engine":"versioned","table.merge-engine.versioned.ver-column":"nope"}}`, errs.InvalidProperty, "not a column"},
		{`{"properties":{"table.auto-partition.num-retention":"-1"}}`, errs.InvalidProperty, "whole number"},
		{`{"properties":{"table.datalake.format":"delta"}}`, errs.InvalidProperty, "iceberg, paimon"},
		{`{"primary_key":[],"properties":{"table.delete.behavior":"ALLOW"}}`, errs.InvalidProperty, "primary key"},
		{`{"properties":{"owner":"` + strings.Repeat("x", 800_000) + `"}}`, errs.InvalidSchema, "bytes"},

		{`{"properties":{"table.log.local-ttl":"soon"}}`, errs.InvalidProperty, "table.log.local-ttl"},
		{`{"properties":{"table.datalake.format":"paimon"}}`, errs.NotImplemented, "Paimon"},
	} {
		short := c.body[:min(len(c.body), 120)]
		tc := openMem(t)
		tc.mustCreateDatabase(t, "d")
		_, _, err := tc.CreateTable(t.Context(), "d", specOf(t, c.body), false)
		if errs.CodeOf(err) != c.code || !strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("%s\n\tgot  %q: %.200v\n\twant %q: …%s…", short, errs.CodeOf(err), err, c.code, c.says)
		}
	}
}

// The values that say what happens anyway are accepted for every known property,
// in any spelling of their type, and are kept as they were written.
func TestStandardProperties(t *testing.T) {
	props := map[string]string{"my.own": "", "x": "y"}
	for key, p := range known {
		if p.standard != "" {
			props[key] = p.standard
		}
	}
	props["table.log.ttl"], props["table.datalake.enabled"], props["table.datalake.freshness"] = "10080min", "FALSE", "180s"
	tc := openMem(t)
	tc.mustCreateDatabase(t, "d")
	spec := keyed("t", 1)
	spec.Properties = props
	if got := tc.mustCreate(t, "d", spec); !maps.Equal(got.Properties, props) {
		t.Errorf("properties %v, want %v", got.Properties, props)
	}
}

// A table with the most columns, and one with the deepest type, can be made.
func TestSpecLimits(t *testing.T) {
	tc := openMem(t)
	tc.mustCreateDatabase(t, "d")
	var wide Spec
	wide.Name = "wide"
	for i := range MaxColumns {
		wide.Columns = append(wide.Columns, ColumnSpec{Name: fmt.Sprintf("%s%04d", strings.Repeat("c", 196), i), Type: "TIMESTAMP_LTZ(9)"})
	}
	buckets := 4096
	wide.Buckets = &buckets
	if got := tc.mustCreate(t, "d", wide); got.LastColumnID != MaxColumns || len(got.Shards) != buckets {
		t.Errorf("wide table has last column id %d, %d shards of buckets", got.LastColumnID, len(got.Shards))
	}
	deep := Spec{Name: "deep", Columns: cols("x", strings.Repeat("ARRAY<", 16)+"INT"+strings.Repeat(">", 16))}
	if got := tc.mustCreate(t, "d", deep); got.LastColumnID != 17 {
		t.Errorf("deep table has last column id %d", got.LastColumnID)
	}
	tc.reopen(t)
}
