package tier_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/lake/laketest"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/tier"
)

// shape is a kind of table that the model test tiers.
type shape struct {
	name, columns string
	set           func(*catalog.Spec)
	deletes       bool
}

var shapes = []shape{
	{"log", "k BIGINT, i INT, v STRING", func(s *catalog.Spec) { s.Buckets = new(2) }, false},
	{"logdays", "k BIGINT, i INT, v STRING, dt STRING", func(s *catalog.Spec) {
		s.BucketKey, s.Buckets, s.PartitionBy = []string{"k"}, new(2), []string{"dt"}
	}, false},
	{"keyed", "k BIGINT, i INT, v STRING", func(s *catalog.Spec) { s.PrimaryKey, s.Buckets = []string{"k"}, new(2) }, true},
	{"keyeddays", "dt STRING, k BIGINT, i INT, v STRING", func(s *catalog.Spec) {
		s.PrimaryKey, s.PartitionBy = []string{"dt", "k"}, []string{"dt"}
		s.Properties = tiered("table.changelog.image", "WAL", "table.datalake.iceberg.delete-mode", "rewrite")
	}, true},
	{"sum", "k BIGINT, i BIGINT, v STRING", func(s *catalog.Spec) {
		s.PrimaryKey = []string{"k"}
		s.Properties = tiered("table.merge-engine", "aggregation", "fields.i.agg", "sum")
	}, false},
}

// simulation is a node with a table of each shape, tiered by managers that fail.
type simulation struct {
	t      *rapid.T
	n      *node
	tables []*millrace.Table
	shapes []shape
	steps  []string // at which something may fail
	nth    int      // of the names of tables made so far
	added  int      // columns

	// What fails next: at the so many-th step of that kind.
	mu     sync.Mutex
	at     string
	left   int
	failed atomic.Int64
}

var errInjected = errs.New(errs.Unavailable, "injected")

// fail is asked at each step.
func (s *simulation) fail(step string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if step != s.at {
		return nil
	}
	if s.left--; s.left != 0 {
		return nil
	}
	s.failed.Add(1)
	return errInjected
}

func (s *simulation) make(sh shape) *millrace.Table {
	s.nth++
	return s.n.table(fmt.Sprint(sh.name, s.nth), sh.columns, sh.set)
}

func (s *simulation) pick() (int, *millrace.Table) {
	i := rapid.IntRange(0, len(s.tables)-1).Draw(s.t, "table")
	return i, s.n.now(s.tables[i])
}

// row is a row of a table as JSON; of its key alone, or with some of its columns.
func (s *simulation) row(t *millrace.Table, cols []string) string {
	var b strings.Builder
	for i, c := range cols {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%q:", c)
		switch {
		case c == "k":
			fmt.Fprint(&b, rapid.IntRange(0, 9).Draw(s.t, "k"))
		case c == "dt":
			fmt.Fprintf(&b, "%q", rapid.SampledFrom([]string{"mo", "tu", "we"}).Draw(s.t, "dt"))
		case t.Schema.Columns[t.Schema.Index(c)].Type.Kind == millrace.String:
			fmt.Fprintf(&b, "%q", rapid.SampledFrom([]string{"", "x", "longer text"}).Draw(s.t, "v"))
		default:
			fmt.Fprint(&b, rapid.IntRange(-5, 5).Draw(s.t, "i"))
		}
	}
	return "{" + b.String() + "} "
}

func names(t *millrace.Table) []string {
	out := make([]string, len(t.Schema.Columns))
	for i, c := range t.Schema.Columns {
		out[i] = c.Name
	}
	return out
}

func (s *simulation) rows(t *millrace.Table, cols []string) string {
	var b strings.Builder
	for range rapid.IntRange(1, 12).Draw(s.t, "rows") {
		b.WriteString(s.row(t, cols))
	}
	return b.String()
}

func (s *simulation) Write(*rapid.T) {
	_, t := s.pick()
	mode := router.Append
	if t.Keyed() {
		mode = router.Upsert
	}
	s.n.must(t, mode, s.rows(t, names(t)))
}

