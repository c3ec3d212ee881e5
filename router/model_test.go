package router_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/storage/storagetest"
)

// Shows that whatever is written through the router, and however the worker under it
// is checkpointed, restarted or crashes, every way of reading gives what the model
// holds: scans, changelogs from every kind of place, pages, cursors, lookups and
// counts, with projections, filters and limits (F15). A seed that fails is run again
// with MILLRACE_MODEL_SEED; MILLRACE_MODEL_OPS makes it longer.
func TestModel(t *testing.T) {
	seeds, ops := randomRuns(t, 5, 3000)
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			newModelTest(t, seed).run(ops / len(seeds))
		})
	}
}

// randomRuns are the seeds of a random test and how many operations they share:
// MILLRACE_MODEL_SEED alone when it is set, and MILLRACE_MODEL_OPS.
func randomRuns(t *testing.T, n, ops int) ([]uint64, int) {
	first := uint64(time.Now().UnixNano())
	if s := os.Getenv("MILLRACE_MODEL_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
		first, n = seed, 1
	}
	if s := os.Getenv("MILLRACE_MODEL_OPS"); s != "" {
		var err error
		ops, err = strconv.Atoi(s)
		require.NoError(t, err)
	}
	var seeds []uint64
	for i := range n {
		seeds = append(seeds, first+uint64(i))
	}
	return seeds, ops
}

type modelTest struct {
	*storagetest.World
	t       *testing.T
	gen     storagetest.Generator
	cat     *fakeCatalog
	r       *router.Router
	made    millrace.TableID // tables so far
	writers map[millrace.TableID]*modelWriter
}

// modelWriter is a writer that numbers its batches in a table, and its last batch.
type modelWriter struct {
	seq  uint64
	last *router.WriteRequest
	got  *router.WriteResult
}

func newModelTest(t *testing.T, seed uint64) *modelTest {
	w := storagetest.NewWorld(t, seed)
	m := &modelTest{World: w, t: t, cat: &fakeCatalog{tables: map[millrace.TablePath]*millrace.Table{}}, writers: map[millrace.TableID]*modelWriter{}}
	m.gen = storagetest.Generator{Rng: w.Rng, Keys: 20 + w.Rng.IntN(200), Large: w.Rng.IntN(10)}
	t.Logf("MILLRACE_MODEL_SEED=%d settings %+v", seed, w.Opts)
	return m
}

func (m *modelTest) run(ops int) {
	m.open()
	for range 2 {
		m.create(true)
		m.create(false)
	}
	for range ops {
		m.Clock.Add(time.Duration(m.Rng.IntN(3000)) * time.Millisecond)
		tbl := m.Tables[m.Rng.IntN(len(m.Tables))]
		m.renew(tbl)
		switch r := m.Rng.IntN(100); {
		case r < 50:
			m.write(tbl)
		case r < 62:
			m.scan(tbl)
		case r < 76:
			m.changelog(tbl)
		case r < 82:
			m.pages(tbl)
		case r < 88:
			m.follow(tbl)
		case r < 94:
			m.lookup(tbl)
		case r < 97:
			for _, s := range m.Worker.Shards() {
				require.NoError(m.t, s.Checkpoint(context.Background()))
			}
		case r < 98:
			m.Close()
			m.open()
		default:
			m.Crash([]int{0, 50, 100}[m.Rng.IntN(3)])
			m.route()
		}
	}
	m.Check()
	m.Close()
}

func (m *modelTest) create(keyed bool) {
	m.made++
	keys, cols := 0, storagetest.LogColumns
	if keyed {
		keys, cols = 2, storagetest.KeyedColumns
	}
	tbl := m.Add(storagetest.NewTable(m.made, 1+m.Rng.IntN(5), m.Opts.Shards, keys, cols...))
	m.cat.tables[tbl.Path] = tbl.Table.Table
	m.writers[tbl.ID] = &modelWriter{}
}

// renew drops a table that has grown large, or by chance, and makes another.
func (m *modelTest) renew(tbl *storagetest.Modelled) {
	n := 0
	for _, b := range tbl.Buckets {
		n += len(b.Log)
	}
	if n < 5000 && m.Rng.IntN(400) > 0 {
		return
	}
	delete(m.cat.tables, tbl.Path)
	require.NoError(m.t, m.r.DropTable(context.Background(), tbl.Table.Table))
	m.Tables = slices.DeleteFunc(m.Tables, func(o *storagetest.Modelled) bool { return o == tbl })
	m.create(tbl.Keyed)
	*tbl = *m.Tables[len(m.Tables)-1]
	m.Tables[len(m.Tables)-1] = tbl
}

