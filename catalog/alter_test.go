package catalog

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// steps reads the steps of an ALTER as requests spell them.
func steps(t testing.TB, text string) []AlterStep {
	t.Helper()
	var out []AlterStep
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&out); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return out
}

// shape is the columns of a table with the ids of all fields, in short.
func shape(cols []millrace.Column) string {
	parts := make([]string, len(cols))
	for i, c := range cols {
		parts[i] = fmt.Sprintf("%d %s %s", c.ID, c.Name, c.Type.Kind)
		if c.Type.Kind == millrace.Decimal {
			parts[i] = fmt.Sprintf("%d %s %s", c.ID, c.Name, c.Type)
		}
		if len(c.Type.Children) > 0 {
			parts[i] += "<" + shape(c.Type.Children) + ">"
		}
		if !c.Nullable {
			parts[i] += "!"
		}
	}
	return strings.Join(parts, ", ")
}

// wide is a keyed table for ALTER: key columns, numbers to widen and nested types.
func wide(t testing.TB, tc *testCatalog, properties map[string]string) *millrace.Table {
	t.Helper()
	tc.mustCreateDatabase(t, "d")
	return tc.mustCreate(t, "d", Spec{
		Name: "t", PrimaryKey: []string{"id", "dt"}, PartitionBy: []string{"dt"}, Properties: properties,
		Columns: append(cols("id", "INT", "dt", "STRING", "n", "INT", "f", "FLOAT", "d", "DECIMAL(10,2)", "a", "ROW<zip STRING, n INT, deep ROW<x FLOAT>>",
			"l", "ARRAY<ROW<sku STRING, n INT>>", "m", "MAP<INT, ROW<v INT>>"), ColumnSpec{Name: "auto", Type: "INT", AutoIncrement: true}),
	})
}

const wideShape = "1 id INT!, 2 dt STRING!, 3 n INT, 4 f FLOAT, 5 d DECIMAL(10,2), 6 a ROW<7 zip STRING, 8 n INT, 9 deep ROW<10 x FLOAT>>, " +
	"11 l ARRAY<12 element ROW<13 sku STRING, 14 n INT>>, 15 m MAP<16 key INT!, 17 value ROW<18 v INT>>, 19 auto INT"

