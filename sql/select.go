package sql

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/filter"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/row"
)

// selection is a query whose names are resolved.
type selection struct {
	*call
	q     *query
	path  string
	named *router.Named
	table *millrace.Table // named.Table
	limit int64           // -1: none

	filter *filter.Filter // nil without a WHERE
	// read are the columns that have to be read, each once; nil: all, in the order of
	// the view.
	read []string
}

// query runs a SELECT.
func (c *call) query(ctx context.Context, q *query) (*Result, error) {
	s := &selection{call: c, q: q, limit: -1}
	var err error
	if s.path, err = c.path(q.from); err != nil {
		return nil, err
	}
	if s.named, err = c.o.Router.Named(ctx, s.path); err != nil {
		return nil, err
	}
	s.table = s.named.Table
	if err := s.setLimit(); err != nil {
		return nil, err
	}
	if q.where != nil {
		if s.filter, err = c.compile(q.where, s.named.Filtered); err != nil {
			return nil, err
		}
	}
	if q.group != nil || slices.ContainsFunc(q.items, func(i item) bool { return i.function != "" }) {
		return s.aggregate(ctx)
	}
	return s.rows(ctx)
}

// setLimit reads the LIMIT.
func (s *selection) setLimit() error {
	l := s.q.limit
	if l == nil {
		return nil
	}
	s.limit = l.n
	if l.param < 0 {
		return nil
	}
	n, err := strconv.ParseInt(string(s.req.Params[l.param]), 10, 64)
	if err != nil || n < 0 {
		return s.src.fail(errs.InvalidValue, l.at, "LIMIT takes a whole number of rows, not %s", clip(string(s.req.Params[l.param])))
	}
	s.limit = n
	return nil
}

// compile reads a WHERE. Its errors name the place in the statement.
func (c *call) compile(w *condition, cols []millrace.Column) (*filter.Filter, error) {
	f, err := filter.Compile(w.text, c.params(w), cols, c.o.Clock.Now())
	if err != nil {
		return nil, c.inCondition(err, w)
	}
	return f, nil
}

func (c *call) params(w *condition) []json.RawMessage { return c.req.Params[w.param : w.param+w.count] }

// inCondition says where in the statement an error of a WHERE is.
func (c *call) inCondition(err error, w *condition) error {
	position, message, ok := filter.Position(err)
	if !ok {
		return err
	}
	at := 0
	for range position - 1 {
		_, n := utf8.DecodeRuneInString(w.text[at:])
		at += n
	}
	return c.src.fail(errs.CodeOf(err), w.at+at, "%s", strings.ReplaceAll(message, "the end of the filter", "the end of the condition"))
}

// column finds a column that the statement names.
func (s *selection) column(n name) (millrace.Column, error) {
	i := slices.IndexFunc(s.named.Columns, func(c millrace.Column) bool { return c.Name == n.text })
	if i < 0 {
		return millrace.Column{}, s.unknownColumn(s.table, s.named.Columns, n)
	}
	return s.named.Columns[i], nil
}

// want adds a column to those that are read.
func (s *selection) want(col string) {
	if !slices.Contains(s.read, col) {
		s.read = append(s.read, col)
	}
}

// labels checks that the columns of the answer have names of their own.
func (s *selection) labels() error {
	seen := map[string]bool{}
	for _, i := range s.q.items {
		l := i.label()
		if seen[l] {
			return s.src.fail(errs.DuplicateField, i.at, "the answer would have two columns %s; name one with AS", clip(l))
		}
		seen[l] = true
	}
	return nil
}

