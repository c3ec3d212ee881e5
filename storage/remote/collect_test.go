package remote_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/objstore"
	"github.com/millrace/millrace/objstore/objstoretest"
	"github.com/millrace/millrace/storage/remote"
	"github.com/millrace/millrace/storage/shard"
	"github.com/millrace/millrace/storage/storagetest"
	"github.com/millrace/millrace/storage/wal"
)

// dated is a store whose objects are as old as the test's clock says.
type dated struct {
	objstore.Store

	clock *storagetest.Clock
	made  map[string]time.Time
}

func (d *dated) List(ctx context.Context, prefix string, give func(objstore.Info) error) error {
	return d.Store.List(ctx, prefix, func(i objstore.Info) error {
		if _, ok := d.made[i.Key]; !ok {
			d.made[i.Key] = d.clock.Now()
		}
		i.Modified = d.made[i.Key]
		return give(i)
	})
}

// owner is a process that thinks that it owns the shard: files of a state that come and
// go, as compactions make them.
type owner struct {
	r     *remote.Shard
	store *remote.Store
	fs    *vfs.MemFS
	epoch millrace.Epoch
	lsn   millrace.LSN
	next  int
	files map[string]struct{}
	known []shard.RemoteObject
	gone  bool // was told that it is deposed
}

type collectModel struct {
	t       *testing.T
	rng     *rand.Rand
	clock   *storagetest.Clock
	dated   *dated
	objects *objstoretest.Faulty
	owners  []*owner
	epoch   millrace.Epoch
	counts  map[string]int
}

const logID = 77

