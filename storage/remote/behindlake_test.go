package remote_test

import (
	"context"
	"log/slog"
	"path"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/shard"
	"github.com/millrace/millrace/storage/storagetest"
	"github.com/millrace/millrace/storage/wal"
)

// unknown is a table that only the lake knows.
func (w *world) unknown() *storagetest.Modelled {
	return &storagetest.Modelled{Table: storagetest.NewTable(9, 2, w.Opts.Shards, 0, storagetest.LogColumns...), Buckets: []*storagetest.Bucket{storagetest.NewBucket(), storagetest.NewBucket()}}
}

// inLake is what the lake of a test has: more than the logs of all even buckets, less than those of the others, and some
// of a table that no checkpoint knows.
func (w *world) inLake(unknown *storagetest.Modelled) (map[millrace.ShardID][]shard.InLake, map[millrace.BucketID]millrace.Offset) {
	in, next := map[millrace.ShardID][]shard.InLake{}, map[millrace.BucketID]millrace.Offset{}
	for _, m := range append(slices.Clip(w.Tables), unknown) {
		for b := range m.Buckets {
			l := shard.InLake{Table: m.Table.Table, Bucket: m.BucketID(uint16(b)), End: millrace.Offset(len(m.Buckets[b].Log) + 7)}
			if b%2 == 1 {
				l.End = max(0, l.End-8)
			}
			end := max(l.End, millrace.Offset(len(m.Buckets[b].Log)))
			if b%2 == 0 && m.Keyed {
				end++ // so that the lake is seen to lack something
			}
			next[l.Bucket] = end
			id := m.Shards[b]
			in[id] = append(in[id], l)
		}
	}
	return in, next
}

// goesOnBehind shows where the logs go on, that keyed state is as it was, and that the next write gets the next offset.
func (w *world) goesOnBehind(next map[millrace.BucketID]millrace.Offset, unknown *storagetest.Modelled) {
	w.t.Helper()
	for _, m := range append(slices.Clip(w.Tables), unknown) {
		for b := range m.Buckets {
			id := m.BucketID(uint16(b))
			sh := w.Shard(m.Table, uint16(b))
			lg, v, err := sh.Log(id)
			require.NoError(w.t, err)
			if next[id] == 0 {
				require.Nil(w.t, lg)
				continue
			}
			require.Equal(w.t, next[id], v.End, "bucket %s", id)
			if b%2 == 0 {
				require.Equal(w.t, v.End, v.Kept, "bucket %s has records below what the lake has", id)
			}
			if m.Keyed {
				sn, err := sh.Snapshot()
				require.NoError(w.t, err)
				require.Empty(w.t, storagetest.DiffStates(storagetest.Fold(m.Table, m.Buckets[b].Log), w.ReadState(sn, m.Table, uint16(b))))
				sn.Release()
			}
			for { // a write may be one that changes nothing
				wr := w.gen.Write(m.Table, uint16(b))
				res, err := sh.Write(context.Background(), m.Op(wr, 0))
				if err == nil && res.End > res.Start {
					require.Equal(w.t, next[id], res.Start, "bucket %s", id)
					break
				}
			}
		}
	}
}

// Shows that a shard which is made anew of its checkpoint gives out no offset that the lake has: by Renew for a cluster,
// by Rebuild for a single node; also of buckets that the checkpoint does not know.
func TestGoesOnBehindLake(t *testing.T) {
	for _, how := range []string{"renew", "rebuild", "rebuild of nothing"} {
		t.Run(how, func(t *testing.T) {
			w := newWorld(t, 5)
			calm(w)
			m := w.unknown()
			w.MustOpen()
			if how == "rebuild of nothing" {
				w.Tables = nil
			} else {
				w.write(200)
			}
			if how != "rebuild of nothing" {
				w.publish()
			}
			w.crash()
			in, next := w.inLake(m)
			require.NoError(t, w.FS.RemoveAll(walDir))
			w.loseShards()
			begin := map[millrace.ShardID]wal.Tail{}
			moved := 0
			for id := range millrace.ShardID(w.Opts.Shards) {
				o := w.scratch(id, nil)
				o.InLake = in[id]
				if how == "renew" {
					r, err := shard.Renew(t.Context(), o)
					require.NoError(t, err)
					begin[id] = r.Begin
					moved += len(r.Behind)
					continue
				}
				o.Dir = path.Join(storagetest.Dir, "shards", "0000"+string(rune('0'+id)))
				r, err := shard.Rebuild(t.Context(), o)
				require.NoError(t, err)
				moved += len(r.Behind)
			}
			want := 0
			for _, ls := range in {
				for _, l := range ls {
					if l.Bucket.Bucket%2 == 0 {
						want++
					}
				}
			}
			require.Equal(t, want, moved)
			require.NoError(t, w.openLog(begin).Close())
			w.MustOpen()
			w.goesOnBehind(next, m)
			w.Close()
		})
	}
}

