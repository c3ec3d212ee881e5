package router_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/router"
)

// unionModel is a node with two tables by day, a log and a keyed one, in an exact lake;
// and what they should hold.
type unionModel struct {
	*parted
	t    *testing.T
	rng  *rand.Rand
	side *lakeside
	next int // numbers rows
	all  []*unionTable
}

// unionTable is a table and its rows by day: of the log by number, else by key.
type unionTable struct {
	name  string
	keyed bool
	rows  map[string]map[int]string
	ended map[string]bool
	told  map[string]bool // the tails know of it
	tails []*unionTail
}

// unionTail is a tail from full that is broken off and goes on at its cursor. What it
// gives, folded, is the table.
type unionTail struct {
	from *router.Position
	got  map[string]int // rows, with how often each was given less how often taken back
}

func newUnionModel(t *testing.T, seed uint64) *unionModel {
	t.Logf("MILLRACE_MODEL_SEED=%d", seed)
	m := &unionModel{t: t, rng: rand.New(rand.NewPCG(seed, 9)), parted: newParted(t)}
	m.side = newLakeside(t, func() *router.Router { return m.r })
	m.side.f.Now = func() time.Time { return m.clock.Now() }
	m.lake = m.side
	m.tails = []int64{0, 1, 4 << 10}[m.rng.IntN(3)]
	m.crash()
	for _, keyed := range []bool{false, true} {
		u := &unionTable{name: fmt.Sprint("t", keyed), keyed: keyed, rows: map[string]map[int]string{}, ended: map[string]bool{}, told: map[string]bool{}}
		m.table(u.name, "k BIGINT, v STRING, n INT, dt STRING", func(s *catalog.Spec) {
			s.PartitionBy, s.Buckets = []string{"dt"}, new(1+m.rng.IntN(3))
			s.Properties = map[string]string{"table.datalake.enabled": "true"}
			if keyed {
				s.PrimaryKey = []string{"dt", "k"}
				if m.rng.IntN(2) == 0 {
					s.Properties["table.changelog.image"] = "WAL"
				}
			} else if m.rng.IntN(2) == 0 {
				s.BucketKey = []string{"k"}
			}
		})
		for range 2 {
			u.tails = append(u.tails, &unionTail{from: &router.Position{Kind: router.Full}, got: map[string]int{}})
		}
		m.all = append(m.all, u)
	}
	return m
}

func (m *unionModel) desc(u *unionTable) *millrace.Table {
	t, err := m.cat.Table(context.Background(), millrace.TablePath{Database: "d", Table: u.name})
	require.NoError(m.t, err)
	return t
}

func (m *unionModel) partitions(u *unionTable) []*millrace.Partition {
	ps, err := m.cat.Partitions(context.Background(), m.desc(u).ID)
	require.NoError(m.t, err)
	return ps
}

// rowText is a row as reads give it.
func rowText(k int, v string, n int, dt string) string {
	return fmt.Sprintf(`{"k":%d,"v":%q,"n":%d,"dt":%q}`, k, v, n, dt)
}

func (m *unionModel) writeTo(u *unionTable) {
	dt := string(rune('a' + m.rng.IntN(5)))
	var lines []string
	mode := router.Append
	if u.keyed {
		mode = router.Upsert
		if m.rng.IntN(4) == 0 {
			mode = router.Delete
		}
	}
	after := maps.Clone(u.rows[dt])
	if after == nil {
		after = map[int]string{}
	}
	for range 1 + m.rng.IntN(50) {
		m.next++
		k, at := m.next, m.next
		if u.keyed {
			k = m.rng.IntN(80)
			at = k
		}
		line := rowText(k, fmt.Sprint("v", m.next), k%10, dt)
		if mode == router.Delete {
			line = fmt.Sprintf(`{"k":%d,"dt":%q}`, k, dt)
			delete(after, at)
		} else {
			after[at] = line
		}
		lines = append(lines, line)
	}
	_, err := m.write(m.desc(u), mode, strings.Join(lines, " "))
	if u.ended[dt] {
		if mode != router.Delete || err != nil {
			m.refused(errs.PartitionExpired, err)
		}
		return
	}
	require.NoError(m.t, err)
	u.rows[dt] = after
}

// want are the rows that pass, as lines.
func (u *unionTable) want(pass func(k int, line, dt string) bool) []string {
	out := []string{}
	for dt, rows := range u.rows {
		for _, line := range rows {
			var r struct{ K int }
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				panic(err)
			}
			if pass(r.K, line, dt) {
				out = append(out, line)
			}
		}
	}
	slices.Sort(out)
	return out
}

