package catalog

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// lakeDefaults is what table.datalake.enabled alone says of a keyed table.
func lakeDefaults(change func(*millrace.LakeOptions)) *millrace.LakeOptions {
	o := &millrace.LakeOptions{
		Enabled: true, Format: millrace.Iceberg, Freshness: 3 * time.Minute, Compact: true, Expire: true,
		TargetFileBytes: 128 << 20, Deletes: millrace.PositionDeletes,
	}
	change(o)
	return o
}

const onlyLog = `"columns":[{"name":"id","type":"BIGINT"},{"name":"at","type":"TIMESTAMP(6)"}],"primary_key":[]`

// What table.datalake says comes out in the options, raises the feature level, and
// is the same after a restart.
func TestLakeOptions(t *testing.T) {
	for _, c := range []struct {
		body, properties string
		want             *millrace.LakeOptions
	}{
		{everyType, `{}`, nil},
		{everyType, `{"table.datalake.enabled":"FALSE","table.datalake.freshness":"1s","table.datalake.iceberg.delete-mode":"rewrite"}`, nil},
		{everyType, `{"table.datalake.enabled":"True"}`, lakeDefaults(func(*millrace.LakeOptions) {})},
		{onlyLog, `{"table.datalake.enabled":"true"}`, lakeDefaults(func(o *millrace.LakeOptions) { o.Deletes = "" })},
		{
			everyType, `{"table.datalake.enabled":"true","table.datalake.format":"ICEBERG","table.datalake.freshness":"5s","table.datalake.auto-compaction":"false",
			"table.datalake.target-file-size":"1mib","table.datalake.iceberg.delete-mode":"Rewrite","table.datalake.expire-snapshots":"true"}`,
			lakeDefaults(func(o *millrace.LakeOptions) {
				o.Freshness, o.Compact, o.TargetFileBytes, o.Deletes = 5*time.Second, false, 1<<20, millrace.RewriteFiles
			}),
		},
		{
			everyType, `{"table.datalake.enabled":"true","table.datalake.system-columns":"true","table.datalake.expire-snapshots":"false","table.datalake.freshness":"30d"}`,
			lakeDefaults(func(o *millrace.LakeOptions) { o.SystemColumns, o.Expire, o.Freshness = true, false, 30*24*time.Hour }),
		},
	} {
		tc := openMem(t)
		tc.mustCreateDatabase(t, "d")
		got := tc.mustCreate(t, "d", specOf(t, `{`+c.body+`,"properties":`+c.properties+`}`))
		if d := cmp.Diff(c.want, got.Options.Lake); d != "" {
			t.Errorf("%s: (-want +got)\n%s", c.properties, d)
		}
		if (tc.FeatureLevel() == FeatureLake) != (c.want != nil) {
			t.Errorf("%s: feature level %d", c.properties, tc.FeatureLevel())
		}
		want := describe(t, tc.Catalog)
		tc.reopen(t)
		if d := cmp.Diff(want, describe(t, tc.Catalog)); d != "" {
			t.Errorf("%s, after a restart: (-want +got)\n%s", c.properties, d)
		}
	}
}