func (s *simulation) Delete(rt *rapid.T) {
	i, t := s.pick()
	if !s.shapes[i].deletes {
		rt.Skip("no deletes")
	}
	s.n.must(t, router.Delete, s.rows(t, t.Names(t.PrimaryKey)))
}

func (s *simulation) Update(rt *rapid.T) {
	_, t := s.pick()
	if !t.Keyed() {
		rt.Skip("a log table")
	}
	cols := slices.DeleteFunc(names(t), func(c string) bool {
		return !slices.Contains(t.Names(t.PrimaryKey), c) && rapid.Bool().Draw(s.t, "leave out")
	})
	require.NoError(s.t, s.n.update(t, cols, s.rows(t, cols)))
}

// Tier takes a table to the lake; all of it is there then.
func (s *simulation) Tier(*rapid.T) {
	_, t := s.pick()
	s.n.tier(t)
	s.n.complete(t)
}

// Fail does so with something that fails, at any step.
func (s *simulation) Fail(*rapid.T) {
	_, t := s.pick()
	s.mu.Lock()
	s.at, s.left = rapid.SampledFrom(s.steps).Draw(s.t, "step"), rapid.IntRange(1, 3).Draw(s.t, "nth")
	s.mu.Unlock()
	_, err := s.n.m.Tier(context.Background(), t)
	s.mu.Lock()
	hit := s.at != "" && s.left <= 0
	s.at = ""
	s.mu.Unlock()
	require.Equal(s.t, hit, err != nil, "%v", err)
	s.n.check(t)
}

// Crash leaves what is durable, and the lake.
func (s *simulation) Crash(*rapid.T) { s.n.crash() }

// Race tiers a table by two managers at once, while it is written.
func (s *simulation) Race(*rapid.T) {
	_, t := s.pick()
	other := s.n.manager(prometheus.NewRegistry())
	other.Attach(s.n.r)
	mode, text := router.Append, s.rows(t, names(t))
	if t.Keyed() {
		mode = router.Upsert
	}
	var wg sync.WaitGroup
	var failures [3]error
	wg.Go(func() { _, failures[0] = s.n.m.Tier(context.Background(), t) })
	wg.Go(func() { _, failures[1] = other.Tier(context.Background(), t) })
	wg.Go(func() { failures[2] = s.n.write(t, mode, text) })
	wg.Wait()
	require.NoError(s.t, errors.Join(failures[:]...))
	require.NoError(s.t, other.Close())
	s.n.check(t)
}

// Maintain merges files, also beneath a manager that does not know of it.
func (s *simulation) Maintain(*rapid.T) {
	_, t := s.pick()
	lt, err := s.n.format.Open(context.Background(), t)
	require.NoError(s.t, err)
	_, err = lt.Maintain(context.Background(), t)
	require.NoError(s.t, err)
	s.n.check(t)
}

// Alter changes the columns.
func (s *simulation) Alter(rt *rapid.T) {
	i, t := s.pick()
	s.added++
	fresh := fmt.Sprint("c", s.added)
	var steps string
	switch rapid.IntRange(0, 3).Draw(s.t, "alter") {
	case 0:
		steps = fmt.Sprintf(`[{"op":"add_column","column":{"name":%q,"type":"STRING"},"first":true}]`, fresh)
	case 1:
		steps = `[{"op":"drop_column","name":"v"},{"op":"add_column","column":{"name":"v","type":"STRING"}}]`
	case 2:
		steps = `[{"op":"alter_type","name":"i","type":"BIGINT"}]`
	default:
		if len(t.Schema.Columns) > 8 {
			rt.Skip("enough columns")
		}
		steps = fmt.Sprintf(`[{"op":"add_column","column":{"name":%q,"type":"INT"}},{"op":"rename_column","name":%q,"to":"%sx"}]`, fresh, fresh, fresh)
	}
	s.tables[i] = s.n.alter(t, steps)
	s.n.check(t)
}

