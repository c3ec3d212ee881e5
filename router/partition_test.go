package router_test

// These tests drive router, storage and the real catalog together on a crashable file
// system: partitions are made, read, pruned and followed as users do it.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/row/jsonrow"
	"github.com/millrace/millrace/storage"
	"github.com/millrace/millrace/storage/storagetest"
)

// parted is a node with partitioned tables.
type parted struct {
	t     testing.TB
	fs    *vfs.MemFS
	wrap  func(vfs.FS) vfs.FS // what the worker sees of fs
	tails int64               // bytes that are kept in memory; 0: the default
	clock *storagetest.Clock
	cat   *catalog.Catalog
	w     *storage.Worker
	r     *router.Router
	lake  router.Lake
	reg   *prometheus.Registry
}

func newParted(t testing.TB) *parted {
	f := &parted{t: t, fs: vfs.NewCrashableMem(), wrap: func(fs vfs.FS) vfs.FS { return fs }, clock: storagetest.NewClock()}
	f.open()
	_, err := f.cat.CreateDatabase(context.Background(), "d", "")
	require.NoError(t, err)
	t.Cleanup(f.close)
	return f
}

func (f *parted) open() {
	var err error
	ctx, quiet := context.Background(), slog.New(slog.DiscardHandler)
	f.cat, err = catalog.Open(ctx, catalog.Options{Dir: "catalog", Shards: 3, FS: f.fs, Clock: f.clock.Now, Logger: quiet})
	require.NoError(f.t, err)
	f.reg = prometheus.NewRegistry()
	f.w, err = storage.Open(ctx, storage.Options{Dir: "data", Shards: 3, FS: f.wrap(f.fs), BucketTailBytes: f.tails, Clock: f.clock, Logger: quiet, Registerer: f.reg})
	require.NoError(f.t, err)
	require.NoError(f.t, f.w.Err())
	f.r = newRouter(router.Options{Catalog: f.cat, Signer: plainSigner{}, Lake: f.lake, Clock: f.clock, Logger: quiet, Registerer: f.reg}, f.w.Shards())
}

func (f *parted) close() {
	require.NoError(f.t, f.w.Close(context.Background()))
	require.NoError(f.t, f.cat.Close())
}

// crash drops everything that is not synced and opens again.
func (f *parted) crash() {
	clone := f.fs.CrashClone(vfs.CrashCloneCfg{})
	f.close()
	f.fs = clone
	f.open()
}

// table makes a table of columns such as "dt STRING"; the options are of its spec.
func (f *parted) table(name, columns string, set func(*catalog.Spec)) *millrace.Table {
	spec := catalog.Spec{Name: name}
	for c := range strings.SplitSeq(columns, ", ") {
		n, typ, _ := strings.Cut(strings.TrimSpace(c), " ")
		spec.Columns = append(spec.Columns, catalog.ColumnSpec{Name: n, Type: typ})
	}
	set(&spec)
	t, _, err := f.cat.CreateTable(context.Background(), "d", spec, false)
	require.NoError(f.t, err)
	return t
}

// days is a log table by day, keyed days a keyed one.
func (f *parted) days(buckets int) *millrace.Table {
	return f.table("days", "k BIGINT, v STRING, dt STRING", func(s *catalog.Spec) {
		s.PartitionBy, s.Buckets, s.BucketKey = []string{"dt"}, &buckets, []string{"k"}
	})
}

func (f *parted) keyedDays(buckets int) *millrace.Table {
	return f.table("keyed", "k BIGINT, dt STRING, hour INT, v STRING, n BIGINT", func(s *catalog.Spec) {
		s.PrimaryKey, s.PartitionBy, s.Buckets = []string{"dt", "k", "hour"}, []string{"dt", "hour"}, &buckets
	})
}

