package catalog

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// everyType is a table of many types: id is its key, and column 1.
const everyType = `"columns":[{"name":"id","type":"BIGINT"},{"name":"n","type":"INT"},{"name":"s","type":"STRING"},{"name":"d","type":"DECIMAL(10,2)"},
	{"name":"b","type":"BOOLEAN"},{"name":"f","type":"DOUBLE"},{"name":"ts","type":"TIMESTAMP(3)"},{"name":"a","type":"ARRAY<INT>"},{"name":"c","type":"CHAR(3)"},
	{"name":"auto","type":"BIGINT","auto_increment":true}]`

// byDay is a log table partitioned by dt, column 1, and region.
const byDay = `"columns":[{"name":"dt","type":"STRING"},{"name":"region","type":"STRING"},{"name":"day","type":"DATE"},{"name":"hour","type":"TIMESTAMP(0)"},{"name":"ok","type":"BOOLEAN"}],"primary_key":[],"partition_by":["dt"]`

// What properties say comes out in the options, columns by id, and is the same
// after a restart.
func TestOptions(t *testing.T) {
	for _, c := range []struct {
		body, properties string
		want             millrace.TableOptions
	}{
		{everyType, `{}`, millrace.TableOptions{}},
		{everyType, `{"table.log.ttl":"7d"}`, millrace.TableOptions{}},
		{everyType, `{"table.log.ttl":"36h"}`, millrace.TableOptions{LogTTL: 36 * time.Hour}},
		{everyType, `{"table.log.ttl":"0"}`, millrace.TableOptions{LogTTL: -1}},
		{everyType, `{"table.log.local-ttl":"1d"}`, millrace.TableOptions{LocalTTL: 24 * time.Hour}},
		{everyType, `{"table.log.local-ttl":"0"}`, millrace.TableOptions{LocalTTL: -1}},
		{
			everyType, `{"table.changelog.image":"wal","table.changelog.skip-unchanged":"TRUE","table.delete.behavior":"Disable"}`,
			millrace.TableOptions{Image: millrace.WALImage, SkipUnchanged: true, Deletes: millrace.DisableDeletes},
		},
		{everyType, `{"table.merge-engine":"NONE","table.delete.behavior":"allow"}`, millrace.TableOptions{}},
		{everyType, `{"table.merge-engine":"FIRST_ROW"}`, millrace.TableOptions{MergeEngine: millrace.FirstRow, Deletes: millrace.IgnoreDeletes}},
		{
			everyType, `{"table.merge-engine":"first_row","table.delete.behavior":"disable","table.changelog.image":"WAL"}`,
			millrace.TableOptions{MergeEngine: millrace.FirstRow, Deletes: millrace.DisableDeletes, Image: millrace.WALImage},
		},
		{
			everyType, `{"table.merge-engine":"versioned","table.merge-engine.versioned.ver-column":"ts"}`,
			millrace.TableOptions{MergeEngine: millrace.Versioned, VersionColumn: 7, Deletes: millrace.IgnoreDeletes},
		},
		{everyType, `{"table.merge-engine":"aggregation"}`, millrace.TableOptions{MergeEngine: millrace.Aggregation, Deletes: millrace.IgnoreDeletes}},
		{
			everyType, `{"table.merge-engine":"aggregation","table.delete.behavior":"ALLOW","fields.n.agg":"SUM","fields.d.agg":"product","fields.s.agg":"listagg",
			"fields.s.listagg-delimiter":"; ","fields.c.agg":"listagg","fields.b.agg":"bool_and","fields.f.agg":"max","fields.ts.agg":"min","fields.a.agg":"first_value"}`,
			millrace.TableOptions{MergeEngine: millrace.Aggregation, Aggregates: map[millrace.ColumnID]millrace.Aggregate{
				2: {Function: millrace.AggSum}, 4: {Function: millrace.AggProduct}, 3: {Function: millrace.AggListagg, Delimiter: "; "},
				10: {Function: millrace.AggListagg}, 5: {Function: millrace.AggBoolAnd}, 6: {Function: millrace.AggMax}, 7: {Function: millrace.AggMin},
				8: {Function: millrace.AggFirstValue},
			}},
		},
		{byDay, `{"table.partition.dynamic":"false"}`, millrace.TableOptions{FixedPartitions: true}},
		{byDay, `{"table.auto-partition.time-unit":"HOUR","table.auto-partition.num-retention":"3"}`, millrace.TableOptions{}},
		{
			byDay, `{"table.auto-partition.enabled":"true"}`,
			millrace.TableOptions{AutoPartition: &millrace.AutoPartition{Column: 1, Unit: millrace.Daily, Precreate: 2, Retain: 7}},
		},
		{
			byDay, `{"table.auto-partition.enabled":"true","table.auto-partition.time-unit":"hour","table.auto-partition.time-zone":"Europe/Berlin",
			"table.auto-partition.num-precreate":"0","table.auto-partition.num-retention":"48"}`,
			millrace.TableOptions{AutoPartition: &millrace.AutoPartition{Column: 1, Unit: millrace.Hourly, Zone: "Europe/Berlin", Retain: 48}},
		},
		{
			byDay + `,"partition_by":["region","dt"]`, `{"table.auto-partition.enabled":"true","table.auto-partition.key":"dt"}`,
			millrace.TableOptions{AutoPartition: &millrace.AutoPartition{Column: 1, Unit: millrace.Daily, Retain: 7}},
		},
		{
			byDay + `,"partition_by":["day"]`, `{"table.auto-partition.enabled":"true","table.auto-partition.time-unit":"YEAR"}`,
			millrace.TableOptions{AutoPartition: &millrace.AutoPartition{Column: 3, Unit: millrace.Yearly, Precreate: 2, Retain: 7}},
		},
	} {
		tc := openMem(t)
		tc.mustCreateDatabase(t, "d")
		spec := specOf(t, `{`+c.body+`,"properties":`+c.properties+`}`)
		got := tc.mustCreate(t, "d", spec)
		if d := cmp.Diff(c.want, got.Options); d != "" {
			t.Errorf("%s: (-want +got)\n%s", c.properties, d)
		}
		if len(spec.Properties) > 0 && !maps.Equal(got.Properties, spec.Properties) {
			t.Errorf("%s are shown as %v", c.properties, got.Properties)
		}
		level := FeatureTables
		if c.body == everyType && isZero(c.want) {
			spec.Columns[9].AutoIncrement = false
			plain := openMem(t)
			plain.mustCreateDatabase(t, "d")
			plain.mustCreate(t, "d", spec)
			if got := plain.FeatureLevel(); got != FeatureBase {
				t.Errorf("%s, without auto-increment: feature level %d", c.properties, got)
			}
		}
		if tc.FeatureLevel() != level {
			t.Errorf("%s: feature level %d", c.properties, tc.FeatureLevel())
		}
		want := describe(t, tc.Catalog)
		tc.reopen(t)
		if d := cmp.Diff(want, describe(t, tc.Catalog)); d != "" {
			t.Errorf("%s, after a restart: (-want +got)\n%s", c.properties, d)
		}
	}
}