func (m *modelTest) open() {
	m.MustOpen()
	m.route()
}

func (m *modelTest) route() {
	m.r = newRouter(router.Options{
		Catalog: m.cat, Signer: plainSigner{}, Clock: m.Clock,
		Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	}, m.Worker.Shards())
}

// write writes a batch, and has the model do the same in each bucket.
func (m *modelTest) write(tbl *storagetest.Modelled) {
	w := m.gen.Write(tbl.Table, 0)
	req := &router.WriteRequest{Table: tbl.Table.Table, Rows: m.rows(tbl, w), Partial: w.Set != nil}
	if req.Mode = router.Append; tbl.Keyed {
		req.Mode = router.Upsert
		if w.Deletes != nil && !slices.Contains(w.Deletes, false) && m.Rng.IntN(2) == 0 {
			req.Mode, req.Rows.Changes = router.Delete, nil
		}
	}
	wr := m.writers[tbl.ID]
	if m.Rng.IntN(5) == 0 {
		if wr.last != nil && m.Rng.IntN(3) == 0 {
			m.resend(wr)
		}
		wr.seq += uint64(1 + m.Rng.IntN(3))
		req.Writer = &router.WriterSequence{Principal: "p", ID: "w", Seq: wr.seq}
	}
	got, err := m.r.Write(context.Background(), req)
	require.NoError(m.t, err)
	require.Zero(m.t, got.Replayed)
	require.EqualValues(m.t, len(w.Rows), got.Rows)
	if req.Writer != nil {
		wr.last, wr.got = req, got
	}
	want := map[string]router.Range{}
	for b, part := range m.split(tbl, w, got) {
		out := tbl.Buckets[b].Write(tbl.Table, part)
		want[fmt.Sprint(b)] = router.Range{Start: millrace.Offset(out.Start), End: millrace.Offset(out.End)}
	}
	require.Equal(m.t, want, got.Offsets)
}

// resend sends a batch again: it is not written again.
func (m *modelTest) resend(wr *modelWriter) {
	got, err := m.r.Write(context.Background(), wr.last)
	require.NoError(m.t, err)
	require.Equal(m.t, got.Rows, got.Replayed)
	require.Equal(m.t, wr.got.Offsets, got.Offsets)
}

// rows are a write's rows as a door decodes them.
func (m *modelTest) rows(tbl *storagetest.Modelled, w *storagetest.Write) row.Rows {
	var cols []int
	for i := range tbl.Schema.Columns {
		if w.Set == nil || w.Set[i] {
			cols = append(cols, i)
		}
	}
	out := row.Rows{Record: tbl.Record(w.Rows, cols)}
	for _, c := range cols {
		out.Columns = append(out.Columns, tbl.Schema.Columns[c])
	}
	for i, del := range w.Deletes {
		c := millrace.Delete
		if !del {
			c = []millrace.ChangeType{millrace.Insert, millrace.UpdateAfter}[i%2]
		}
		out.Changes = append(out.Changes, c)
	}
	return out
}

// split is what each bucket gets of a write.
func (m *modelTest) split(tbl *storagetest.Modelled, w *storagetest.Write, got *router.WriteResult) map[int]*storagetest.Write {
	if !tbl.Keyed { // one bucket, of the router's choice
		require.Len(m.t, got.Offsets, 1)
		for key := range got.Offsets {
			b, err := strconv.Atoi(key)
			require.NoError(m.t, err)
			return map[int]*storagetest.Write{b: w}
		}
	}
	rec := tbl.Record(w.Rows, []int{0, 1})
	defer rec.Release()
	buckets := row.NewBucketer(tbl.Schema.Columns[:2], len(tbl.Buckets)).Buckets(rec, []int{0, 1}, nil)
	parts := map[int]*storagetest.Write{}
	for i, r := range w.Rows {
		p := parts[int(buckets[i])]
		if p == nil {
			p = &storagetest.Write{Bucket: buckets[i], Set: w.Set}
			parts[int(buckets[i])] = p
		}
		p.Rows = append(p.Rows, r)
		if w.Deletes != nil {
			p.Deletes = append(p.Deletes, w.Deletes[i])
		}
	}
	return parts
}

// record is a row that a read gives, with where it comes from.
type record struct {
	bucket int
	offset int64 // -1: of keyed state
	change string
	row    storagetest.Row // all columns of the table
}

