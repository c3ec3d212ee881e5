package storage_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage"
	"github.com/millrace/millrace/storage/shard"
	"github.com/millrace/millrace/storage/storagetest"
)

func repair(w *storagetest.World, accept bool) ([]*shard.Loss, error) {
	o := w.Opts
	o.FS, o.Clock, o.Logger = w.FS, w.Clock, slog.New(w.Log)
	return storage.Repair(context.Background(), o, accept, storagetest.Dir+"/repair")
}

// flipByte changes a byte in the middle of the newest file of the log that is as long.
func flipByte(t *testing.T, fs *vfs.MemFS, dir string, at float64) {
	names, err := fs.List(dir)
	require.NoError(t, err)
	largest, size := "", int64(0)
	for _, n := range names {
		st, err := fs.Stat(fs.PathJoin(dir, n))
		require.NoError(t, err)
		if strings.HasSuffix(n, ".wal") && st.Size() > size {
			largest, size = fs.PathJoin(dir, n), st.Size()
		}
	}
	f, err := fs.Open(largest)
	require.NoError(t, err)
	b, err := io.ReadAll(f)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	const headers = 2 * 4096
	b[headers+int(float64(len(b)-headers)*at)] ^= 0x40
	g, err := fs.Create(largest, vfs.WriteCategoryUnspecified)
	require.NoError(t, err)
	_, err = g.Write(b)
	require.NoError(t, err)
	require.NoError(t, g.Sync())
	require.NoError(t, g.Close())
}

// Shows that a shard whose log is damaged, is behind what the shard knows, or is gone,
// serves nothing and says so; that a repair says what is lost and changes nothing until
// that is accepted; and that what is there then is what stood before the loss, from
// which the shard goes on, over restarts too. A seed that fails is run again with
// MILLRACE_MODEL_SEED.
func TestRepair(t *testing.T) {
	const worlds = 18
	all := seeds(t, worlds)
	lossy := map[string]int{}
	for i, seed := range all {
		kind := []string{"damaged", "older", "gone"}[i%3]
		t.Run(fmt.Sprintf("%s/%d", kind, seed), func(t *testing.T) {
			m := newModelTest(t, seed)
			m.Opts.Shards, m.Opts.WALFileBytes = 1, 0
			if kind == "damaged" {
				m.Opts.CheckpointBytes = 1 << 40
			}
			// Of some, a state that is ahead of the newest manifest.
			var between atomic.Pointer[vfs.MemFS]
			m.Opts.Hook = func(point string) {
				if point == "checkpoint:state" {
					between.Store(m.Image(100))
				}
			}
			m.MustOpen()
			m.create(true)
			m.create(false)
			for range 40 {
				m.burst()
			}
			older := m.Image(100)
			at := 0.2 + 0.6*m.Rng.Float64()
			if kind == "damaged" && i%2 == 1 { // below what a manifest covers
				m.checkpoint()
				at /= 4
			}
			for range 40 {
				m.burst()
				if kind != "damaged" && m.Rng.IntN(20) == 0 {
					m.checkpoint()
				}
			}
			newest := m.Image(100)
			if kind != "damaged" && i%2 == 0 {
				m.checkpoint()
				newest = between.Load()
			}
			m.Close()
			m.FS = newest
			m.Opts.Hook = nil
			wals := storagetest.Dir + "/wal"
			switch kind {
			case "damaged":
				flipByte(t, m.FS, wals, at)
			case "older":
				require.NoError(t, m.FS.RemoveAll(wals))
				_, err := vfs.Clone(older, m.FS, wals, wals, vfs.CloneSync)
				require.NoError(t, err)
			case "gone":
				require.NoError(t, m.FS.RemoveAll(wals))
			}
			w, err := m.TryOpen()
			require.NoError(t, err)
			broken := w.Err()
			require.NoError(t, w.Close(context.Background()))
			losses, err := repair(m.World, false)
			require.NoError(t, err)
			if broken == nil {
				require.Empty(t, losses)
				return // the damage is in nothing that is needed
			}
			require.True(t, errs.Is(broken, errs.CorruptData), "%v", broken)
			require.Len(t, losses, 1)
			w, err = m.TryOpen()
			require.NoError(t, err)
			require.Error(t, w.Err(), "looking repairs nothing")
			require.NoError(t, w.Close(context.Background()))
			losses, err = repair(m.World, true)
			require.NoError(t, err)
			require.Len(t, losses, 1)
			lossy[kind]++
			m.MustOpen()
			told := map[string]shard.BucketLoss{}
			for _, b := range losses[0].Buckets {
				told[b.ID.String()] = b
			}
			check := func() {
				for _, tbl := range m.Tables {
					for b, want := range tbl.Buckets {
						lg, v, err := m.Shard(tbl.Table, uint16(b)).Log(tbl.BucketID(uint16(b)))
						require.NoError(t, err)
						if lg == nil {
							continue
						}
						id := tbl.BucketID(uint16(b)).String()
						l := told[id]
						require.Equal(t, l.End, v.End, id)
						require.LessOrEqual(t, int(v.End), len(want.Log))
						log, _, err := storagetest.ReadView(lg, v, v.Start, tbl.Table)
						require.NoError(t, err)
						require.Empty(t, storagetest.DiffLogs(want.Log[v.Start:v.End], log))
						if l.Lost > 0 {
							lossy["set back"]++
						}
						if l.Begins {
							lossy["begins"]++
							require.Equal(t, v.End, v.Start)
						}
						if !tbl.Keyed {
							continue
						}
						sn, err := m.Shard(tbl.Table, uint16(b)).Snapshot()
						require.NoError(t, err)
						require.Empty(t, storagetest.DiffStates(storagetest.Fold(tbl.Table, want.Log[:v.End]), m.ReadState(sn, tbl.Table, uint16(b))))
						sn.Release()
					}
				}
			}
			check()
			m.Close()
			m.MustOpen()
			check()
			// It goes on from there: what is written is at the end, and stays.
			for _, tbl := range m.Tables {
				b := uint16(m.Rng.IntN(len(tbl.Buckets)))
				end := told[tbl.BucketID(b).String()].End
				wr := m.gen.Write(tbl.Table, b)
				res, err := m.Shard(tbl.Table, b).Write(context.Background(), tbl.Op(wr, 0))
				if err == nil {
					require.Equal(t, end, res.Start)
				}
			}
			m.Crash(0)
			require.NoError(t, m.Worker.Err())
			m.Close()
			losses, err = repair(m.World, false)
			require.NoError(t, err)
			require.Empty(t, losses)
			names, err := m.FS.List(storagetest.Dir + "/repair")
			require.NoError(t, err)
			require.NotEmpty(t, names)
		})
	}
	t.Log(lossy)
	if len(all) == worlds {
		for _, kind := range []string{"damaged", "older", "gone", "set back", "begins"} {
			require.Positive(t, lossy[kind], kind)
		}
	}
}