// rows reads rows written as JSON, separated by spaces, as the front does.
func (f *parted) rows(t *millrace.Table, text string, o jsonrow.Options, columns ...string) row.Rows {
	cols := t.Schema.Columns
	if len(columns) > 0 {
		cols = nil
		for _, n := range columns {
			cols = append(cols, t.Schema.Columns[t.Schema.Index(n)])
		}
	}
	d := jsonrow.NewDecoder(cols, o)
	dec := json.NewDecoder(strings.NewReader(text))
	for i := int64(0); dec.More(); i++ {
		var raw json.RawMessage
		require.NoError(f.t, dec.Decode(&raw))
		require.NoError(f.t, d.AddObject(raw, i))
	}
	return d.Finish()
}

func (f *parted) write(t *millrace.Table, mode router.Mode, text string) (*router.WriteResult, error) {
	o := jsonrow.Options{}
	if mode == router.Delete {
		o = jsonrow.Options{Key: t.Names(t.PrimaryKey), KeyOnly: true}
	}
	return f.r.Write(context.Background(), &router.WriteRequest{Table: t, Mode: mode, Rows: f.rows(t, text, o)})
}

func (f *parted) must(t *millrace.Table, mode router.Mode, text string) *router.WriteResult {
	f.t.Helper()
	res, err := f.write(t, mode, text)
	require.NoError(f.t, err)
	return res
}

func (f *parted) refused(code errs.Code, err error) {
	f.t.Helper()
	_ = f.problem(code, err)
}

func (f *parted) problem(code errs.Code, err error) *errs.Error {
	f.t.Helper()
	require.Equal(f.t, code, errs.CodeOf(err), "%v", err)
	e, ok := errors.AsType[*errs.Error](err)
	require.True(f.t, ok)
	return e
}

// names are the partitions there are.
func (f *parted) names(t *millrace.Table) []string {
	ps, err := f.cat.Partitions(context.Background(), t.ID)
	require.NoError(f.t, err)
	out := make([]string, len(ps))
	for i, p := range ps {
		out[i] = p.Name
	}
	return out
}

// scan gives the rows of a read as JSON, sorted, and what it cost.
func (f *parted) scan(path string, req *router.ReadRequest) ([]string, router.Stats) {
	f.t.Helper()
	p, err := f.r.Plan(context.Background(), path, req, router.Scan)
	require.NoError(f.t, err)
	return f.drain(p)
}

func (f *parted) drain(p *router.Plan) ([]string, router.Stats) {
	f.t.Helper()
	rd := f.r.Open(p)
	defer func() { require.NoError(f.t, rd.Close()) }()
	out := []string{}
	for {
		c, err := rd.Next(context.Background(), time.Minute)
		if err != nil || c == nil {
			require.True(f.t, rd.Done(), "%v", err)
			slices.Sort(out)
			return out, *rd.Stats()
		}
		out = append(out, f.chunk(rd, c)...)
	}
}

func (f *parted) chunk(rd *router.Reader, c *router.Chunk) []string {
	rec, err := c.Record()
	require.NoError(f.t, err)
	defer rec.Release()
	defer c.Release()
	e := jsonrow.NewEncoder(rd.Plan().Columns, jsonrow.EncodeOptions{})
	e.Bind(rec)
	out := make([]string, c.Rows)
	for i := range out {
		out[i] = string(e.AppendObject(nil, i))
	}
	return out
}

