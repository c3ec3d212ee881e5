package router_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/storage/segment"
	"github.com/millrace/millrace/storage/storagetest"
)

// Shows that tables whose columns and nested fields are added, dropped, renamed and
// widened at random, while writers of old and new schemas write, give what a model has
// that holds values by column id: in scans with projections and filters, changelogs,
// binlogs and lookups, decoded and shipped as stored, through flushes, merges,
// checkpoints and crashes; and that tickets from before give what they promised, or
// say that the schema changed. A seed that fails is run again with
// MILLRACE_MODEL_SEED; MILLRACE_MODEL_OPS makes it longer.
func TestSchemaModel(t *testing.T) {
	first, n, ops := uint64(time.Now().UnixNano()), 3, 750
	if s := os.Getenv("MILLRACE_MODEL_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
		first, n, ops = seed, 1, ops/n
	}
	if s := os.Getenv("MILLRACE_MODEL_OPS"); s != "" {
		more, err := strconv.Atoi(s)
		require.NoError(t, err)
		ops = more
	}
	for i := range uint64(n) {
		t.Run(fmt.Sprint(first+i), func(t *testing.T) {
			t.Parallel()
			newSchemaModel(t, first+i).run(ops / n)
		})
	}
}

type schemaModel struct {
	*storagetest.World
	t      *testing.T
	cat    *fakeCatalog
	r      *router.Router
	tables []*evolving
}

// evolving is a table with a history, and the model of its buckets.
type evolving struct {
	*storagetest.History
	keyed   bool
	buckets []*evolvingBucket
	// known is the newest version that each shard was told of.
	known   map[millrace.ShardID]int64
	tickets []heldTicket
}

type evolvingBucket struct {
	log   []valueChange
	state map[int64]storagetest.Values
}

type valueChange struct {
	kind millrace.ChangeType
	row  storagetest.Values
}

// heldTicket is a ticket, what it was made with, and what it has to give.
type heldTicket struct {
	text string
	as   *millrace.Table
	cols []millrace.Column
	want map[int][]storagetest.Values // by bucket
}

func newSchemaModel(t *testing.T, seed uint64) *schemaModel {
	m := &schemaModel{World: storagetest.NewWorld(t, seed), t: t, cat: &fakeCatalog{tables: map[millrace.TablePath]*millrace.Table{}}}
	t.Logf("MILLRACE_MODEL_SEED=%d settings %+v", seed, m.Opts)
	return m
}

func (m *schemaModel) run(ops int) {
	m.MustOpen()
	m.route()
	for i := range 4 {
		m.create(millrace.TableID(i+1), i%2 == 0)
	}
	for range ops {
		m.Clock.Add(time.Duration(m.Rng.IntN(3000)) * time.Millisecond)
		tbl := m.tables[m.Rng.IntN(len(m.tables))]
		switch r := m.Rng.IntN(100); {
		case r < 50:
			m.write(tbl)
		case r < 58:
			from := tbl.Newest()
			m.cat.alter(from, tbl.Alter())
		case r < 70:
			m.scan(tbl)
		case r < 78:
			m.changelog(tbl)
		case r < 84:
			m.lookup(tbl)
		case r < 88:
			m.hold(tbl)
		case r < 93:
			m.openTicket(tbl)
		case r < 97:
			for _, s := range m.Worker.Shards() {
				require.NoError(m.t, s.Checkpoint(context.Background()))
			}
		default:
			m.crash()
		}
	}
	m.crash()
	for _, tbl := range m.tables {
		m.scan(tbl)
		m.changelog(tbl)
	}
	m.Close()
}

func (m *schemaModel) crash() {
	if m.Rng.IntN(2) == 0 {
		m.Crash([]int{0, 50, 100}[m.Rng.IntN(3)])
	} else {
		m.Close()
		m.MustOpen()
	}
	m.route()
	for _, tbl := range m.tables {
		if tbl.keyed {
			tbl.tickets = nil // their snapshots are gone
		}
	}
}

func (m *schemaModel) route() {
	m.r = newRouter(router.Options{
		Catalog: m.cat, Signer: plainSigner{}, Clock: m.Clock,
		Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	}, m.Worker.Shards())
}