// expected are the rows of a table as of now.
func (m *modelTest) expected(tbl *storagetest.Modelled) []record {
	var out []record
	for b, bkt := range tbl.Buckets {
		if !tbl.Keyed {
			out = append(out, changesOf(b, bkt, 0, len(bkt.Log))...)
			continue
		}
		for _, r := range bkt.State {
			out = append(out, record{b, -1, "+I", r})
		}
	}
	return out
}

func changesOf(b int, bkt *storagetest.Bucket, from, to int) []record {
	var out []record
	for i := from; i < to; i++ {
		out = append(out, record{b, int64(i), bkt.Log[i].Type.String(), bkt.Log[i].Row})
	}
	return out
}

// query is a random projection, filter and limit.
type query struct {
	cols   []int
	filter *predicate
	limit  int // -1: none
}

func (m *modelTest) query(tbl *storagetest.Modelled) (query, *router.ReadRequest) {
	q := query{limit: -1}
	req := &router.ReadRequest{}
	all := tbl.Columns()
	if m.Rng.IntN(2) == 0 {
		q.cols = all
	} else {
		m.Rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		q.cols = all[:1+m.Rng.IntN(len(all))]
		for _, c := range q.cols {
			req.Columns = append(req.Columns, tbl.Schema.Columns[c].Name)
		}
	}
	if m.Rng.IntN(2) == 0 {
		q.filter = m.predicate(tbl, 2)
		req.Filter = q.filter.text
	}
	if m.Rng.IntN(4) == 0 {
		q.limit = m.Rng.IntN(50)
		n := int64(q.limit)
		req.Limit = &n
	}
	return q, req
}

// texts are the records that a query takes, as text, sorted.
func (q *query) texts(all []record) []string {
	out := []string{}
	for _, r := range all {
		if q.filter == nil || isTrue(q.filter.eval(r.row)) {
			out = append(out, q.text(r))
		}
	}
	slices.Sort(out)
	return out
}

func (q *query) text(r record) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d@%d %s", r.bucket, r.offset, r.change)
	for _, c := range q.cols {
		fmt.Fprintf(&b, "|%v", r.row[c])
	}
	return b.String()
}

// got reads a record batch of an answer: with changelog's columns, or data alone.
func (q *query) got(c *router.Chunk, rec arrow.RecordBatch, changelog bool) []string {
	var out []string
	for i, r := range storagetest.Rows(rec) {
		var b strings.Builder
		if !changelog {
			offset := int64(-1)
			if c.Base != millrace.NoOffset {
				offset = -2 // filters leave gaps, so it is not known
			}
			fmt.Fprintf(&b, "%s@%d +I", c.BucketKey, offset)
			for _, v := range r {
				fmt.Fprintf(&b, "|%v", v)
			}
			out = append(out, b.String())
			continue
		}
		offset := int64(-1)
		if r[1] != nil {
			offset = r[1].(int64)
		}
		fmt.Fprintf(&b, "%v@%d %v", r[len(r)-1], offset, r[0])
		for _, v := range r[3 : len(r)-2] {
			fmt.Fprintf(&b, "|%v", v)
		}
		if (r[2] == nil) != (offset < 0) {
			panic(fmt.Sprintf("record %d has an offset and no time, or a time and no offset: %v", i, r))
		}
		out = append(out, b.String())
	}
	return out
}

func (m *modelTest) drain(rd *router.Reader, q *query, changelog bool) []string {
	out := []string{}
	for {
		c, err := rd.Next(context.Background(), 0)
		if errors.Is(err, io.EOF) {
			return out
		}
		require.NoError(m.t, err)
		out = append(out, m.chunk(c, q, changelog)...)
		c.Release()
	}
}

func (m *modelTest) chunk(c *router.Chunk, q *query, changelog bool) []string {
	rec, err := c.Record()
	require.NoError(m.t, err)
	defer rec.Release()
	require.EqualValues(m.t, c.Rows, rec.NumRows())
	return q.got(c, rec, changelog)
}

// compare sees that a read gave what the query takes of all, or as many of them as
// the limit lets; more says how many more than that are allowed.
func (m *modelTest) compare(q *query, all []record, got []string, more int, what string) {
	m.t.Helper()
	want := q.texts(all)
	slices.Sort(got)
	if q.limit >= 0 && q.limit < len(want) {
		require.GreaterOrEqual(m.t, len(got), q.limit, what)
		require.LessOrEqual(m.t, len(got), q.limit+more, what)
		left := map[string]int{}
		for _, s := range want {
			left[s]++
		}
		for _, s := range got {
			left[s]--
			require.GreaterOrEqual(m.t, left[s], 0, "%s: %s is too much", what, s)
		}
		return
	}
	require.Equal(m.t, want, got, what)
}

