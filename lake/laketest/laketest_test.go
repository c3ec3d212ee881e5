package laketest_test

// These tests hold the model to what package lake promises, on a few rows each.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/lake/laketest"
	"github.com/millrace/millrace/row"
)

func keyed() *millrace.Table {
	return &millrace.Table{
		ID: 7, Kind: millrace.KeyedTable, Path: millrace.TablePath{Database: "d", Table: "t"}, Buckets: 2, Version: 1,
		Schema: &millrace.Schema{ID: 1, Columns: []millrace.Column{
			{ID: 1, Name: "k", Type: millrace.DataType{Kind: millrace.BigInt}},
			{ID: 2, Name: "v", Type: millrace.DataType{Kind: millrace.Int}, Nullable: true},
		}},
		PrimaryKey: []millrace.ColumnID{1}, BucketKey: []millrace.ColumnID{1},
		Options: millrace.TableOptions{Lake: &millrace.LakeOptions{Enabled: true, Compact: true, Expire: true, TargetFileBytes: 1 << 20, Deletes: millrace.PositionDeletes}},
	}
}

func record(cols []millrace.Column, vals ...[2]int64) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, row.ArrowSchema(cols))
	defer b.Release()
	for _, v := range vals {
		b.Field(0).(*array.Int64Builder).Append(v[0])
		switch c := b.Field(1).(type) {
		case *array.Int64Builder:
			c.Append(v[1])
		case *array.Int32Builder:
			c.Append(int32(v[1]))
		}
	}
	return b.NewRecordBatch()
}

// round makes a commit of rows in bucket 0.
func round(t *testing.T, lt lake.Table, desc *millrace.Table, next millrace.Offset, deletes []int64, vals ...[2]int64) (lake.Snapshot, error) {
	ctx := context.Background()
	r, err := lt.Begin(ctx, desc)
	require.NoError(t, err)
	fill(t, r, desc, deletes, vals...)
	return r.Commit(ctx, lake.Offsets{desc.BucketID(0): next})
}

func fill(t *testing.T, r lake.Round, desc *millrace.Table, deletes []int64, vals ...[2]int64) {
	ctx := context.Background()
	keys := map[string]struct{}{}
	for _, k := range deletes {
		rec := record(desc.Schema.Columns, [2]int64{k, 0})
		keys[string(row.AppendKey(nil, rec, []int{0}, 0))] = struct{}{}
		rec.Release()
	}
	if len(keys) > 0 {
		n, err := r.Delete(ctx, lake.Slice{}, keys)
		require.NoError(t, err)
		require.EqualValues(t, len(deletes), n)
	}
	a, err := r.Append(ctx, lake.Slice{})
	require.NoError(t, err)
	rec := record(desc.Schema.Columns, vals...)
	defer rec.Release()
	require.NoError(t, a.Write(rec))
	require.NoError(t, a.Close())
}

// contents are the rows of a snapshot.
func contents(t *testing.T, s lake.Snapshot, cols []millrace.Column) []string {
	fs, err := s.Files(context.Background(), lake.Scope{})
	require.NoError(t, err)
	var out []string
	for i := range fs {
		rows, err := s.Rows(context.Background(), &fs[i], lake.Read{Columns: cols, BatchRows: 2})
		require.NoError(t, err)
		for {
			rec, positions, err := rows.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			require.Len(t, positions, int(rec.NumRows()))
			for i := range int(rec.NumRows()) {
				out = append(out, fmt.Sprint(rec.Column(0).ValueStr(i), "=", rec.Column(1).ValueStr(i)))
			}
			rec.Release()
		}
		require.NoError(t, rows.Close())
	}
	slices.Sort(out)
	return out
}

