package iceberg

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	ice "github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/table"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/filter"
	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/objstore"
	"github.com/millrace/millrace/row"
)

var testKeys = []string{
	"BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "DECIMAL(9,2)", "DECIMAL(38,10)", "CHAR(5)", "STRING", "BINARY(3)", "BYTES",
	"DATE", "TIME(0)", "TIME(6)", "TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP_LTZ(6)",
}

// However keys lie to the bounds of row groups, those that leave out none of the rows
// with a key, for keys of any types.
func TestKeysAgainstStatistics(t *testing.T) {
	skipped := int64(0)
	rapid.Check(t, func(t *rapid.T) {
		var n ids
		var cols []millrace.Column
		for i := range rapid.IntRange(1, 2).Draw(t, "columns") {
			cols = append(cols, n.number(millrace.Column{Name: fmt.Sprintf("k%d", i), Type: parseType(rapid.SampledFrom(testKeys).Draw(t, "type"))}))
		}
		values := make([]map[millrace.ColumnID]any, rapid.IntRange(1, 20).Draw(t, "rows"))
		for i := range values {
			values[i] = map[millrace.ColumnID]any{}
			for _, c := range cols {
				values[i][c.ID] = drawValue(t, c.Type, false)
			}
			if i > 0 && rapid.Bool().Draw(t, "same") {
				values[i][1] = values[i-1][1]
			}
		}
		rec := buildRecord(row.ArrowSchema(cols), values)
		w := drawWritten(t)
		w.groupRows = int64(rapid.IntRange(1, 5).Draw(t, "group rows"))
		body := parquetOf(buildRecord(storedSchema(cols), values), w)
		at := make([]int, len(cols))
		for i := range at {
			at[i] = i
		}
		keys, want := map[string]struct{}{}, []int64{}
		for range rapid.IntRange(1, 4).Draw(t, "keys") {
			keys[string(row.AppendKey(nil, rec, at, rapid.IntRange(0, len(values)-1).Draw(t, "key")))] = struct{}{}
		}
		for i := range values {
			if _, ok := keys[string(row.AppendKey(nil, rec, at, i))]; ok {
				want = append(want, int64(i))
			}
		}
		set := newKeySet(cols, keys)
		rs, err := openRows(t.Context(), memStore{nameOf(w): body}, nameOf(w), int64(len(body)), reading{Read: lake.Read{Columns: cols}, mayHold: set.mayHold})
		require.NoError(t, err)
		skipped += rs.Stats().RowsSkipped
		_, read := readAll(t, rs, row.ArrowSchema(cols))
		require.Subset(t, read, want)
	})
	require.Positive(t, skipped)
}

// countingStore counts the bytes that are read of data files.
type countingStore struct {
	objstore.Store
	read atomic.Int64
}

func (s *countingStore) ReadAt(ctx context.Context, key string, p []byte, off int64) error {
	if strings.Contains(key, "/data/") {
		s.read.Add(int64(len(p)))
	}
	return s.Store.ReadAt(ctx, key, p, off)
}

// Deleting rows reads the key column of the parts of files that may hold them, and
// nothing else of the table.
func TestDeleteReadsKeys(t *testing.T) {
	w := newWorld(t)
	store := &countingStore{Store: w.store}
	w.f = New(Options{Store: store, Cluster: w.f.o.Cluster, Clock: w.clock, Logger: w.f.o.Logger})
	d := testTable(1, []string{"id"}, nil, 1, "id STRING NOT NULL", "v STRING")
	d.Options.Lake.TargetFileBytes = 64 << 20
	s := lake.Slice{Bucket: 0}
	line := func(id int) string {
		return fmt.Sprintf(`{"id":"%08d-%s","v":"%d"}`, id, noiseText(id), id)
	}
	total := int64(0)
	for f := range 3 {
		r, err := w.f.begun(t, d)
		require.NoError(t, err)
		a, err := r.Append(t.Context(), s)
		require.NoError(t, err)
		a.(*appender).w.group = 128 << 10
		for i := 0; i < 4000; i += 200 { // of 1 KiB each, in pages of 1 MiB
			var lines []string
			for j := range 200 {
				lines = append(lines, line(f*4000+i+j))
			}
			b := batch(t, d.Schema.Columns, lines...)
			require.NoError(t, a.Write(b))
			b.Release()
		}
		require.NoError(t, a.Close())
		sn, err := r.Commit(t.Context(), at(d, int64(f)))
		require.NoError(t, err)
		total = sn.Totals().Bytes
	}
	key := func(id int) string { return w.keyOfRow(d, line(id)) }
	lt, err := w.f.begun(t, d)
	require.NoError(t, err)
	store.read.Store(0)
	n, err := lt.Delete(t.Context(), s, map[string]struct{}{key(5000): {}, key(5001): {}, key(5002) + "x": {}})
	require.NoError(t, err)
	require.Equal(t, int64(2), n)
	require.Greater(t, total, int64(1<<20))
	require.Less(t, store.read.Load(), total/5)
	again, err := lt.Delete(t.Context(), s, map[string]struct{}{key(5000): {}, key(5002): {}})
	require.NoError(t, err)
	require.Equal(t, int64(1), again)
	_, err = lt.Commit(t.Context(), at(d, 9))
	require.NoError(t, err)
	require.Len(t, w.scan(d), 12_000-3)

	store.read.Store(0)
	lt, err = w.f.begun(t, d)
	require.NoError(t, err)
	n, err = lt.Delete(t.Context(), s, map[string]struct{}{key(20_000): {}, key(20_001): {}})
	require.NoError(t, err)
	require.Zero(t, n)
	require.Zero(t, store.read.Load())
	lt.Abort(t.Context())
}