func (m *unionModel) compare(u *unionTable) {
	dt, k := string(rune('a'+m.rng.IntN(5))), m.rng.IntN(100)
	ways := []func(){m.r.Choose}
	if u.keyed {
		ways = append(ways, m.r.StateOnly, func() { m.r.OverlayOnly(1 << 20) }, func() { m.r.OverlayOnly(2000) })
	}
	for i, way := range ways {
		way()
		for _, q := range []struct {
			req  router.ReadRequest
			pass func(k int, line, dt string) bool
		}{
			{router.ReadRequest{}, func(int, string, string) bool { return true }},
			{router.ReadRequest{Filter: fmt.Sprintf("dt = '%s'", dt)}, func(_ int, _, d string) bool { return d == dt }},
			{router.ReadRequest{Filter: fmt.Sprintf("k >= %d AND dt <> '%s'", k, dt)}, func(o int, _, d string) bool { return o >= k && d != dt }},
			{router.ReadRequest{Filter: fmt.Sprintf("k = %d AND dt = '%s'", k, dt)}, func(o int, _, d string) bool { return o == k && d == dt }},
			{router.ReadRequest{Filter: fmt.Sprintf("_partition = 'dt=%s' AND v LIKE '%%1%%'", dt)}, func(_ int, l, d string) bool {
				return d == dt && strings.Contains(l[strings.Index(l, `"v"`):strings.Index(l, `,"n"`)], "1")
			}},
		} {
			want := u.want(q.pass)
			got, _ := m.scan("d."+u.name, &q.req)
			require.Equal(m.t, want, got, "%s way %d %+v", u.name, i, q.req)
			count, err := m.r.Count(context.Background(), "d."+u.name, &q.req)
			require.NoError(m.t, err)
			require.EqualValues(m.t, len(want), count, "%s way %d %+v", u.name, i, q.req)
		}
		all := u.want(func(int, string, string) bool { return true })
		require.Equal(m.t, all, m.byTickets(u), "%s way %d", u.name, i)
		all = u.want(func(int, string, string) bool { return true })
		require.Equal(m.t, all, m.byPages(u), "%s way %d", u.name, i)
	}
	m.r.Choose()
}

// stir does what no read under way may notice.
func (m *unionModel) stir(u *unionTable) {
	switch m.rng.IntN(3) {
	case 0:
		m.side.tier(m.desc(u), m.live(u)...)
	case 1:
		m.side.maintain(m.desc(u))
	default:
		m.writeTo(u)
	}
}

func (m *unionModel) live(u *unionTable) []*millrace.Partition {
	return slices.DeleteFunc(slices.Clone(m.partitions(u)), func(p *millrace.Partition) bool { return p.LakeOnly() })
}

func (m *unionModel) byTickets(u *unionTable) []string {
	p, err := m.r.Plan(context.Background(), "d."+u.name, &router.ReadRequest{}, router.Scan)
	require.NoError(m.t, err)
	require.NoError(m.t, m.r.Hold(context.Background(), p, router.TicketTTL, router.TicketTTL))
	var tickets []string
	for _, part := range p.Split(1 + m.rng.IntN(20)) {
		text, err := m.r.Ticket(part, m.clock.Now().Add(time.Hour))
		require.NoError(m.t, err)
		tickets = append(tickets, text)
	}
	p.Close()
	out := []string{}
	for _, text := range tickets {
		m.stir(u)
		if m.rng.IntN(8) == 0 {
			m.retireOne(u)
		}
		p, err := m.r.OpenTicket(context.Background(), text)
		require.NoError(m.t, err)
		got, _ := m.drain(p)
		out = append(out, got...)
	}
	slices.Sort(out)
	return out
}

func (m *unionModel) byPages(u *unionTable) []string {
	req := &router.ReadRequest{PageSize: new(10 + m.rng.IntN(100))}
	out := []string{}
	for i := 0; ; i++ {
		p, err := m.r.Page(context.Background(), "d."+u.name, req, router.Scan)
		require.NoError(m.t, err)
		rd := m.r.Open(p)
		for {
			c, err := rd.Next(context.Background(), 0)
			if err != nil {
				require.ErrorContains(m.t, err, "EOF")
				break
			}
			out = append(out, m.chunk(rd, c)...)
		}
		next, err := rd.NextPage(context.Background())
		require.NoError(m.t, err)
		require.NoError(m.t, rd.Close())
		if next == "" {
			slices.Sort(out)
			return out
		}
		req = &router.ReadRequest{PageToken: next, PageSize: req.PageSize}
		if i < 3 {
			m.stir(u)
		}
	}
}

