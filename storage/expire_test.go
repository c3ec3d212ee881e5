package storage_test

import (
	"context"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/shard"
	"github.com/millrace/millrace/storage/storagetest"
)

// keepExpired is how long the workers of these tests keep what has expired.
const keepExpired = time.Hour

// expiring is a world whose records expire, and what is known of it: when each record
// was written, and where each log's start was when.
type expiring struct {
	*storagetest.World
	t      *testing.T
	gen    storagetest.Generator
	times  map[millrace.BucketID][]int64
	starts map[millrace.BucketID][]startAt
}

type startAt struct {
	at    time.Time
	start millrace.Offset
}

// newExpiring makes an open world with a log table and a keyed table of that TTL.
func newExpiring(t *testing.T, seed uint64, ttl time.Duration) *expiring {
	w := storagetest.NewWorld(t, seed)
	w.Opts.KeepExpired = keepExpired
	x := &expiring{
		World: w, t: t, gen: storagetest.Generator{Rng: w.Rng, Keys: 40},
		times: map[millrace.BucketID][]int64{}, starts: map[millrace.BucketID][]startAt{},
	}
	x.MustOpen()
	x.add(storagetest.NewTable(1, 2, w.Opts.Shards, 0, storagetest.LogColumns...), ttl)
	x.add(storagetest.NewTable(2, 2, w.Opts.Shards, 2, storagetest.KeyedColumns...), ttl)
	return x
}

func (x *expiring) add(t *storagetest.Table, ttl time.Duration) {
	t.Options.LogTTL, t.Version = ttl, 1
	x.Add(t)
}

// alter gives a table another TTL, as a shard is told by the catalog or by a write.
func (x *expiring) alter(m *storagetest.Modelled, ttl time.Duration) {
	d := *m.Table.Table
	d.Options.LogTTL = ttl
	d.Version++
	m.Table.Table = &d
	if x.Rng.IntN(2) == 0 {
		x.Worker.Tell(&d)
	} else {
		for b := range m.Buckets {
			x.write(m, uint16(b))
		}
	}
}

func (x *expiring) tell() {
	for _, m := range x.Tables {
		x.Worker.Tell(m.Table.Table)
	}
}

func (x *expiring) write(m *storagetest.Modelled, bucket uint16) {
	wr := x.gen.Write(m.Table, bucket)
	want := m.Buckets[bucket].Write(m.Table, wr)
	res, err := x.Shard(m.Table, bucket).Write(context.Background(), m.Op(wr, 512*x.Rng.IntN(2)))
	require.NoError(x.t, err)
	require.EqualValues(x.t, want.Start, res.Start)
	id := m.BucketID(bucket)
	for range res.End - res.Start {
		x.times[id] = append(x.times[id], x.Clock.Now().UnixMicro())
	}
}

func (x *expiring) expire() {
	for _, s := range x.Worker.Shards() {
		require.NoError(x.t, s.Expire(context.Background()))
	}
}

func (x *expiring) checkpoints() {
	for _, s := range x.Worker.Shards() {
		require.NoError(x.t, s.Checkpoint(context.Background()))
	}
}

func (x *expiring) each(f func(m *storagetest.Modelled, bucket uint16, id millrace.BucketID)) {
	for _, m := range x.Tables {
		for b := range m.Buckets {
			f(m, uint16(b), m.BucketID(uint16(b)))
		}
	}
}

// checkStarts compares where the logs begin with when their records were written.
// expired says that what is due must have expired.
func (x *expiring) checkStarts(expired bool) {
	x.t.Helper()
	now := x.Clock.Now()
	x.each(func(m *storagetest.Modelled, b uint16, id millrace.BucketID) {
		lg, v, err := x.Shard(m.Table, b).Log(id)
		require.NoError(x.t, err)
		if lg == nil {
			return
		}
		history := x.starts[id]
		if n := len(history); n > 0 {
			require.GreaterOrEqual(x.t, v.Start, history[n-1].start, "the start of bucket %s goes back", id)
		}
		x.starts[id] = append(history, startAt{now, v.Start})
		for _, h := range history {
			if now.Sub(h.at) < keepExpired {
				require.LessOrEqual(x.t, v.Kept, h.start, "what a reader of bucket %s was told %s ago is gone", id, now.Sub(h.at))
				break
			}
		}
		if v.Start > 0 && v.Start < v.End {
			require.NotEqual(x.t, millrace.UpdateAfter, m.Buckets[b].Log[v.Start].Type, "bucket %s begins within a pair", id)
		}
		ttl, forever := m.Options.Retention()
		if !expired || forever {
			return
		}
		if v.Start < v.End {
			batch, err := lg.At(v, v.Start)
			require.NoError(x.t, err)
			require.GreaterOrEqual(x.t, batch.Header.MaxTime(), now.Add(-ttl).UnixMicro(), "a batch at offset %d of bucket %s is not expired", v.Start, id)
			require.NoError(x.t, batch.Release())
		}
	})
}