// Rows go to the partitions that their values say, which are made on demand, and to
// the buckets of their keys there; every read gives them back with where they lie, also
// after a crash and a checkpoint.
func TestPartitionsOnDemand(t *testing.T) {
	f := newParted(t)
	tbl := f.days(4)
	var rows, want []string
	for i := range 400 {
		rows = append(rows, fmt.Sprintf(`{"k":%d,"v":"v%d","dt":"2026-08-%02d"}`, i, i, 1+i%7))
		want = append(want, rows[i])
	}
	slices.Sort(want)
	res := f.must(tbl, router.Append, strings.Join(rows, " "))
	require.EqualValues(t, 400, res.Rows)
	require.Len(t, res.Offsets, 7*4)
	for key, r := range res.Offsets {
		name, n, err := millrace.ParseBucketKey(key)
		require.NoError(t, err)
		require.Regexp(t, `^dt=2026-08-0[1-7]$`, name)
		require.Less(t, n, uint16(4))
		require.Zero(t, r.Start)
	}
	require.Len(t, f.names(tbl), 7)
	check := func() {
		t.Helper()
		got, stats := f.scan("d.days", &router.ReadRequest{})
		require.Equal(t, want, got)
		require.Equal(t, 7, stats.Partitions)
		require.Zero(t, stats.PartitionsSkipped)
		got, _ = f.scan("d.days$changelog", &router.ReadRequest{Filter: "k = 9", Columns: []string{"k"}})
		require.Len(t, got, 1)
		require.Contains(t, got[0], `"k":9,"_partition":"dt=2026-08-03","_bucket":`)
		n, err := f.r.Count(context.Background(), "d.days", &router.ReadRequest{})
		require.NoError(t, err)
		require.EqualValues(t, 400, n)
	}
	check()
	f.crash()
	check()
	for _, s := range f.w.Shards() {
		require.NoError(t, s.Checkpoint(context.Background()))
	}
	f.crash()
	check()
	again := f.must(tbl, router.Append, rows[0])
	require.Len(t, again.Offsets, 1)
	require.Len(t, f.names(tbl), 7)
}

// Each type of a partition column: the values that rows have are those of the
// partition's name, its filter finds them, and lookups do.
func TestPartitionTypes(t *testing.T) {
	for _, c := range []struct{ typ, a, b, name, filter string }{
		{"STRING", `"EU/West"`, `"US"`, "p=EU%2FWest", "p = 'EU/West'"},
		{"CHAR(4)", `"ab"`, `"cd"`, "p=ab", "p < 'b'"},
		{"BOOLEAN", `true`, `false`, "p=true", "p"},
		{"TINYINT", `-7`, `8`, "p=-7", "p IN (-7, 9)"},
		{"SMALLINT", `300`, `8`, "p=300", "p > 8"},
		{"INT", `7`, `70`, "p=7", "p < 7.5"},
		{"BIGINT", `9007199254740993`, `9007199254740992`, "p=9007199254740993", "p = 9007199254740993"},
		{"DECIMAL(10,2)", `"1.50"`, `"1.5e2"`, "p=1.50", "p BETWEEN 1 AND 2"},
		{"DATE", `"2026-08-26"`, `"2026-08-27"`, "p=2026-08-26", "p = '2026-08-26'"},
		{"TIME(3)", `"10:00:00.5"`, `"11:00:00"`, "p=10%3A00%3A00.500", "p < '10:30:00'"},
		{"TIMESTAMP(0)", `"2026-08-26T10:00:00"`, `"2026-08-26T11:00:00"`, "p=2026-08-26T10%3A00%3A00", "p = '2026-08-26 10:00:00'"},
		{"TIMESTAMP_LTZ(3)", `"2026-08-26T12:00:00+02:00"`, `"2026-08-26T11:00:00Z"`, "p=2026-08-26T10%3A00%3A00.000Z", "p < '2026-08-26T10:30:00Z'"},
		{"BYTES", `"AAE="`, `"/w=="`, "p=AAE%3D", "p = X'0001'"},
		{"BINARY(2)", `"AAE="`, `"AAI="`, "p=AAE%3D", "p <> X'0002'"},
	} {
		t.Run(c.typ, func(t *testing.T) {
			f := newParted(t)
			tbl := f.table("t", "id INT, p "+c.typ, func(s *catalog.Spec) {
				s.PrimaryKey, s.PartitionBy = []string{"id", "p"}, []string{"p"}
			})
			f.must(tbl, router.Upsert, fmt.Sprintf(`{"id":1,"p":%s} {"id":2,"p":%s} {"id":3,"p":%s}`, c.a, c.b, c.a))
			require.Len(t, f.names(tbl), 2)
			require.Contains(t, f.names(tbl), c.name)
			all, _ := f.scan("d.t", &router.ReadRequest{})
			require.Len(t, all, 3)
			for _, req := range []*router.ReadRequest{
				{Filter: c.filter},
				{Partitions: []json.RawMessage{json.RawMessage(fmt.Sprintf("%q", c.name))}},
				{Partitions: []json.RawMessage{json.RawMessage(fmt.Sprintf(`{"p":%s}`, c.a))}},
				{Filter: fmt.Sprintf("_partition = '%s'", c.name)},
			} {
				got, stats := f.scan("d.t", req)
				require.Equal(t, []string{all[0], all[2]}, got, "%+v", req)
				require.Equal(t, 1, stats.Partitions)
				require.Equal(t, 1, stats.PartitionsSkipped)
				require.Equal(t, 1, stats.Buckets)
			}
			keys := f.rows(tbl, fmt.Sprintf(`{"id":1,"p":%s} {"id":1,"p":%s} {"id":3,"p":%s} {"id":2,"p":%s}`, c.a, c.b, c.a, c.b), jsonrow.Options{}, "id", "p")
			cols, err := router.LookupColumns(tbl, []string{"id"})
			require.NoError(t, err)
			res, err := f.r.Lookup(context.Background(), tbl, keys.Record, cols)
			require.NoError(t, err)
			require.Equal(t, []bool{true, false, true, true}, res.Found)
			require.Len(t, f.names(tbl), 2)
		})
	}
}

