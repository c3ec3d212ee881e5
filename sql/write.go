package sql

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/filter"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/row/jsonrow"
)

// insert writes the rows of an INSERT as one batch.
func (c *call) insert(ctx context.Context, st *insert) (*Result, error) {
	t, err := c.table(ctx, st.table)
	if err != nil {
		return nil, err
	}
	cols := t.Schema.Columns
	if st.columns != nil {
		if cols, err = c.listed(t, st.columns); err != nil {
			return nil, err
		}
	}
	if st.width != len(cols) {
		return nil, c.src.invalid(st.rowAt, "the rows have %d values, and table %s has %d columns (%s)", st.width, t.Path, len(cols), briefly(cols))
	}
	req := &router.WriteRequest{Table: t, Mode: router.Append}
	if t.Keyed() {
		// A list of all columns is a whole row in another order.
		req.Mode, req.Partial = router.Upsert, len(cols) < len(t.Schema.Columns)
	}
	if req.Rows, err = c.decode(st, t, cols, req.Partial); err != nil {
		return nil, err
	}
	defer req.Rows.Release()
	res, err := c.write(ctx, req)
	if err != nil {
		return nil, err
	}
	return &Result{Affected: res.Rows, Replayed: res.Rows > 0 && res.Replayed == res.Rows}, nil
}

// write writes a batch, under the request's key if it has one: a batch is what its
// statement says, however the table has changed since it came before.
func (c *call) write(ctx context.Context, req *router.WriteRequest) (*router.WriteResult, error) {
	if c.req.Key != "" {
		end, err := c.o.Router.BeginKey(req.Table, c.req.Principal, c.req.Key)
		if err != nil {
			return nil, err
		}
		defer end()
		req.Writer = &router.WriterSequence{Principal: c.req.Principal, ID: c.req.Key, Key: true, Seq: 1, Hash: c.hash()}
	}
	res, err := c.o.Router.Write(ctx, req)
	return res, told(err, res)
}

// hash is that of the request: its statement, database and parameters. It is never 0.
func (c *call) hash() uint64 {
	h := xxhash.New()
	mix := func(s string) {
		_, _ = h.WriteString(strconv.Itoa(len(s)) + ":" + s) // a hash takes everything
	}
	mix(c.req.Text)
	mix(c.req.Database)
	for _, p := range c.req.Params {
		mix(string(p))
	}
	return max(h.Sum64(), 1)
}

// listed are the columns that an INSERT names.
func (c *call) listed(t *millrace.Table, names []name) ([]millrace.Column, error) {
	out := make([]millrace.Column, 0, len(names))
	for _, n := range names {
		i := t.Schema.Index(n.text)
		if i < 0 {
			return nil, c.unknownColumn(t, t.Schema.Columns, n)
		}
		if slices.ContainsFunc(out, func(c millrace.Column) bool { return c.Name == n.text }) {
			return nil, c.src.fail(errs.DuplicateField, n.at, "column %q is named twice", n.text)
		}
		out = append(out, t.Schema.Columns[i])
	}
	return out, nil
}

func (c *call) unknownColumn(t *millrace.Table, cols []millrace.Column, n name) error {
	names := make([]string, len(cols))
	for i, col := range cols {
		names[i] = col.Name
	}
	hint := ""
	if near, ok := filter.Nearest(n.text, names); ok {
		hint = "; did you mean \"" + near + "\"?"
	}
	return c.src.fail(errs.UnknownColumn, n.at, "table %s has no column %s%s", t.Path, clip(n.text), hint)
}

// briefly lists columns for a message.
func briefly(cols []millrace.Column) string {
	var names []string
	for i, c := range cols {
		if i == 8 {
			names = append(names, "…")
			break
		}
		names = append(names, c.Name)
	}
	return strings.Join(names, ", ")
}

