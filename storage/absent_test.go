package storage_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/storage/storagetest"
)

// Shows that of 50 who write rows of their own where no row is yet, one writes: the
// changelog has one +I, which all see, and an op may say so for some of its rows only.
func TestInsertIfAbsentConverges(t *testing.T) {
	w := small(t)
	w.MustOpen()
	m := w.Add(storagetest.NewTable(1, 1, 1, 1, "k BIGINT NOT NULL", "n INT"))
	var wrote atomic.Int64
	var group errgroup.Group
	for i := range int32(50) {
		group.Go(func() error {
			res, err := w.Shard(m.Table, 0).Write(context.Background(), m.Op(&storagetest.Write{
				Rows: []storagetest.Row{{int64(7), i}}, Absent: []bool{true},
			}, 0))
			wrote.Add(int64(res.End - res.Start))
			return err
		})
	}
	require.NoError(t, group.Wait())
	require.EqualValues(t, 1, wrote.Load())
	log, _ := w.ReadLog(m.Table, 0)
	require.Len(t, log, 1)

	first := log[0].Row
	m.Buckets[0].Log, m.Buckets[0].State[m.Key(first)] = log, first
	mixed := &storagetest.Write{
		Rows:   []storagetest.Row{{int64(7), int32(100)}, {int64(8), int32(101)}, {int64(8), int32(102)}, {int64(7), int32(103)}},
		Absent: []bool{true, true, true, false},
	}
	out := m.Buckets[0].Write(m.Table, mixed)
	res, err := w.Shard(m.Table, 0).Write(context.Background(), m.Op(mixed, 0))
	require.NoError(t, err)
	require.Equal(t, out, storagetest.Outcome{Start: int64(res.Start), End: int64(res.End)})
	require.EqualValues(t, 4, res.End) // +I of 8, -U and +U of 7
	w.Check()
	w.Crash(0)
	w.Check()
	w.Close()
}