// A keyed table of two partition columns: updates, deletes, partial updates and
// lookups, in order, in the partitions they are of. What is only deleted or looked up
// makes no partition.
func TestKeyedPartitions(t *testing.T) {
	f := newParted(t)
	tbl := f.keyedDays(3)
	ctx := context.Background()
	f.must(tbl, router.Upsert, `{"k":1,"dt":"a","hour":7,"v":"x"} {"k":1,"dt":"a","hour":8,"v":"y"} {"k":1,"dt":"b","hour":7,"v":"z"} {"k":1,"dt":"a","hour":7,"v":"x2"}`)
	require.Equal(t, []string{"dt=a/hour=7", "dt=a/hour=8", "dt=b/hour=7"}, f.names(tbl))
	res := f.must(tbl, router.Delete, `{"k":1,"dt":"a","hour":8} {"k":1,"dt":"nothing","hour":8} {"k":5,"dt":"b","hour":7}`)
	require.EqualValues(t, 3, res.Rows)
	require.Len(t, f.names(tbl), 3, "a delete makes no partition")
	require.NotContains(t, slices.Collect(maps.Keys(res.Offsets)), "dt=nothing/hour=8/0")
	res = f.must(tbl, router.Delete, `{"k":1,"dt":"none","hour":1}`)
	require.Empty(t, res.Offsets)

	// A partial delete neither; a partial update that inserts does.
	partial := func(mode router.Mode, text string, columns ...string) error {
		_, err := f.r.Write(ctx, &router.WriteRequest{Table: tbl, Mode: mode, Partial: true, Rows: f.rows(tbl, text, jsonrow.Options{KeyOnly: mode == router.Delete}, columns...)})
		return err
	}
	require.NoError(t, partial(router.Delete, `{"k":1,"dt":"none","hour":1,"v":null}`, "k", "dt", "hour", "v"))
	require.Len(t, f.names(tbl), 3)
	require.NoError(t, partial(router.Upsert, `{"n":5,"hour":7,"dt":"a","k":1} {"n":6,"hour":9,"dt":"c","k":2}`, "k", "dt", "hour", "n"))
	require.Equal(t, []string{"dt=a/hour=7", "dt=a/hour=8", "dt=b/hour=7", "dt=c/hour=9"}, f.names(tbl))
	got, _ := f.scan("d.keyed", &router.ReadRequest{Columns: []string{"k", "v", "n", "_partition"}})
	require.Equal(t, []string{
		`{"k":1,"v":"x2","n":5,"_partition":"dt=a/hour=7"}`,
		`{"k":1,"v":"z","n":null,"_partition":"dt=b/hour=7"}`,
		`{"k":2,"v":null,"n":6,"_partition":"dt=c/hour=9"}`,
	}, got)
	n, err := f.r.Count(ctx, "d.keyed", &router.ReadRequest{})
	require.NoError(t, err)
	require.EqualValues(t, 3, n)

	keys := f.rows(tbl, `{"dt":"c","k":2,"hour":9} {"dt":"nope","k":2,"hour":9} {"dt":"a","k":1,"hour":8} {"dt":"a","k":1,"hour":7}`, jsonrow.Options{}, "dt", "k", "hour")
	cols, err := router.LookupColumns(tbl, []string{"v", "n"})
	require.NoError(t, err)
	l, err := f.r.OpenLookups(t.Context(), tbl, cols, 1<<20, false)
	require.NoError(t, err)
	for range 2 {
		res, err := l.Next(ctx, keys.Record)
		require.NoError(t, err)
		require.Equal(t, []bool{true, false, false, true}, res.Found)
		require.Equal(t, []string{`{"n":6,"v":null}`, `{"n":null,"v":null}`, `{"n":null,"v":null}`, `{"n":5,"v":"x2"}`}, text2(t, res))
	}
	require.Len(t, f.names(tbl), 4, "a lookup makes no partition")
}