func (m *schemaModel) create(id millrace.TableID, keyed bool) {
	keys := 0
	if keyed {
		keys = 1
	}
	t := storagetest.NewTable(id, 1+m.Rng.IntN(3), m.Opts.Shards, keys, "k BIGINT NOT NULL", "c0 INT", "c1 STRING", "c2 ROW<a TINYINT, b ARRAY<ROW<x FLOAT>>>", "c3 DECIMAL(7,2)")
	tbl := &evolving{History: storagetest.NewHistory(m.Rng, t.Table), keyed: keyed, known: map[millrace.ShardID]int64{}}
	for range t.Buckets {
		tbl.buckets = append(tbl.buckets, &evolvingBucket{state: map[int64]storagetest.Values{}})
	}
	m.tables = append(m.tables, tbl)
	m.cat.tables[t.Path] = tbl.Newest()
	m.cat.schemas = map[millrace.TableID][]*millrace.Schema{}
	for _, tbl := range m.tables {
		m.cat.schemas[tbl.Newest().ID] = []*millrace.Schema{tbl.Newest().Schema}
	}
}

const keyID = 1

// write writes a batch with one of the last versions.
func (m *schemaModel) write(tbl *evolving) {
	back := 0
	if m.Rng.IntN(3) == 0 {
		back = m.Rng.IntN(min(4, len(tbl.Versions)))
	}
	as := tbl.Versions[len(tbl.Versions)-1-back]
	n := 1 + m.Rng.IntN(40)
	if m.Rng.IntN(20) == 0 {
		n = 2000
	}
	values := make([]storagetest.Values, n)
	for i := range values {
		values[i] = tbl.Values(as.Schema.Columns)
		values[i][keyID] = m.Rng.Int64N(60)
	}
	req := &router.WriteRequest{Table: as, Mode: router.Append, Rows: row.Rows{Columns: as.Schema.Columns}}
	var set []millrace.Column // nil: whole rows
	if tbl.keyed {
		req.Mode = router.Upsert
		if m.Rng.IntN(3) == 0 {
			req.Partial = true
			set = []millrace.Column{}
			for _, c := range as.Schema.Columns {
				if c.ID == keyID || m.Rng.IntN(2) == 0 {
					set = append(set, c)
				}
			}
			req.Rows.Columns = set
		}
		if m.Rng.IntN(3) == 0 {
			for range values {
				req.Rows.Changes = append(req.Rows.Changes, []millrace.ChangeType{millrace.Insert, millrace.UpdateAfter, millrace.Delete}[m.Rng.IntN(3)])
			}
		}
	}
	req.Rows.Record = storagetest.RecordOf(req.Rows.Columns, values)
	defer req.Rows.Release()
	got, err := m.r.Write(context.Background(), req)
	require.NoError(m.t, err)
	want := map[string]router.Range{}
	for b, rows := range m.split(tbl, as, values, got) {
		bkt := tbl.buckets[b]
		r := router.Range{Start: millrace.Offset(len(bkt.log))}
		tbl.known[as.Shards[b]] = max(tbl.known[as.Shards[b]], as.Version)
		by := tbl.Versions[tbl.known[as.Shards[b]]-1]
		for _, i := range rows {
			if !tbl.keyed {
				bkt.log = append(bkt.log, valueChange{millrace.Insert, values[i]})
				continue
			}
			bkt.write(by, values[i].Align(as.Schema.Columns), set, req.Rows.Changes != nil && req.Rows.Changes[i] == millrace.Delete)
		}
		r.End = millrace.Offset(len(bkt.log))
		want[fmt.Sprint(b)] = r
	}
	require.Equal(m.t, want, got.Offsets)
}

// split is the rows that each bucket gets.
func (m *schemaModel) split(tbl *evolving, as *millrace.Table, values []storagetest.Values, got *router.WriteResult) map[int][]int {
	out := map[int][]int{}
	if !tbl.keyed {
		require.Len(m.t, got.Offsets, 1)
		for key := range got.Offsets {
			b, err := strconv.Atoi(key)
			require.NoError(m.t, err)
			for i := range values {
				out[b] = append(out[b], i)
			}
		}
		return out
	}
	key := as.Columns(as.PrimaryKey)
	rec := storagetest.RecordOf(key, values)
	defer rec.Release()
	for i, b := range row.NewBucketer(key, as.Buckets).Buckets(rec, []int{0}, nil) {
		out[int(b)] = append(out[int(b)], i)
	}
	return out
}

