package remote_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/objstore"
	"github.com/millrace/millrace/objstore/objstoretest"
	"github.com/millrace/millrace/storage/remote"
	"github.com/millrace/millrace/storage/shard"
	"github.com/millrace/millrace/storage/storagetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a worker, the model of what it holds, and the object store of its shards.
type world struct {
	*storagetest.World

	t       *testing.T
	objects *objstoretest.Faulty
	store   *remote.Store
	gen     storagetest.Generator
	cache   int64
}

// seedOf is the seed of a random test: MILLRACE_MODEL_SEED when it is set.
func seedOf(t testing.TB) uint64 {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("MILLRACE_MODEL_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("MILLRACE_MODEL_SEED=%d", seed)
	return seed
}

func newWorld(t *testing.T, seed uint64) *world {
	return newWorldOn(t, seed, objectsOn(t, vfs.NewMem()))
}

func objectsOn(t *testing.T, fs vfs.FS) objstore.Store {
	objects, err := objstore.Open(context.Background(), "file:///remote", objstore.Options{FS: fs})
	require.NoError(t, err)
	return objects
}

func newWorldOn(t *testing.T, seed uint64, objects objstore.Store) *world {
	w := &world{World: storagetest.NewWorld(t, seed), t: t, objects: objstoretest.NewFaulty(objects)}
	w.gen = storagetest.Generator{Rng: w.Rng, Keys: 10 + w.Rng.IntN(300)}
	w.cache = []int64{0, 1 << 10, 1 << 20}[w.Rng.IntN(3)]
	w.Opts.CheckpointEvery = time.Hour
	w.newStore(w.objects)
	w.Opts.Remote = func(id millrace.ShardID) shard.Remote { return w.store.Shard(id) }
	t.Logf("settings %+v, cache %d", w.Opts, w.cache)
	return w
}

// newStore begins with an empty cache and no memory.
func (w *world) newStore(objects objstore.Store) {
	if w.store != nil {
		w.store.Close()
	} else {
		w.t.Cleanup(func() { w.store.Close() })
	}
	var err error
	w.store, err = remote.Open(remote.Options{
		Cluster: w.Opts.Cluster, CacheBytes: w.cache, Objects: objects, Clock: w.Clock, Logger: slogOf(w), Registerer: prometheus.NewRegistry(),
	})
	require.NoError(w.t, err)
}

func (w *world) tables() {
	w.Add(storagetest.NewTable(2, 4, w.Opts.Shards, 2, storagetest.KeyedColumns...))
	w.Add(storagetest.NewTable(4, 2, w.Opts.Shards, 0, storagetest.LogColumns...))
}

// write makes n writes and requires the answers that the model gives.
func (w *world) write(n int) {
	w.t.Helper()
	for range n {
		m := w.Tables[w.Rng.IntN(len(w.Tables))]
		wr := w.gen.Write(m.Table, uint16(w.Rng.IntN(len(m.Buckets))))
		want := m.Write(wr)
		res, err := w.Shard(m.Table, wr.Bucket).Write(context.Background(), m.Op(wr, 0))
		require.Equal(w.t, want.Code, errs.CodeOf(err), "%v", err)
		if err == nil {
			require.Equal(w.t, want, storagetest.Outcome{Start: int64(res.Start), End: int64(res.End), Duplicate: res.Duplicate})
		}
		w.Clock.Add(time.Millisecond)
	}
}

// publish takes checkpoints that reach the object store.
func (w *world) publish() {
	w.t.Helper()
	for _, s := range w.Worker.Shards() {
		require.NoError(w.t, s.CheckpointRemote(w.t.Context()))
	}
}

// loseShards removes what the shards have on disk; the log stays.
func (w *world) loseShards() {
	require.NoError(w.t, w.FS.RemoveAll(path.Join(storagetest.Dir, "shards")))
}

// reopen closes the worker, does something to what it left, and opens it again.
func (w *world) reopen(meanwhile func()) {
	w.t.Helper()
	w.Close()
	meanwhile()
	w.newStore(w.objects)
	w.MustOpen()
}

// keys lists the objects whose keys contain a text.
func (w *world) keys(of string) []string {
	w.t.Helper()
	var out []string
	require.NoError(w.t, w.objects.Store.List(context.Background(), "", func(i objstore.Info) error {
		if strings.Contains(i.Key, of) {
			out = append(out, i.Key)
		}
		return nil
	}))
	return out
}

// flip changes a bit of an object.
func (w *world) flip(key string, at int64, bit int) {
	w.t.Helper()
	b, err := w.objects.Store.Get(context.Background(), key)
	require.NoError(w.t, err)
	b[at] ^= 1 << bit
	require.NoError(w.t, w.objects.Store.Put(context.Background(), key, b))
}

var errAway = errs.New(errs.Unavailable, "the object store is away")

// away makes every call fail, until Heal.
func (w *world) away() { w.objects.Add(objstoretest.Fault{Times: -1, Err: errAway}) }

func mustFail(err error, code errs.Code) error {
	switch {
	case err == nil:
		return fmt.Errorf("no error, where %s belongs", code)
	case !errs.Is(err, code):
		return errors.Join(fmt.Errorf("not %s", code), err)
	}
	return nil
}