// Each step does to the columns what it says, by id, and the rest stays as it is.
func TestAlterColumns(t *testing.T) {
	for _, c := range []struct{ steps, old, is string }{
		{`[{"op":"add_column","column":{"name":"x","type":"STRING"}}]`, "19 auto INT", "19 auto INT, 20 x STRING"},
		{`[{"op":"add_column","column":{"name":"x","type":"INT","nullable":true,"comment":"c"},"first":true}]`, "1 id", "20 x INT, 1 id"},
		{`[{"op":"add_column","column":{"name":"x","type":"ROW<y INT, z ARRAY<INT>>"},"after":"n"}]`, "3 n INT", "3 n INT, 20 x ROW<21 y INT, 22 z ARRAY<23 element INT>>"},
		{`[{"op":"add_column","column":{"name":"a.x","type":"INT"},"after":"zip"}]`, "7 zip STRING", "7 zip STRING, 20 x INT"},
		{`[{"op":"add_column","column":{"name":"a.deep.y","type":"INT"},"after":"a.deep.x"}]`, "10 x FLOAT", "10 x FLOAT, 20 y INT"},
		{`[{"op":"add_column","column":{"name":"l.element.x","type":"INT"},"first":true}]`, "13 sku", "20 x INT, 13 sku"},
		{`[{"op":"add_column","column":{"name":"m.value.x","type":"INT"}}]`, "18 v INT", "18 v INT, 20 x INT"},
		{`[{"op":"rename_column","name":"id","to":"key"}]`, "1 id", "1 key"},
		{`[{"op":"rename_column","name":"n","to":"N"}]`, "3 n", "3 N"},
		{`[{"op":"rename_column","name":"a.deep.x","to":"y"}]`, "10 x", "10 y"},
		{`[{"op":"rename_column","name":"n","to":"tmp"},{"op":"rename_column","name":"f","to":"n"},{"op":"rename_column","name":"tmp","to":"f"}]`, "3 n INT, 4 f FLOAT", "3 f INT, 4 n FLOAT"},
		{`[{"op":"drop_column","name":"n"}]`, "3 n INT, ", ""},
		{`[{"op":"drop_column","name":"a"}]`, "6 a ROW<7 zip STRING, 8 n INT, 9 deep ROW<10 x FLOAT>>, ", ""},
		{`[{"op":"drop_column","name":"a.deep"}]`, ", 9 deep ROW<10 x FLOAT>", ""},
		{`[{"op":"drop_column","name":"l.element.n"}]`, ", 14 n INT", ""},
		{`[{"op":"drop_column","name":"n"},{"op":"add_column","column":{"name":"n","type":"STRING"},"after":"dt"}]`, "3 n INT", "20 n STRING"},
		{`[{"op":"alter_type","name":"n","type":"bigint"}]`, "3 n INT", "3 n BIGINT"},
		{`[{"op":"alter_type","name":"f","type":"DOUBLE PRECISION"}]`, "4 f FLOAT", "4 f DOUBLE"},
		{`[{"op":"alter_type","name":"d","type":"DECIMAL(38,2)"}]`, "DECIMAL(10,2)", "DECIMAL(38,2)"},
		{`[{"op":"alter_type","name":"auto","type":"BIGINT"}]`, "19 auto INT", "19 auto BIGINT"},
		{`[{"op":"alter_type","name":"a.n","type":"BIGINT"}]`, "8 n INT", "8 n BIGINT"},
		{`[{"op":"alter_type","name":"a.deep.x","type":"DOUBLE"}]`, "10 x FLOAT", "10 x DOUBLE"},
		{`[{"op":"alter_type","name":"l.element.n","type":"BIGINT"}]`, "14 n INT", "14 n BIGINT"},
	} {
		tc := openMem(t)
		was := wide(t, tc, nil)
		if got := shape(was.Schema.Columns); got != wideShape {
			t.Fatal(got)
		}
		got, err := tc.AlterTable(t.Context(), was.Path, steps(t, c.steps), nil)
		if err != nil {
			t.Errorf("%s: %v", c.steps, err)
			continue
		}
		want := strings.Replace(wideShape, c.old, c.is, 1)
		if shape(got.Schema.Columns) != want || got.Version != 2 || got.Schema.ID != 2 || got.ID != was.ID {
			t.Errorf("%s:\n\tgot  %s (schema %d, version %d)\n\twant %s", c.steps, shape(got.Schema.Columns), got.Schema.ID, got.Version, want)
		}
		if shape(was.Schema.Columns) != wideShape {
			t.Errorf("%s changed the descriptor that was there", c.steps)
		}
		before := describe(t, tc.Catalog)
		tc.reopen(t)
		if d := cmp.Diff(before, describe(t, tc.Catalog)); d != "" {
			t.Errorf("%s, after a restart: (-want +got)\n%s", c.steps, d)
		}
		if schemas, err := tc.Schemas(t.Context(), was.ID); err != nil || len(schemas) != 2 || shape(schemas[0].Columns) != wideShape {
			t.Errorf("%s: schemas %v, %v", c.steps, schemas, err)
		}
	}
}

