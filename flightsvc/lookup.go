package flightsvc

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/row"
)

var (
	foundColumn    = millrace.Column{Name: millrace.ColFound, Type: millrace.DataType{Kind: millrace.Boolean}}
	keyIndexColumn = millrace.Column{Name: millrace.ColKeyIndex, Type: millrace.DataType{Kind: millrace.Int}}
)

// lookups answers keys: a row for each, and whether there is one.
type lookups struct {
	*asked
	keys []int // where the primary key's columns stand among those of a batch
	by   *router.Lookups
}

func (x *exchange) openLookup(ctx context.Context, cmd *command, first *flight.FlightData) (err error) {
	if err := x.match(first, false); err != nil {
		return err
	}
	l := &lookups{asked: x.asked, keys: positions(x.plan.Columns(), x.table.PrimaryKey)}
	x.by, x.inserts = l, cmd.lookup.InsertIfAbsent
	l.by, err = x.s.o.Router.OpenLookups(ctx, x.table, x.columns, maxBodyBytes, cmd.lookup.InsertIfAbsent)
	return err
}

// Still says whether the caller may go on.
func (l *lookups) Still() error { return l.by.Still() }

func (l *lookups) answer(ctx context.Context, rows row.Rows) (arrow.RecordBatch, error) {
	keys := row.Project(rows.Record, l.keys)
	defer keys.Release()
	ctx, cancel := context.WithTimeout(ctx, writeTimeout) // keys may have to be inserted
	defer cancel()
	res, err := l.by.Next(ctx, keys)
	if err != nil {
		return nil, err
	}
	defer res.Record.Release()
	b := array.NewBooleanBuilder(memory.DefaultAllocator)
	defer b.Release()
	b.AppendValues(res.Found, nil)
	return l.withFirst(b, res.Record), nil
}

// prefixLookups answers prefixes: the rows of each, with the number of the prefix.
type prefixLookups struct {
	*asked
	by *router.PrefixLookups
}

func (x *exchange) openPrefixLookup(ctx context.Context, cmd *command, first *flight.FlightData) (err error) {
	limit := int64(-1)
	if l := cmd.prefix.Limit; l != nil {
		if limit = *l; limit < 1 {
			return errs.New(errs.InvalidValue, "limit is the number of rows of a prefix, at least 1, not %d", limit)
		}
	}
	if err := x.match(first, true); err != nil {
		return err
	}
	l := &prefixLookups{asked: x.asked}
	x.by = l
	l.by, err = x.s.o.Router.OpenPrefixLookups(ctx, x.table, x.plan.Columns(), x.columns, limit, maxBodyBytes)
	return err
}

// Still says whether the caller may go on.
func (l *prefixLookups) Still() error { return l.by.Still() }

func (l *prefixLookups) answer(ctx context.Context, rows row.Rows) (arrow.RecordBatch, error) {
	res, err := l.by.Next(ctx, rows.Record)
	if err != nil {
		return nil, err
	}
	defer res.Record.Release()
	b := array.NewInt32Builder(memory.DefaultAllocator)
	defer b.Release()
	b.AppendValues(res.Index, nil)
	return l.withFirst(b, res.Record), nil
}

// withFirst puts the column that a builder holds in front of the rows.
func (a *asked) withFirst(b array.Builder, rows arrow.RecordBatch) arrow.RecordBatch {
	first := b.NewArray()
	defer first.Release()
	return array.NewRecordBatch(a.schema, append([]arrow.Array{first}, rows.Columns()...), rows.NumRows())
}

// positions are where the columns with these ids stand.
func positions(cols []millrace.Column, ids []millrace.ColumnID) []int {
	out := make([]int, 0, len(ids))
	for _, id := range ids {
		for i, c := range cols {
			if c.ID == id {
				out = append(out, i)
			}
		}
	}
	return out
}