// noiseText is a text that does not compress.
func noiseText(seed int) string {
	var b strings.Builder
	x := uint64(seed)*0x9e3779b97f4a7c15 + 1
	for range 80 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		fmt.Fprintf(&b, "%x", x)
	}
	return b.String()
}

func (f *Format) begun(t *testing.T, d *millrace.Table) (lake.Round, error) {
	lt, err := f.Open(t.Context(), d)
	if err != nil {
		return nil, err
	}
	return lt.Begin(t.Context(), d)
}

// Deletes that we cannot apply are an error of the files that they are for, and of no
// others: older files of their partition.
func TestForeignDeletes(t *testing.T) {
	w := newWorld(t)
	d := testTable(1, []string{"id"}, nil, 1, "id BIGINT NOT NULL", "v STRING")
	s := lake.Slice{Bucket: 0}
	_, err := w.append(w.f, d, s, at(d, 1), `{"id":1,"v":"a"}`)
	require.NoError(t, err)
	lt, err := w.f.open(t.Context(), d)
	require.NoError(t, err)
	r, err := lt.begin(t.Context(), d)
	require.NoError(t, err)
	b, err := ice.NewDataFileBuilder(r.spec, ice.EntryContentEqDeletes, lt.location+"/data/eq.parquet", ice.ParquetFile, nil, nil, nil, 1, 100)
	require.NoError(t, err)
	eq := b.EqualityFieldIDs([]int{1}).Build()
	_, _, _, err = lt.publish(t.Context(), &commit{at: r.at, base: r.base, spec: &r.spec, edit: edit{addDeletes: []ice.DataFile{eq}}, operation: table.OpDelete, own: r.own})
	require.NoError(t, err)
	newest, err := lt.Newest(t.Context())
	require.NoError(t, err)
	_, err = newest.Files(t.Context(), lake.Scope{})
	require.Equal(t, errs.NotImplemented, errs.CodeOf(err))
	require.ErrorContains(t, err, "eq.parquet")
	require.Equal(t, at(d, 1), newest.Offsets())
	require.Equal(t, [2]int64{1, 0}, [2]int64{newest.Totals().EqualityDeletes, newest.Totals().DeletedRows})
	_, err = lt.Maintain(t.Context(), d)
	require.NoError(t, err)

	// What was added since is not touched by them.
	_, err = w.append(w.f, d, s, at(d, 2), `{"id":2,"v":"b"}`)
	require.NoError(t, err)
	newest, err = lt.Newest(t.Context())
	require.NoError(t, err)
	f, err := filter.Compile("id = 2", nil, d.Schema.Columns, w.clock.now)
	require.NoError(t, err)
	require.Equal(t, []string{`{"id":2,"v":"b"}`}, w.readLake(newest, d.Schema.Columns, lake.Scope{Schema: d.Schema, Filter: f}))
	require.EqualValues(t, 1, newest.Totals().EqualityDeletes)

	// They go with the rows.
	r, err = lt.begin(t.Context(), d)
	require.NoError(t, err)
	require.NoError(t, r.Clear(t.Context(), noBucket))
	_, err = r.commit(t.Context(), at(d, 3))
	require.NoError(t, err)
	newest, err = lt.Newest(t.Context())
	require.NoError(t, err)
	require.Equal(t, lake.Totals{}, newest.Totals())
}

// Values too long for statistics leave their column without bounds, not with those of
// the other values.
func TestLongValues(t *testing.T) {
	w := newWorld(t)
	d := testTable(1, nil, nil, 1, "id BIGINT NOT NULL", "v STRING")
	long := func(c string) string { return strings.Repeat(c, 5000) }
	for _, values := range [][]string{{"m", long("a")}, {long("z"), "n"}, {long("a"), long("z"), "o"}, {"p", "q"}} {
		r, err := w.f.begun(t, d)
		require.NoError(t, err)
		a, err := r.Append(t.Context(), noBucket)
		require.NoError(t, err)
		a.(*appender).w.group = 1 // a row group a batch
		for i, v := range values {
			b := batch(t, d.Schema.Columns, fmt.Sprintf(`{"id":%d,"v":%q}`, i, v))
			require.NoError(t, a.Write(b))
			b.Release()
		}
		require.NoError(t, a.Close())
		_, err = r.Commit(t.Context(), at(d, 1))
		require.NoError(t, err)
	}
	// One bound only.
	_, err := w.append(w.f, d, noBucket, at(d, 1), `{"id":0,"v":"r"}`, fmt.Sprintf(`{"id":1,"v":%q}`, long("y")))
	require.NoError(t, err)
	lt, err := w.f.open(t.Context(), d)
	require.NoError(t, err)
	s, err := lt.Newest(t.Context())
	require.NoError(t, err)
	for text, files := range map[string]int{
		"v = 'm'": 4, "v = '" + long("z") + "'": 4, "v = '" + long("y") + "'": 4, "v < 'b'": 4, "v = 'q'": 5, "id = 2": 1, "id = 3": 0,
	} {
		f, err := filter.Compile(text, nil, d.Schema.Columns, w.clock.now)
		require.NoError(t, err)
		scope := lake.Scope{Schema: d.Schema, Filter: f}
		got, err := s.Files(t.Context(), scope)
		require.NoError(t, err)
		require.Len(t, got, files, text[:6])
		if files > 1 {
			found := false
			for _, line := range w.readLake(s, d.Schema.Columns, scope) {
				found = found || strings.Contains(line, strings.Trim(strings.ReplaceAll(text[5:], "b", "a"), "'"))
			}
			require.True(t, found, text[:6])
		}
	}
}
