package sql

import (
	"slices"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/filter"
	"github.com/millrace/millrace/row"
)

func itoa(n int) string { return strconv.Itoa(n) }

// keysOf are the primary keys that rows can have for which f is TRUE, rising, when
// f pins each key column to some values, and these make at most most keys. When f
// names key columns only, the rows of these keys are exactly those for which it is
// TRUE. The caller releases the record.
func keysOf(t *millrace.Table, f *filter.Filter, most int) (arrow.RecordBatch, bool, error) {
	pk := t.Columns(t.PrimaryKey)
	values := make([][]filter.Literal, len(pk))
	n := 1
	for i, col := range pk {
		pinned, ok := f.Pinned(col.Name)
		if !ok || len(pinned) > most || n*len(pinned) > most {
			return nil, false, nil
		}
		values[i] = pinned
		n *= len(pinned)
	}
	bs := row.NewBuilders(memory.DefaultAllocator, pk)
	defer func() {
		for _, b := range bs {
			b.Release()
		}
	}()
	for k := range n { // the combinations, the last column changing fastest
		rest := k
		for i, of := range slices.Backward(values) {
			v := of[rest%len(of)]
			rest /= len(of)
			if err := v.AppendTo(bs[i]); err != nil {
				return nil, false, err
			}
		}
	}
	arrs := make([]arrow.Array, len(bs))
	for i, b := range bs {
		arrs[i] = b.NewArray()
		defer arrs[i].Release()
	}
	rec := array.NewRecordBatch(row.ArrowSchema(pk), arrs, int64(n))
	for _, name := range f.ColumnNames() {
		if len(rec.Schema().FieldIndices(name)) == 0 {
			return rec, true, nil // the rows will have to be looked at
		}
	}
	defer rec.Release()
	sel, err := f.Select(rec)
	if err != nil {
		return nil, false, err
	}
	return row.Take(memory.DefaultAllocator, rec, sel), true, nil
}
