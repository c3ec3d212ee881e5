package storage_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/shard"
	"github.com/millrace/millrace/storage/storagetest"
)

// Shows that while many write, some of them the same keys, and checkpoints are taken,
// every snapshot is the fold of the changelog up to the offset it stands for (S3),
// what a subscriber reads from there on continues it without a gap, and every
// acknowledged write is in the changelog once, where its answer says; after a crash
// too.
func TestConcurrent(t *testing.T) {
	seed := seeds(t, 1)[0]
	t.Logf("MILLRACE_MODEL_SEED=%d", seed)
	w := storagetest.NewWorld(t, seed)
	w.Opts.Shards, w.Opts.QueueBytes = 2, 64<<10
	w.MustOpen()
	tbl := storagetest.NewTable(2, 3, 2, 2, storagetest.KeyedColumns...)
	log := storagetest.NewTable(4, 2, 2, 0, storagetest.LogColumns...)
	const writers = 16
	each := modelOps(t, 2500) / writers
	type acked struct {
		tbl    *storagetest.Table
		bucket uint16
		res    shard.Result
		tag    string
		rows   int
	}
	var mu sync.Mutex
	var all []acked
	var ended atomic.Bool
	var group, readers errgroup.Group
	for i := range writers {
		rng := rand.New(rand.NewPCG(seed, uint64(100+i)))
		group.Go(func() error {
			for n := range each {
				tag := fmt.Sprintf("%d/%d", i, n)
				a := acked{tbl: tbl, bucket: uint16(rng.IntN(3)), tag: tag, rows: 1 + rng.IntN(8)}
				wr := &storagetest.Write{}
				if rng.IntN(4) == 0 {
					a.tbl, a.bucket = log, uint16(rng.IntN(2))
				}
				for range a.rows {
					if a.tbl == log {
						wr.Rows = append(wr.Rows, storagetest.Row{int64(n), tag, nil, nil, nil})
						continue
					}
					wr.Rows = append(wr.Rows, storagetest.Row{int64(rng.IntN(20)), "k", nil, tag, nil})
					wr.Deletes = append(wr.Deletes, rng.IntN(4) == 0)
				}
				wr.Bucket = a.bucket
				var err error
				if a.res, err = w.Shard(a.tbl, a.bucket).Write(context.Background(), a.tbl.Op(wr, 0)); err != nil {
					return err
				}
				mu.Lock()
				all = append(all, a)
				mu.Unlock()
			}
			return nil
		})
	}
	for i := range 4 {
		readers.Go(func() error {
			rng := rand.New(rand.NewPCG(seed, uint64(200+i)))
			for !ended.Load() {
				if err := readConsistently(w, tbl, uint16(rng.IntN(3))); err != nil {
					return err
				}
			}
			return nil
		})
	}
	readers.Go(func() error {
		for !ended.Load() {
			for _, s := range w.Worker.Shards() {
				if err := s.Checkpoint(context.Background()); err != nil {
					return err
				}
			}
			time.Sleep(3 * time.Millisecond)
		}
		return nil
	})
	follow := make([]*follower, 3)
	for b := range follow {
		follow[b] = &follower{}
		readers.Go(func() error { return follow[b].run(w, tbl, uint16(b), &ended) })
	}
	require.NoError(t, group.Wait())
	ended.Store(true)
	require.NoError(t, readers.Wait())

	check := func() {
		seen := map[string]int64{} // records of each write, by tag, bucket
		for _, tb := range []*storagetest.Table{tbl, log} {
			for b := range tb.Buckets {
				got, _ := w.ReadLog(tb, uint16(b))
				sn, err := w.Shard(tb, uint16(b)).Snapshot()
				require.NoError(t, err)
				if tb == tbl {
					require.Empty(t, storagetest.DiffLogs(got, follow[b].log), "what a follower of bucket %d read", b)
					require.Empty(t, storagetest.DiffStates(storagetest.Fold(tb, got), w.ReadState(sn, tb, uint16(b))))
				}
				sn.Release()
				for _, c := range got {
					if c.Type != millrace.UpdateBefore && c.Type != millrace.Delete {
						col := 3
						if tb == log {
							col = 1
						}
						seen[fmt.Sprint(c.Row[col])]++
					}
				}
				mu.Lock()
				next := int64(0)
				for _, a := range all {
					if a.tbl == tb && int(a.bucket) == b {
						next += int64(a.res.End - a.res.Start)
					}
				}
				mu.Unlock()
				require.EqualValues(t, len(got), next, "bucket %d: the answers cover the log", b)
			}
		}
		for _, a := range all {
			if a.tbl == log {
				require.EqualValues(t, a.rows, seen[a.tag], "rows of %s", a.tag)
			}
		}
	}
	check()
	w.Crash(0)
	check()
	w.Close()
}