// checkNotEarly shows that nothing expired since that was younger than its TTL.
func (x *expiring) checkNotEarly(since map[millrace.BucketID]millrace.Offset) {
	x.t.Helper()
	x.each(func(m *storagetest.Modelled, b uint16, id millrace.BucketID) {
		_, v, err := x.Shard(m.Table, b).Log(id)
		require.NoError(x.t, err)
		if v == nil || v.Start == since[id] {
			return
		}
		ttl, forever := m.Options.Retention()
		require.False(x.t, forever)
		require.Less(x.t, x.times[id][v.Start-1], x.Clock.Now().Add(-ttl).UnixMicro(), "record %d of bucket %s expired early", v.Start-1, id)
	})
}

func (x *expiring) startsNow() map[millrace.BucketID]millrace.Offset {
	out := map[millrace.BucketID]millrace.Offset{}
	x.each(func(m *storagetest.Modelled, b uint16, id millrace.BucketID) {
		if _, v, err := x.Shard(m.Table, b).Log(id); err == nil && v != nil {
			out[id] = v.Start
		}
	})
	return out
}

// files are the segment files there are.
func (x *expiring) files() []string {
	var out []string
	var walk func(dir string)
	walk = func(dir string) {
		list, err := x.FS.List(dir)
		require.NoError(x.t, err)
		slices.Sort(list)
		for _, n := range list {
			p := path.Join(dir, n)
			if st, err := x.FS.Stat(p); err == nil && st.IsDir() {
				walk(p)
			} else if strings.HasSuffix(n, ".seg") {
				out = append(out, p)
			}
		}
	}
	walk(path.Join(storagetest.Dir, "shards"))
	return out
}

// Shows, against the times at which records were written, that whole batches expire
// when their last record is older than the TTL and never before; that a log's start
// never goes back, through ALTERs, restarts and crashes; that what a reader was shown
// can be read for an hour; that state stays; and that in the end every byte is gone.
func TestExpire(t *testing.T) {
	for _, seed := range seeds(t, 8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			t.Logf("MILLRACE_MODEL_SEED=%d", seed)
			x := newExpiring(t, seed, 10*time.Minute)
			for range modelOps(t, 250) {
				x.step()
			}
			x.Check()
			for range 3 { // the first ends what is left, what it passed waits twice at most
				x.Clock.Add(keepExpired)
				for _, m := range x.Tables {
					if _, forever := m.Options.Retention(); forever {
						x.alter(m, time.Minute)
						x.Clock.Add(2 * time.Minute)
					}
				}
				x.expire()
				x.checkpoints()
			}
			x.each(func(m *storagetest.Modelled, b uint16, id millrace.BucketID) {
				if _, v, err := x.Shard(m.Table, b).Log(id); err == nil && v != nil {
					require.Equal(t, [2]millrace.Offset{v.End, v.End}, [2]millrace.Offset{v.Start, v.Kept}, "bucket %s", id)
				}
			})
			require.Empty(t, x.files())
			x.Check() // the state is there
			x.Crash(0)
			x.Check()
			x.Close()
		})
	}
}

func (x *expiring) step() {
	m := x.Tables[x.Rng.IntN(len(x.Tables))]
	switch r := x.Rng.IntN(100); {
	case r < 45:
		x.write(m, uint16(x.Rng.IntN(len(m.Buckets))))
	case r < 65:
		x.Clock.Add(time.Duration(x.Rng.IntN(8*60)) * time.Second)
	case r < 80:
		before := x.startsNow()
		x.expire()
		x.checkNotEarly(before)
		x.checkStarts(true)
	case r < 90:
		x.checkpoints()
	case r < 92:
		x.alter(m, []time.Duration{2 * time.Minute, 10 * time.Minute, time.Hour, -1}[x.Rng.IntN(4)])
	case r < 94:
		x.Close()
		x.MustOpen()
		x.tell()
	case r < 98:
		x.Crash([]int{0, 50, 100}[x.Rng.IntN(3)])
		x.tell()
	default:
		x.Check()
	}
	x.checkStarts(false)
}

// Shows that nothing expires of a table that nobody spoke of since the start: its TTL
// may have been altered while the manifest was not written.
func TestExpireAsksTheCatalog(t *testing.T) {
	x := newExpiring(t, 1, time.Minute)
	x.write(x.Tables[0], 0)
	x.checkpoints()
	x.Close()
	x.MustOpen()
	x.Clock.Add(time.Hour)
	before := x.startsNow()
	x.expire()
	require.Equal(t, before, x.startsNow())
	forever := *x.Tables[0].Table.Table
	forever.Version, forever.Options.LogTTL = 2, -1
	x.Worker.Tell(&forever)
	x.Worker.Tell(x.Tables[0].Table.Table) // which is older
	x.expire()
	require.Equal(t, before, x.startsNow())
	back := forever
	back.Version, back.Options.LogTTL = 3, time.Minute
	x.Worker.Tell(&back)
	x.expire()
	require.NotEqual(t, before, x.startsNow())
	x.Close()
}