// write does what a write of a row does in a bucket that goes by a version of the
// table; r is of the writer's version.
func (b *evolvingBucket) write(by *millrace.Table, r storagetest.Values, set []millrace.Column, del bool) {
	k := r[keyID].(int64)
	old, present := b.state[k]
	named := false
	next := storagetest.Values{}
	if set != nil && present {
		next = maps.Clone(old)
	}
	left := false
	for _, c := range by.Schema.Columns {
		if c.ID == keyID {
			next[c.ID] = k
			continue
		}
		carried := set == nil || slices.ContainsFunc(set, func(s millrace.Column) bool { return s.ID == c.ID })
		named = named || carried
		switch {
		case carried && del:
			next[c.ID] = nil
		case carried:
			next[c.ID] = r[c.ID]
		}
		left = left || next[c.ID] != nil
	}
	add := func(kind millrace.ChangeType, v storagetest.Values) { b.log = append(b.log, valueChange{kind, v}) }
	switch {
	case del && !present:
	case del && (set == nil || !left):
		add(millrace.Delete, old)
		delete(b.state, k)
	case present && set != nil && !named:
	case present:
		add(millrace.UpdateBefore, old)
		add(millrace.UpdateAfter, next)
		b.state[k] = next
	default:
		add(millrace.Insert, next)
		b.state[k] = next
	}
}

// rows are the rows of each bucket as of now.
func (tbl *evolving) rows() map[int][]storagetest.Values {
	out := map[int][]storagetest.Values{}
	for b, bkt := range tbl.buckets {
		if tbl.keyed {
			for _, k := range slices.Sorted(maps.Keys(bkt.state)) {
				out[b] = append(out[b], bkt.state[k])
			}
			continue
		}
		for _, c := range bkt.log {
			out[b] = append(out[b], c.row)
		}
	}
	return out
}

// pick takes some columns of a table, in any order.
func (m *schemaModel) pick(t *millrace.Table) ([]millrace.Column, []string) {
	cols := slices.Clone(t.Schema.Columns)
	m.Rng.Shuffle(len(cols), func(i, j int) { cols[i], cols[j] = cols[j], cols[i] })
	cols = cols[:1+m.Rng.IntN(len(cols))]
	names := make([]string, len(cols))
	for i, c := range cols {
		names[i] = c.Name
	}
	return cols, names
}

// condition is a filter on a column, and what it takes.
func (m *schemaModel) condition(t *millrace.Table) (string, func(v storagetest.Values) bool) {
	c := t.Schema.Columns[m.Rng.IntN(len(t.Schema.Columns))]
	switch r := m.Rng.IntN(6); {
	case r == 0 || c.Type.Nested() || c.Type.Kind == millrace.Decimal:
		return c.Name + " IS NULL", func(v storagetest.Values) bool { return v[c.ID] == nil }
	case r == 1:
		return c.Name + " IS NOT NULL", func(v storagetest.Values) bool { return v[c.ID] != nil }
	}
	switch c.Type.Kind {
	case millrace.Boolean:
		return "NOT " + c.Name, func(v storagetest.Values) bool { return v[c.ID] == false }
	case millrace.String:
		lit := fmt.Sprintf("sss%d", m.Rng.IntN(50))
		return fmt.Sprintf("%s >= '%s'", c.Name, lit), func(v storagetest.Values) bool { s, ok := v[c.ID].(string); return ok && s >= lit }
	case millrace.Float, millrace.Double:
		lit := float64(m.Rng.IntN(200)) / 8
		return fmt.Sprintf("%s < %v", c.Name, lit), func(v storagetest.Values) bool { f, ok := v[c.ID].(float64); return ok && f < lit }
	default:
		lit := m.Rng.Int64N(1 << (1 + m.Rng.IntN(38)))
		return fmt.Sprintf("%s > %d", c.Name, lit), func(v storagetest.Values) bool { n, ok := v[c.ID].(int64); return ok && n > lit }
	}
}

func (m *schemaModel) scan(tbl *evolving) {
	t := tbl.Newest()
	cols, names := m.pick(t)
	req := &router.ReadRequest{Columns: names}
	takes := func(storagetest.Values) bool { return true }
	if m.Rng.IntN(3) > 0 {
		req.Filter, takes = m.condition(t)
	}
	p, err := m.r.Plan(context.Background(), t.Path.String(), req, router.Scan)
	require.NoError(m.t, err)
	got, err := m.drain(p, cols)
	require.NoError(m.t, err)
	want := map[int][]storagetest.Values{}
	for b, rows := range tbl.rows() {
		for _, r := range rows {
			if takes(r.Align(t.Schema.Columns)) {
				want[b] = append(want[b], r.Align(cols))
			}
		}
	}
	m.same(want, got, "%s of schema %d where %s", names, t.Schema.ID, req.Filter)
}

