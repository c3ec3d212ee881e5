package remote_test

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/errors/oserror"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/objstore"
	"github.com/millrace/millrace/objstore/objstoretest"
	"github.com/millrace/millrace/storage/shard"
	"github.com/millrace/millrace/storage/storagetest"
)

// metric is the sum of a metric of the worker.
func (w *world) metric(name string) (sum float64) {
	families, err := w.Registry.Gather()
	require.NoError(w.t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// calm are settings under which nothing happens by itself.
func calm(w *world) {
	w.Opts.Shards, w.Opts.CheckpointBytes, w.Opts.TailBytes, w.Opts.QueueBytes, w.Opts.MemTableBytes = 1, 0, 0, 0, 0
	w.Opts.SealBytes, w.Opts.BucketTailBytes, w.Opts.WALFileBytes = 4<<10, 2<<10, 8<<10
	w.cache = 0
	w.newStore(w.objects)
	w.tables()
}

// Shows that writes, reads and local checkpoints go on while the object store is away,
// that the log keeps everything then and a metric tells, and that it all gets there by
// itself when the store is back, also in a new process.
func TestStoreIsAway(t *testing.T) {
	w := newWorld(t, 1)
	calm(w)
	w.MustOpen()
	w.write(100)
	w.publish()
	w.write(100)
	w.publish()
	w.away()
	w.write(200)
	s := w.Worker.Shards()[0]
	require.NoError(t, s.Checkpoint(t.Context()))
	w.Clock.Add(10 * time.Minute)
	w.write(50)
	require.NoError(t, s.Checkpoint(t.Context()))
	w.Check()
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := s.CheckpointRemote(short)
	require.Error(t, err)
	require.NoError(t, w.Worker.Err(), "a store that is away makes the worker sick")
	// Everything since the last checkpoint there is in the log: without the shard's
	// files it comes back.
	image := w.Image(100)
	w.Close()
	w.objects.Heal()
	w.FS = image
	w.loseShards()
	w.newStore(w.objects)
	w.MustOpen()
	w.Check()

	w.away()
	w.write(20)
	s = w.Worker.Shards()[0]
	require.NoError(t, s.Checkpoint(t.Context()))
	require.Eventually(t, func() bool { return w.metric("millrace_shard_upload_failures_total") > 0 }, time.Minute, 5*time.Millisecond)
	before := len(w.keys("/manifest/"))
	w.objects.Heal()
	require.Eventually(t, func() bool { return len(w.keys("/manifest/")) > before }, time.Minute, 10*time.Millisecond, "it does not catch up by itself")
	w.Close()
}

// Shows that what was uploaded once is not sent again: not state files, not segments,
// not tails; also after a restart on the same disk and after a restore.
func TestUploadsOnce(t *testing.T) {
	w := newWorld(t, 2)
	calm(w)
	w.MustOpen()
	sent := func() map[string]int {
		out := map[string]int{}
		for _, c := range w.objects.Calls(objstoretest.OpWrite) {
			out[c.Key]++
		}
		return out
	}
	for i := range 6 {
		w.write(150)
		w.publish()
		for key, n := range sent() {
			require.Equal(t, 1, n, key)
		}
		switch i {
		case 2:
			w.reopen(func() {})
		case 4:
			w.reopen(w.loseShards)
		}
	}
	seen := sent()
	kinds := map[string]int{}
	bases := map[string]int{}
	for key := range seen {
		part := strings.Split(key, "/")
		kinds[part[2]]++
		if part[2] == "segments" {
			base, _, _ := strings.Cut(part[6], "-")
			bases[strings.Join(part[3:6], "/")+"/"+base]++
		}
	}
	for place, n := range bases {
		require.Equal(t, 1, n, "segment %s was sent by two owners", place)
	}
	require.Greater(t, kinds["segments"], 20)
	t.Log(kinds)
	w.Check()
	w.Close()
}

// Shows that an answer which is lost, late or refused at any call of a publication
// leaves checkpoints that can be restored, each of them, and that the next one gets
// there (F9).
func TestEveryCallFails(t *testing.T) {
	for _, happens := range []bool{false, true} {
		t.Run(fmt.Sprintf("happens=%v", happens), func(t *testing.T) {
			w := newWorld(t, 3)
			calm(w)
			w.MustOpen()
			for k := range 40 {
				w.write(25)
				w.objects.Add(objstoretest.Fault{After: k, Err: errAway, Happens: happens})
				for _, s := range w.Worker.Shards() {
					require.NoError(t, s.Checkpoint(t.Context()))
				}
				time.Sleep(5 * time.Millisecond)
				w.objects.Heal()
			}
			w.publish()
			w.restoreAll()
			w.reopen(w.loseShards)
			w.Check()
			w.Close()
		})
	}
}

// restoreAll restores every checkpoint that was not superseded long ago, and checks
// that all they name is there and sound.
func (w *world) restoreAll() {
	w.t.Helper()
	for id := range w.Opts.Shards {
		r := w.store.Shard(millrace.ShardID(id))
		var number uint64
		for first := true; ; first = false {
			m, err := r.Restore(context.Background(), vfs.NewMem(), "r", func(m *shard.Manifest) error {
				number = m.Number
				return nil
			})
			require.NoError(w.t, err)
			if m == nil {
				require.False(w.t, first)
				break
			}
			require.Equal(w.t, number, m.Number, "checkpoint %d is passed over", number)
			for _, b := range m.Buckets {
				for _, f := range b.Files {
					if f.Remote != nil {
						o := shard.RemoteObject{Key: f.Remote.Key, Bytes: f.Remote.Bytes, CRC: f.Remote.CRC}
						require.NoError(w.t, r.Fetch(context.Background(), o, vfs.NewMem(), "x"))
					}
				}
			}
			// The one before is next.
			key := w.keys(fmt.Sprintf("/%05d/manifest/%020d", id, m.Number))
			require.Len(w.t, key, 1)
			body, err := w.objects.Store.Get(context.Background(), key[0])
			require.NoError(w.t, err)
			require.NoError(w.t, w.objects.Store.Remove(context.Background(), key[0]))
			defer func() { require.NoError(w.t, w.objects.Store.Put(context.Background(), key[0], body)) }()
		}
	}
}

// Shows that a flipped bit anywhere in the object store is found before a row is
// returned, and named; that a checkpoint which is damaged is passed over for the one
// before, and nothing is lost then (F6).
func TestFlips(t *testing.T) {
	fs := vfs.NewCrashableMem()
	w := newWorldOn(t, 4, objectsOn(t, fs))
	calm(w)
	for _, m := range w.Tables {
		m.Options.LocalTTL = -1
	}
	w.MustOpen()
	for range 4 {
		w.write(150)
		w.publish()
	}
	w.write(10)
	w.Close()
	disk, image := w.FS, fs.CrashClone(vfs.CrashCloneCfg{})
	keys := w.keys("/00000/")
	found := map[string]int{}
	for i := range 60 {
		key := keys[i%len(keys)]
		if i >= len(keys) {
			key = keys[w.Rng.IntN(len(keys))]
		}
		w.objects = objstoretest.NewFaulty(objectsOn(t, image.CrashClone(vfs.CrashCloneCfg{})))
		whole, err := w.objects.Store.Get(t.Context(), key)
		require.NoError(t, err)
		if len(whole) == 0 {
			continue // a marker of Pebble's
		}
		w.flip(key, w.Rng.Int64N(int64(len(whole))), w.Rng.IntN(8))
		w.FS = disk.CrashClone(vfs.CrashCloneCfg{})
		w.loseShards()
		w.newStore(w.objects)
		kind := strings.Split(key, "/")[2]
		w.Worker, err = w.TryOpen()
		require.NoError(t, err)
		if err := w.Worker.Err(); err != nil {
			require.NoError(t, mustFail(err, errs.CorruptData), key)
			require.ErrorContains(t, err, key)
			require.NotEqual(t, "manifest", kind, "%s: %v", key, err) // others are shared with the checkpoint before
			found[kind+" at start"]++
		} else if err := w.readAll(); err != nil {
			require.NoError(t, mustFail(err, errs.CorruptData), key)
			require.ErrorContains(t, err, key)
			found[kind+" found"]++
		} else {
			w.Check()
			found[kind+" passed over or harmless"]++
		}
		w.Close()
	}
	t.Log(found)
	require.Positive(t, found["segments found"])
}

// readAll reads every log.
func (w *world) readAll() error {
	for _, m := range w.Tables {
		for b := range m.Buckets {
			lg, v, err := w.Shard(m.Table, uint16(b)).Log(m.BucketID(uint16(b)))
			if err != nil || lg == nil {
				continue
			}
			if _, _, err := storagetest.ReadView(lg, v, v.Kept, m.Table); err != nil {
				return err
			}
		}
	}
	return nil
}

// Shows that a local segment that is damaged is read from its copy in the object store,
// found at a start as well as while it is open, and that a sound copy takes its place.
func TestDamagedLocally(t *testing.T) {
	w := newWorld(t, 5)
	calm(w)
	w.MustOpen()
	w.write(500)
	w.publish()
	require.NoError(t, w.Worker.Shards()[0].Checkpoint(t.Context()))
	segments := w.files(".seg")
	require.NotEmpty(t, segments)
	for i, name := range segments {
		if i+1 == len(segments) || path.Dir(segments[i+1]) != path.Dir(name) {
			continue // the file being written is in the tails, there
		}
		f, err := w.FS.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
		require.NoError(t, err)
		var b [1]byte
		at := int64(64 + 16 + i%200)
		_, err = f.ReadAt(b[:], at)
		require.NoError(t, err)
		b[0] ^= 4
		_, err = f.WriteAt(b[:], at)
		require.NoError(t, err)
		require.NoError(t, f.Sync())
		require.NoError(t, f.Close())
	}
	w.Check()
	w.write(10)
	w.publish()
	require.NoError(t, w.Worker.Shards()[0].Checkpoint(t.Context()))
	w.Check()
	w.reopen(func() {})
	w.Check()
	w.Close()
}

// files are the files on disk whose names end so.
func (w *world) files(suffix string) []string {
	var out []string
	var walk func(string)
	walk = func(dir string) {
		names, err := w.FS.List(dir)
		require.NoError(w.t, err)
		for _, n := range names {
			p := w.FS.PathJoin(dir, n)
			st, err := w.FS.Stat(p)
			if oserror.IsNotExist(err) {
				continue // a file of the log that was purged meanwhile
			}
			require.NoError(w.t, err)
			if st.IsDir() {
				walk(p)
			} else if strings.HasSuffix(n, suffix) {
				out = append(out, p)
			}
		}
	}
	walk(storagetest.Dir)
	slices.Sort(out)
	return out
}

// Shows that local copies go when the table says so and the object store has them, that
// what is read then comes from there by ranges, is unavailable while the store is away,
// and that a start needs nothing from there.
func TestLocalTTL(t *testing.T) {
	w := newWorld(t, 6)
	calm(w)
	for _, m := range w.Tables {
		m.Options.LocalTTL = time.Hour
	}
	w.MustOpen()
	w.write(500)
	w.publish()
	require.NoError(t, w.Worker.Shards()[0].Checkpoint(t.Context()))
	all := len(w.files(".seg"))
	require.Greater(t, all, 10)
	w.Clock.Add(2 * time.Hour)
	w.write(1)
	require.NoError(t, w.Worker.Shards()[0].Checkpoint(t.Context()))
	require.Less(t, len(w.files(".seg")), all/2)
	w.Check()

	w.reopen(w.away)
	err := w.readAll()
	require.NoError(t, mustFail(err, errs.Unavailable))
	w.write(50)
	w.objects.Heal()
	w.Check()
	reads := w.objects.Calls(objstoretest.OpReadAt)
	require.NotEmpty(t, reads)
	w.publish()
	w.Close()
}

// Shows that objects of a root are those of one cluster: another is refused, and writes
// nothing.
func TestAnotherCluster(t *testing.T) {
	objects, err := objstore.Open(t.Context(), "file:///remote", objstore.Options{FS: vfs.NewMem()})
	require.NoError(t, err)
	w := newWorldOn(t, 7, objects)
	calm(w)
	w.MustOpen()
	w.write(10)
	w.publish()
	w.Close()
	before := len(w.keys(""))

	other := newWorldOn(t, 8, objects)
	other.Opts.Cluster = [16]byte{8}
	calm(other)
	other.Worker, err = other.TryOpen()
	require.NoError(t, err)
	err = other.Worker.Err()
	require.NoError(t, mustFail(err, errs.InvalidValue))
	require.ErrorContains(t, err, "remote-uri")
	other.Close()
	require.Len(t, w.keys(""), before)
}

// Shows that all of it works over S3.
func TestOverS3(t *testing.T) {
	server := objstoretest.StartFake(t)
	objects, err := objstore.Open(t.Context(), server.URI("remote"), objstore.Options{S3: server.Settings()})
	require.NoError(t, err)
	w := newWorldOn(t, 9, objects)
	calm(w)
	for _, m := range w.Tables {
		m.Options.LocalTTL = -1
	}
	w.MustOpen()
	for range 3 {
		w.write(150)
		w.publish()
	}
	w.restoreAll()
	w.reopen(w.loseShards)
	w.Check()
	w.Close()
}
