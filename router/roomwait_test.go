package router_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/admit"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/storage/shard"
)

// withRoom opens the fixture anew with a room, over shards that are here, or elsewhere.
func (f *fixture) withRoom(where string, bytes int64) {
	f.room = admit.New(admit.Sent, bytes, time.Now, prometheus.NewRegistry())
	f.r = newRouterTo(where, f.options(), f.w.Shards())
}

// keysOf are the keys of a chunk, which it releases.
func keysOf(t *testing.T, c *router.Chunk) []int64 {
	rec, err := c.Record()
	require.NoError(t, err)
	at := rec.Schema().FieldIndices("k")[0]
	out := append([]int64{}, rec.Column(at).(*array.Int64).Int64Values()...)
	rec.Release()
	c.Release()
	return out
}

// changelog reads the changelog of a table from a position on, as it comes.
func (f *fixture) changelog(tbl *millrace.Table, from router.Position) *router.Reader {
	never := router.Position{Kind: router.Never}
	p, err := f.r.Plan(f.t.Context(), tbl.Path.String()+"$changelog", &router.ReadRequest{From: &from, Until: &never}, router.Scan)
	require.NoError(f.t, err)
	return f.r.Open(p)
}

// noise are rows whose texts are so long and do not compress.
func noise(t *millrace.Table, n, long int) row.Rows {
	b := array.NewRecordBuilder(memory.DefaultAllocator, row.ArrowSchema(t.Schema.Columns))
	defer b.Release()
	rng := rand.New(rand.NewPCG(1, 2))
	text := make([]byte, long)
	for i := range n {
		for j := range text {
			text[j] = byte(' ' + rng.IntN(95))
		}
		b.Field(0).(*array.Int64Builder).Append(int64(i))
		b.Field(1).(*array.StringBuilder).Append(string(text))
		b.Field(2).(*array.Int32Builder).Append(0)
	}
	return row.Rows{Record: b.NewRecordBatch(), Columns: t.Schema.Columns}
}

// fill makes a hold that has nothing take all the room that is left.
func (f *fixture) fill(h *admit.Hold) {
	require.Eventually(f.t, func() bool { // somebody may be reading meanwhile
		return h.Set(f.t.Context(), 1, 0) == nil && h.Set(f.t.Context(), f.room.Limit()-f.room.Held()+1, 0) == nil
	}, time.Minute, time.Millisecond)
}