func text2(t *testing.T, res *router.LookupResult) []string {
	defer res.Record.Release()
	return text(t, res.Record)
}

// What cannot be written is refused with its code and row, and nothing is written, nor
// a partition made.
func TestPartitionRefusals(t *testing.T) {
	f := newParted(t)
	fixed := f.table("fixed", "k BIGINT, dt STRING", func(s *catalog.Spec) {
		s.PartitionBy, s.Properties = []string{"dt"}, map[string]string{"table.partition.dynamic": "false"}
	})
	_, err := f.write(fixed, router.Append, `{"k":1,"dt":"a"} {"k":2,"dt":"b"}`)
	e := f.problem(errs.PartitionNotFound, err)
	require.Contains(t, e.Message, "dt=a")
	require.EqualValues(t, 0, *e.Fields[0].Index)
	_, _, err = f.cat.EnsurePartition(context.Background(), fixed.ID, []string{"a"})
	require.NoError(t, err)
	_, err = f.write(fixed, router.Append, `{"k":1,"dt":"a"} {"k":1,"dt":"a"} {"k":2,"dt":"b"}`)
	e = f.problem(errs.PartitionNotFound, err)
	require.EqualValues(t, 2, *e.Fields[0].Index)
	got, _ := f.scan("d.fixed", &router.ReadRequest{})
	require.Empty(t, got)
	f.must(fixed, router.Append, `{"k":1,"dt":"a"}`)

	tbl := f.days(1)
	rows := f.rows(tbl, `{"k":1,"v":"x","dt":"a"} {"k":1,"v":"x","dt":"b"}`, jsonrow.Options{})
	rows.Record = nullIn(rows.Record, 2, 1)
	_, err = f.r.Write(context.Background(), &router.WriteRequest{Table: tbl, Mode: router.Append, Rows: rows, FirstRow: 10})
	e = f.problem(errs.NullNotAllowed, err)
	require.Equal(t, "dt", e.Fields[0].Field)
	require.EqualValues(t, 11, *e.Fields[0].Index)
	_, err = f.write(tbl, router.Append, fmt.Sprintf(`{"k":1,"dt":"a"} {"k":1,"dt":%q}`, strings.Repeat("x", 5000)))
	e = f.problem(errs.ValueOutOfRange, err)
	require.EqualValues(t, 1, *e.Fields[0].Index)
	got, _ = f.scan("d.days", &router.ReadRequest{})
	require.Empty(t, got)

	got, _ = f.scan("d.days", &router.ReadRequest{Filter: fmt.Sprintf("dt = '%s'", strings.Repeat("x", 5000))})
	require.Empty(t, got)
	// Partitions that a request names.
	for raw, code := range map[string]errs.Code{
		`"dt=nope"`: errs.PartitionNotFound, `{"dt":"nope"}`: errs.PartitionNotFound, `"nope"`: errs.InvalidValue,
		`{"dt":1}`: errs.TypeMismatch, `{}`: errs.MissingColumn, `{"dt":"a","x":1}`: errs.UnknownField, `7`: errs.TypeMismatch,
	} {
		_, err := f.r.Plan(context.Background(), "d.days", &router.ReadRequest{Partitions: []json.RawMessage{json.RawMessage(raw)}}, router.Scan)
		require.Equal(t, code, errs.CodeOf(err), "%s: %v", raw, err)
	}
	for key, code := range map[string]errs.Code{"0": errs.InvalidValue, "dt=a/1": errs.InvalidValue, "x=a/0": errs.InvalidValue} {
		from := &router.Position{Kind: router.AtOffsets, Offsets: map[string]millrace.Offset{key: 0}}
		_, err := f.r.Plan(context.Background(), "d.days$changelog", &router.ReadRequest{From: from}, router.Scan)
		require.Equal(t, code, errs.CodeOf(err), "%s: %v", key, err)
	}
}

