package router_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/row/jsonrow"
	"github.com/millrace/millrace/storage/storagetest"
)

// replica is a whole node of its own: catalog, storage and router under settings that
// differ from the other replicas'. What it answers may not hang on them.
type replica struct {
	*storagetest.World
	t       *testing.T
	buckets int
	cat     *catalog.Catalog
	r       *router.Router
	side    *lakeside // nil: its tables are not in the lake
}

func newReplica(t *testing.T, seed uint64, buckets int, tiered bool) *replica {
	p := &replica{World: storagetest.NewWorld(t, seed), t: t, buckets: buckets}
	if tiered {
		p.side = newLakeside(t, func() *router.Router { return p.r })
	}
	cat, err := catalog.Open(context.Background(), catalog.Options{
		Dir: "catalog", Shards: p.Opts.Shards, FS: vfs.NewMem(), Clock: p.Clock.Now, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	p.cat = cat
	_, err = cat.CreateDatabase(context.Background(), "d", "")
	require.NoError(t, err)
	p.open()
	return p
}

func (p *replica) open() {
	p.MustOpen()
	o := router.Options{
		Catalog: p.cat, Signer: plainSigner{}, Clock: p.Clock, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	}
	if p.side != nil {
		o.Lake = p.side
	}
	p.r = newRouter(o, p.Worker.Shards())
}

// tier takes rows of some partitions to the lake, merges files there, or changes from
// where keyed tables are read.
func (p *replica) tier(rng *rand.Rand, name string) {
	t := p.table(name)
	ps, err := p.cat.Partitions(context.Background(), t.ID)
	require.NoError(p.t, err)
	switch rng.IntN(4) {
	case 0:
		p.side.maintain(t)
	case 1:
		pick(rng, p.r.Choose, p.r.StateOnly, func() { p.r.OverlayOnly(1 << 20) }, func() { p.r.OverlayOnly(1000) })()
	default:
		p.side.tier(t, slices.DeleteFunc(slices.Clone(ps), func(*millrace.Partition) bool { return rng.IntN(3) == 0 })...)
	}
}

func (p *replica) close() {
	require.NoError(p.t, p.Worker.Close(context.Background()))
	require.NoError(p.t, p.cat.Close())
}

func (p *replica) table(name string) *millrace.Table {
	t, err := p.cat.Table(context.Background(), millrace.TablePath{Database: "d", Table: name})
	require.NoError(p.t, err)
	return t
}

// write is one write of the script: rows as JSON, and the columns that are named.
type write struct {
	table   string
	mode    router.Mode
	columns []string
	rows    []string
}

func (p *replica) apply(w write) errs.Code {
	t := p.table(w.table)
	cols := t.Schema.Columns
	o := jsonrow.Options{Key: t.Names(t.PrimaryKey), KeyOnly: w.mode == router.Delete}
	if w.columns != nil {
		cols = slices.DeleteFunc(slices.Clone(cols), func(c millrace.Column) bool { return !slices.Contains(w.columns, c.Name) })
		o.Required = w.columns
	}
	d := jsonrow.NewDecoder(cols, o)
	for i, r := range w.rows {
		require.NoError(p.t, d.AddObject([]byte(r), int64(i)), "%s", r)
	}
	rows := d.Finish()
	defer rows.Release()
	_, err := p.r.Write(context.Background(), &router.WriteRequest{Table: t, Mode: w.mode, Rows: rows, Partial: w.columns != nil})
	if err != nil {
		return errs.CodeOf(err)
	}
	return ""
}

// read gives every row of a request as JSON.
func (p *replica) read(path string, req *router.ReadRequest) []string {
	plan, err := p.r.Plan(context.Background(), path, req, router.Scan)
	require.NoError(p.t, err)
	enc := jsonrow.NewEncoder(plan.Columns, jsonrow.EncodeOptions{})
	rd := p.r.Open(plan)
	defer func() { require.NoError(p.t, rd.Close()) }()
	var out []string
	for {
		c, err := rd.Next(context.Background(), time.Second)
		if errors.Is(err, io.EOF) {
			return out
		}
		require.NoError(p.t, err)
		rec, err := c.Record()
		require.NoError(p.t, err)
		enc.Bind(rec)
		for i := range c.Rows {
			out = append(out, string(enc.AppendObject(nil, i)))
		}
		rec.Release()
		c.Release()
	}
}

// drawn is a table of the script.
type drawn struct {
	name  string
	keyed bool
	spec  catalog.Spec
	added []string // columns that ALTER may change
	fresh int      // numbers their names
	total string   // a column to sum up
}

func (d *drawn) partitioned() bool { return len(d.spec.PartitionBy) > 0 }

// key is the text of a row's primary key.
func (d *drawn) key(row map[string]json.RawMessage) string {
	if !d.keyed {
		return ""
	}
	k := string(row["k"]) + " " + string(row["g"])
	if d.partitioned() {
		k += " " + string(row["p"])
	}
	return k
}

// script draws what is done to all replicas.
type script struct {
	t        *testing.T
	rng      *rand.Rand
	replicas []*replica
	tables   []*drawn
}

func pick[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

func (s *script) create() {
	d := &drawn{name: fmt.Sprintf("t%d", len(s.tables)), keyed: s.rng.IntN(4) > 0, total: "n"}
	d.spec = catalog.Spec{Name: d.name, Properties: map[string]string{}, Columns: []catalog.ColumnSpec{
		{Name: "k", Type: "INT"}, {Name: "g", Type: "STRING"}, {Name: "n", Type: "INT"}, {Name: "s", Type: "STRING"}, {Name: "v", Type: "BIGINT"}, {Name: "b", Type: "BOOLEAN"},
	}}
	if s.rng.IntN(2) == 0 {
		d.spec.Columns = append(d.spec.Columns, catalog.ColumnSpec{Name: "p", Type: pick(s.rng, "STRING", "INT")})
		d.spec.PartitionBy = []string{"p"}
	}
	if d.keyed {
		d.spec.PrimaryKey = append([]string{"k", "g"}, d.spec.PartitionBy...)
		if s.rng.IntN(2) == 0 {
			d.spec.BucketKey = []string{"k"}
		}
		maps.Copy(d.spec.Properties, pick(s.rng,
			map[string]string{},
			map[string]string{"table.merge-engine": "first_row"},
			map[string]string{"table.merge-engine": "versioned", "table.merge-engine.versioned.ver-column": "v"},
			map[string]string{"table.merge-engine": "aggregation", "fields.n.agg": "sum", "fields.s.agg": "listagg", "fields.v.agg": "max", "fields.b.agg": "bool_or"},
		))
		if d.spec.Properties["table.merge-engine"] != "aggregation" && s.rng.IntN(3) == 0 {
			d.spec.Properties["table.changelog.image"] = "WAL"
		}
		if s.rng.IntN(3) == 0 {
			d.spec.Properties["table.changelog.skip-unchanged"] = "true"
		}
	} else if s.rng.IntN(2) == 0 {
		d.spec.BucketKey = []string{"k"}
	}
	s.tables = append(s.tables, d)
	for _, p := range s.replicas {
		spec := d.spec
		spec.Buckets = &p.buckets
		if p.side != nil {
			spec.Properties = maps.Clone(spec.Properties)
			spec.Properties["table.datalake.enabled"] = "true"
		}
		_, _, err := p.cat.CreateTable(context.Background(), "d", spec, false)
		require.NoError(s.t, err)
	}
}

// value draws the JSON of a value.
func (s *script) value(typ string) string {
	switch typ {
	case "INT", "BIGINT":
		return strconv.Itoa(s.rng.IntN(20) - 5)
	case "BOOLEAN":
		return pick(s.rng, "true", "false")
	}
	return `"` + pick(s.rng, "a", "b", "é", "", "long enough to lie outside") + `"`
}

func (s *script) write() {
	d := pick(s.rng, s.tables...)
	w := write{table: d.name, mode: router.Append}
	engine := d.spec.Properties["table.merge-engine"]
	if d.keyed {
		w.mode = pick(s.rng, router.Upsert, router.Upsert, router.Upsert, router.Delete)
		if s.rng.IntN(3) == 0 && engine != "versioned" {
			w.columns = slices.Clone(d.spec.PrimaryKey)
			for _, c := range append([]string{"n", "s", "v", "b"}, d.added...) {
				if s.rng.IntN(2) == 0 {
					w.columns = append(w.columns, c)
				}
			}
		}
	}
	types := s.types(d)
	for range 1 + s.rng.IntN(pick(s.rng, 3, 40)) {
		var fields []string
		for _, name := range slices.Sorted(maps.Keys(types)) {
			inKey := slices.Contains(d.spec.PrimaryKey, name) || slices.Contains(d.spec.BucketKey, name) || slices.Contains(d.spec.PartitionBy, name)
			if w.columns != nil && !slices.Contains(w.columns, name) || w.mode == router.Delete && !inKey && w.columns == nil {
				continue
			}
			v := s.value(types[name])
			switch {
			case name == "p":
				v = pick(s.rng, "1", "2", "3")
				if types[name] == "STRING" {
					v = `"` + v + `"`
				}
			case !inKey && (s.rng.IntN(5) == 0 || w.mode == router.Delete):
				v = "null"
			}
			fields = append(fields, fmt.Sprintf("%q:%s", name, v))
		}
		w.rows = append(w.rows, "{"+strings.Join(fields, ",")+"}")
	}
	first := s.replicas[0].apply(w)
	for _, p := range s.replicas[1:] {
		require.Equal(s.t, first, p.apply(w), "%+v", w)
	}
}

func (s *script) types(d *drawn) map[string]string {
	out := map[string]string{}
	for _, c := range s.replicas[0].table(d.name).Schema.Columns {
		out[c.Name] = c.Type.Kind.String()
	}
	return out
}

func (s *script) alter() {
	d := pick(s.rng, s.tables...)
	step := catalog.AlterStep{Op: catalog.AddColumn}
	d.fresh++
	name := fmt.Sprintf("x%d", d.fresh)
	i := 0
	if len(d.added) > 0 {
		i = s.rng.IntN(len(d.added))
		step.Op = pick(s.rng, catalog.AddColumn, catalog.RenameColumn, catalog.DropColumn, catalog.AlterType)
	}
	switch step.Op {
	case catalog.AddColumn:
		step.Column = &catalog.ColumnSpec{Name: name, Type: pick(s.rng, "INT", "STRING")}
		step.First = s.rng.IntN(2) == 0
		d.added = append(d.added, name)
	case catalog.RenameColumn:
		step.Name, step.To = d.added[i], name
		d.added[i] = name
	case catalog.DropColumn:
		step.Name = d.added[i]
		d.added = slices.Delete(d.added, i, i+1)
	case catalog.AlterType:
		if s.types(d)[d.added[i]] != "INT" {
			return
		}
		step.Name, step.Type = d.added[i], "BIGINT"
	}
	for _, p := range s.replicas {
		_, err := p.cat.AlterTable(context.Background(), millrace.TablePath{Database: "d", Table: d.name}, []catalog.AlterStep{step}, nil)
		require.NoError(s.t, err, "%+v", step)
	}
}

// disturb does to one replica what must not show.
func (s *script) disturb() {
	if s.rng.IntN(2) == 0 {
		i := slices.IndexFunc(s.replicas, func(p *replica) bool { return p.side != nil })
		s.replicas[i].tier(s.rng, pick(s.rng, s.tables...).name)
		return
	}
	p := pick(s.rng, s.replicas...)
	switch s.rng.IntN(3) {
	case 0:
		for _, sh := range p.Worker.Shards() {
			require.NoError(s.t, sh.Checkpoint(context.Background()))
		}
	case 1:
		require.NoError(s.t, p.Worker.Close(context.Background()))
		p.open()
	default:
		clone := p.FS.CrashClone(vfs.CrashCloneCfg{})
		require.NoError(s.t, p.Worker.Close(context.Background()))
		p.FS = clone
		p.open()
	}
}

// record is a changelog record without what hangs on the number of buckets.
type logRecord struct {
	what string
	row  map[string]json.RawMessage
}

// byKey groups a changelog by key, in order; records of a log table are one group,
// sorted, since those of several buckets have no order.
func (s *script) byKey(d *drawn, lines []string) map[string][]logRecord {
	out := map[string][]logRecord{}
	for _, l := range lines {
		var row map[string]json.RawMessage
		require.NoError(s.t, json.Unmarshal([]byte(l), &row))
		rec := logRecord{what: string(row["_change_type"]), row: row}
		maps.DeleteFunc(row, func(name string, _ json.RawMessage) bool { return strings.HasPrefix(name, "_") })
		out[d.key(row)] = append(out[d.key(row)], rec)
	}
	return out
}

func (r logRecord) String() string {
	b, err := json.Marshal(r.row) // sorted by name
	if err != nil {
		panic(err)
	}
	return r.what + string(b)
}

func say(groups map[string][]logRecord, keyed bool) map[string][]string {
	out := map[string][]string{}
	for k, g := range groups {
		for _, r := range g {
			out[k] = append(out[k], r.String())
		}
		if !keyed {
			slices.Sort(out[k])
		}
	}
	return out
}

// compare reads a table through every view, and holds the replicas against each other
// and the views of one against each other.
func (s *script) compare(d *drawn) {
	path := "d." + d.name
	filter := pick(s.rng, "", "n > 3", "s = 'a' OR b", "k BETWEEN 0 AND 5 AND g <> 'b'", "n IS NULL OR v < 4")
	if d.partitioned() && s.rng.IntN(2) == 0 {
		filter = "p = 1"
		if s.types(d)["p"] == "STRING" {
			filter = "p IN ('1', '3')"
		}
	}
	wal := d.spec.Properties["table.changelog.image"] == "WAL"
	logFilter := filter
	if wal && logFilter != "" {
		logFilter = "k BETWEEN 0 AND 5"
	}
	var rows, filtered []string
	var log, some map[string][]string
	for i, p := range s.replicas {
		gotRows, gotFiltered := p.read(path, &router.ReadRequest{}), p.read(path, &router.ReadRequest{Filter: filter})
		groups := s.byKey(d, p.read(path+"$changelog", &router.ReadRequest{}))
		part := s.byKey(d, p.read(path+"$changelog", &router.ReadRequest{Filter: logFilter}))
		slices.Sort(gotRows)
		slices.Sort(gotFiltered)
		if d.keyed {
			s.folds(d, groups, gotRows)
			if !wal {
				s.sums(d, part, gotFiltered)
			}
		}
		n, err := p.r.Count(context.Background(), path, &router.ReadRequest{Filter: filter})
		require.NoError(s.t, err)
		require.Len(s.t, gotFiltered, int(n))
		s.binlog(p, d, groups)
		gotLog, gotSome := say(groups, d.keyed), say(part, d.keyed)
		if i == 0 {
			rows, filtered, log, some = gotRows, gotFiltered, gotLog, gotSome
			continue
		}
		require.Equal(s.t, rows, gotRows, "rows of %s with %d and %d buckets", d.name, s.replicas[0].buckets, p.buckets)
		require.Equal(s.t, filtered, gotFiltered, "rows of %s where %s", d.name, filter)
		require.Equal(s.t, log, gotLog, "changelog of %s", d.name)
		require.Equal(s.t, some, gotSome, "changelog of %s where %s", d.name, logFilter)
	}
}

// folds holds the table against its changelog, folded.
func (s *script) folds(d *drawn, groups map[string][]logRecord, rows []string) {
	var folded []string
	for _, g := range groups {
		var state map[string]json.RawMessage
		for _, r := range g {
			switch r.what {
			case `"+I"`:
				require.Nil(s.t, state, "an insert of what is there")
				state = r.row
			case `"+U"`:
				state = r.row
			case `"-U"`:
				require.Equal(s.t, state, r.row, "an update of another row")
			case `"-D"`:
				require.Equal(s.t, state, r.row, "a delete of another row")
				state = nil
			}
		}
		if state != nil {
			b, err := json.Marshal(state)
			require.NoError(s.t, err)
			folded = append(folded, string(b))
		}
	}
	slices.Sort(folded)
	var want []string
	for _, r := range rows {
		var row map[string]json.RawMessage
		require.NoError(s.t, json.Unmarshal([]byte(r), &row))
		b, err := json.Marshal(row)
		require.NoError(s.t, err)
		want = append(want, string(b))
	}
	slices.Sort(want)
	require.Equal(s.t, want, folded, "%s is not its changelog folded", d.name)
}

// sums holds a total over the filtered table against the filtered changelog, added up.
func (s *script) sums(d *drawn, groups map[string][]logRecord, rows []string) {
	number := func(row map[string]json.RawMessage) (int64, int64) {
		if bytes.Equal(row[d.total], []byte("null")) {
			return 1, 0
		}
		n, err := strconv.ParseInt(string(row[d.total]), 10, 64)
		require.NoError(s.t, err)
		return 1, n
	}
	var count, sum, wantCount, wantSum int64
	for _, g := range groups {
		for _, r := range g {
			c, n := number(r.row)
			if r.what == `"-U"` || r.what == `"-D"` {
				c, n = -c, -n
			}
			count, sum = count+c, sum+n
		}
	}
	for _, l := range rows {
		var row map[string]json.RawMessage
		require.NoError(s.t, json.Unmarshal([]byte(l), &row))
		c, n := number(row)
		wantCount, wantSum = wantCount+c, wantSum+n
	}
	require.Equal(s.t, []int64{wantCount, wantSum}, []int64{count, sum}, "the filtered changelog of %s does not add up", d.name)
}

// binlog holds the binlog against the changelog, paired.
func (s *script) binlog(p *replica, d *drawn, groups map[string][]logRecord) {
	want := map[string][]string{}
	for k, g := range groups {
		before := "null"
		for _, r := range g {
			image := r.String()[len(r.what):]
			switch r.what {
			case `"+I"`:
				want[k] = append(want[k], "insert null "+image)
			case `"-U"`:
				before = image
			case `"+U"`:
				want[k] = append(want[k], "update "+before+" "+image)
				before = "null"
			case `"-D"`:
				want[k] = append(want[k], "delete "+image+" null")
			}
		}
	}
	got := map[string][]string{}
	for _, l := range p.read("d."+d.name+"$binlog", &router.ReadRequest{}) {
		var r struct {
			What          string `json:"_change_type"`
			Before, After map[string]json.RawMessage
		}
		require.NoError(s.t, json.Unmarshal([]byte(l), &r))
		of := r.After
		if of == nil {
			of = r.Before
		}
		k := d.key(of)
		b, err := json.Marshal(r.Before)
		require.NoError(s.t, err)
		a, err := json.Marshal(r.After)
		require.NoError(s.t, err)
		got[k] = append(got[k], fmt.Sprintf("%s %s %s", r.What, b, a))
	}
	if !d.keyed {
		slices.Sort(want[""])
		slices.Sort(got[""])
	}
	require.Equal(s.t, want, got, "binlog of %s", d.name)
}

// Shows that what a table holds hangs on the writes alone: replicas with other bucket
// counts, shards, segment, tail and cache sizes, of which one has its tables in the lake,
// that crash and restart at other moments, give the same rows, changelogs, binlogs and counts; a changelog folded is
// the table, and filtered it adds up to the filtered table. Tables are drawn with every
// merge engine, image and partitioning, and altered under way (F15).
func TestMetamorphic(t *testing.T) {
	seeds, ops := randomRuns(t, 2, 500)
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			t.Logf("MILLRACE_MODEL_SEED=%d", seed)
			s := &script{t: t, rng: rand.New(rand.NewPCG(seed, 3))}
			for i, buckets := range []int{1, 3, 8, 2} {
				s.replicas = append(s.replicas, newReplica(t, seed+uint64(i), buckets, buckets == 2))
			}
			s.run(ops / len(seeds))
		})
	}
}

// run does the script, and compares everything once more at the end.
func (s *script) run(ops int) {
	s.create()
	for range ops {
		switch n := s.rng.IntN(40); {
		case n == 0 && len(s.tables) < 8:
			s.create()
		case n < 3:
			s.alter()
		case n < 6:
			s.disturb()
		case n < 12:
			s.compare(pick(s.rng, s.tables...))
		default:
			s.write()
		}
		for _, p := range s.replicas {
			p.Clock.Add(time.Duration(s.rng.IntN(1000)) * time.Millisecond)
		}
	}
	for _, d := range s.tables {
		s.compare(d)
	}
	for _, p := range s.replicas {
		p.close()
	}
}