// rows gives rows of the table.
func (s *selection) rows(ctx context.Context) (*Result, error) {
	if err := s.labels(); err != nil {
		return nil, err
	}
	for _, i := range s.q.items {
		if _, err := s.column(i.column); err != nil {
			return nil, err
		}
		s.want(i.column.text)
	}
	order, err := s.keyOrder()
	if err != nil {
		return nil, err
	}
	if !s.q.all {
		for _, o := range order {
			s.want(o.column.Name)
		}
	}
	in, cols, sorted, err := s.open(ctx, order)
	if err != nil {
		return nil, err
	}
	if !sorted {
		if in, err = s.sortRows(ctx, in, cols, order, s.limit); err != nil {
			return nil, err
		}
	}
	if s.limit >= 0 {
		in = &limited{batches: in, left: s.limit}
	}
	if s.q.all {
		return rows(cols, in), nil
	}
	out := make([]millrace.Column, len(s.q.items))
	from := make([]int, len(s.q.items))
	for i, it := range s.q.items {
		from[i] = slices.IndexFunc(cols, func(c millrace.Column) bool { return c.Name == it.column.text })
		out[i] = cols[from[i]]
		out[i].Name = it.label()
	}
	return rows(out, &projected{batches: in, columns: from}), nil
}

// sorting is a column by which rows are sorted.
type sorting struct {
	column millrace.Column
	desc   bool
}

// keyOrder are the columns of ORDER BY: some of the primary key.
func (s *selection) keyOrder() ([]sorting, error) {
	var out []sorting
	for _, o := range s.q.order {
		n := o.name
		if i := slices.IndexFunc(s.q.items, func(i item) bool { return i.alias.text != "" && i.alias.text == n.text }); i >= 0 {
			n.text = s.q.items[i].column.text
		}
		col, err := s.column(n)
		if err != nil {
			return nil, err
		}
		switch {
		case !s.table.Keyed():
			return nil, s.src.unsupported(n.at, "ORDER BY on a log table (its rows have no key)")
		case !slices.Contains(s.table.PrimaryKey, col.ID):
			return nil, s.src.unsupported(n.at, "ORDER BY "+col.Name+", which is not in the primary key ("+briefly(s.table.Columns(s.table.PrimaryKey))+")")
		case slices.ContainsFunc(out, func(s sorting) bool { return s.column.ID == col.ID }):
			return nil, s.src.fail(errs.DuplicateField, n.at, "column %q stands twice in ORDER BY", col.Name)
		}
		out = append(out, sorting{column: col, desc: o.desc})
	}
	return out, nil
}

// rising says whether rows in the order of the primary key are in this order.
func (s *selection) rising(order []sorting) bool {
	for i, o := range order {
		if o.desc || i >= len(s.table.PrimaryKey) || s.table.PrimaryKey[i] != o.column.ID {
			return false
		}
	}
	return true
}

// open begins to read the rows that the WHERE takes, in the columns that are
// wanted. sorted says that they come in the given order.
func (s *selection) open(ctx context.Context, order []sorting) (in batches, cols []millrace.Column, sorted bool, err error) {
	in, cols, err = s.lookup(ctx)
	if in != nil || err != nil {
		return in, cols, s.rising(order), err
	}
	req := &router.ReadRequest{TableID: &s.table.ID, Columns: s.asked()}
	if s.q.where != nil {
		req.Filter, req.Params = s.q.where.text, s.params(s.q.where)
	}
	if s.limit >= 0 && len(order) == 0 && s.q.group == nil && !s.aggregated() {
		req.Limit = &s.limit
	}
	o := router.Scan
	o.Bounded, o.KeyOrder = true, len(order) > 0
	p, err := s.o.Router.Plan(ctx, s.path, req, o)
	if err != nil {
		if s.q.where != nil {
			err = s.inCondition(err, s.q.where)
		}
		return nil, nil, false, err
	}
	sorted = len(order) == 0 || p.InKeyOrder() && s.rising(order)
	at, err := s.places(p.Columns)
	if err != nil {
		p.Close()
		return nil, nil, false, err
	}
	rd := &scan{rd: s.o.Router.Open(p)}
	if at == nil {
		return rd, p.Columns, sorted, nil
	}
	cols = make([]millrace.Column, len(at))
	for i, j := range at {
		cols[i] = p.Columns[j]
	}
	return &projected{batches: rd, columns: at}, cols, sorted, nil
}