// readConsistently compares a snapshot with the changelog up to its offset.
func readConsistently(w *storagetest.World, t *storagetest.Table, bucket uint16) error {
	sh := w.Shard(t, bucket)
	sn, err := sh.Snapshot()
	if err != nil {
		return err
	}
	defer sn.Release()
	meta, err := sn.Meta(t.BucketID(bucket))
	if err != nil {
		return err
	}
	log, micros, err := storagetest.ReadLog(sh, t, bucket)
	if err != nil {
		return err
	}
	if int(meta.Next) > len(log) {
		return fmt.Errorf("a snapshot stands at offset %d, and the log read after it ends at %d", meta.Next, len(log))
	}
	for i := 1; i < len(micros); i++ {
		if micros[i] < micros[i-1] {
			return fmt.Errorf("time goes back at offset %d", i)
		}
	}
	state, err := storagetest.ReadState(sn, t, bucket)
	if err != nil {
		return err
	}
	want := storagetest.Fold(t, log[:meta.Next])
	if d := storagetest.DiffStates(want, state); d != "" {
		return fmt.Errorf("a snapshot at offset %d: %s", meta.Next, d)
	}
	if int(meta.Rows) != len(want) {
		return fmt.Errorf("a snapshot at offset %d counts %d rows and has %d", meta.Next, meta.Rows, len(want))
	}
	return nil
}

// follower reads a bucket's changelog as it grows.
type follower struct{ log []storagetest.Change }

func (f *follower) run(w *storagetest.World, t *storagetest.Table, bucket uint16, ended *atomic.Bool) error {
	sh := w.Shard(t, bucket)
	c := make(chan struct{}, 1)
	sub := sh.Subscribe(c, []millrace.BucketID{t.BucketID(bucket)})
	defer sub.Close()
	for {
		last := ended.Load()
		log, _, err := storagetest.ReadLog(sh, t, bucket)
		if err != nil {
			return err
		}
		if len(log) < len(f.log) {
			return fmt.Errorf("the changelog of bucket %d went back from %d to %d", bucket, len(f.log), len(log))
		}
		if d := storagetest.DiffLogs(f.log, log[:len(f.log)]); d != "" {
			return fmt.Errorf("what was read before changed: %s", d)
		}
		f.log = log
		if last {
			return nil
		}
		select {
		case <-c:
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Shows that nobody who reads or writes while a worker closes crashes, hangs, or gets
// anything but an answer or a refusal.
func TestCloseUnderLoad(t *testing.T) {
	for i := range 8 {
		w := small(t)
		w.Opts.Shards = 2
		w.MustOpen()
		tbl := storagetest.NewTable(2, 2, 2, 2, storagetest.KeyedColumns...)
		var ended atomic.Bool
		var g errgroup.Group
		refused := func(err error) error {
			if err == nil || errs.Is(err, errs.Draining) || errs.Is(err, errs.SnapshotGone) {
				return nil
			}
			return err
		}
		for b := range uint16(2) {
			sh := w.Shard(tbl, b)
			g.Go(func() error {
				for n := 0; !ended.Load(); n++ {
					_, err := sh.Write(context.Background(), tbl.Op(&storagetest.Write{Bucket: b, Rows: keyedRows(n, n+10, "a")}, 0))
					if refused(err) != nil {
						return err
					}
				}
				return nil
			})
			g.Go(func() error {
				key := tbl.StateKey(keyedRows(1, 2, "")[0])
				for !ended.Load() {
					_, err := sh.Lookup(context.Background(), tbl.BucketID(b), [][]byte{key})
					if refused(err) != nil {
						return err
					}
				}
				return nil
			})
			g.Go(func() error {
				for !ended.Load() {
					sn, err := sh.Snapshot()
					if err != nil {
						if refused(err) != nil {
							return err
						}
						continue
					}
					if _, err := storagetest.ReadState(sn, tbl, b); err != nil {
						return err
					}
					id := sh.Hold(sn, tbl.ID, time.Minute, 0)
					if held, err := sh.Held(id); err == nil {
						held.Release()
					} else if refused(err) != nil {
						return err
					}
				}
				return nil
			})
			g.Go(func() error {
				for !ended.Load() {
					_, _, err := storagetest.ReadLog(sh, tbl, b)
					if refused(err) != nil {
						return err
					}
				}
				return nil
			})
		}
		time.Sleep(time.Duration(5+i) * time.Millisecond)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		require.NoError(t, w.Worker.Close(ctx))
		cancel()
		ended.Store(true)
		require.NoError(t, g.Wait())
		w.MustOpen()
		w.Close()
	}
}