// Properties that make no sense, alone or together or for their table, are refused
// by name, and so are keys and columns.
func TestOptionErrors(t *testing.T) {
	const versioned, aggregation = `"table.merge-engine":"versioned"`, `"table.merge-engine":"aggregation"`
	const auto = `"table.auto-partition.enabled":"true"`
	for _, c := range []struct {
		body, properties string
		code             errs.Code
		says             string
	}{
		{everyType, `{` + versioned + `}`, errs.InvalidProperty, "ver-column"},
		{everyType, `{` + versioned + `,"table.merge-engine.versioned.ver-column":"s"}`, errs.InvalidProperty, "STRING"},
		{everyType, `{` + versioned + `,"table.merge-engine.versioned.ver-column":"id"}`, errs.InvalidProperty, "primary key"},
		{everyType, `{` + versioned + `,"table.merge-engine.versioned.ver-column":"auto"}`, errs.InvalidProperty, "auto_increment"},
		{everyType, `{` + versioned + `,"table.merge-engine.versioned.ver-column":"N"}`, errs.InvalidProperty, "not a column"},
		{everyType, `{` + versioned + `,"table.merge-engine.versioned.ver-column":"n","table.delete.behavior":"ALLOW"}`, errs.InvalidProperty, "cannot delete"},
		{everyType, `{"table.merge-engine":"first_row","table.delete.behavior":"ALLOW"}`, errs.InvalidProperty, "cannot delete"},
		{everyType, `{"table.merge-engine":"first_row","fields.n.agg":"sum"}`, errs.InvalidProperty, "aggregation"},
		{everyType, `{` + aggregation + `,"table.changelog.image":"WAL"}`, errs.InvalidProperty, "FULL"},
		{everyType, `{` + aggregation + `,"fields.id.agg":"sum"}`, errs.InvalidProperty, "primary key"},
		{everyType, `{` + aggregation + `,"fields.auto.agg":"sum"}`, errs.InvalidProperty, "auto_increment"},
		{everyType, `{` + aggregation + `,"fields.s.agg":"sum"}`, errs.InvalidProperty, "numbers"},
		{everyType, `{` + aggregation + `,"fields.b.agg":"max"}`, errs.InvalidProperty, "BOOLEAN"},
		{everyType, `{` + aggregation + `,"fields.a.agg":"min"}`, errs.InvalidProperty, "ARRAY"},
		{everyType, `{` + aggregation + `,"fields.n.agg":"listagg"}`, errs.InvalidProperty, "STRING and CHAR"},
		{everyType, `{` + aggregation + `,"fields.n.agg":"bool_or"}`, errs.InvalidProperty, "BOOLEAN"},
		{everyType, `{` + aggregation + `,"fields.s.listagg-delimiter":"|"}`, errs.InvalidProperty, "listagg"},
		{everyType, `{` + aggregation + `,"fields.s.agg":"max","fields.s.listagg-delimiter":"|"}`, errs.InvalidProperty, "listagg"},
		{everyType, `{` + aggregation + `,"fields.s.agg":"listagg","fields.s.listagg-delimiter":""}`, errs.InvalidProperty, "empty"},
		{everyType, `{"table.partition.dynamic":"false"}`, errs.InvalidProperty, "partitioned tables"},
		{everyType, `{` + auto + `}`, errs.InvalidProperty, "partitioned tables"},
		{everyType, `{"table.auto-partition.key":"s"}`, errs.InvalidProperty, "partitioned tables"},
		{byDay, `{` + auto + `,"table.auto-partition.key":"region"}`, errs.InvalidProperty, "not in partition_by"},
		{byDay, `{"table.auto-partition.key":"nope"}`, errs.InvalidProperty, "not a column"},
		{byDay, `{"table.auto-partition.time-zone":"Mars/Base"}`, errs.InvalidProperty, "time zone"},
		{byDay, `{"table.auto-partition.time-zone":"Local"}`, errs.InvalidProperty, "time zone"},
		{byDay, `{"table.auto-partition.time-zone":"../etc/passwd"}`, errs.InvalidProperty, "time zone"},
		{byDay, `{"table.auto-partition.num-precreate":"10001"}`, errs.InvalidProperty, "at most 10000"},
		{byDay, `{"table.auto-partition.num-retention":"9999","table.auto-partition.num-precreate":"2"}`, errs.InvalidProperty, "at most 10000"},
		{byDay + `,"partition_by":["dt","region"]`, `{` + auto + `}`, errs.InvalidProperty, "table.auto-partition.key"},
		{byDay + `,"partition_by":["dt","region"]`, `{` + auto + `,"table.auto-partition.key":"dt","table.auto-partition.num-precreate":"1"}`, errs.InvalidProperty, "ahead of time"},
		{byDay + `,"partition_by":["ok"]`, `{` + auto + `}`, errs.InvalidProperty, "BOOLEAN"},
		{byDay + `,"partition_by":["day"]`, `{` + auto + `,"table.auto-partition.time-unit":"HOUR"}`, errs.InvalidProperty, "no hour"},

		{everyType + `,"primary_key":[]`, `{}`, errs.InvalidSchema, "primary key"},
		{everyType + `,"primary_key":["auto"]`, `{}`, errs.InvalidSchema, "auto_increment"},
		{`"columns":[{"name":"id","type":"INT"},{"name":"x","type":"SMALLINT","auto_increment":true}]`, `{}`, errs.InvalidSchema, "INT or BIGINT"},
		{`"columns":[{"name":"id","type":"INT"},{"name":"x","type":"INT","auto_increment":true},{"name":"y","type":"INT","auto_increment":true}]`, `{}`, errs.InvalidSchema, "one such column"},
		{everyType + `,"partition_by":["s"]`, `{}`, errs.InvalidSchema, "not in the primary key"},
		{everyType + `,"partition_by":["id"]`, `{}`, errs.InvalidSchema, "partition columns only"},
		{everyType + `,"primary_key":["id","s"],"partition_by":["s"],"bucket_key":["s"]`, `{}`, errs.InvalidSchema, "partition_by"},
		{everyType + `,"primary_key":["id","b"],"partition_by":["id"]`, `{}`, errs.InvalidSchema, "BOOLEAN"},
		{byDay + `,"partition_by":["dt","dt"]`, `{}`, errs.InvalidSchema, "twice"},
		{byDay + `,"partition_by":["nope"]`, `{}`, errs.InvalidSchema, "not a column"},
		{everyType + `,"primary_key":[],"partition_by":["f"]`, `{}`, errs.InvalidSchema, "DOUBLE"},
		{everyType + `,"primary_key":[],"partition_by":["a"]`, `{}`, errs.InvalidSchema, "ARRAY"},
		{byDay + `,"bucket_key":["dt"]`, `{}`, errs.InvalidSchema, "partition_by"},
	} {
		tc := openMem(t)
		tc.mustCreateDatabase(t, "d")
		before := tc.Revision()
		_, _, err := tc.CreateTable(t.Context(), "d", specOf(t, `{`+c.body+`,"properties":`+c.properties+`}`), false)
		if errs.CodeOf(err) != c.code || !strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("%.60s %s\n\tgot  %q: %v\n\twant %q: …%s…", c.body, c.properties, errs.CodeOf(err), err, c.code, c.says)
		}
		if tc.Revision() != before || tc.FeatureLevel() != FeatureBase {
			t.Errorf("%s changed the catalog", c.properties)
		}
	}
}

// The bucket key of a partitioned table is its primary key less the partition
// columns, whose columns are NOT NULL; shards are those of partitions.
func TestPartitionedTable(t *testing.T) {
	tc := openMem(t)
	tc.mustCreateDatabase(t, "d")
	got := tc.mustCreate(t, "d", specOf(t, `{"primary_key":["id","name","b"],"partition_by":["b","name"],"buckets":3}`))
	if fmt.Sprint(got.Names(got.PartitionBy), got.Names(got.BucketKey), got.Shards) != "[b name] [id] []" {
		t.Errorf("%+v", got)
	}
	for _, c := range got.Columns(got.PartitionBy) {
		if c.Nullable {
			t.Errorf("%q is nullable", c.Name)
		}
	}
	log := tc.mustCreate(t, "d", specOf(t, `{"name":"l",`+byDay+`}`))
	if len(log.BucketKey) != 0 || log.Schema.Columns[0].Nullable || len(log.Shards) != 0 {
		t.Errorf("%+v", log)
	}
}
