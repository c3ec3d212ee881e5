package sql

import (
	"context"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/row"
)

// aggregation is a query with aggregates or GROUP BY under way.
type aggregation struct {
	columns []millrace.Column // of the answer
	// from says what each column of the answer is: aggregate n, or, below zero,
	// column -1-n of GROUP BY.
	from []int

	most    int64    // bytes that groups may take
	group   *grouper // nil: all rows are one group
	by      []int    // the columns of GROUP BY, in what is read
	of      []int    // the column of each aggregate, in what is read; -1: COUNT(*)
	acc     []accumulator
	zeros   []uint32      // the groups of rows without GROUP BY
	grouped []arrow.Array // scratch
}

// aggregate answers a query with aggregates or GROUP BY.
func (s *selection) aggregate(ctx context.Context) (*Result, error) {
	if s.q.all {
		return nil, s.src.invalid(s.q.at, "SELECT * does not go with GROUP BY: name the columns of GROUP BY, and aggregates")
	}
	if err := s.labels(); err != nil {
		return nil, err
	}
	a, err := s.plan()
	if err != nil {
		return nil, err
	}
	order, err := s.answerOrder(a)
	if err != nil {
		return nil, err
	}
	var res *held
	if s.onlyCounts() {
		res, err = s.count(ctx, a)
	} else {
		in, _, _, oerr := s.open(ctx, nil)
		res, err = s.fold(ctx, a, in, oerr)
	}
	if err != nil {
		return nil, err
	}
	var in batches = res
	if len(order) > 0 {
		if in, err = s.sortRows(ctx, res, a.columns, order, s.limit); err != nil {
			return nil, err
		}
	}
	if s.limit >= 0 {
		in = &limited{batches: in, left: s.limit}
	}
	return rows(unnumbered(a.columns), in), nil
}

// plan resolves the columns and aggregates.
func (s *selection) plan() (*aggregation, error) {
	a := &aggregation{most: s.most}
	var groups []millrace.Column
	for _, n := range s.q.group {
		col, err := s.column(n)
		if err != nil {
			return nil, err
		}
		if col.Type.Nested() {
			return nil, s.src.unsupported(n.at, "GROUP BY a column of type "+col.Type.Kind.String())
		}
		if slices.ContainsFunc(groups, func(c millrace.Column) bool { return c.Name == col.Name }) {
			return nil, s.src.fail(errs.DuplicateField, n.at, "column %q stands twice in GROUP BY", col.Name)
		}
		groups = append(groups, col)
		s.want(col.Name)
	}
	for _, it := range s.q.items {
		if err := s.planItem(a, it, groups); err != nil {
			return nil, err
		}
	}
	at := func(name string) int { return slices.Index(s.read, name) }
	if groups != nil {
		a.group = newGrouper(groups)
		for _, g := range groups {
			a.by = append(a.by, at(g.Name))
		}
	}
	for _, it := range s.q.items {
		if it.function != "" {
			a.of = append(a.of, at(it.column.text))
		}
	}
	for i := range a.columns { // each has its own, by which it is sorted
		a.columns[i].ID = millrace.ColumnID(i + 1)
	}
	return a, nil
}

func (s *selection) planItem(a *aggregation, it item, groups []millrace.Column) error {
	var col millrace.Column
	if it.column.text != "" {
		var err error
		if col, err = s.column(it.column); err != nil {
			return err
		}
	}
	if it.function == "" {
		g := slices.IndexFunc(groups, func(c millrace.Column) bool { return c.Name == col.Name })
		if g < 0 {
			return s.src.invalid(it.at, "column %q is neither in GROUP BY nor in an aggregate", col.Name)
		}
		col.Name = it.label()
		a.columns, a.from = append(a.columns, col), append(a.from, -1-g)
		return nil
	}
	out := millrace.Column{Name: it.label(), Nullable: it.function != "COUNT"}
	acc, typ, err := newAccumulator(it.function, col)
	if err != nil {
		return s.src.fail(errs.CodeOf(err), it.at, "%v", err)
	}
	out.Type = typ
	if col.Name != "" {
		s.want(col.Name)
	}
	a.columns, a.from, a.acc = append(a.columns, out), append(a.from, len(a.acc)), append(a.acc, acc)
	return nil
}