// scan reads and counts the rows of a table.
func (m *modelTest) scan(tbl *storagetest.Modelled) {
	q, req := m.query(tbl)
	what := fmt.Sprintf("scan of %s: %+v", tbl.Path, req)
	all := m.expected(tbl)
	if !tbl.Keyed {
		for i := range all {
			all[i].offset = -2
		}
	}
	p, err := m.r.Plan(context.Background(), tbl.Path.String(), req, router.Scan)
	require.NoError(m.t, err, what)
	rd := m.r.Open(p)
	m.compare(&q, all, m.drain(rd, &q, false), 0, what)
	require.NoError(m.t, rd.Close())
	n, err := m.r.Count(context.Background(), tbl.Path.String(), &router.ReadRequest{Filter: req.Filter})
	require.NoError(m.t, err)
	require.EqualValues(m.t, len(q.texts(all)), n, what)
}

// changelog reads the changelog from a random place to another.
func (m *modelTest) changelog(tbl *storagetest.Modelled) {
	q, req := m.query(tbl)
	var all []record
	from := make([]int, len(tbl.Buckets))
	req.From = &router.Position{Kind: router.Earliest}
	switch m.Rng.IntN(4) {
	case 0:
		req.From = &router.Position{Kind: router.AtOffsets, Offsets: map[string]millrace.Offset{}}
		for b, bkt := range tbl.Buckets {
			if m.Rng.IntN(4) > 0 {
				from[b] = m.Rng.IntN(len(bkt.Log) + 1)
				req.From.Offsets[fmt.Sprint(b)] = millrace.Offset(from[b])
			}
		}
	case 1:
		at := m.Clock.Now().Add(-time.Duration(m.Rng.IntN(600)) * time.Second)
		req.From = &router.Position{Kind: router.AtTime, Time: at}
		for b := range tbl.Buckets {
			_, micros := m.ReadLog(tbl.Table, uint16(b))
			from[b], _ = slices.BinarySearch(micros, at.UnixMicro())
		}
	case 2:
		req.From = &router.Position{Kind: router.Full}
	}
	to := make([]int, len(tbl.Buckets))
	for b, bkt := range tbl.Buckets {
		to[b] = len(bkt.Log)
	}
	if m.Rng.IntN(4) == 0 {
		req.Until = &router.Position{Kind: router.AtOffsets, Offsets: map[string]millrace.Offset{}}
		for b := range to {
			to[b] = m.Rng.IntN(to[b] + 1)
			req.Until.Offsets[fmt.Sprint(b)] = millrace.Offset(to[b])
		}
	}
	for b, bkt := range tbl.Buckets {
		if req.From.Kind == router.Full && tbl.Keyed {
			for _, r := range bkt.State {
				all = append(all, record{b, -1, "+I", r})
			}
			continue
		}
		all = append(all, changesOf(b, bkt, from[b], to[b])...)
	}
	what := fmt.Sprintf("changelog of %s: %+v from %s until %v", tbl.Path, req, req.From, req.Until)
	p, err := m.r.Plan(context.Background(), tbl.Path.String()+"$changelog", req, router.Scan)
	require.NoError(m.t, err, what)
	rd := m.r.Open(p)
	m.compare(&q, all, m.drain(rd, &q, true), 1, what)
	require.NoError(m.t, rd.Close())
}

// pages reads rows page after page, while writes go on: the rows of the first moment.
func (m *modelTest) pages(tbl *storagetest.Modelled) {
	q, req := m.query(tbl)
	all := m.expected(tbl)
	if !tbl.Keyed {
		for i := range all {
			all[i].offset = -2
		}
	}
	size := 1 + m.Rng.IntN(200)
	req.PageSize = &size
	what := fmt.Sprintf("pages of %s: %+v", tbl.Path, req)
	got := []string{}
	for {
		p, err := m.r.Page(context.Background(), tbl.Path.String(), req, router.Scan)
		require.NoError(m.t, err, what)
		rd := m.r.Open(p)
		page := m.drain(rd, &q, false)
		require.LessOrEqual(m.t, len(page), size, what)
		got = append(got, page...)
		next, err := rd.NextPage(context.Background())
		require.NoError(m.t, err, what)
		require.NoError(m.t, rd.Close())
		if next == "" {
			break
		}
		req = &router.ReadRequest{PageToken: next}
		if m.Rng.IntN(3) == 0 {
			m.write(tbl)
		}
	}
	m.compare(&q, all, got, 0, what)
}