// same compares rows by bucket.
func (m *schemaModel) same(want, got map[int][]storagetest.Values, format string, args ...any) {
	m.t.Helper()
	require.ElementsMatch(m.t, slices.Collect(maps.Keys(want)), slices.Collect(maps.Keys(got)), fmt.Sprintf(format, args...))
	for b := range want {
		require.Len(m.t, got[b], len(want[b]), fmt.Sprintf(format, args...))
		for i := range want[b] {
			require.Equal(m.t, want[b][i], got[b][i], "row %d of bucket %d: %s", i, b, fmt.Sprintf(format, args...))
		}
	}
}

// drain reads a plan of data columns, in one of the two ways that doors do.
func (m *schemaModel) drain(p *router.Plan, cols []millrace.Column) (map[int][]storagetest.Values, error) {
	out := map[int][]storagetest.Values{}
	err := m.chunks(p, func(b int, rec arrow.RecordBatch) { out[b] = append(out[b], storagetest.ValuesOf(rec, cols)...) })
	return out, err
}

func (m *schemaModel) chunks(p *router.Plan, give func(bucket int, rec arrow.RecordBatch)) error {
	rd := m.r.Open(p)
	defer func() { require.NoError(m.t, rd.Close()) }()
	for {
		c, err := rd.Next(context.Background(), time.Second)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		err = m.record(c, p.Schema, func(rec arrow.RecordBatch) { give(int(c.Bucket), rec) })
		c.Release()
		if err != nil {
			return err
		}
	}
}

func (m *schemaModel) record(c *router.Chunk, schema *arrow.Schema, give func(rec arrow.RecordBatch)) error {
	if m.Rng.IntN(2) == 0 {
		rec, err := c.Record()
		if err != nil {
			return err
		}
		defer rec.Release()
		require.True(m.t, rec.Schema().Equal(schema))
		give(rec)
		return nil
	}
	ships, err := c.Ship(segment.Stored, 1<<20)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	w := ipc.NewWriter(&b, ipc.WithSchema(schema))
	require.NoError(m.t, w.Close())
	b.Truncate(b.Len() - 8) // the end of the stream
	for _, s := range ships {
		_, err := s.Message.WriteTo(&b)
		require.NoError(m.t, err)
	}
	r, err := ipc.NewReader(&b)
	require.NoError(m.t, err)
	defer r.Release()
	for range ships {
		require.True(m.t, r.Next(), "%v", r.Err())
		give(r.RecordBatch())
	}
	return nil
}

// changelog reads the log as changelog or binlog.
func (m *schemaModel) changelog(tbl *evolving) {
	t := tbl.Newest()
	cols, names := m.pick(t)
	binlog := m.Rng.IntN(2) == 0
	view := "$changelog"
	if binlog {
		view = "$binlog"
	}
	p, err := m.r.Plan(context.Background(), t.Path.String()+view, &router.ReadRequest{Columns: names}, router.Scan)
	require.NoError(m.t, err)
	got := map[int][]storagetest.Values{}
	err = m.chunks(p, func(b int, rec arrow.RecordBatch) {
		at := func(name string) int { return rec.Schema().FieldIndices(name)[0] }
		n := len(cols)
		if binlog {
			n = 2
		}
		data := p.Columns[3 : 3+n]
		part := array.NewRecordBatch(arrow.NewSchema(rec.Schema().Fields()[3:3+len(data)], nil), rec.Columns()[3:3+len(data)], rec.NumRows())
		changes := rec.Column(at(millrace.ColChangeType)).(*array.String)
		for i, v := range storagetest.ValuesOf(part, data) {
			v[0] = changes.Value(i)
			got[b] = append(got[b], v)
		}
	})
	require.NoError(m.t, err)
	want := map[int][]storagetest.Values{}
	for b, bkt := range tbl.buckets {
		for i, c := range bkt.log {
			v := c.row.Align(cols)
			if binlog {
				if c.kind == millrace.UpdateBefore {
					continue
				}
				images := storagetest.Values{0: "insert", p.Columns[3].ID: nil, p.Columns[4].ID: v}
				switch c.kind {
				case millrace.UpdateAfter:
					images[0], images[p.Columns[3].ID] = "update", bkt.log[i-1].row.Align(cols)
				case millrace.Delete:
					images = storagetest.Values{0: "delete", p.Columns[3].ID: v, p.Columns[4].ID: nil}
				default:
				}
				v = images
			} else {
				v[0] = c.kind.String()
			}
			want[b] = append(want[b], v)
		}
	}
	m.same(want, got, "%s of %s, schema %d", view, names, t.Schema.ID)
}