// lakeOf gives a table another descriptor, in the lake or not.
func (x *expiring) lakeOf(m *storagetest.Modelled, enabled bool) {
	d := *m.Table.Table
	d.Options.Lake = &millrace.LakeOptions{Enabled: enabled, Format: millrace.Iceberg}
	d.Version++
	m.Table.Table = &d
	x.Worker.Tell(&d)
}

// Shows that of a table in the lake nothing expires but what was told to be there, in
// whole batches; that what was told is not taken back, is forgotten by a restart, and
// is of no account when the table leaves the lake.
func TestExpireWhatIsInTheLake(t *testing.T) {
	x := newExpiring(t, 5, time.Minute)
	for i, m := range x.Tables {
		id := m.BucketID(0)
		for range 6 {
			x.write(m, 0)
		}
		x.lakeOf(m, true)
		x.Clock.Add(time.Hour)
		view := func() (start, end millrace.Offset) {
			x.expire()
			_, v, err := x.Shard(m.Table, 0).Log(id)
			require.NoError(t, err)
			return v.Start, v.End
		}
		told := func(at millrace.Offset) {
			for _, s := range x.Worker.Shards() {
				s.Tiered(map[millrace.BucketID]millrace.Offset{id: at, {Table: 99, Bucket: 1}: 7})
			}
		}
		start, end := view()
		require.Zero(t, start, "table %d", i)

		told(end / 2)
		half, _ := view()
		require.Positive(t, half)
		require.LessOrEqual(t, half, end/2)
		require.Less(t, half, end)
		x.Crash(0)
		x.tell()
		start, _ = view()
		require.Equal(t, half, start)

		told(end)
		start, _ = view()
		require.Equal(t, end, start)
		told(end / 4) // the lake has lost something: a start never goes back, and goes no further

		x.write(m, 0)
		x.Clock.Add(time.Hour)
		start, _ = view()
		require.Equal(t, end, start)
		told(end)
		x.Clock.Add(time.Hour)
		start, more := view()
		require.Equal(t, end, start)
		require.Greater(t, more, end)
		x.lakeOf(m, false)
		start, _ = view()
		require.Equal(t, more, start)
		x.checkStarts(true)
	}
	x.Check()
	x.Close()
}

// Shows that a shard finds what has expired by itself, and removes it by itself when
// nothing else is going on, though no write asks for a checkpoint.
func TestExpireByItself(t *testing.T) {
	x := newExpiring(t, 2, time.Minute)
	m := x.Tables[0]
	for range 4 {
		x.write(m, 0)
	}
	x.checkpoints()
	view := func() (start, kept, end millrace.Offset) {
		_, v, err := x.Shard(m.Table, 0).Log(m.BucketID(0))
		require.NoError(t, err)
		return v.Start, v.Kept, v.End
	}
	x.Clock.Add(2 * time.Minute)
	require.Eventually(t, func() bool { start, _, end := view(); return start == end }, waitFor, tick)
	x.checkpoints()
	x.Clock.Add(keepExpired - time.Second)
	x.expire()
	_, kept, _ := view()
	require.Zero(t, kept)
	x.Clock.Add(2 * time.Second)
	require.Eventually(t, func() bool { _, kept, end := view(); return kept == end }, waitFor, tick)
	x.Close()
}

// Shows that the records of one bucket may expire while a table is dropped, and that
// what the log says of it is passed over when the table is gone.
func TestExpireAndDrop(t *testing.T) {
	x := newExpiring(t, 3, time.Minute)
	m := x.Tables[0]
	for b := range m.Buckets {
		x.write(m, uint16(b))
	}
	x.Clock.Add(time.Hour)
	for _, s := range x.Worker.Shards() {
		done := make(chan error, 1)
		go func() { done <- s.Expire(context.Background()) }()
		require.NoError(t, s.DropTable(context.Background(), m.ID))
		require.NoError(t, <-done)
	}
	x.Tables = x.Tables[1:]
	x.Crash(0)
	x.Check()
	x.Close()
}

// Shows that a damaged shard and a closed one say so.
func TestExpireWhenClosed(t *testing.T) {
	x := newExpiring(t, 4, time.Minute)
	s := x.Worker.Shards()[0]
	x.Close()
	require.True(t, errs.Is(s.Expire(context.Background()), errs.Draining))
	bad := shard.Damaged(1, errs.New(errs.CorruptData, "x"), slog.New(slog.DiscardHandler))
	bad.Tell(x.Tables[0].Table.Table)
	require.True(t, errs.Is(bad.Expire(context.Background()), errs.CorruptData))
}