// DropPartition drops a partition with its lake rows, now and then while a round runs.
func (s *simulation) DropPartition(rt *rapid.T) {
	_, t := s.pick()
	if !t.Partitioned() {
		rt.Skip("no partitions")
	}
	ps := s.n.partitions(t)
	if len(ps) == 0 {
		rt.Skip("none yet")
	}
	p := ps[rapid.IntRange(0, len(ps)-1).Draw(s.t, "partition")]
	var wg sync.WaitGroup
	if rapid.Bool().Draw(s.t, "at once") {
		wg.Go(func() { _, _ = s.n.m.Tier(context.Background(), t) })
	}
	require.NoError(s.t, s.n.dropPartition(t, p))
	wg.Wait()
	for b := range s.offsets(t) {
		require.NotEqual(s.t, p.ID, b.Partition)
	}
	s.n.check(t)
}

func (s *simulation) offsets(t *millrace.Table) lake.Offsets {
	if snap := s.n.newest(t); snap != nil {
		return snap.Offsets()
	}
	return nil
}

// Recreate drops a table, now and then while a round runs, and makes another one.
func (s *simulation) Recreate(*rapid.T) {
	i, t := s.pick()
	var wg sync.WaitGroup
	if rapid.Bool().Draw(s.t, "at once") {
		wg.Go(func() { _, _ = s.n.m.Tier(context.Background(), t) })
	}
	purge := rapid.Bool().Draw(s.t, "purge")
	_, err := s.n.cat.DropTable(context.Background(), t.Path, false, purge)
	require.NoError(s.t, err)
	require.NoError(s.t, s.n.r.DropTable(context.Background(), t))
	wg.Wait()
	if f, ok := s.n.format.(*laketest.Format); ok && purge {
		for try := 0; len(s.n.cat.Purges()) > 0; try++ {
			require.Less(s.t, try, 100)
			s.n.clock.Add(time.Minute)
			require.NoError(s.t, s.n.m.DropTable(context.Background(), t))
		}
		require.False(s.t, f.Tables()[t.ID])
	}
	s.tables[i] = s.make(s.shapes[i])
}

// Check finds nothing to do: each action compares what it changed.
func (s *simulation) Check(*rapid.T) {}

// simulate runs a simulation over a lake format, and says how often something failed.
func simulate(rt *rapid.T, format lake.Format, s *simulation) int64 {
	s.t = rt
	for _, step := range tier.Steps {
		s.steps = append(s.steps, string(step))
	}
	o := tier.Options{
		RoundBytes: rapid.SampledFrom([]int64{0, 1, 500}).Draw(rt, "round"), FoldBytes: rapid.SampledFrom([]int64{0, 1, 700}).Draw(rt, "fold"),
		Hook: func(step tier.Step) error { return s.fail(string(step)) },
	}
	s.n = newNode(rt, func(n *node) { n.o, n.format = o, format })
	for _, sh := range s.shapes {
		s.tables = append(s.tables, s.make(sh))
	}
	rt.Repeat(rapid.StateMachineActions(s))
	for _, lt := range s.tables {
		s.n.tier(lt)
		s.n.complete(lt)
	}
	return s.failed.Load()
}

// check has rapid make at most so many runs, unless it was told how many to make
// (-rapid.checks).
func check(t *testing.T, most int, run func(*rapid.T)) {
	if f := flag.Lookup("rapid.checks"); f.Value.String() != f.DefValue {
		most = math.MaxInt
	}
	runs, failing := 0, false // a run that fails is made again, smaller and smaller
	rapid.Check(t, func(rt *rapid.T) {
		if runs++; runs > most && !failing {
			return
		}
		fine := false
		defer func() { failing = failing || !fine }()
		run(rt)
		fine = true
	})
}

// Whatever happens to rounds, what the lake has of a bucket is what its log says up to
// the lake's offset: each row once, of a key the last one.
func TestLakeIsLog(t *testing.T) {
	var failed int64
	check(t, 50, func(rt *rapid.T) {
		s := &simulation{shapes: shapes}
		for _, step := range []laketest.Step{laketest.Begin, laketest.Write, laketest.Close, laketest.Delete, laketest.BeforeCommit, laketest.AfterCommit} {
			s.steps = append(s.steps, string(step))
		}
		format := laketest.New()
		format.Hook = func(step laketest.Step, _ millrace.TableID) error { return s.fail(string(step)) }
		failed += simulate(rt, format, s)
	})
	require.Positive(t, failed)
}