func (m *schemaModel) lookup(tbl *evolving) {
	if !tbl.keyed {
		return
	}
	t := tbl.Newest()
	cols, names := m.pick(t)
	found, err := router.LookupColumns(t, names)
	require.NoError(m.t, err)
	var ask, want []storagetest.Values
	for range 20 {
		k := m.Rng.Int64N(70)
		ask = append(ask, storagetest.Values{keyID: k})
		for _, b := range tbl.buckets {
			if r, ok := b.state[k]; ok {
				want = append(want, r.Align(cols))
			}
		}
	}
	keys := storagetest.RecordOf(t.Columns(t.PrimaryKey), ask)
	defer keys.Release()
	res, err := m.r.Lookup(context.Background(), t, keys, found)
	require.NoError(m.t, err)
	defer res.Record.Release()
	got := storagetest.ValuesOf(res.Record, cols)
	require.Len(m.t, got, len(want))
	for i := range want {
		require.Equal(m.t, want[i], got[i])
	}
}

// hold makes a ticket.
func (m *schemaModel) hold(tbl *evolving) {
	t := tbl.Newest()
	cols, names := m.pick(t)
	p, err := m.r.Plan(context.Background(), t.Path.String(), &router.ReadRequest{Columns: names}, router.Scan)
	require.NoError(m.t, err)
	defer p.Close()
	require.NoError(m.t, m.r.Hold(context.Background(), p, time.Hour, time.Hour))
	text, err := m.r.Ticket(p, m.Clock.Now().Add(time.Hour))
	require.NoError(m.t, err)
	want := map[int][]storagetest.Values{}
	for b, rows := range tbl.rows() {
		for _, r := range rows {
			want[b] = append(want[b], r.Align(cols))
		}
	}
	if tbl.tickets = append(tbl.tickets, heldTicket{text, t, cols, want}); len(tbl.tickets) > 4 {
		tbl.tickets = tbl.tickets[1:]
	}
}

// openTicket reads a ticket: it gives what it promised, unless a column of it was
// dropped, or a batch holds newer values besides that its types do not.
func (m *schemaModel) openTicket(tbl *evolving) {
	if len(tbl.tickets) == 0 {
		return
	}
	i := m.Rng.IntN(len(tbl.tickets))
	held := tbl.tickets[i]
	p, err := m.r.OpenTicket(context.Background(), held.text)
	gone := lost(held.cols, tbl.Newest().Schema.Columns)
	if gone {
		require.True(m.t, errs.Is(err, errs.SchemaChanged), "%v", err)
		tbl.tickets = slices.Delete(tbl.tickets, i, i+1)
		return
	}
	if errs.Is(err, errs.TicketExpired) {
		return
	}
	require.NoError(m.t, err)
	got, err := m.drain(p, held.cols)
	switch {
	case errs.Is(err, errs.SnapshotGone):
	case errs.Is(err, errs.SchemaChanged):
		require.True(m.t, !tbl.keyed && widened(held.cols, tbl.Newest().Schema.Columns), "%v", err)
	default:
		require.NoError(m.t, err)
		m.same(held.want, got, "ticket of schema %d", held.as.Schema.ID)
	}
}

// lost says whether one of the columns or of their fields is not there any more.
func lost(cols, later []millrace.Column) bool {
	for _, c := range cols {
		i := slices.IndexFunc(later, func(l millrace.Column) bool { return l.ID == c.ID })
		if i < 0 || lost(c.Type.Children, later[i].Type.Children) {
			return true
		}
	}
	return false
}

// widened says whether one of the columns or of their fields has another type now.
func widened(cols, later []millrace.Column) bool {
	for _, c := range cols {
		i := slices.IndexFunc(later, func(l millrace.Column) bool { return l.ID == c.ID })
		l := later[i].Type
		if c.Type.Kind != l.Kind || c.Type.Precision != l.Precision || widened(c.Type.Children, l.Children) {
			return true
		}
	}
	return false
}
