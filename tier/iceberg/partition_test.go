package iceberg

import (
	"fmt"
	"testing"

	"github.com/apache/iceberg-go/table"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/row"
)

// TestPartitionColumns writes a row into a partition of each type that a partition column
// can have, reads it back by iceberg-go's reader with the tuple as a filter does, and
// compares the texts of the values in the manifest with those that went in.
func TestPartitionColumns(t *testing.T) {
	w := newWorld(t)
	for i, c := range []struct{ typ, json, text string }{
		{"BOOLEAN", `true`, "true"},
		{"TINYINT", `-128`, "-128"},
		{"SMALLINT", `-5`, "-5"},
		{"INT", `7`, "7"},
		{"BIGINT", `9007199254740993`, "9007199254740993"},
		{"DECIMAL(9,2)", `"-1.25"`, "-1.25"},
		{"DECIMAL(38,10)", `"1234567890123456789012345678.0123456789"`, "1234567890123456789012345678.0123456789"},
		{"CHAR(5)", `"é\"/x"`, `é"/x`},
		{"STRING", `""`, ""},
		{"BINARY(3)", `"AQID"`, "AQID"},
		{"BYTES", `"AP8="`, "AP8="},
		{"DATE", `"1969-12-31"`, "1969-12-31"},
		{"TIME(0)", `"23:59:59"`, "23:59:59"},
		{"TIME(6)", `"00:00:00.000001"`, "00:00:00.000001"},
		{"TIMESTAMP(0)", `"1969-12-31T23:59:59"`, "1969-12-31T23:59:59"},
		{"TIMESTAMP(6)", `"2026-08-26T12:34:56.123456"`, "2026-08-26T12:34:56.123456"},
		{"TIMESTAMP_LTZ(3)", `"1969-12-31T23:59:59.999Z"`, "1969-12-31T23:59:59.999Z"},
	} {
		t.Run(c.typ, func(t *testing.T) {
			d := testTable(millrace.TableID(i+1), nil, []string{"p"}, 1, "k BIGINT NOT NULL", "p "+c.typ+" NOT NULL")
			p := &millrace.Partition{ID: 9, Table: d.ID, Values: []string{c.text}}
			line := fmt.Sprintf(`{"k":1,"p":%s}`, c.json)
			_, err := w.append(w.f, d, lake.Slice{Partition: p, Bucket: lake.NoBucket}, lake.Offsets{p.BucketID(0): 1}, line)
			require.NoError(t, err)
			got := w.scan(d)
			require.Len(t, got, 1)
			require.JSONEq(t, line, got[0])
			for _, f := range w.dataFiles(d) {
				require.Equal(t, []string{c.text}, f.values)
			}
		})
	}
}

// TestBucketPartition writes rows of a table that is partitioned by bucket and finds, for
// each key, that the bucket transform of stock readers leads to the file it is in.
func TestBucketPartition(t *testing.T) {
	w := newWorld(t)
	d := testTable(1, []string{"k", "dt"}, []string{"dt"}, 4, "k BIGINT NOT NULL", "dt DATE NOT NULL", "s STRING")
	b := row.NewBucketer(d.Columns(d.BucketKey), d.Buckets)
	p := &millrace.Partition{ID: 5, Table: d.ID, Values: []string{"2026-08-26"}}
	lt, err := w.f.open(t.Context(), d)
	require.NoError(t, err)
	r, err := lt.begin(t.Context(), d)
	require.NoError(t, err)
	lines := make([][]string, d.Buckets)
	for k := range 40 {
		line := fmt.Sprintf(`{"k":%d,"dt":"2026-08-26","s":"x"}`, k)
		one := batch(t, d.Schema.Columns, line)
		n := b.Buckets(one, []int{0}, nil)[0]
		one.Release()
		lines[n] = append(lines[n], line)
	}
	next := lake.Offsets{}
	for n, l := range lines {
		require.NoError(t, appendTo(t, r, lake.Slice{Partition: p, Bucket: n}, l...))
		next[p.BucketID(uint16(n))] = millrace.Offset(len(l))
	}
	s, err := r.commit(t.Context(), next)
	require.NoError(t, err)
	require.Equal(t, next, s.Offsets())
	require.Len(t, w.scan(d), 40)
	for k := range 12 {
		got := w.scan(d, table.WithRowFilter(equal("k", int64(k))))
		require.Len(t, got, 1, k)
	}
	files := w.dataFiles(d)
	require.Len(t, files, 4)
	for _, f := range files {
		require.Equal(t, f.bucket, bucketOfName(f.path))
	}
}

// TestClear takes a bucket, then a partition out of a keyed table, together with the
// position deletes that apply there, and adds rows in the same commit.
func TestClear(t *testing.T) {
	w := newWorld(t)
	d := testTable(1, []string{"a", "b", "p"}, []string{"p"}, 2, "a BIGINT NOT NULL", "b STRING NOT NULL", "p INT NOT NULL")
	require.Nil(t, byBucket(d)) // two columns: buckets are told by names
	p1 := &millrace.Partition{ID: 1, Table: d.ID, Values: []string{"1"}}
	p2 := &millrace.Partition{ID: 2, Table: d.ID, Values: []string{"2"}}
	lt, err := w.f.open(t.Context(), d)
	require.NoError(t, err)
	r, err := lt.begin(t.Context(), d)
	require.NoError(t, err)
	for _, p := range []*millrace.Partition{p1, p2} {
		for b := range 2 {
			require.NoError(t, appendTo(t, r, lake.Slice{Partition: p, Bucket: b}, fmt.Sprintf(`{"a":%d,"b":"x","p":%s}`, b, p.Values[0])))
		}
	}
	_, err = r.commit(t.Context(), lake.Offsets{p1.BucketID(0): 1})
	require.NoError(t, err)

	r, err = lt.begin(t.Context(), d)
	require.NoError(t, err)
	require.NoError(t, r.Clear(t.Context(), lake.Slice{Partition: p1, Bucket: 1}))
	require.EqualValues(t, 1, r.Written().DeletedRows)
	require.NoError(t, appendTo(t, r, lake.Slice{Partition: p1, Bucket: 1}, `{"a":7,"b":"y","p":1}`))
	s, err := r.commit(t.Context(), lake.Offsets{p1.BucketID(0): 1})
	require.NoError(t, err)
	require.Equal(t, []string{`{"a":0,"b":"x","p":1}`, `{"a":0,"b":"x","p":2}`, `{"a":1,"b":"x","p":2}`, `{"a":7,"b":"y","p":1}`}, w.scan(d))
	require.EqualValues(t, 4, s.Totals().Rows)
	require.EqualValues(t, 4, s.Totals().DataFiles)
	require.Equal(t, table.OpOverwrite, s.snap.Summary.Operation)

	r, err = lt.begin(t.Context(), d)
	require.NoError(t, err)
	require.NoError(t, r.Clear(t.Context(), lake.Slice{Partition: p1, Bucket: lake.NoBucket}))
	s, err = r.commit(t.Context(), lake.Offsets{})
	require.NoError(t, err)
	require.Equal(t, []string{`{"a":0,"b":"x","p":2}`, `{"a":1,"b":"x","p":2}`}, w.scan(d))
	require.Equal(t, table.OpDelete, s.snap.Summary.Operation)
	require.Empty(t, s.Offsets())
}
