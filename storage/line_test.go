package storage_test

import (
	"context"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/shard"
	"github.com/millrace/millrace/storage/storagetest"
)

// stream sends numbered batches of a writer, many at a time: batch n has a row for
// bucket n mod 2, every fifth one for both, and is tooLarge's fault when that says so.
// It stops sending at the first failure and says which batch that was, 0 when none.
func (f *faulty) stream(from, to uint64, tooLarge func(n uint64) bool) (failed uint64) {
	line := &shard.Line{}
	type part struct {
		n uint64
		b uint16
		p *shard.Pending
	}
	var parts []part
	for n := from; n < to && line.Err(n) == nil; n++ {
		var started []*shard.Pending
		for b := range uint16(2) {
			if uint64(b) != n%2 && n%5 != 0 {
				continue
			}
			text := "v"
			if tooLarge(n) && uint64(b) == n%2 {
				text = strings.Repeat("v", shard.MaxRowBytes)
			}
			op := f.m.Op(&storagetest.Write{
				Bucket: b, Rows: keyedRows(1_000_000+int(n), 1_000_001+int(n), text),
				Writer: &storagetest.Sequence{Writer: "w", Seq: n},
			}, 0)
			op.Line, op.Place = line, n
			p, err := f.Shard(f.m.Table, b).Start(context.Background(), op)
			require.NoError(f.t, err)
			started = append(started, p)
			parts = append(parts, part{n, b, p})
		}
		for _, p := range started {
			require.NoError(f.t, p.Decided(context.Background()))
		}
	}
	var failedIn [2]uint64
	for _, p := range parts {
		_, err := p.p.Wait(context.Background())
		if err == nil {
			require.Zero(f.t, failedIn[p.b], "bucket %d took batch %d behind one that had failed", p.b, p.n)
			continue
		}
		if failed == 0 {
			failed = p.n
		} else if p.n > failed {
			require.Contains(f.t, []errs.Code{errs.Unavailable, errs.StorageFull}, errs.CodeOf(err), "%v", err)
		}
		failedIn[p.b] = p.n
	}
	return failed
}

// Shows that of numbered batches that are sent without waiting for each other nothing
// is taken behind one that fails, so that they can be sent again from there on, and
// every row is there once: while the log fails for lack of room now and then.
func TestNothingIsTakenBehindAFailure(t *testing.T) {
	f := newFaulty(t)
	var writes atomic.Int64
	full := func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileWrite && inLog(op) && writes.Add(1)%3 == 0 {
			return syscall.ENOSPC
		}
		return nil
	}
	f.fail.Store(&full)
	const batches = 400
	begun := [2]int64{f.end(0), f.end(1)}
	next, failures := uint64(1), 0
	for next <= batches {
		if failed := f.stream(next, batches+1, func(uint64) bool { return false }); failed != 0 {
			failures++
			next = failed
			continue
		}
		break
	}
	require.Positive(t, failures)
	f.clear()
	var want [2]int64
	for n := range uint64(batches) {
		want[(n+1)%2]++
		if (n+1)%5 == 0 {
			want[n%2]++
		}
	}
	for b := range uint16(2) {
		require.Equal(t, want[b], f.end(b)-begun[b])
	}
	f.Close()
}

// Shows that a batch that a bucket refuses stops the stream for the buckets of other
// shards, too.
func TestARefusalStopsTheStreamEverywhere(t *testing.T) {
	f := newFaulty(t)
	begun := [2]int64{f.end(0), f.end(1)}
	failed := f.stream(1, 64, func(n uint64) bool { return n == 8 })
	require.EqualValues(t, 8, failed)
	require.EqualValues(t, 3+1, f.end(0)-begun[0]) // 2, 4, 6 and 5
	require.EqualValues(t, 4, f.end(1)-begun[1])   // 1, 3, 5, 7
	require.Zero(t, f.stream(8, 64, func(uint64) bool { return false }))
	f.Close()
}

// end is where a bucket's log ends.
func (f *faulty) end(b uint16) int64 {
	_, v, err := f.Shard(f.m.Table, b).Log(f.m.BucketID(b))
	require.NoError(f.t, err)
	return int64(v.End)
}
