package iceberg

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	ice "github.com/apache/iceberg-go"
	iceio "github.com/apache/iceberg-go/io"
	"github.com/apache/iceberg-go/table"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/objstore"
	"github.com/millrace/millrace/objstore/faultproxy"
	"github.com/millrace/millrace/objstore/objstoretest"
	"github.com/millrace/millrace/row/jsonrow"
)

// world is a lake in memory, whose store fails as a test says; with LAKE_THROUGH_FAULTS
// set, in S3 behind a proxy that does what networks and busy servers do.
type world struct {
	t     *testing.T
	store *objstoretest.Faulty
	clock *testClock
	f     *Format
	// catalog has the pointers; nil: the lake has.
	catalog Catalog
}

type testClock struct{ now time.Time }

func (c *testClock) Now() time.Time { return c.now }

func newWorld(t *testing.T) *world {
	t.Helper()
	uri, o := "file:///lake", objstore.Options{FS: vfs.NewMem()}
	if os.Getenv("LAKE_THROUGH_FAULTS") != "" {
		uri, o.S3 = throughFaults(t)
	}
	s, err := objstore.Open(t.Context(), uri, o)
	require.NoError(t, err)
	w := &world{t: t, store: objstoretest.NewFaulty(s), clock: &testClock{now: time.Now()}}
	w.f = w.another()
	return w
}

// throughFaults is an S3 server behind a fault proxy. About one request in eight meets a
// fault; the seed is the same in every run.
func throughFaults(t *testing.T) (uri string, o objstore.S3) {
	t.Helper()
	server := objstoretest.StartGateway(t)
	proxy, err := faultproxy.Start(t.Context(), server.Endpoint)
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	proxy.Set(faultproxy.Seeded(20, faultproxy.Rates{
		faultproxy.SlowDown: 20, faultproxy.InternalError: 10, faultproxy.Reset: 20, faultproxy.Truncate: 20,
		faultproxy.LoseAnswer: 20, faultproxy.LoseAnswerSoftly: 10, faultproxy.Hang: 1, faultproxy.Twice: 20,
	}), 0)
	o = server.Settings()
	o.Endpoint, o.Backoff, o.Timeout, o.Attempts = proxy.Endpoint, 2*time.Millisecond, 3*time.Second, 12
	return server.URI("lake"), o
}

// another is another process's format over the same lake.
func (w *world) another() *Format {
	f := New(Options{Store: w.store, Catalog: w.catalog, Cluster: [16]byte{1, 2, 3}, Clock: w.clock, Logger: slog.New(slog.DiscardHandler)})
	f.wait = func(context.Context, time.Duration) error { return nil }
	return f
}

func (w *world) ctx() context.Context { return w.t.Context() }

// testTable is a table with columns "name TYPE [NOT NULL]"; those in key are its primary
// key and bucket key.
func testTable(id millrace.TableID, key, partitionBy []string, buckets int, columns ...string) *millrace.Table {
	d := &millrace.Table{
		ID: id, Path: millrace.TablePath{Database: "db", Table: fmt.Sprintf("t%d", id)}, Kind: millrace.LogTable, Buckets: buckets,
		Schema: &millrace.Schema{ID: 1}, Options: millrace.TableOptions{Lake: &millrace.LakeOptions{Enabled: true, Format: millrace.Iceberg, TargetFileBytes: 1 << 20}},
	}
	for _, c := range columns {
		addColumn(d, c)
	}
	ids := func(names []string) (out []millrace.ColumnID) {
		for _, n := range names {
			out = append(out, d.Schema.Columns[d.Schema.Index(n)].ID)
		}
		return out
	}
	d.PartitionBy = ids(partitionBy)
	if len(key) > 0 {
		d.Kind, d.PrimaryKey = millrace.KeyedTable, ids(key)
		d.BucketKey = slices.DeleteFunc(slices.Clone(d.PrimaryKey), func(id millrace.ColumnID) bool { return slices.Contains(d.PartitionBy, id) })
	}
	return d
}

// addColumn adds a column "name TYPE [NOT NULL]" at the end, with the next ids.
func addColumn(d *millrace.Table, text string) {
	name, typ, _ := strings.Cut(text, " ")
	typ, notNull := strings.CutSuffix(typ, " NOT NULL")
	t := mustType(typ)
	d.LastColumnID++
	c := millrace.Column{ID: d.LastColumnID, Name: name, Type: t, Nullable: !notNull, Comment: "about " + name}
	number(&c.Type, &d.LastColumnID)
	d.Schema = &millrace.Schema{ID: d.Schema.ID, Columns: append(slices.Clone(d.Schema.Columns), c)}
}

