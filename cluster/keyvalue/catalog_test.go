package keyvalue_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/cluster/keyvalue"
	"github.com/millrace/millrace/cluster/natstest"
	"github.com/millrace/millrace/errs"
)

func openCatalog(t testing.TB, kv catalog.KV) *catalog.Catalog {
	t.Helper()
	c, err := catalog.OpenKV(t.Context(), kv, catalog.Options{Clock: time.Now, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func openCatalogs(t testing.TB, servers *natstest.Servers, n int) []*catalog.Catalog {
	t.Helper()
	var out []*catalog.Catalog
	for range n {
		out = append(out, openCatalog(t, openStore(t, servers, keyvalue.Options{})))
	}
	_, err := out[0].CreateDatabase(t.Context(), "d", "")
	require.NoError(t, err)
	for _, c := range out { // which has its lease then
		_, err := c.Database(t.Context(), "d")
		require.NoError(t, err)
	}
	return out
}

func spec(name string) catalog.Spec {
	return catalog.Spec{Name: name, Columns: []catalog.ColumnSpec{{Name: "dt", Type: "STRING"}, {Name: "v", Type: "INT"}}, PartitionBy: []string{"dt"}}
}

// What one process has made, altered or dropped is so at every other one from the moment
// it was acknowledged, in lists too.
func TestChangesAreSeen(t *testing.T) {
	servers := natstest.StartT(t, 3)
	cs := openCatalogs(t, servers, 3)
	ctx := t.Context()
	last := millrace.TableID(0)
	for n := range 15 {
		a, b := cs[n%3], cs[(n+1)%3]
		table, created, err := a.CreateTable(ctx, "d", spec("t"), false)
		require.NoError(t, err)
		require.True(t, created)
		require.Greater(t, table.ID, last)
		last = table.ID
		for _, c := range cs {
			list, _, err := c.Tables(ctx, "d", 0, "")
			require.NoError(t, err)
			require.Len(t, list, 1)
			got, err := c.Table(ctx, table.Path)
			require.NoError(t, err)
			require.Equal(t, table.ID, got.ID)
		}
		altered, err := b.AlterTable(ctx, table.Path, []catalog.AlterStep{{Op: catalog.AddColumn, Column: &catalog.ColumnSpec{Name: "w", Type: "INT"}}}, new(int64(1)))
		require.NoError(t, err)
		for _, c := range cs {
			got, err := c.TableByID(ctx, table.ID)
			require.NoError(t, err)
			require.Equal(t, altered.Version, got.Version)
			schemas, err := c.Schemas(ctx, table.ID)
			require.NoError(t, err)
			require.Len(t, schemas, 2)
		}
		p, created, err := a.EnsurePartition(ctx, table.ID, []string{"x"})
		require.NoError(t, err)
		require.True(t, created)
		for _, c := range cs {
			list, err := c.Partitions(ctx, table.ID)
			require.NoError(t, err)
			require.Len(t, list, 1)
			same, created, err := c.EnsurePartition(ctx, table.ID, []string{"x"})
			require.NoError(t, err)
			require.False(t, created)
			require.Equal(t, p, same)
		}
		_, err = b.SetPartitionState(ctx, table.ID, p.ID, millrace.PartitionClosing)
		require.NoError(t, err)
		for _, c := range cs {
			_, _, err := c.EnsurePartition(ctx, table.ID, []string{"x"})
			require.True(t, errs.Is(err, errs.PartitionExpired), "%v", err)
		}
		_, err = a.DropTable(ctx, table.Path, false, false)
		require.NoError(t, err)
		for _, c := range cs {
			_, err := c.Table(ctx, table.Path)
			require.True(t, errs.Is(err, errs.TableNotFound), "%v", err)
		}
	}
	keys, err := cs[0].SigningKeys(ctx)
	require.NoError(t, err)
	for _, c := range cs {
		got, err := c.SigningKeys(ctx)
		require.NoError(t, err)
		require.Equal(t, keys, got)
	}
	require.Equal(t, cs[0].ClusterID(), cs[2].ClusterID())
}

// Ids of an auto-increment column are given once, whichever process gives them.
func TestIDsAtOnce(t *testing.T) {
	servers := natstest.StartT(t, 1)
	cs := openCatalogs(t, servers, 3)
	table, _, err := cs[0].CreateTable(t.Context(), "d", catalog.Spec{
		Name: "t", PrimaryKey: []string{"k"}, Columns: []catalog.ColumnSpec{{Name: "k", Type: "INT"}, {Name: "id", Type: "BIGINT", AutoIncrement: true}},
	}, false)
	require.NoError(t, err)
	const each = 60
	var mu sync.Mutex
	given := map[int64]bool{}
	var wg sync.WaitGroup
	for _, c := range cs {
		wg.Go(func() {
			for range each {
				first, err := c.ReserveIDs(t.Context(), table.ID, 10)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if given[first] || first%10 != 1 {
					t.Errorf("ids from %d are given twice", first)
				}
				given[first] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	require.Len(t, given, each*len(cs))
}

// version is what a client saw of a table: its version, or 0 when it is not there.
type version struct {
	alter bool
	seen  int64
}

// While a server fails, what clients of three processes are told about one table could have
// happened one after the other, although reads ask nobody.
func TestLookupsAreLinearizable(t *testing.T) {
	t.Parallel()
	servers := natstest.StartT(t, 3)
	cs := openCatalogs(t, servers, 3)
	table, _, err := cs[0].CreateTable(t.Context(), "d", spec("t"), false)
	require.NoError(t, err)
	var mu sync.Mutex
	var ops []porcupine.Operation
	var clock, unknown atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i, c := range cs {
		add := func(call int64, v version) {
			mu.Lock()
			defer mu.Unlock()
			ops = append(ops, porcupine.Operation{ClientId: i, Input: v.alter, Output: v.seen, Call: call, Return: clock.Add(1)})
		}
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				call := clock.Add(1)
				if got, err := c.Table(ctx, table.Path); err == nil {
					add(call, version{seen: got.Version})
				}
				if n%20 != i {
					time.Sleep(time.Millisecond)
					continue
				}
				call = clock.Add(1)
				got, err := c.AlterTable(ctx, table.Path, []catalog.AlterStep{{Op: catalog.SetComment, Comment: new(fmt.Sprint(i, n))}}, nil)
				if err != nil {
					unknown.Add(1)
					continue
				}
				add(call, version{alter: true, seen: got.Version})
			}
		})
	}
	more := func() {
		mu.Lock()
		n := len(ops) + 50
		mu.Unlock()
		require.Eventually(t, func() bool { mu.Lock(); defer mu.Unlock(); return len(ops) > n }, time.Minute, time.Millisecond)
	}
	more()
	leader, err := servers.StreamLeader(ctx, "mr_"+name(t)+"_catalog")
	require.NoError(t, err)
	leader.Kill()
	time.Sleep(300 * time.Millisecond)
	require.NoError(t, leader.Start())
	require.NoError(t, servers.Ready(ctx))
	more()
	cancel()
	wg.Wait()
	// An ALTER without an outcome may be made at any time: its version is the one that no
	// acknowledged one has.
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{int64(1)} },
		Step: func(s, in, out any) []any {
			at, seen := s.(int64), out.(int64)
			var next []any
			for skipped := range unknown.Load() + 1 {
				if v := at + skipped; in.(bool) && v+1 == seen || !in.(bool) && v == seen {
					next = append(next, seen)
				}
			}
			return next
		},
		Equal: func(a, b any) bool { return a == b },
	}
	t.Logf("%d operations, %d alters without an outcome", len(ops), unknown.Load())
	require.LessOrEqual(t, unknown.Load(), int64(3), "they end with the test only")
	require.Greater(t, len(ops), 100)
	require.Equal(t, porcupine.Ok, porcupine.CheckOperationsTimeout(model.ToModel(), ops, time.Minute))
}

// fastClock runs 2.5 times as fast as time does, from its own beginning.
type fastClock struct{ at time.Duration }

func (c fastClock) Boot() time.Duration { return c.at + time.Since(began)*5/2 }

// A process that is cut off answers from its copy as long as its lease holds, and until
// then no change is acknowledged that it has not seen; afterwards it answers nothing. The
// clocks of the two have nothing in common.
func TestCutOff(t *testing.T) {
	t.Parallel()
	servers := natstest.StartT(t, 1)
	a := openCatalog(t, openStore(t, servers, keyvalue.Options{Clock: fastClock{time.Hour}}))
	conn := connect(t, servers)
	store, err := keyvalue.Open(t.Context(), keyvalue.Options{
		Cluster: name(t), Replicas: 1, Conn: conn, Clock: fastClock{1000 * time.Hour}, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	b := openCatalog(t, store)
	ctx := t.Context()
	_, err = a.CreateDatabase(ctx, "d", "")
	require.NoError(t, err)
	table, _, err := a.CreateTable(ctx, "d", spec("t"), false)
	require.NoError(t, err)
	_, err = b.Table(ctx, table.Path)
	require.NoError(t, err)

	conn.Close()
	acknowledged := make(chan error, 1)
	var done atomic.Bool
	begun := time.Now()
	go func() {
		_, err := a.AlterTable(ctx, table.Path, []catalog.AlterStep{{Op: catalog.SetComment, Comment: new("new")}}, nil)
		done.Store(true)
		acknowledged <- err
	}()
	reads := 0
	for {
		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		before := done.Load()
		got, err := b.Table(short, table.Path)
		cancel()
		if err != nil {
			require.True(t, errs.Is(err, errs.Unavailable), "%v", err)
			break
		}
		require.False(t, before, "it answers from before a change that was acknowledged")
		require.EqualValues(t, 1, got.Version)
		reads++
		time.Sleep(time.Millisecond)
	}
	require.NoError(t, <-acknowledged)
	require.Positive(t, reads)
	require.Less(t, time.Since(begun), time.Minute) // the lease of 10 s, and what a busy machine takes
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	_, err = b.Table(short, table.Path)
	require.True(t, errs.Is(err, errs.Unavailable), "%v", err)

	// The next change waits for nobody.
	begun = time.Now()
	_, err = a.DropTable(ctx, table.Path, false, false)
	require.NoError(t, err)
	require.Less(t, time.Since(begun), 5*time.Second) // half the lease that it would have to wait for
}

// A process that was thought to be gone and is not, since its messages were held up, joins
// anew and then knows what it missed.
func TestExpiredReaderComesBack(t *testing.T) {
	t.Parallel()
	servers := natstest.StartT(t, 1)
	stores := []*keyvalue.Store{openStore(t, servers, keyvalue.Options{}), openStore(t, servers, keyvalue.Options{Process: "b"})}
	a, b := openCatalog(t, stores[0]), openCatalog(t, stores[1])
	require.NoError(t, stores[1].Lease(t.Context()))
	_, err := a.CreateDatabase(t.Context(), "d", "")
	require.NoError(t, err)
	require.NoError(t, keyvalue.Expire(t.Context(), stores[0], "b"))
	require.False(t, keyvalue.Listed(stores[0], "b"))
	_, err = a.CreateDatabase(t.Context(), "e", "")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return keyvalue.Listed(stores[0], "b") }, time.Minute, 10*time.Millisecond)
	_, err = a.CreateDatabase(t.Context(), "f", "")
	require.NoError(t, err)
	list, _, err := b.Databases(t.Context(), 0, "")
	require.NoError(t, err)
	require.Len(t, list, 3)
}

// hasty is a KV that waits for nobody.
type hasty struct{ *keyvalue.Store }

func (hasty) Settle(context.Context, uint64) error { return nil }
func (hasty) Settled() uint64                      { return 0 }

// What is not found is looked for in the stream, once for many at a time, before it is
// said to be absent.
func TestMissIsAskedFor(t *testing.T) {
	servers := natstest.StartT(t, 1)
	deaf := openStore(t, servers, keyvalue.Options{})
	a, b := openCatalog(t, hasty{openStore(t, servers, keyvalue.Options{})}), openCatalog(t, hasty{deaf})
	keyvalue.Unsubscribe(deaf)
	for n := range 20 {
		db := fmt.Sprint("d", n)
		_, err := a.CreateDatabase(t.Context(), db, "")
		require.NoError(t, err)
		table, _, err := a.CreateTable(t.Context(), db, spec("t"), false)
		require.NoError(t, err)
		p, _, err := a.EnsurePartition(t.Context(), table.ID, []string{"x"})
		require.NoError(t, err)
		switch n % 4 {
		case 0:
			_, err = b.Table(t.Context(), table.Path)
		case 1:
			_, err = b.Partition(t.Context(), table.ID, p.Name)
		case 2:
			_, err = b.PartitionByID(t.Context(), table.ID, p.ID)
		case 3:
			_, err = b.DropTable(t.Context(), table.Path, false, false)
		}
		require.NoError(t, err, "%d", n)
	}
	var wg sync.WaitGroup
	before := keyvalue.Ends(deaf)
	for range 500 {
		wg.Go(func() {
			_, err := b.Database(t.Context(), "never")
			if !errs.Is(err, errs.DatabaseNotFound) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.Less(t, keyvalue.Ends(deaf)-before, int64(50), "questions for 500 misses")
}

// Changed tells of what other processes did, before they are acknowledged.
func TestChanged(t *testing.T) {
	servers := natstest.StartT(t, 1)
	cs := openCatalogs(t, servers, 2)
	var mu sync.Mutex
	var told []string
	say := func(format string, args ...any) { told = append(told, fmt.Sprintf(format, args...)) }
	cs[1].Changed(func(ch catalog.Changes) {
		mu.Lock()
		defer mu.Unlock()
		for _, t := range ch.Dropped {
			say("dropped %s", t.Path)
		}
		for _, t := range ch.Altered {
			say("altered %s %d", t.Path, t.Version)
		}
		for _, p := range ch.Partitions {
			say("partition %s %s", p.Name, p.State)
		}
		for _, p := range ch.RemovedPartitions {
			say("removed %s", p.Name)
		}
	})
	want := func(more ...string) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, more, told)
		told = nil
	}
	ctx, a := t.Context(), cs[0]
	table, _, err := a.CreateTable(ctx, "d", spec("t"), false)
	require.NoError(t, err)
	want("altered d.t 1")
	p, _, err := a.EnsurePartition(ctx, table.ID, []string{"x"})
	require.NoError(t, err)
	want("partition dt=x open")
	_, err = a.SetPartitionState(ctx, table.ID, p.ID, millrace.PartitionClosing)
	require.NoError(t, err)
	want("partition dt=x closing")
	_, err = a.AlterTable(ctx, table.Path, []catalog.AlterStep{{Op: catalog.SetComment, Comment: new("c")}}, nil)
	require.NoError(t, err)
	want("altered d.t 2")
	_, err = a.RemovePartition(ctx, table.ID, p.ID)
	require.NoError(t, err)
	want("removed dt=x")
	_, _, err = a.CreateTable(ctx, "d", spec("u"), false)
	require.NoError(t, err)
	want("altered d.u 1")
	_, err = a.DropTable(ctx, table.Path, false, false)
	require.NoError(t, err)
	want("dropped d.t")
	_, err = a.DropDatabase(ctx, "d", true)
	require.NoError(t, err)
	want("dropped d.u")
}

// A catalog that was exported by one cluster is imported into another one's empty stream,
// larger than a message, and all its processes go on with it; another import is refused.
func TestImport(t *testing.T) {
	servers := natstest.StartT(t, 1)
	old := openCatalogs(t, servers, 1)[0]
	for n := range 30 {
		_, err := old.CreateDatabase(t.Context(), fmt.Sprint("big", n), string(noise(60_000, byte(n))))
		require.NoError(t, err)
	}
	table, _, err := old.CreateTable(t.Context(), "d", spec("t"), false)
	require.NoError(t, err)
	p, _, err := old.EnsurePartition(t.Context(), table.ID, []string{"x"})
	require.NoError(t, err)
	b, revision, err := old.Export(t.Context())
	require.NoError(t, err)
	require.Greater(t, len(b), 1<<20)
	t.Run("into another", func(t *testing.T) {
		s := openStore(t, servers, keyvalue.Options{})
		require.NoError(t, catalog.Import(t.Context(), s, b, revision+10))
		require.True(t, errs.Is(catalog.Import(t.Context(), s, b, 0), errs.InvalidRequest))
		for _, c := range []*catalog.Catalog{openCatalog(t, s), openCatalog(t, openStore(t, servers, keyvalue.Options{}))} {
			require.Equal(t, old.ClusterID(), c.ClusterID())
			require.Equal(t, revision+11, c.Revision())
			got, err := c.Table(t.Context(), table.Path)
			require.NoError(t, err)
			require.Equal(t, table, got)
			same, err := c.Partition(t.Context(), table.ID, p.Name)
			require.NoError(t, err)
			require.Equal(t, p, same)
		}
	})
}

// noise is text that does not compress well.
func noise(n int, seed byte) []byte {
	c := rand.NewChaCha8([32]byte{seed})
	b := make([]byte, n)
	for i := range b {
		b[i] = ' ' + byte(c.Uint64()%95)
	}
	return b
}