// Values out of bounds, and types that the lake cannot hold, are refused by name.
func TestLakeOptionErrors(t *testing.T) {
	const on = `,"properties":{"table.datalake.enabled":"true"}`
	for _, c := range []struct {
		body string
		code errs.Code
		says string
	}{
		{everyType + `,"properties":{"table.datalake.enabled":"yes"}`, errs.InvalidProperty, "true or false"},
		{everyType + `,"properties":{"table.datalake.freshness":"999ms"}`, errs.InvalidProperty, "from 1s to 30d"},
		{everyType + `,"properties":{"table.datalake.freshness":"0"}`, errs.InvalidProperty, "from 1s"},
		{everyType + `,"properties":{"table.datalake.freshness":"31d"}`, errs.InvalidProperty, "to 30d"},
		{everyType + `,"properties":{"table.datalake.target-file-size":"1023KiB"}`, errs.InvalidProperty, "from 1MiB to 4GiB"},
		{everyType + `,"properties":{"table.datalake.target-file-size":"5GiB"}`, errs.InvalidProperty, "to 4GiB"},
		{everyType + `,"properties":{"table.datalake.target-file-size":"big"}`, errs.InvalidProperty, "such as 128MiB"},
		{everyType + `,"properties":{"table.datalake.iceberg.delete-mode":"equality"}`, errs.InvalidProperty, "position, rewrite"},
		{onlyLog + `,"properties":{"table.datalake.iceberg.delete-mode":"position"}`, errs.InvalidProperty, "primary key"},
		{everyType + `,"properties":{"table.datalake.format":"paimon","table.datalake.enabled":"true"}`, errs.NotImplemented, "Paimon"},
		{`"columns":[{"name":"id","type":"INT"},{"name":"x","type":"TIMESTAMP(7)"}]` + on, errs.UnsupportedByLake, `"x" is TIMESTAMP(7)`},
		{`"columns":[{"name":"id","type":"INT"},{"name":"x","type":"TIMESTAMP_LTZ(9)"}]` + on, errs.UnsupportedByLake, `"x" is TIMESTAMP_LTZ(9)`},
		{`"columns":[{"name":"id","type":"INT"},{"name":"x","type":"TIME(8)"}]` + on, errs.UnsupportedByLake, `"x" is TIME(8)`},
		{`"columns":[{"name":"id","type":"TIME(9)"}]` + on, errs.UnsupportedByLake, `"id" is TIME(9)`},
		{`"columns":[{"name":"id","type":"INT"},{"name":"x","type":"ARRAY<TIME(8)>"}]` + on, errs.UnsupportedByLake, `"x.element" is TIME(8)`},
		{`"columns":[{"name":"id","type":"INT"},{"name":"x","type":"MAP<TIME(8),INT>"}]` + on, errs.UnsupportedByLake, `"x.key" is TIME(8)`},
		{`"columns":[{"name":"id","type":"INT"},{"name":"x","type":"ROW<a INT, b MAP<INT, ROW<c TIME(8)>>>"}]` + on, errs.UnsupportedByLake, `"x.b.value.c" is TIME(8)`},
	} {
		tc := openMem(t)
		tc.mustCreateDatabase(t, "d")
		_, _, err := tc.CreateTable(t.Context(), "d", specOf(t, `{`+c.body+`}`), false)
		if errs.CodeOf(err) != c.code || err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s\n\tgot  %q: %v\n\twant %q: …%s…", c.body, errs.CodeOf(err), err, c.code, c.says)
		}
	}
}