// An ALTER that must not be is refused with its reason, and changes nothing, also
// when steps before it could be taken.
func TestAlterErrors(t *testing.T) {
	many := make([]string, MaxAlterSteps+1)
	for i := range many {
		many[i] = fmt.Sprintf(`{"op":"add_column","column":{"name":"x%d","type":"INT"}}`, i)
	}
	deep := strings.Repeat("ARRAY<", 15) + "INT" + strings.Repeat(">", 15)
	for _, c := range []struct {
		steps string
		code  errs.Code
		says  string
	}{
		{`[]`, errs.InvalidValue, "1 to 1000"},
		{`[` + strings.Join(many, ",") + `]`, errs.InvalidValue, "1001 steps"},
		{`[{"op":"truncate"}]`, errs.InvalidValue, "add_column"},
		{`[{"op":"rename_column","name":"n"}]`, errs.InvalidValue, `"to"`},
		{`[{"op":"rename_column","name":"n","to":"x","type":"INT"}]`, errs.UnknownField, `"type"`},
		{`[{"op":"drop_column","name":"n","keys":["x"]}]`, errs.UnknownField, `"keys"`},
		{`[{"op":"set_comment","name":"n"}]`, errs.InvalidValue, `"comment"`},
		{`[{"op":"set_properties","properties":{}}]`, errs.InvalidValue, `"properties"`},

		{`[{"op":"add_column","column":{"name":"N","type":"INT"}}]`, errs.InvalidSchema, "case only"},
		{`[{"op":"add_column","column":{"name":"a.zip","type":"INT"}}]`, errs.InvalidSchema, "twice"},
		{`[{"op":"add_column","column":{"name":"__x","type":"INT"}}]`, errs.InvalidName, "reserved"},
		{`[{"op":"add_column","column":{"name":"a.1","type":"INT"}}]`, errs.InvalidName, "1"},
		{`[{"op":"add_column","column":{"name":"x","type":"UUID"}}]`, errs.InvalidSchema, "UUID"},
		{`[{"op":"add_column","column":{"name":"x","type":"INT","nullable":false}}]`, errs.InvalidSchema, "nullable"},
		{`[{"op":"add_column","column":{"name":"x","type":"INT","auto_increment":true}}]`, errs.InvalidSchema, "created"},
		{`[{"op":"add_column","column":{"name":"x","type":"INT"},"after":"y"}]`, errs.UnknownColumn, `"y"`},
		{`[{"op":"add_column","column":{"name":"x","type":"INT"},"after":"a.zip"}]`, errs.UnknownColumn, `"a.zip"`},
		{`[{"op":"add_column","column":{"name":"x","type":"INT"},"after":"n","first":true}]`, errs.InvalidValue, "not both"},
		{`[{"op":"add_column","column":{"name":"n.x","type":"INT"}}]`, errs.InvalidSchema, "INT"},
		{`[{"op":"add_column","column":{"name":"l.x","type":"INT"}}]`, errs.InvalidSchema, "ARRAY"},
		{`[{"op":"add_column","column":{"name":"b.x","type":"INT"}}]`, errs.UnknownColumn, `"b"`},
		{`[{"op":"add_column","column":{"name":"a.deep.y","type":"` + deep + `"}}]`, errs.InvalidSchema, "16 levels"},
		{`[` + strings.Join(many[:5], ",") + `,{"op":"add_column","column":{"name":"x4","type":"INT"}}]`, errs.InvalidSchema, "ops[5], add_column"},

		{`[{"op":"rename_column","name":"x","to":"y"}]`, errs.UnknownColumn, `"x"`},
		{`[{"op":"rename_column","name":"N","to":"y"}]`, errs.UnknownColumn, `"N"`},
		{`[{"op":"rename_column","name":"n","to":"F"}]`, errs.InvalidSchema, "case only"},
		{`[{"op":"rename_column","name":"n","to":"_bucket"}]`, errs.InvalidName, "reserved"},
		{`[{"op":"rename_column","name":"n","to":"a.b"}]`, errs.InvalidName, "a.b"},
		{`[{"op":"rename_column","name":"dt","to":"day"}]`, errs.InvalidSchema, "names of partitions"},
		{`[{"op":"rename_column","name":"l.element","to":"item"}]`, errs.InvalidSchema, "ARRAY"},
		{`[{"op":"rename_column","name":"m.key","to":"k"}]`, errs.InvalidSchema, "key of a MAP"},

		{`[{"op":"drop_column","name":"x"}]`, errs.UnknownColumn, `"x"`},
		{`[{"op":"drop_column","name":"id"}]`, errs.InvalidSchema, "primary key"},
		{`[{"op":"drop_column","name":"dt"}]`, errs.InvalidSchema, "primary key"},
		{`[{"op":"drop_column","name":"auto"}]`, errs.InvalidSchema, "auto_increment"},
		{`[{"op":"drop_column","name":"a.deep.x"}]`, errs.InvalidSchema, "last one"},
		{`[{"op":"drop_column","name":"m.value"}]`, errs.InvalidSchema, "MAP"},
		{`[{"op":"drop_column","name":"n"},{"op":"drop_column","name":"n"}]`, errs.UnknownColumn, "ops[1], drop_column"},

		{`[{"op":"alter_type","name":"n","type":"SMALLINT"}]`, errs.InvalidSchema, "losing data"},
		{`[{"op":"alter_type","name":"n","type":"DOUBLE"}]`, errs.InvalidSchema, "losing data"},
		{`[{"op":"alter_type","name":"n","type":"STRING"}]`, errs.InvalidSchema, "losing data"},
		{`[{"op":"alter_type","name":"d","type":"DECIMAL(9,2)"}]`, errs.InvalidSchema, "losing data"},
		{`[{"op":"alter_type","name":"d","type":"DECIMAL(12,3)"}]`, errs.InvalidSchema, "losing data"},
		{`[{"op":"alter_type","name":"n","type":"INT("}]`, errs.InvalidSchema, "type"},
		{`[{"op":"alter_type","name":"id","type":"BIGINT"}]`, errs.InvalidSchema, "primary key"},
		{`[{"op":"alter_type","name":"m.key","type":"BIGINT"}]`, errs.InvalidSchema, "key of a MAP"},
		{`[{"op":"alter_type","name":"a","type":"ROW<zip STRING>"}]`, errs.InvalidSchema, "a.zip"},
		{`[{"op":"alter_type","name":"n","type":"BIGINT"},{"op":"alter_type","name":"n","type":"INT"}]`, errs.InvalidSchema, "losing data"},

		{`[{"op":"set_comment","name":"x","comment":"c"}]`, errs.UnknownColumn, `"x"`},
		{`[{"op":"set_comment","comment":"` + strings.Repeat("x", 800_000) + `"}]`, errs.InvalidSchema, "bytes"},

		{`[{"op":"set_properties","properties":{"table.nope":"1"}}]`, errs.InvalidProperty, "table.nope"},
		{`[{"op":"set_properties","properties":{"table.log.ttl":"soon"}}]`, errs.InvalidProperty, "duration"},
		{`[{"op":"set_properties","properties":{"table.merge-engine":"first_row"}}]`, errs.InvalidProperty, "created"},
		{`[{"op":"set_properties","properties":{"table.changelog.image":"WAL"}}]`, errs.InvalidProperty, "created"},
		{`[{"op":"set_properties","properties":{"table.datalake.format":"paimon"}}]`, errs.NotImplemented, "Paimon"},
		{`[{"op":"set_properties","properties":{"bucket.num":"2"}}]`, errs.InvalidProperty, "created"},
		{`[{"op":"set_properties","properties":{"bucket.key":"n"}}]`, errs.InvalidProperty, "created"},
		{`[{"op":"set_properties","properties":{"bucket.num":"x"}}]`, errs.InvalidProperty, "number"},
		{`[{"op":"set_properties","properties":{"table.auto-partition.key":"n"}}]`, errs.InvalidProperty, "not in partition_by"},
		{`[{"op":"reset_properties","keys":["table.nope"]}]`, errs.InvalidProperty, "table.nope"},
		{`[{"op":"reset_properties","keys":["bucket.num"]}]`, errs.InvalidProperty, "created"},
	} {
		short := c.steps[:min(len(c.steps), 120)]
		tc := openMem(t)
		was := wide(t, tc, nil)
		before := describe(t, tc.Catalog)
		if len(c.steps) > 2 {
			c.steps = `[{"op":"set_comment","comment":"changed"},` + c.steps[1:]
			c.says = strings.NewReplacer("ops[1]", "ops[2]", "ops[5]", "ops[6]", "1001 steps", "1002 steps").Replace(c.says)
		}
		_, err := tc.AlterTable(t.Context(), was.Path, steps(t, c.steps), nil)
		if errs.CodeOf(err) != c.code || !strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("%s\n\tgot  %q: %.300v\n\twant %q: …%s…", short, errs.CodeOf(err), err, c.code, c.says)
		}
		if d := cmp.Diff(before, describe(t, tc.Catalog)); d != "" {
			t.Errorf("%s changed the catalog:\n%s", short, d)
		}
	}
}