// Shows that a shard whose log is lost, and whose files here know of more than its checkpoint in the object store, goes on
// from them, and behind the lake.
func TestRepairOfFilesHere(t *testing.T) {
	w := newWorld(t, 6)
	calm(w)
	w.MustOpen()
	w.write(100)
	w.publish()
	w.write(100)
	for _, s := range w.Worker.Shards() {
		require.NoError(t, s.Checkpoint(t.Context()))
	}
	w.crash()
	unknown := w.unknown()
	in, next := w.inLake(unknown)
	require.NoError(t, w.FS.RemoveAll(walDir))
	begin := map[millrace.ShardID]wal.Tail{}
	for id := range millrace.ShardID(w.Opts.Shards) {
		o := w.scratch(id, nil)
		o.Dir, o.InLake, o.Log, o.Logger = path.Join(storagetest.Dir, "shards", "0000"+string(rune('0'+id))), in[id], shard.NoLog(), slog.New(w.Log)
		loss, _, err := shard.Repair(t.Context(), o, false, "copies")
		require.NoError(t, err)
		require.True(t, loss.Ahead)
		loss, begin[id], err = shard.Repair(t.Context(), o, true, "copies")
		require.NoError(t, err)
		require.NoError(t, mustFail(loss.Cause, errs.CorruptData))
		for _, b := range loss.Buckets {
			require.Equal(t, next[b.ID], b.End, "bucket %s", b.ID)
		}
	}
	require.NoError(t, w.openLog(begin).Close())
	w.loseShards() // what was repaired is in the object store too
	w.MustOpen()
	w.goesOnBehind(next, unknown)
	w.Close()
}

// Shows that a sound log of a cluster is told of when the lake has more than it, and is only changed when that is accepted;
// everything that it has is there then.
func TestReclaimBehindLake(t *testing.T) {
	w := newWorld(t, 7)
	calm(w)
	w.MustOpen()
	w.write(100)
	w.publish()
	w.write(100)
	w.crash()
	w.loseShards()
	unknown := w.unknown()
	in, next := w.inLake(unknown)
	f := w.openLog(nil)
	log, err := f.Shard(0)
	require.NoError(t, err)
	o := w.scratch(0, log)
	loss, _, err := shard.Reclaim(t.Context(), o, true)
	require.NoError(t, err)
	require.Nil(t, loss, "without a lake it is sound")
	for _, l := range in[0] {
		l.End = 1
		o.InLake = append(o.InLake, l)
	}
	o.InLake = o.InLake[:len(o.InLake)-2] // those of the unknown table
	loss, _, err = shard.Reclaim(t.Context(), o, true)
	require.NoError(t, err)
	require.Nil(t, loss, "the lake has no more")
	o.InLake = in[0]
	loss, r, err := shard.Reclaim(t.Context(), o, false)
	require.NoError(t, err)
	require.True(t, loss.Behind)
	require.Nil(t, r)
	loss, r, err = shard.Reclaim(t.Context(), o, true)
	require.NoError(t, err)
	for _, b := range loss.Buckets {
		require.Equal(t, next[b.ID], b.End, "bucket %s", b.ID)
	}
	require.NoError(t, f.Close())
	require.NoError(t, w.FS.RemoveAll(walDir))
	require.NoError(t, w.openLog(map[millrace.ShardID]wal.Tail{0: r.Begin}).Close())
	w.MustOpen()
	w.goesOnBehind(next, unknown)
	w.Close()
}