// nullIn makes one value of a record NULL.
func nullIn(rec arrow.RecordBatch, col, at int) arrow.RecordBatch {
	b := array.NewStringBuilder(memory.DefaultAllocator)
	defer b.Release()
	for i := range int(rec.NumRows()) {
		if i == at {
			b.AppendNull()
		} else {
			b.Append(rec.Column(col).(*array.String).Value(i))
		}
	}
	cols := slices.Clone(rec.Columns())
	cols[col] = b.NewArray()
	return array.NewRecordBatch(rec.Schema(), cols, rec.NumRows())
}

func partitionBy(buckets int, columns ...string) func(*catalog.Spec) {
	return func(s *catalog.Spec) { s.PartitionBy, s.Buckets = columns, &buckets }
}

// X7: of thirty days one is read: no byte of the others' files is looked at.
func TestPrunedFilesAreNotRead(t *testing.T) {
	f := newParted(t)
	var mu sync.Mutex
	reads := map[string]int{} // by partition directory
	inPartition := regexp.MustCompile(`/segments/\d+/(\d+)/`)
	f.tails = 1
	f.wrap = func(fs vfs.FS) vfs.FS {
		return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if m := inPartition.FindStringSubmatch(op.Path); m != nil && op.Kind.ReadOrWrite() == errorfs.OpIsRead {
				mu.Lock()
				defer mu.Unlock()
				reads[m[1]]++
			}
			return nil
		}))
	}
	f.close()
	f.open()
	tbl := f.days(2)
	for day := range 30 {
		var rows []string
		for i := range 50 {
			rows = append(rows, fmt.Sprintf(`{"k":%d,"v":"v%d","dt":"2026-08-%02d"}`, i, i, day+1))
		}
		f.must(tbl, router.Append, strings.Join(rows, " "))
	}
	for _, s := range f.w.Shards() {
		require.NoError(t, s.Checkpoint(context.Background()))
	}
	f.close()
	f.open()
	clear(reads)
	for _, req := range []*router.ReadRequest{
		{Filter: "dt = '2026-08-26' AND k >= 40", Columns: []string{"k"}},
		{Filter: "k >= 40", Columns: []string{"k"}, Partitions: []json.RawMessage{json.RawMessage(`{"dt":"2026-08-26"}`)}},
		{Filter: "dt > '2026-08-25' AND NOT (dt LIKE '%-2_' AND dt <> '2026-08-26') AND dt NOT IN ('2026-08-30') AND k >= 40", Columns: []string{"k"}},
	} {
		got, stats := f.scan("d.days", req)
		require.Len(t, got, 10)
		require.Equal(t, 30, stats.Partitions+stats.PartitionsSkipped)
		n, err := f.r.Count(context.Background(), "d.days", &router.ReadRequest{Filter: req.Filter, Partitions: req.Partitions})
		require.NoError(t, err)
		require.EqualValues(t, 10, n)
	}
	p, err := f.cat.Partition(context.Background(), tbl.ID, "dt=2026-08-26")
	require.NoError(t, err)
	dir := fmt.Sprintf("%010d", p.ID)
	require.Positive(t, reads[dir])
	require.Len(t, reads, 1, "%v", reads)
}