// follow reads a changelog to its end with a reader that is broken off again and
// again, and goes on at a cursor, while writes, checkpoints and crashes go on: each
// record comes once, in order, and state and changes together make the present state.
func (m *modelTest) follow(tbl *storagetest.Modelled) {
	start := []router.PositionKind{router.Earliest, router.Full}[m.Rng.IntN(2)]
	req := &router.ReadRequest{From: &router.Position{Kind: start}, Until: &router.Position{Kind: router.Never}}
	type place struct {
		next  int64 // the offset expected; -1: not known before the state was read
		state map[string]storagetest.Row
	}
	at := make([]place, len(tbl.Buckets))
	for b := range at {
		at[b] = place{next: -1, state: map[string]storagetest.Row{}}
		if start == router.Earliest || !tbl.Keyed {
			at[b].next = 0
		}
	}
	take := func(r storagetest.Row) {
		p := &at[int(r[len(r)-1].(int32))]
		data := r[3 : len(r)-2]
		if r[1] == nil {
			require.EqualValues(m.t, -1, p.next, "a row of state after the changelog")
			_, twice := p.state[tbl.Key(data)]
			require.False(m.t, twice, "a row of state twice")
			p.state[tbl.Key(data)] = data
			return
		}
		if p.next >= 0 {
			require.Equal(m.t, p.next, r[1], "a record is missing, or comes twice")
		}
		p.next = r[1].(int64) + 1
		switch r[0] {
		case "+I", "+U":
			p.state[tbl.Key(data)] = data
		case "-D":
			delete(p.state, tbl.Key(data))
		}
	}
	for round := 0; ; round++ {
		p, err := m.r.Plan(context.Background(), tbl.Path.String()+"$changelog", req, router.PlanOptions{})
		if errs.Is(err, errs.SnapshotGone) {
			return // a crash took it; the client begins again
		}
		require.NoError(m.t, err)
		rd := m.r.Open(p)
		ended := false
		cursor := ""
		for range 1 + m.Rng.IntN(6) {
			c, err := rd.Next(context.Background(), 0)
			if errs.Is(err, errs.SnapshotGone) {
				require.NoError(m.t, rd.Close())
				return
			}
			require.NoError(m.t, err)
			if c == nil {
				ended = true
				break
			}
			rec, err := c.Record()
			require.NoError(m.t, err)
			rows := storagetest.Rows(rec)
			rec.Release()
			if m.Rng.IntN(4) == 0 { // it was broken off within
				n := m.Rng.IntN(len(rows))
				cursor = rd.CursorAfter(c, n)
				rows = rows[:n+1]
			}
			for _, r := range rows {
				take(r)
			}
			c.Release()
			if cursor != "" {
				break
			}
		}
		if cursor == "" {
			cursor = rd.Cursor()
		}
		require.NoError(m.t, rd.Close())
		if ended {
			break
		}
		req.From = &router.Position{Kind: router.AtCursor, Cursor: cursor}
		if round < 20 && m.Rng.IntN(2) == 0 {
			m.write(tbl)
		}
		if round < 20 && m.Rng.IntN(60) == 0 {
			m.Crash(0)
			m.route()
		}
	}
	for b, bkt := range tbl.Buckets {
		if at[b].next >= 0 {
			require.EqualValues(m.t, len(bkt.Log), at[b].next)
		}
		if tbl.Keyed {
			require.Empty(m.t, storagetest.DiffStates(bkt.State, at[b].state), "bucket %d of %s from %v", b, tbl.Path, start)
		}
	}
}

// lookup reads keys that there are and keys that there are not.
func (m *modelTest) lookup(tbl *storagetest.Modelled) {
	if !tbl.Keyed {
		return
	}
	rows := make([]storagetest.Row, 1+m.Rng.IntN(300))
	for i := range rows {
		rows[i] = m.gen.Row(tbl.Table)
	}
	keys := tbl.Record(rows, []int{0, 1})
	defer keys.Release()
	cols, err := router.LookupColumns(tbl.Table.Table, []string{"s", "k1", "n"})
	require.NoError(m.t, err)
	res, err := m.r.Lookup(context.Background(), tbl.Table.Table, keys, cols)
	require.NoError(m.t, err)
	defer res.Record.Release()
	got := storagetest.Rows(res.Record)
	for i, r := range rows {
		var want storagetest.Row
		for _, bkt := range tbl.Buckets {
			if s, ok := bkt.State[tbl.Key(r)]; ok {
				want = s
			}
		}
		require.Equal(m.t, want != nil, res.Found[i])
		if want != nil {
			require.Equal(m.t, storagetest.Row{want[3], want[0], want[2]}, got[0])
			got = got[1:]
		}
	}
	require.Empty(m.t, got)
}