// The lake is enabled and disabled by ALTER. What it had stays known when it is
// disabled, and what its files hang on does not change any more.
func TestAlterLake(t *testing.T) {
	tc := openMem(t)
	was := wide(t, tc, map[string]string{"table.datalake.freshness": "1min", "table.datalake.system-columns": "true"})
	alter := func(text string) (*millrace.LakeOptions, error) {
		t.Helper()
		got, err := tc.AlterTable(t.Context(), was.Path, steps(t, text), nil)
		if err != nil {
			return nil, err
		}
		return got.Options.Lake, nil
	}
	must := func(text string, want *millrace.LakeOptions) {
		t.Helper()
		got, err := alter(text)
		if d := cmp.Diff(want, got); err != nil || d != "" {
			t.Errorf("%s: %v (-want +got)\n%s", text, err, d)
		}
	}
	refused := func(text string, code errs.Code, says string) {
		t.Helper()
		before := describe(t, tc.Catalog)
		if _, err := alter(text); errs.CodeOf(err) != code || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", text, err)
		}
		if d := cmp.Diff(before, describe(t, tc.Catalog)); d != "" {
			t.Errorf("%s was refused, and changed the catalog:\n%s", text, d)
		}
	}
	const (
		enable  = `[{"op":"set_properties","properties":{"table.datalake.enabled":"true"}}]`
		disable = `[{"op":"reset_properties","keys":["table.datalake.enabled"]}]`
		nanos   = `[{"op":"add_column","column":{"name":"x","type":"ROW<at TIMESTAMP(9)>"}}]`
	)
	must(`[{"op":"set_properties","properties":{"table.datalake.system-columns":"false","table.datalake.enabled":"false"}}]`, nil)
	must(nanos, nil)
	if tc.FeatureLevel() != FeatureTables {
		t.Error(tc.FeatureLevel())
	}
	refused(enable, errs.UnsupportedByLake, `"x.at" is TIMESTAMP(9)`)
	must(`[{"op":"drop_column","name":"x"},`+enable[1:], lakeDefaults(func(o *millrace.LakeOptions) { o.Freshness, o.Gaps = time.Minute, 1 }))
	if tc.FeatureLevel() != FeatureLake {
		t.Error(tc.FeatureLevel())
	}
	refused(nanos, errs.UnsupportedByLake, `"x.at" is TIMESTAMP(9)`)
	refused(`[{"op":"add_column","column":{"name":"a.deep.at","type":"TIME(7)"}}]`, errs.UnsupportedByLake, `"a.deep.at" is TIME(7)`)
	refused(`[{"op":"set_properties","properties":{"table.datalake.system-columns":"true"}}]`, errs.InvalidProperty, "fixed once the table is in the lake")
	must(`[{"op":"alter_type","name":"d","type":"DECIMAL(38,2)"},{"op":"set_properties","properties":{"table.datalake.iceberg.delete-mode":"rewrite","table.datalake.freshness":"2s"}}]`,
		lakeDefaults(func(o *millrace.LakeOptions) {
			o.Freshness, o.Deletes, o.Gaps = 2*time.Second, millrace.RewriteFiles, 1
		}))

	off := lakeDefaults(func(o *millrace.LakeOptions) {
		o.Enabled, o.Freshness, o.Deletes, o.Gaps = false, 2*time.Second, millrace.RewriteFiles, 2
	})
	must(disable, off)
	tc.reopen(t)
	must(`[{"op":"set_comment","comment":"c"}]`, off)
	refused(`[{"op":"set_properties","properties":{"table.datalake.system-columns":"true"}}]`, errs.InvalidProperty, "fixed once the table is in the lake")
	must(nanos, off)
	refused(enable, errs.UnsupportedByLake, `"x.at" is TIMESTAMP(9)`)
	must(`[{"op":"drop_column","name":"x"},`+enable[1:], lakeDefaults(func(o *millrace.LakeOptions) {
		o.Freshness, o.Deletes, o.Gaps = 2*time.Second, millrace.RewriteFiles, 2
	}))
}

// What is missing between lake and log may be so from before the table was in the lake, and
// from each time that it was not, and that is counted; also after a restart.
func TestLakeGaps(t *testing.T) {
	tc := openMem(t)
	tc.mustCreateDatabase(t, "d")
	born := tc.mustCreate(t, "d", specOf(t, `{"name":"born",`+onlyLog+`,"properties":{"table.datalake.enabled":"true"}}`))
	later := tc.mustCreate(t, "d", specOf(t, `{"name":"later",`+onlyLog+`}`))
	for _, c := range []struct {
		t    *millrace.Table
		set  string
		want int64
	}{
		{born, "table.datalake.freshness=5s", 0},
		{born, "table.datalake.enabled=false", 1},
		{born, "table.datalake.freshness=6s", 1},
		{born, "table.datalake.enabled=true", 1},
		{born, "table.datalake.enabled=false", 2},
		{later, "table.datalake.enabled=true", 1},
		{later, "table.datalake.enabled=false", 2},
		{later, "table.datalake.enabled=true", 2},
	} {
		key, value, _ := strings.Cut(c.set, "=")
		if _, err := tc.AlterTable(t.Context(), c.t.Path, []AlterStep{{Op: SetProperties, Properties: map[string]string{key: value}}}, nil); err != nil {
			t.Fatal(err)
		}
		tc.reopen(t)
		got, err := tc.TableByID(t.Context(), c.t.ID)
		if err != nil || got.Options.Lake.Gaps != c.want {
			t.Errorf("%s of %s: %d gaps, not %d (%v)", c.set, c.t.Path, got.Options.Lake.Gaps, c.want, err)
		}
	}
}
