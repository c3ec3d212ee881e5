package storage_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/shard"
	"github.com/millrace/millrace/storage/storagetest"
)

// seeds are the seeds of a random test: MILLRACE_MODEL_SEED alone when it is set.
func seeds(t testing.TB, n int) []uint64 {
	if s := os.Getenv("MILLRACE_MODEL_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
		return []uint64{seed}
	}
	out := make([]uint64, n)
	base := uint64(time.Now().UnixNano()) >> 10 << 10
	for i := range out {
		out[i] = base + uint64(i)
	}
	return out
}

// modelOps is how many operations a random test makes in all.
func modelOps(t testing.TB, normal int) int {
	s := os.Getenv("MILLRACE_MODEL_OPS")
	if s == "" {
		return normal
	}
	n, err := strconv.Atoi(s)
	require.NoError(t, err)
	return n
}

// Shows that whatever is written, in whatever order, under whatever settings,
// and however often the worker is checkpointed, restarted or crashes, it holds
// what the model holds: the same changelog at the same offsets, the same rows, the
// same counters and the same answers to numbered batches (F15). A seed that fails
// is run again with MILLRACE_MODEL_SEED; MILLRACE_MODEL_OPS makes it longer.
func TestModel(t *testing.T) {
	const worlds = 12
	all := seeds(t, worlds)
	each := modelOps(t, 11_000) / len(all)
	for _, seed := range all {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			newModelTest(t, seed).run(each)
		})
	}
}

type modelTest struct {
	*storagetest.World
	t     *testing.T
	gen   storagetest.Generator
	gone  []*storagetest.Modelled
	next  millrace.TableID
	parts millrace.PartitionID // so far
	done  int
	piece int // bytes of a columnar payload
}

func newModelTest(t *testing.T, seed uint64) *modelTest {
	w := storagetest.NewWorld(t, seed)
	m := &modelTest{World: w, t: t}
	m.gen = storagetest.Generator{Rng: w.Rng, Keys: 10 + w.Rng.IntN(300), Large: w.Rng.IntN(12)}
	m.piece = 1 << (8 + w.Rng.IntN(12))
	t.Logf("MILLRACE_MODEL_SEED=%d settings %+v", seed, w.Opts)
	return m
}

func (m *modelTest) run(ops int) {
	m.MustOpen()
	for range 2 {
		m.create(true)
		m.create(false)
	}
	for m.done < ops {
		m.Clock.Add(time.Duration(m.Rng.IntN(4000)-500) * time.Millisecond)
		m.step()
	}
	m.Check()
	m.restart()
	m.restart() // twice in a row: nothing but epochs between
	m.Close()
}

func (m *modelTest) step() {
	m.done++
	switch r := m.Rng.IntN(1000); {
	case r < 940:
		m.burst()
	case r < 965:
		m.checkpoint()
	case r < 975:
		m.Check()
	case r < 980:
		m.restart()
	case r < 988:
		m.Crash([]int{0, 50, 100}[m.Rng.IntN(3)])
		m.Check()
	case r < 992:
		m.crashInBurst()
	case r < 995:
		m.drop()
	case r < 997:
		m.seal()
	default:
		m.lookup()
	}
}

// create makes a table, or another partition of one.
func (m *modelTest) create(keyed bool) {
	for _, tbl := range m.Tables {
		if tbl.Keyed == keyed && tbl.Partition != 0 && m.Rng.IntN(2) == 0 {
			m.parts++
			m.Add(tbl.InPartition(m.parts))
			return
		}
	}
	m.next++
	buckets := 1 + m.Rng.IntN(5)
	var tbl *storagetest.Table
	if keyed {
		tbl = m.gen.KeyedTable(m.next, buckets, m.Opts.Shards)
	} else {
		tbl = storagetest.NewTable(m.next, buckets, m.Opts.Shards, 0, storagetest.LogColumns...)
	}
	if m.Rng.IntN(2) == 0 {
		m.parts++
		tbl = tbl.InPartition(m.parts)
	}
	m.Add(tbl)
}