func (m *collectModel) open() *owner {
	m.epoch++
	o := &owner{fs: vfs.NewMem(), epoch: m.epoch, files: map[string]struct{}{}}
	var err error
	o.store, err = remote.Open(remote.Options{Cluster: [16]byte{7}, Objects: m.objects, Clock: m.clock, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	require.NoError(m.t, err)
	m.t.Cleanup(o.store.Close)
	o.r = o.store.Shard(3)
	got, err := o.r.Restore(context.Background(), o.fs, "dir", func(*shard.Manifest) error { return nil })
	if err != nil {
		m.counts["open fails"]++
		return nil
	}
	if got != nil {
		o.lsn, o.known = got.LSN, got.Remote.State
		for _, f := range got.Remote.State {
			o.files[f.Name] = struct{}{}
			// Names go on from what was restored.
			var n int
			_, err := fmt.Sscanf(f.Name, "%d.sst", &n)
			if err == nil {
				o.next = max(o.next, n)
			}
		}
	} else {
		require.NoError(m.t, o.fs.MkdirAll("dir/state", 0o755))
	}
	return o
}

// change makes files and removes others.
func (m *collectModel) change(o *owner) {
	for range 1 + m.rng.IntN(3) {
		o.next++
		name := fmt.Sprintf("%06d.sst", o.next)
		o.write(m.t, name, m.rng)
	}
	o.write(m.t, "MANIFEST-000001", m.rng)
	for _, name := range slices.Sorted(maps.Keys(o.files)) {
		if strings.HasSuffix(name, ".sst") && m.rng.IntN(4) == 0 {
			require.NoError(m.t, o.fs.Remove("dir/state/"+name))
			delete(o.files, name)
		}
	}
	o.lsn += millrace.LSN(1 + m.rng.IntN(5))
}

func (o *owner) write(t *testing.T, name string, rng *rand.Rand) {
	f, err := o.fs.Create("dir/state/"+name, vfs.WriteCategoryUnspecified)
	require.NoError(t, err)
	_, err = fmt.Fprintf(f, "%d %d", o.epoch, rng.Uint64())
	require.NoError(t, err)
	require.NoError(t, f.Close())
	o.files[name] = struct{}{}
}

func (m *collectModel) publish(o *owner) {
	c := &shard.RemoteCheckpoint{
		FS: o.fs, StateDir: "dir/state", Known: o.known,
		Manifest: &shard.Manifest{
			Cluster: append([]byte{7}, make([]byte, 15)...), Shard: 3, LSN: o.lsn, FeatureLevel: shard.FeatureLevel,
			Tail: wal.Tail{LogID: logID, LSN: o.lsn, Epoch: o.epoch}, Remote: &shard.RemotePart{StateLSN: o.lsn},
		},
	}
	err := o.r.Publish(context.Background(), c)
	switch {
	case err == nil:
		m.counts["published"]++
		require.False(m.t, o.gone, "who was deposed has published")
		o.known = c.Manifest.Remote.State
	case errs.Is(err, errs.NotOwner):
		m.counts["deposed"]++
		o.gone = true
	default:
		require.ErrorIs(m.t, err, objstoretest.ErrInjected)
		m.counts["failed"]++
	}
	if err := o.r.Collect(context.Background(), o.epoch); err != nil {
		require.ErrorIs(m.t, err, objstoretest.ErrInjected)
		m.counts["collect failed"]++
	}
}

// manifests reads all manifests there are, rising.
func (m *collectModel) manifests() []*shard.Manifest {
	var out []*shard.Manifest
	require.NoError(m.t, m.objects.Store.List(context.Background(), "", func(i objstore.Info) error {
		if strings.Contains(i.Key, "/manifest/") {
			b, err := m.objects.Store.Get(context.Background(), i.Key)
			require.NoError(m.t, err)
			got, err := shard.DecodeManifest(i.Key, b)
			require.NoError(m.t, err)
			out = append(out, got)
		}
		return nil
	}))
	return out
}

// check restores every checkpoint that is the newest one or was superseded less than a
// day ago: all it names is there, as it was.
func (m *collectModel) check() {
	all := m.manifests()
	for i, got := range all {
		if i+1 < len(all) && m.clock.Now().Sub(time.UnixMicro(all[i+1].Remote.Micros)) >= remote.KeepSuperseded {
			continue
		}
		require.True(m.t, i == 0 || all[i-1].Tail.Epoch <= got.Tail.Epoch, "epochs fall")
		for _, o := range got.Remote.State {
			require.NoError(m.t, (&owner{}).fetch(m, o), "checkpoint %d of %d", got.Number, all[len(all)-1].Number)
		}
	}
}

func (*owner) fetch(m *collectModel, o shard.RemoteObject) error {
	store, err := remote.Open(remote.Options{Cluster: [16]byte{7}, Objects: m.objects.Store, Clock: m.clock, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	if err != nil {
		return err
	}
	defer store.Close()
	return store.Shard(3).Fetch(context.Background(), o, vfs.NewMem(), "x")
}

// Shows that whoever publishes, dies at any call, is deposed and does not know it, and
// however much time passes: each checkpoint that is the newest or was superseded less
// than a day ago can be restored whole, nobody who was deposed publishes, and in the end
// nothing is left but what the manifests there are name.
func TestCollect(t *testing.T) {
	seed := seedOf(t)
	counts := map[string]int{}
	for i := range uint64(5) {
		t.Run("", func(t *testing.T) { testCollect(t, seed+i, counts) })
	}
	t.Log(counts)
	for _, what := range []string{"published", "deposed", "failed", "collect failed"} {
		require.Positive(t, counts[what], what)
	}
}

func testCollect(t *testing.T, seed uint64, counts map[string]int) {
	m := &collectModel{t: t, rng: rand.New(rand.NewPCG(seed, 2)), clock: storagetest.NewClock(), counts: counts}
	m.dated = &dated{Store: objectsOn(t, vfs.NewMem()), clock: m.clock, made: map[string]time.Time{}}
	m.objects = objstoretest.NewFaulty(m.dated)
	m.owners = append(m.owners, m.open())
	for range 120 {
		o := m.owners[m.rng.IntN(len(m.owners))]
		switch m.rng.IntN(10) {
		case 0:
			if o := m.open(); o != nil {
				m.owners = append(m.owners, o)
				if len(m.owners) > 2 {
					m.owners = m.owners[1:]
				}
			}
		case 1:
			m.objects.Add(objstoretest.Fault{After: m.rng.IntN(12), Happens: m.rng.IntN(2) == 0})
		case 2:
			m.clock.Add(time.Duration(m.rng.IntN(30)) * time.Hour)
		default:
			m.change(o)
			m.publish(o)
			m.clock.Add(time.Duration(m.rng.IntN(90)) * time.Minute)
		}
		m.check()
	}
	m.objects.Heal()
	last := m.open()
	for range 3 {
		m.change(last)
		m.publish(last)
		m.clock.Add(remote.KeepOrphans + 25*time.Hour)
	}
	m.change(last)
	m.publish(last)
	m.check()
	named := map[string]bool{"cluster.json": true}
	for _, got := range m.manifests() {
		for key := range got.ObjectKeys() {
			named[key] = true
		}
	}
	require.NoError(t, m.objects.Store.List(t.Context(), "", func(i objstore.Info) error {
		if !named[i.Key] && !strings.Contains(i.Key, "/manifest/") {
			return errors.New(i.Key + " is left over")
		}
		return nil
	}))
	require.Less(t, len(m.manifests()), 4)
}