// Columns that a merge engine hangs on are not dropped, and are called by their new
// names after a rename, in properties too.
func TestAlterEngines(t *testing.T) {
	alter := func(tc *testCatalog, text string) (*millrace.Table, error) {
		return tc.AlterTable(t.Context(), millrace.TablePath{Database: "d", Table: "t"}, steps(t, text), nil)
	}
	tc := openMem(t)
	was := wide(t, tc, map[string]string{"table.merge-engine": "Versioned", "table.merge-engine.versioned.ver-column": "n", "owner": "n"})
	if _, err := alter(tc, `[{"op":"drop_column","name":"n"}]`); !errs.Is(err, errs.InvalidSchema) || !strings.Contains(err.Error(), "version") {
		t.Error(err)
	}
	got, err := alter(tc, `[{"op":"rename_column","name":"n","to":"ver"},{"op":"alter_type","name":"ver","type":"BIGINT"}]`)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"table.merge-engine": "Versioned", "table.merge-engine.versioned.ver-column": "ver", "owner": "n"}
	if !maps.Equal(got.Properties, want) || !cmp.Equal(got.Options, was.Options) || got.Options.VersionColumn != 3 {
		t.Errorf("%v, %+v", got.Properties, got.Options)
	}
	for _, text := range []string{
		`[{"op":"set_properties","properties":{"table.merge-engine.versioned.ver-column":"auto"}}]`,
		`[{"op":"add_column","column":{"name":"w","type":"INT"}},{"op":"set_properties","properties":{"table.merge-engine.versioned.ver-column":"w"}}]`,
		`[{"op":"reset_properties","keys":["table.merge-engine","table.merge-engine.versioned.ver-column"]}]`,
		`[{"op":"set_properties","properties":{"table.delete.behavior":"ALLOW"}}]`,
	} {
		if _, err := alter(tc, text); !errs.Is(err, errs.InvalidProperty) {
			t.Errorf("%s: %v", text, err)
		}
	}

	tc = openMem(t)
	props := map[string]string{"table.merge-engine": "aggregation", "fields.n.agg": "sum", "fields.m.agg": "last_value"}
	was = wide(t, tc, props)
	if _, err := alter(tc, `[{"op":"drop_column","name":"n"}]`); !errs.Is(err, errs.InvalidSchema) || !strings.Contains(err.Error(), "fields.n.agg") {
		t.Error(err)
	}
	long := strings.Repeat("n", millrace.MaxNameBytes)
	got, err = alter(tc, `[{"op":"rename_column","name":"n","to":"`+long+`"},{"op":"alter_type","name":"`+long+`","type":"BIGINT"}]`)
	if err != nil {
		t.Fatal(err)
	}
	if got.Properties["fields."+long+".agg"] != "sum" || len(got.Properties) != 3 || !cmp.Equal(got.Options, was.Options) {
		t.Errorf("%v, %+v", got.Properties, got.Options)
	}
	for _, text := range []string{
		`[{"op":"set_properties","properties":{"fields.f.agg":"max"}}]`,
		`[{"op":"reset_properties","keys":["fields.m.agg"]}]`,
	} {
		if _, err := alter(tc, text); !errs.Is(err, errs.InvalidProperty) || !strings.Contains(err.Error(), "created") {
			t.Errorf("%s: %v", text, err)
		}
	}
	before := got
	tc.reopen(t)
	if got, err := tc.Table(t.Context(), was.Path); err != nil || cmp.Diff(before, got) != "" {
		t.Errorf("after a restart: %v, %v", got, err)
	}
}