// until gives a context that ends when somebody waits for room.
func (f *fixture) until() (context.Context, func()) {
	ctx, cancel := context.WithCancel(f.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !f.room.Contended() && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	return ctx, func() {
		cancel()
		<-done
	}
}

// Shows that no row is skipped when the caller's time is over while a large chunk waits for
// room: it is given, or is still ahead.
func TestNoRowIsSkippedForWantOfRoom(t *testing.T) {
	for _, where := range []string{"", "remote"} {
		t.Run("shards "+where, func(t *testing.T) {
			f := newFixture(t)
			f.withRoom(where, 5<<20)
			tbl := f.table("u", false, 1)
			f.write(tbl, router.Append, noise(tbl, 400, 20000))
			other := f.room.Hold()
			require.NoError(t, other.Set(t.Context(), f.room.Limit(), 0)) // the last quarter is its own now
			require.NoError(t, other.Set(t.Context(), 512<<10, 0))
			rd := f.changelog(tbl, router.Position{Kind: router.Earliest})
			var keys []int64
			ctx, end := f.until()
			for len(keys) < 400 {
				c, err := rd.Next(ctx, time.Minute)
				if err != nil {
					require.ErrorIs(t, err, context.Canceled)
					break
				}
				if c != nil {
					require.Positive(t, c.Rows)
					keys = append(keys, keysOf(t, c)...)
				}
			}
			end()
			cursor := rd.Cursor()
			require.NoError(t, rd.Close())
			other.Done()
			rd = f.changelog(tbl, router.Position{Kind: router.AtCursor, Cursor: cursor})
			for len(keys) < 400 {
				c, err := rd.Next(t.Context(), time.Minute)
				require.NoError(t, err)
				if c != nil {
					keys = append(keys, keysOf(t, c)...)
				}
			}
			require.NoError(t, rd.Close())
			for i, k := range keys {
				require.Equal(t, int64(i), k)
			}
			require.Eventually(t, func() bool { return f.room.Held() == 0 }, time.Minute, time.Millisecond)
		})
	}
}

// Shows that a chunk whose rows turn out to take more than was thought is decoded, though
// there is no room for that and its caller's time is over.
func TestDecodedWithoutRoom(t *testing.T) {
	f := newFixture(t)
	f.withRoom("", 16<<20)
	tbl := f.table("u", false, 1)
	f.write(tbl, router.Append, rows(tbl, 0, 400, strings.Repeat("x", 20000)))
	require.NoError(t, f.w.Shards()[0].Checkpoint(t.Context()))
	rd := f.changelog(tbl, router.Position{Kind: router.Earliest})
	other := f.room.Hold()
	ctx, cancel := context.WithCancel(t.Context())
	var keys []int64
	for len(keys) < 400 {
		c, err := rd.Next(ctx, time.Minute)
		require.NoError(t, err)
		require.NotNil(t, c)
		f.fill(other)
		cancel()
		keys = append(keys, keysOf(t, c)...)
		ctx = t.Context()
		other.Done()
	}
	cancel()
	require.NoError(t, rd.Close())
	require.Zero(t, f.room.Held())
}

// Shows that readers do not wait for each other when the owners of what they read count in
// the room that they count in themselves.
func TestReadersShareARoomWithOwners(t *testing.T) {
	f := newFixture(t)
	f.withRoom("remote", 128<<20)
	log := f.table("u", false, 2)
	f.write(log, router.Append, rows(log, 0, 5000, "some text"))
	var wg sync.WaitGroup
	failed := make(chan error, 64)
	var n atomic.Int64
	for range cap(failed) {
		wg.Go(func() {
			p, err := f.r.Plan(t.Context(), log.Path.String(), &router.ReadRequest{}, router.Scan)
			if err != nil {
				failed <- err
				return
			}
			rd := f.r.Open(p)
			defer rd.Close()
			for {
				c, err := rd.Next(t.Context(), time.Hour)
				if errors.Is(err, io.EOF) {
					return
				}
				if err != nil {
					failed <- err
					return
				}
				n.Add(int64(c.Rows))
				c.Release()
			}
		})
	}
	wg.Wait()
	close(failed)
	for err := range failed {
		require.NoError(t, err)
	}
	require.Equal(t, int64(64*5000), n.Load())
	require.Eventually(t, func() bool { return f.room.Held() == 0 }, time.Minute, time.Millisecond)
}

// Shows that who has nothing to read needs no room, and is not refused while others have all
// of it; and that he gets what comes when there is some again.
func TestIdleReadersNeedNoRoom(t *testing.T) {
	for _, where := range []string{"", "remote"} {
		t.Run("shards "+where, func(t *testing.T) {
			f := newFixture(t)
			f.withRoom(where, 8<<20)
			tbl := f.table("u", false, 1)
			f.write(tbl, router.Append, rows(tbl, 0, 10, "x"))
			rd := f.changelog(tbl, router.Position{Kind: router.Latest})
			other := f.room.Hold()
			require.NoError(t, other.Set(t.Context(), f.room.Limit(), 0))
			for range 3 {
				c, err := rd.Next(t.Context(), 10*time.Millisecond)
				require.NoError(t, err)
				require.Nil(t, c)
			}
			other.Done()
			f.write(tbl, router.Append, rows(tbl, 10, 20, "x"))
			var keys []int64
			for len(keys) < 10 {
				c, err := rd.Next(t.Context(), time.Minute)
				require.NoError(t, err)
				if c != nil {
					keys = append(keys, keysOf(t, c)...)
				}
			}
			require.Equal(t, []int64{10, 11, 12, 13, 14, 15, 16, 17, 18, 19}, keys)
			require.NoError(t, rd.Close())
		})
	}
}

// nobody owns the shards: they were lost, and nobody has taken them over.
type nobody struct {
	router.Local
	asked atomic.Int64
	away  atomic.Bool
}

func (n *nobody) Owner(id millrace.ShardID) (*shard.Shard, router.Remote) {
	if n.away.Load() {
		n.asked.Add(1)
		return nil, nil
	}
	return n.Local.Owner(id)
}

// Shows that a read of a shard that nobody has takes no room from others while it waits.
func TestReadsOfLostShardsTakeNoRoom(t *testing.T) {
	f := newFixture(t)
	f.withRoom("", 8<<20)
	o := f.options()
	owners := &nobody{Local: router.Local(f.w.Shards())}
	o.Owners, o.Registerer = owners, prometheus.NewRegistry()
	f.r = router.New(o)
	tbl := f.table("u", false, 1)
	f.write(tbl, router.Append, rows(tbl, 0, 10, "x"))
	p, err := f.r.Plan(t.Context(), tbl.Path.String(), &router.ReadRequest{}, router.Scan)
	require.NoError(t, err)
	rd := f.r.Open(p)
	owners.away.Store(true)
	var n atomic.Int64
	done := make(chan error, 1)
	go func() {
		for {
			c, err := rd.Next(t.Context(), time.Hour)
			if err != nil {
				done <- err
				return
			}
			n.Add(int64(c.Rows))
			c.Release()
		}
	}()
	require.Eventually(t, func() bool { return owners.asked.Load() > 3 }, time.Minute, time.Millisecond)
	require.Zero(t, f.room.Held())
	owners.away.Store(false)
	require.ErrorIs(t, <-done, io.EOF)
	require.Equal(t, int64(10), n.Load())
	require.NoError(t, rd.Close())
}

// Shows that a reader that is refused in the midst, after the longer patience, goes on later
// and gives every row once: of a log, and of keyed state.
func TestRefusedInTheMidst(t *testing.T) {
	for _, where := range []string{"", "remote"} {
		for _, keyed := range []bool{false, true} {
			t.Run("shards "+where, func(t *testing.T) {
				f := newFixture(t)
				f.withRoom(where, 64<<20)
				f.r.Patient(20*time.Second, 10*time.Millisecond)
				tbl := f.table("u", keyed, 1)
				mode := router.Append
				if keyed {
					mode = router.Upsert
				}
				const total = 40000
				for from := 0; from < total; from += 10000 {
					f.write(tbl, mode, rows(tbl, from, from+10000, strings.Repeat("x", 200)))
				}
				p, err := f.r.Plan(t.Context(), tbl.Path.String(), &router.ReadRequest{}, router.Scan)
				require.NoError(t, err)
				rd := f.r.Open(p)
				other := f.room.Hold()
				seen := map[int64]int{}
				refused := 0
				for {
					c, err := rd.Next(t.Context(), time.Hour)
					if errors.Is(err, io.EOF) {
						break
					}
					if err != nil {
						require.Equal(t, errs.Overloaded, code(err))
						refused++
						other.Done()
						continue
					}
					for _, k := range keysOf(t, c) {
						seen[k]++
					}
					if refused < 3 {
						other.Done()
						f.fill(other)
					}
				}
				if where == "" { // an owner elsewhere reads ahead, maybe all
					require.Positive(t, refused)
				}
				require.Len(t, seen, total)
				for k, n := range seen {
					require.Equal(t, 1, n, k)
				}
				require.NoError(t, rd.Close())
			})
		}
	}
}