// retireOne takes a partition to the lake that the tails know of: one that is made and
// ends while nobody follows is not in the changelog of those who come later.
func (m *unionModel) retireOne(u *unionTable) {
	ps := slices.DeleteFunc(m.live(u), func(p *millrace.Partition) bool { return !u.told[p.Values[0]] })
	if len(ps) < 2 {
		return
	}
	p := ps[m.rng.IntN(len(ps))]
	require.NoError(m.t, m.r.Retire(context.Background(), p))
	u.ended[p.Values[0]] = true
}

// letGo lets the workers let go of what has expired long enough ago.
func (m *unionModel) letGo() {
	for _, u := range m.all {
		m.readTails(u)
	}
	m.clock.Add(2 * time.Hour)
	for _, u := range m.all {
		for _, p := range m.partitions(u) {
			if p.LakeOnly() && !p.Gone {
				require.NoError(m.t, m.r.LetGoOf(context.Background(), p))
			}
		}
	}
}

// readTails reads on at the tails, and holds what they gave so far against the table.
func (m *unionModel) readTails(u *unionTable) {
	for _, p := range m.partitions(u) {
		u.told[p.Values[0]] = true
	}
	for _, tail := range u.tails {
		o := router.PlanOptions{View: router.ChangelogView, ViewSet: true, Until: router.Position{Kind: router.Never}}
		for done := false; !done; {
			p, err := m.r.Plan(context.Background(), "d."+u.name, &router.ReadRequest{From: tail.from}, o)
			require.NoError(m.t, err)
			rd := m.r.Open(p)
			for cut := false; !cut; {
				c, err := rd.Next(context.Background(), 0)
				require.NoError(m.t, err)
				if c == nil {
					done = true
					tail.from = &router.Position{Kind: router.AtCursor, Cursor: rd.Cursor()}
					break
				}
				n := c.Rows
				if cut = m.rng.IntN(4) == 0; cut {
					n = 1 + m.rng.IntN(n)
					tail.from = &router.Position{Kind: router.AtCursor, Cursor: rd.CursorAfter(c, n-1)}
				}
				tail.take(m.t, m.chunk(rd, c)[:n], u.keyed)
			}
			require.NoError(m.t, rd.Close())
		}
		require.Equal(m.t, u.want(func(int, string, string) bool { return true }), tail.rows(), "%s by its tail", u.name)
	}
}

// take folds records of the changelog.
func (tail *unionTail) take(t *testing.T, lines []string, keyed bool) {
	for _, l := range lines {
		var r struct {
			What   string `json:"_change_type"`
			Offset *int64 `json:"_log_offset"`
			K, N   int
			V, DT  string
		}
		require.NoError(t, json.Unmarshal([]byte(l), &r))
		row := rowText(r.K, r.V, r.N, r.DT)
		if keyed { // a WAL image does not say what was there before
			maps.DeleteFunc(tail.got, func(o string, _ int) bool {
				return r.What != "+I" && strings.HasPrefix(o, fmt.Sprintf(`{"k":%d,`, r.K)) && strings.HasSuffix(o, fmt.Sprintf(`%q}`, r.DT))
			})
		}
		if r.What == "+I" || r.What == "+U" {
			tail.got[row]++
		}
	}
}

func (tail *unionTail) rows() []string {
	out := []string{}
	for row, n := range tail.got {
		for range n {
			out = append(out, row)
		}
	}
	slices.Sort(out)
	return out
}

// Shows that two tables by day hold what a model holds while rows are tiered, files
// merged, partitions retired to the lake and let go of, and the node crashes: by scans,
// pages and tickets that run through all of that, by counts, and by tails from full that
// are broken off and taken up at their cursors (X14).
func TestUnionModel(t *testing.T) {
	seeds, ops := randomRuns(t, 3, 90)
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			m := newUnionModel(t, seed)
			for range ops {
				m.clock.Add(time.Second)
				u := m.all[m.rng.IntN(2)]
				switch n := m.rng.IntN(40); {
				case n < 18:
					m.writeTo(u)
				case n < 23:
					ps := m.live(u)
					m.rng.Shuffle(len(ps), func(i, j int) { ps[i], ps[j] = ps[j], ps[i] })
					m.side.tier(m.desc(u), ps[:m.rng.IntN(len(ps)+1)]...)
				case n < 25:
					m.side.maintain(m.desc(u))
				case n < 28:
					for _, sh := range m.w.Shards() {
						require.NoError(t, sh.Checkpoint(context.Background()))
					}
				case n < 29:
					m.retireOne(u)
				case n < 30:
					m.letGo()
				case n < 31:
					m.crash()
				case n < 36:
					m.compare(u)
				default:
					m.readTails(u)
				}
			}
			for _, u := range m.all {
				m.compare(u)
				m.readTails(u)
			}
		})
	}
}