// Properties that may change do, and are resolved; what changes nothing leaves the
// version, and what changes no column the schema.
func TestAlterProperties(t *testing.T) {
	tc := openMem(t)
	was := wide(t, tc, map[string]string{"owner": "a", "table.log.ttl": "1d"})
	revision := tc.Revision()
	for _, text := range []string{
		`[{"op":"set_properties","properties":{"owner":"a","bucket.num":"1","bucket.key":"id"}}]`,
		`[{"op":"reset_properties","keys":["no.such.key","table.partition.dynamic"]}]`,
		`[{"op":"alter_type","name":"n","type":"INTEGER"},{"op":"rename_column","name":"n","to":"n"},{"op":"set_comment","comment":""}]`,
		`[{"op":"add_column","column":{"name":"x","type":"INT"}},{"op":"drop_column","name":"x"}]`,
		`[{"op":"rename_column","name":"n","to":"x"},{"op":"rename_column","name":"x","to":"n"}]`,
	} {
		if got, err := tc.AlterTable(t.Context(), was.Path, steps(t, text), nil); err != nil || got != was || tc.Revision() != revision {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	if tc.FeatureLevel() != FeatureTables {
		t.Error(tc.FeatureLevel())
	}
	got, err := tc.AlterTable(t.Context(), was.Path, steps(t, `[{"op":"set_properties","properties":{"table.log.ttl":"0","table.changelog.skip-unchanged":"true",
		"table.delete.behavior":"disable","table.partition.dynamic":"false","table.auto-partition.enabled":"true","my.key":"v"}},
		{"op":"reset_properties","keys":["owner"]},{"op":"set_comment","comment":"new"}]`), new(int64(1)))
	if err != nil {
		t.Fatal(err)
	}
	want := millrace.TableOptions{
		LogTTL: -1, SkipUnchanged: true, Deletes: millrace.DisableDeletes, FixedPartitions: true,
		AutoPartition: &millrace.AutoPartition{Column: 2, Unit: millrace.Daily, Precreate: 2, Retain: 7},
	}
	if d := cmp.Diff(want, got.Options); d != "" || got.Version != 2 || got.Schema != was.Schema || got.Comment != "new" || got.Properties["my.key"] != "v" || got.Properties["owner"] != "" {
		t.Errorf("%+v\n%s", got, d)
	}
	// A comment of a column is part of the schema.
	got, err = tc.AlterTable(t.Context(), was.Path, steps(t, `[{"op":"set_comment","name":"a.zip","comment":"post code"},
		{"op":"reset_properties","keys":["table.log.ttl","table.auto-partition.enabled","table.delete.behavior","table.changelog.skip-unchanged","table.partition.dynamic"]}]`), nil)
	if err != nil || got.Version != 3 || got.Schema.ID != 2 || got.Schema.Columns[5].Type.Children[0].Comment != "post code" || !isZero(got.Options) {
		t.Errorf("%+v, %v", got, err)
	}
	tc.reopen(t)
	if again, err := tc.TableByID(t.Context(), was.ID); err != nil || !cmp.Equal(again, got) {
		t.Errorf("after a restart: %+v, %v", again, err)
	}
}

// An ALTER that names a version changes that version or nothing, and ids go on
// where they were, also after a restart and for what was dropped.
func TestAlterVersions(t *testing.T) {
	tc := openMem(t)
	tc.mustCreateDatabase(t, "d")
	plain := tc.mustCreate(t, "d", keyed("t", 1))
	if tc.FeatureLevel() != FeatureBase {
		t.Error(tc.FeatureLevel())
	}
	alter := func(text string, version *int64) (*millrace.Table, error) {
		return tc.AlterTable(t.Context(), plain.Path, steps(t, text), version)
	}
	got, err := alter(`[{"op":"add_column","column":{"name":"x","type":"INT"}}]`, new(int64(1)))
	if err != nil || got.Version != 2 || tc.FeatureLevel() != FeatureTables {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, text := range []string{`[{"op":"drop_column","name":"x"}]`, `[{"op":"set_comment","comment":""}]`} {
		if _, err := alter(text, new(int64(1))); !errs.Is(err, errs.VersionMismatch) || !strings.Contains(err.Error(), "version 2") {
			t.Errorf("%s: %v", text, err)
		}
	}
	if got, err := alter(`[{"op":"drop_column","name":"x"}]`, new(int64(2))); err != nil || got.Version != 3 || got.Schema.ID != 3 {
		t.Errorf("%+v, %v", got, err)
	}
	tc.reopen(t)
	if got, err := alter(`[{"op":"add_column","column":{"name":"x","type":"INT"}}]`, nil); err != nil || shape(got.Schema.Columns) != "1 id BIGINT!, 2 v STRING, 4 x INT" {
		t.Errorf("%+v, %v", got, err)
	}
	for path, code := range map[millrace.TablePath]errs.Code{{Database: "d", Table: "nope"}: errs.TableNotFound, {Database: "nope", Table: "t"}: errs.DatabaseNotFound} {
		if _, err := tc.AlterTable(t.Context(), path, steps(t, `[{"op":"drop_column","name":"x"}]`), nil); !errs.Is(err, code) {
			t.Error(err)
		}
	}
}

// A table has no more columns, fields and schemas than it could be made with.
func TestAlterLimits(t *testing.T) {
	tc := openMem(t)
	tc.mustCreateDatabase(t, "d")
	spec := Spec{Name: "t"}
	for i := range MaxColumns {
		spec.Columns = append(spec.Columns, ColumnSpec{Name: fmt.Sprint("c", i), Type: "ROW<a INT, b INT, c INT, d INT>"})
	}
	table := tc.mustCreate(t, "d", spec) // 10,000 fields
	for text, says := range map[string]string{
		`[{"op":"add_column","column":{"name":"x","type":"INT"}}]`:                                              "2001 columns",
		`[{"op":"add_column","column":{"name":"c0.x","type":"INT"}}]`:                                           "10001 columns and nested fields",
		`[{"op":"drop_column","name":"c0.a"},{"op":"add_column","column":{"name":"c1.x","type":"ARRAY<INT>"}}]`: "10001 columns and nested fields",
	} {
		if _, err := tc.AlterTable(t.Context(), table.Path, steps(t, text), nil); !errs.Is(err, errs.InvalidSchema) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", text, err)
		}
	}
	// Fields that were dropped do not count.
	if got, err := tc.AlterTable(t.Context(), table.Path, steps(t, `[{"op":"drop_column","name":"c0.a"},{"op":"add_column","column":{"name":"c1.x","type":"INT"}}]`), nil); err != nil || got.LastColumnID != MaxFields+1 {
		t.Error(err)
	}
	entry := tc.current.Load().tables[table.ID]
	full := *entry
	for len(full.schemas) < maxSchemas {
		full.schemas = append(full.schemas, entry.schemas[0])
	}
	if _, err := full.alter(steps(t, `[{"op":"drop_column","name":"c0"}]`)); !errs.Is(err, errs.InvalidSchema) || !strings.Contains(err.Error(), "new table") {
		t.Error(err)
	}
	if _, err := full.alter(steps(t, `[{"op":"set_comment","comment":"still"}]`)); err != nil {
		t.Error(err)
	}
}