func number(t *millrace.DataType, last *millrace.ColumnID) {
	t.Children = slices.Clone(t.Children)
	for i := range t.Children {
		*last++
		t.Children[i].ID = *last
		number(&t.Children[i].Type, last)
	}
}

func mustType(s string) millrace.DataType {
	t, err := millrace.ParseType(s)
	if err != nil {
		panic(err)
	}
	return t
}

// batch makes a batch of columns from JSON rows.
func batch(t testing.TB, cols []millrace.Column, lines ...string) arrow.RecordBatch {
	t.Helper()
	d := jsonrow.NewDecoder(cols, jsonrow.Options{})
	for i, l := range lines {
		require.NoError(t, d.AddObject([]byte(l), int64(i)))
	}
	rows := d.Finish()
	return rows.Record
}

// append commits a round that appends rows to one slice.
func (w *world) append(f *Format, d *millrace.Table, s lake.Slice, next lake.Offsets, lines ...string) (*snapshot, error) {
	w.t.Helper()
	lt, err := f.open(w.ctx(), d)
	if err != nil {
		return nil, err
	}
	r, err := lt.begin(w.ctx(), d)
	if err != nil {
		return nil, err
	}
	if err := appendTo(w.t, r, s, lines...); err != nil {
		r.Abort(w.ctx())
		return nil, err
	}
	sn, err := r.commit(w.ctx(), next)
	if err != nil {
		r.Abort(w.ctx())
	}
	return sn, err
}

func appendTo(t *testing.T, r *round, s lake.Slice, lines ...string) error {
	t.Helper()
	a, err := r.Append(t.Context(), s)
	if err != nil {
		return err
	}
	b := batch(t, r.desc.Schema.Columns, lines...)
	defer b.Release()
	if err := a.Write(b); err != nil {
		return err
	}
	return a.Close()
}

// at are offsets of an unpartitioned table's buckets, by number.
func at(d *millrace.Table, next ...int64) lake.Offsets {
	out := lake.Offsets{}
	for i, n := range next {
		out[d.BucketID(uint16(i))] = millrace.Offset(n)
	}
	return out
}

// scan reads the newest snapshot with iceberg-go's own reader, as JSON rows, sorted.
func (w *world) scan(d *millrace.Table, o ...table.ScanOption) []string {
	w.t.Helper()
	lt, err := w.another().open(w.ctx(), d)
	require.NoError(w.t, err)
	v, err := lt.load(w.ctx())
	require.NoError(w.t, err)
	fsf := func(ctx context.Context) (iceio.IO, error) { return &storeIO{ctx: ctx, store: w.store}, nil }
	tbl := table.New(table.Identifier{"db", "t"}, v.meta, v.location, fsf, nil)
	_, rec, err := tbl.Scan(o...).ToArrowRecords(w.ctx())
	require.NoError(w.t, err)
	out := []string{}
	for b, err := range rec {
		require.NoError(w.t, err)
		raw, err := b.MarshalJSON()
		require.NoError(w.t, err)
		for line := range strings.SplitSeq(strings.Trim(strings.TrimSpace(string(raw)), "[]"), "\n,") {
			out = append(out, strings.TrimSpace(line))
		}
		b.Release()
	}
	slices.Sort(out)
	return out
}

// equal is the filter column = value.
func equal[T ice.LiteralType](column string, value T) ice.BooleanExpression {
	return ice.EqualTo(ice.Reference(column), value)
}

// dataFile is a file of the newest snapshot as its manifest describes it.
type dataFile struct {
	path   string
	rows   int64
	values []string
	bucket int
}

// dataFiles are the data files of the newest snapshot.
func (w *world) dataFiles(d *millrace.Table) (out []dataFile) {
	w.t.Helper()
	lt, err := w.f.open(w.ctx(), d)
	require.NoError(w.t, err)
	v, s, err := lt.current(w.ctx())
	require.NoError(w.t, err)
	require.NoError(w.t, lt.eachFile(w.ctx(), v.meta, &s.snap, func(e ice.ManifestEntry, spec *ice.PartitionSpec) error {
		f := e.DataFile()
		values, err := partitionTexts(d, spec, f.Partition())
		out = append(out, dataFile{f.FilePath(), f.Count(), values, bucketOf(d, spec, f)})
		return err
	}))
	return out
}

// propertyUpdate sets a property of a lake table.
func propertyUpdate(key, value string) []table.Update {
	return []table.Update{table.NewSetPropertiesUpdate(ice.Properties{key: value})}
}