type started struct {
	p    *shard.Pending
	want storagetest.Outcome
	text string
}

// burst starts some writes and then waits for them: the shard puts them into
// groups as it likes.
func (m *modelTest) burst() {
	n := 1
	if m.Rng.IntN(3) == 0 {
		n = 1 + m.Rng.IntN(24)
	}
	under := make([]started, n)
	for i := range under {
		under[i] = m.start()
	}
	m.done += n - 1
	for _, s := range under {
		res, err := s.p.Wait(context.Background())
		require.Equal(m.t, s.want.Code, errs.CodeOf(err), "%s: %v", s.text, err)
		if err == nil {
			require.Equal(m.t, s.want, storagetest.Outcome{Start: int64(res.Start), End: int64(res.End), Duplicate: res.Duplicate}, s.text)
		}
	}
}

func (m *modelTest) start() started {
	tbl := m.Tables[m.Rng.IntN(len(m.Tables))]
	b := uint16(m.Rng.IntN(len(tbl.Buckets)))
	w := m.gen.Write(tbl.Table, b)
	if m.Rng.IntN(3) == 0 {
		m.gen.Number(w, tbl.Buckets[b])
	}
	return m.send(tbl, w)
}

func (m *modelTest) send(tbl *storagetest.Modelled, w *storagetest.Write) started {
	piece := m.piece
	if len(w.Rows) < 20 && m.Rng.IntN(4) > 0 {
		piece = 0
	}
	p, err := m.Shard(tbl.Table, w.Bucket).Start(context.Background(), tbl.Op(w, piece))
	require.NoError(m.t, err)
	return started{p: p, want: tbl.Write(w), text: fmt.Sprintf("%s/%d %d rows writer %+v", tbl.Path, w.Bucket, len(w.Rows), w.Writer)}
}

func (m *modelTest) checkpoint() {
	s := m.Worker.Shards()[m.Rng.IntN(m.Opts.Shards)]
	require.NoError(m.t, s.Checkpoint(context.Background()))
}

func (m *modelTest) restart() {
	m.Close()
	m.MustOpen()
	m.Check()
}

// drop drops a table or partition, while writes to it are under way: each is taken
// before the drop, or refused.
func (m *modelTest) drop() {
	i := m.Rng.IntN(len(m.Tables))
	tbl := m.Tables[i]
	for range m.Rng.IntN(4) {
		m.send(tbl, m.gen.Write(tbl.Table, uint16(m.Rng.IntN(len(tbl.Buckets)))))
	}
	code := errs.TableNotFound
	for _, s := range m.Worker.Shards() {
		if tbl.Partition == 0 {
			require.NoError(m.t, s.DropTable(context.Background(), tbl.ID))
			continue
		}
		code = errs.PartitionExpired
		require.NoError(m.t, s.DropPartition(context.Background(), tbl.ID, tbl.Partition))
	}
	for b := range tbl.Buckets {
		lg, _, err := m.Shard(tbl.Table, uint16(b)).Log(tbl.BucketID(uint16(b)))
		require.NoError(m.t, err)
		require.Nil(m.t, lg, "bucket %d of a dropped table", b)
		_, err = m.Shard(tbl.Table, uint16(b)).Write(context.Background(), tbl.Op(m.gen.Write(tbl.Table, uint16(b)), 0))
		require.Equal(m.t, code, errs.CodeOf(err))
	}
	m.Tables = append(m.Tables[:i], m.Tables[i+1:]...)
	m.gone = append(m.gone, tbl)
	m.create(tbl.Keyed)
}