// decode reads the values of an INSERT, as the decoder of rows in JSON takes them.
func (c *call) decode(st *insert, t *millrace.Table, cols []millrace.Column, partial bool) (row.Rows, error) {
	o := jsonrow.Options{Key: t.Names(t.PrimaryKey)}
	into := t.Schema.Columns
	if partial {
		into = nil
		for _, col := range t.Schema.Columns { // in schema order
			if slices.ContainsFunc(cols, func(c millrace.Column) bool { return c.ID == col.ID }) {
				into = append(into, col)
				o.Required = append(o.Required, col.Name)
			}
		}
	}
	d := jsonrow.NewDecoder(into, o)
	r := newRowReader(st, cols, c.req.Params)
	for i := range st.rows {
		if i > 0 {
			r.p.expectSymbol(",", "between rows")
		}
		r.row()
		if r.p.err != nil {
			return row.Rows{}, r.p.err
		}
		if err := d.AddObject(r.object, int64(i)); err != nil {
			return row.Rows{}, c.atValue(err, cols, r.starts)
		}
	}
	return d.Finish(), nil
}

// atValue says where in the statement the value stands that err is about.
func (c *call) atValue(err error, cols []millrace.Column, starts []int) error {
	e, ok := errors.AsType[*errs.Error](err)
	if !ok {
		return err
	}
	at := starts[0]
	if len(e.Fields) > 0 {
		top, _, _ := strings.Cut(strings.ReplaceAll(e.Fields[0].Field, "[", "."), ".")
		if i := slices.IndexFunc(cols, func(c millrace.Column) bool { return c.Name == top }); i >= 0 {
			at = starts[i]
		}
	}
	pointed := *e
	pointed.Extra = maps.Clone(e.Extra)
	return c.src.point(&pointed, at)
}

// told adds to the error of a write what became of its parts, when some were taken.
func told(err error, res *router.WriteResult) error {
	e, ok := errors.AsType[*errs.Error](err)
	if !ok || res == nil {
		return err
	}
	out := *e
	out.Extra = maps.Clone(e.Extra)
	out.Tell("accepted", res.Rows-res.Rejected)
	out.Tell("rejected", res.Rejected)
	out.Tell("offsets", res.Offsets)
	if res.Outcomes != nil {
		out.Tell("buckets", res.Outcomes)
	}
	return &out
}

// remove deletes the rows of some whole keys.
func (c *call) remove(ctx context.Context, st *remove) (*Result, error) {
	t, err := c.table(ctx, st.table)
	if err != nil {
		return nil, err
	}
	if !t.Keyed() {
		return nil, errs.New(errs.WrongTableKind, "table %s is a log table: its rows have no key and are not deleted", t.Path)
	}
	f, err := c.compile(st.where, t.Schema.Columns)
	if err != nil {
		return nil, err
	}
	pk := t.Names(t.PrimaryKey)
	for _, n := range f.ColumnNames() {
		if !slices.Contains(pk, n) {
			return nil, c.src.unsupported(st.at, "DELETE by a column that is not in the primary key ("+n+"); its WHERE names the whole key ("+strings.Join(pk, ", ")+") with = or IN, and nothing else")
		}
	}
	keys, ok, err := keysOf(t, f, MaxRows)
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, c.src.unsupported(st.at, "DELETE by anything but whole keys; its WHERE names each of "+strings.Join(pk, ", ")+" with = or IN, at most "+itoa(MaxRows)+" keys")
	}
	defer keys.Release()
	if keys.NumRows() == 0 {
		return done(), nil
	}
	req := &router.WriteRequest{Table: t, Mode: router.Delete, Rows: row.Rows{Record: keys, Columns: t.Columns(t.PrimaryKey)}}
	res, err := c.write(ctx, req)
	if err != nil {
		return nil, err
	}
	n := int64(0)
	for _, r := range res.Offsets { // a delete is one record, and none where there was no row
		n += int64(r.End - r.Start)
	}
	return &Result{Affected: n, Replayed: res.Rows > 0 && res.Replayed == res.Rows}, nil
}