// asked are the columns that a read request names to give those that are read.
func (s *selection) asked() []string {
	if s.read == nil || s.named.View == router.RowsView {
		return s.read
	}
	// A view of the log has columns of its own, and some of the table in them.
	var out []string
	for _, name := range s.read {
		switch {
		case s.named.View == router.BinlogView && (name == millrace.ColBefore || name == millrace.ColAfter):
			return nil // every column of the table
		case s.named.View == router.ChangelogView && s.table.Schema.Index(name) >= 0:
			out = append(out, name)
		}
	}
	if out == nil { // none of the table: any one
		out = []string{s.table.Schema.Columns[0].Name}
	}
	return out
}

// places are where the columns that are read stand among those of a plan, which for
// some views has more; nil: all of them, as they are.
func (s *selection) places(cols []millrace.Column) ([]int, error) {
	if s.read == nil {
		return nil, nil
	}
	at := make([]int, len(s.read))
	for i, name := range s.read {
		at[i] = slices.IndexFunc(cols, func(c millrace.Column) bool { return c.Name == name })
		known := slices.IndexFunc(s.named.Columns, func(c millrace.Column) bool { return c.Name == name })
		if at[i] < 0 || cols[at[i]].ID != s.named.Columns[known].ID || !cols[at[i]].Type.Equal(s.named.Columns[known].Type) {
			return nil, errs.New(errs.SchemaChanged, "column %q of table %s was changed while the statement began; send it again", name, s.table.Path)
		}
	}
	return at, nil
}

func (s *selection) aggregated() bool {
	return slices.ContainsFunc(s.q.items, func(i item) bool { return i.function != "" })
}

// lookup reads the rows by their keys when the WHERE says all of them; nothing and
// no error when it does not.
func (s *selection) lookup(ctx context.Context) (batches, []millrace.Column, error) {
	if s.filter == nil || !s.table.Keyed() || s.named.View != router.RowsView || s.named.Tier == router.LakeTier {
		return nil, nil, nil
	}
	if s.table.Partitioned() && s.table.Options.Lake != nil {
		return nil, nil, nil // partitions that have ended are in the lake alone, where nothing is looked up
	}
	names := s.read
	if names == nil {
		for _, c := range s.table.Schema.Columns {
			names = append(names, c.Name)
		}
	}
	answer := len(names)
	for _, n := range s.filter.ColumnNames() {
		if !slices.Contains(names, n) {
			names = append(slices.Clip(names), n)
		}
	}
	cols := make([]millrace.Column, len(names))
	for i, n := range names {
		at := s.table.Schema.Index(n)
		if at < 0 {
			return nil, nil, nil // a system column, which a lookup has not
		}
		cols[i] = s.table.Schema.Columns[at]
	}
	keys, ok, err := keysOf(s.table, s.filter, router.MaxLookupKeys)
	if !ok || err != nil {
		return nil, nil, err
	}
	defer keys.Release()
	if keys.NumRows() == 0 {
		return &held{}, cols[:answer], nil
	}
	res, err := s.o.Router.Lookup(ctx, s.table, keys, cols)
	if err != nil {
		return nil, nil, err
	}
	defer res.Record.Release()
	sel, err := s.filter.Select(res.Record)
	if err != nil {
		return nil, nil, err
	}
	rec := row.Take(memory.DefaultAllocator, res.Record, sel)
	if answer < len(cols) {
		all := rec
		rec = row.Project(all, firsts(answer))
		all.Release()
	}
	cost := router.Stats{RowsRead: res.Record.NumRows(), RowsShipped: rec.NumRows()}
	return &held{rec: rec, cost: cost}, cols[:answer], nil
}

func firsts(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}