// seal seals a partition, while writes to it are under way: each is taken before the
// seal, or refused.
func (m *modelTest) seal() {
	tbl := m.Tables[m.Rng.IntN(len(m.Tables))]
	if tbl.Partition == 0 || tbl.Sealed {
		return
	}
	write := func() started {
		return m.send(tbl, m.gen.Write(tbl.Table, uint16(m.Rng.IntN(len(tbl.Buckets)))))
	}
	var under []started
	for range m.Rng.IntN(4) {
		under = append(under, write())
	}
	for _, s := range m.Worker.Shards() {
		require.NoError(m.t, s.SealPartition(context.Background(), tbl.ID, tbl.Partition))
	}
	tbl.Sealed = true
	under = append(under, write())
	for _, s := range under {
		_, err := s.p.Wait(context.Background())
		require.Equal(m.t, s.want.Code, errs.CodeOf(err))
	}
	m.create(tbl.Keyed) // something to write to
}

// crashInBurst crashes while writes are under way: what a shard holds afterwards
// is what the first so many of its writes left, those answered before included.
func (m *modelTest) crashInBurst() {
	type sent struct {
		tbl *storagetest.Modelled
		w   *storagetest.Write
	}
	order := make([][]sent, m.Opts.Shards)
	var under []*shard.Pending
	for range 5 + m.Rng.IntN(40) {
		tbl := m.Tables[m.Rng.IntN(len(m.Tables))]
		if tbl.Sealed {
			continue
		}
		w := m.gen.Write(tbl.Table, uint16(m.Rng.IntN(len(tbl.Buckets))))
		p, err := m.Shard(tbl.Table, w.Bucket).Start(context.Background(), tbl.Op(w, 0))
		require.NoError(m.t, err)
		under = append(under, p)
		sh := tbl.Shards[w.Bucket]
		order[sh] = append(order[sh], sent{tbl, w})
	}
	m.done += len(under)
	for _, p := range under[:m.Rng.IntN(len(under)+1)] {
		m.taken(p)
	}
	image := m.Image([]int{0, 50, 100}[m.Rng.IntN(3)])
	for _, p := range under {
		m.taken(p)
	}
	m.Close()
	m.FS = image
	m.MustOpen()
	for sh, ws := range order {
		for len(ws) > 0 && !m.matches(millrace.ShardID(sh)) {
			ws[0].tbl.Buckets[ws[0].w.Bucket].Write(ws[0].tbl.Table, ws[0].w)
			ws = ws[1:]
		}
	}
	m.Check()
}

// taken waits for a write; the model says later whether its table takes it.
func (m *modelTest) taken(p *shard.Pending) {
	_, err := p.Wait(context.Background())
	if code := errs.CodeOf(err); err != nil {
		require.Contains(m.t, []errs.Code{errs.DeleteDisabled, errs.PartialUpdateNotAllowed, errs.IntegerOverflow, errs.ValueOutOfRange}, code)
	}
}

// matches says whether the logs of a shard end where those of the model do.
func (m *modelTest) matches(id millrace.ShardID) bool {
	for _, tbl := range m.Tables {
		for b, want := range tbl.Buckets {
			if tbl.Shards[b] != id {
				continue
			}
			_, v, err := m.Worker.Shards()[id].Log(tbl.BucketID(uint16(b)))
			require.NoError(m.t, err)
			if v == nil && len(want.Log) > 0 || v != nil && int(v.End) != len(want.Log) {
				return false
			}
		}
	}
	return true
}

// lookup reads keys that there are and keys that there are not.
func (m *modelTest) lookup() {
	for _, tbl := range m.Tables {
		if !tbl.Keyed {
			continue
		}
		for b, want := range tbl.Buckets {
			rows := make([]storagetest.Row, 20)
			keys := make([][]byte, len(rows))
			for i := range rows {
				rows[i] = m.gen.Row(tbl.Table)
				keys[i] = tbl.StateKey(rows[i])
			}
			got, err := m.Shard(tbl.Table, uint16(b)).Lookup(context.Background(), tbl.BucketID(uint16(b)), keys)
			require.NoError(m.t, err)
			for i, enc := range got {
				_, present := want.State[tbl.Key(rows[i])]
				require.Equal(m.t, present, enc != nil)
			}
		}
	}
}