func TestRounds(t *testing.T) {
	for _, deletes := range []millrace.LakeDeletes{millrace.PositionDeletes, millrace.RewriteFiles} {
		desc := keyed()
		desc.Options.Lake.Deletes = deletes
		ctx := context.Background()
		now := time.Date(2026, 8, 1, 0, 0, 0, 0, time.UTC)
		f := laketest.New()
		f.Now = func() time.Time { return now }
		lt, err := f.Open(ctx, desc)
		require.NoError(t, err)
		none, err := lt.Newest(ctx)
		require.NoError(t, err)
		require.Nil(t, none)

		first, err := round(t, lt, desc, 3, nil, [2]int64{1, 10}, [2]int64{2, 20}, [2]int64{3, 30})
		require.NoError(t, err)
		second, err := round(t, lt, desc, 5, []int64{1, 3}, [2]int64{1, 11})
		require.NoError(t, err)
		require.Equal(t, []string{"1=10", "2=20", "3=30"}, contents(t, first, desc.Schema.Columns))
		require.Equal(t, []string{"1=11", "2=20"}, contents(t, second, desc.Schema.Columns))
		require.EqualValues(t, 2, second.Round())
		require.EqualValues(t, 2, second.Totals().Rows)

		// Widened, and merged: the same rows.
		wide := keyed()
		wide.Schema = &millrace.Schema{ID: 2, Columns: slices.Clone(desc.Schema.Columns)}
		wide.Schema.Columns[1].Type = millrace.DataType{Kind: millrace.BigInt}
		wide.Options.Lake.Deletes = deletes
		third, err := round(t, lt, wide, 6, nil, [2]int64{4, 1 << 40})
		require.NoError(t, err)
		want := []string{"1=11", fmt.Sprint("4=", int64(1)<<40), "2=20"}
		slices.Sort(want)
		require.Equal(t, want, contents(t, third, wide.Schema.Columns))
		m, err := lt.Maintain(ctx, wide)
		require.NoError(t, err)
		require.Equal(t, 1, m.Commits)
		merged, err := lt.Newest(ctx)
		require.NoError(t, err)
		require.Equal(t, want, contents(t, merged, wide.Schema.Columns))
		require.Equal(t, third.Offsets(), merged.Offsets())
		require.EqualValues(t, 2, merged.Totals().DataFiles)
		require.Equal(t, []string{"1=10", "2=20", "3=30"}, contents(t, first, desc.Schema.Columns))

		now = now.Add(25 * time.Hour)
		_, err = lt.Maintain(ctx, wide)
		require.NoError(t, err)
		_, err = lt.Snapshot(ctx, first.ID())
		require.True(t, errs.Is(err, errs.SnapshotGone))
		again, err := lt.Snapshot(ctx, merged.ID())
		require.NoError(t, err)
		require.Equal(t, merged.ID(), again.ID())
	}
}

func TestConflictsAndMisuse(t *testing.T) {
	ctx, desc := context.Background(), keyed()
	lt, err := laketest.New().Open(ctx, desc)
	require.NoError(t, err)
	late, err := lt.Begin(ctx, desc)
	require.NoError(t, err)
	fill(t, late, desc, nil, [2]int64{9, 9})
	_, err = round(t, lt, desc, 3, nil, [2]int64{1, 10})
	require.NoError(t, err)
	_, err = late.Commit(ctx, lake.Offsets{desc.BucketID(0): 1})
	require.ErrorIs(t, err, lake.ErrConflict)

	_, err = round(t, lt, desc, 4, nil, [2]int64{1, 11})
	require.ErrorContains(t, err, "key")
	_, err = round(t, lt, desc, 2, nil, [2]int64{2, 20})
	require.ErrorContains(t, err, "offset")

	r, err := lt.Begin(ctx, desc)
	require.NoError(t, err)
	require.NoError(t, r.Clear(ctx, lake.Slice{Bucket: lake.NoBucket}))
	fill(t, r, desc, nil, [2]int64{1, 12})
	s, err := r.Commit(ctx, lake.Offsets{desc.BucketID(0): 1})
	require.NoError(t, err)
	require.Equal(t, []string{"1=12"}, contents(t, s, desc.Schema.Columns))
	n, err := lt.Newest(ctx)
	require.NoError(t, err)
	require.Equal(t, s.ID(), n.ID())
}

// A lost answer leaves the commit; the lake says so.
func TestLostAnswer(t *testing.T) {
	ctx, desc, f := context.Background(), keyed(), laketest.New()
	lt, err := f.Open(ctx, desc)
	require.NoError(t, err)
	lost := errs.New(errs.Unavailable, "no answer")
	f.Hook = func(s laketest.Step, _ millrace.TableID) error {
		if s == laketest.AfterCommit {
			return lost
		}
		return nil
	}
	_, err = round(t, lt, desc, 1, nil, [2]int64{1, 10})
	require.ErrorIs(t, err, lost)
	s, err := lt.Newest(ctx)
	require.NoError(t, err)
	require.Equal(t, lake.Offsets{desc.BucketID(0): 1}, s.Offsets())
}