// answerOrder are the columns of ORDER BY: columns of the answer.
func (s *selection) answerOrder(a *aggregation) ([]sorting, error) {
	var out []sorting
	for _, o := range s.q.order {
		i := slices.IndexFunc(a.columns, func(c millrace.Column) bool { return c.Name == o.name.text })
		if i < 0 { // a column that has another name in the answer
			i = slices.IndexFunc(s.q.items, func(i item) bool { return i.function == "" && i.column.text == o.name.text })
		}
		switch {
		case i < 0:
			if _, err := s.column(o.name); err != nil {
				return nil, err
			}
			return nil, s.src.unsupported(o.name.at, "ORDER BY a column that is not in the answer")
		case a.columns[i].Type.Nested():
			return nil, s.src.unsupported(o.name.at, "ORDER BY a column of type "+a.columns[i].Type.Kind.String())
		case slices.ContainsFunc(out, func(s sorting) bool { return s.column.ID == a.columns[i].ID }):
			return nil, s.src.fail(errs.DuplicateField, o.name.at, "column %q stands twice in ORDER BY", o.name.text)
		}
		out = append(out, sorting{column: a.columns[i], desc: o.desc})
	}
	return out, nil
}

// onlyCounts says whether nothing but the number of rows is asked for.
func (s *selection) onlyCounts() bool {
	return s.q.group == nil && !slices.ContainsFunc(s.q.items, func(i item) bool {
		if i.function != "COUNT" {
			return true
		}
		col, err := s.column(i.column)
		return i.column.text != "" && (err != nil || col.Nullable)
	})
}

// count answers a query that asks for the number of rows: without a WHERE from
// what the buckets know of themselves.
func (s *selection) count(ctx context.Context, a *aggregation) (*held, error) {
	req := &router.ReadRequest{}
	if s.q.where != nil {
		if s.table.Keyed() {
			s.want(s.table.Names(s.table.PrimaryKey)[0])
		}
		if in, _, err := s.lookup(ctx); in != nil || err != nil {
			return s.fold(ctx, a, in, err)
		}
		req.Filter, req.Params = s.q.where.text, s.params(s.q.where)
	}
	n, err := s.o.Router.Count(ctx, s.path, req)
	if err != nil {
		return nil, err
	}
	for _, acc := range a.acc {
		acc.grow(1)
		acc.(*counter).n[0] = n
	}
	return a.result(1)
}

// fold aggregates the rows of in, unless it could not be opened.
func (s *selection) fold(ctx context.Context, a *aggregation, in batches, err error) (*held, error) {
	if err != nil {
		return nil, err
	}
	groups := 1
	if a.group == nil {
		a.grow(groups)
	}
	cost, err := each(ctx, in, a.add)
	if err != nil {
		return nil, err
	}
	if a.group != nil {
		groups = a.group.groups()
		a.grow(groups)
	}
	res, err := a.result(groups)
	if err != nil {
		return nil, err
	}
	res.cost = cost
	return res, nil
}

func (a *aggregation) grow(groups int) {
	for _, acc := range a.acc {
		acc.grow(groups)
	}
}

// add takes a batch of rows.
func (a *aggregation) add(rec arrow.RecordBatch) error {
	n := int(rec.NumRows())
	var groups []uint32
	if a.group != nil {
		a.grouped = a.grouped[:0]
		for _, c := range a.by {
			a.grouped = append(a.grouped, rec.Column(c))
		}
		groups = a.group.number(a.grouped)
		a.grow(a.group.groups())
	} else {
		a.zeros = grown(a.zeros, n)
		groups = a.zeros[:n]
	}
	for i, acc := range a.acc {
		var arr arrow.Array
		if a.of[i] >= 0 {
			arr = rec.Column(a.of[i])
		}
		acc.add(arr, groups)
	}
	return a.bound()
}

// bound refuses more groups than may be held.
func (a *aggregation) bound() error {
	if a.group == nil {
		return nil
	}
	size := a.group.size()
	for _, acc := range a.acc {
		size += acc.size()
	}
	if size > a.most {
		return errs.New(errs.TooLarge, "GROUP BY has met %d groups, which take more than %d MiB; group by fewer columns or take fewer rows with WHERE, or let Flink, Spark or DuckDB do it", a.group.groups(), a.most>>20)
	}
	return nil
}

// result is the answer, a row a group.
func (a *aggregation) result(groups int) (*held, error) {
	arrs := make([]arrow.Array, len(a.from))
	defer func() {
		for _, arr := range arrs {
			if arr != nil {
				arr.Release()
			}
		}
	}()
	for i, from := range a.from {
		if from < 0 {
			if first := slices.Index(a.from, from); first < i { // once more under another name
				arrs[i] = arrs[first]
				arrs[i].Retain()
			} else {
				arrs[i] = a.group.column(-1 - from)
			}
			continue
		}
		var err error
		if arrs[i], err = a.acc[from].array(); err != nil {
			return nil, err
		}
	}
	return &held{rec: array.NewRecordBatch(row.ArrowSchema(a.columns), arrs, int64(groups))}, nil
}
