package arrowrow

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row"
)

// Rejected are the rows of a batch that Sift left out.
type Rejected struct {
	Rows   int64
	Errors []errs.FieldError // of the first errs.MaxFieldErrors of them
}

// Conform makes rows of the next batch of the stream, all or none: the error lists
// the rows at fault, numbered from the beginning of the stream. The batch must be
// one that a Reader or Decoder of this package returned; it stays the caller's,
// and so do the rows. Where nothing was cast, they share memory.
func (p *Plan) Conform(rec arrow.RecordBatch) (row.Rows, error) {
	rows, r, err := p.run(rec)
	switch {
	case err != nil:
		return row.Rows{}, err
	case r.count > 0:
		rows.Release()
		return row.Rows{}, faultError(r.sorted(), r.count, "row")
	}
	return rows, nil
}

// Sift is Conform that leaves out the rows at fault and keeps the others. The error
// is about the batch as a whole, such as that it grows beyond the limits.
func (p *Plan) Sift(rec arrow.RecordBatch) (row.Rows, Rejected, error) {
	rows, r, err := p.run(rec)
	if err != nil || r.count == 0 {
		return rows, Rejected{}, err
	}
	defer rows.Release()
	faults := r.sorted()
	rejected := Rejected{Rows: r.count, Errors: faults[:min(len(faults), errs.MaxFieldErrors)]}
	return r.keep(rows), rejected, nil
}

func (p *Plan) run(rec arrow.RecordBatch) (rows row.Rows, r *report, err error) {
	if int(rec.NumCols()) != p.fields {
		panic(fmt.Sprintf("arrowrow: a batch of %d columns for a plan of %d", rec.NumCols(), p.fields))
	}
	// The batch was checked, so a panic is a fault of ours: an internal error, but no
	// reason to end the process over a stranger's message.
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("arrowrow: casting a batch: %v", p)
		}
	}()
	n := int(rec.NumRows())
	r = &report{base: p.rows, rows: n}
	p.rows += int64(n)
	x := &run{budget: p.limits.MaxMessageBytes, report: r}
	if p.changes != nil {
		data, err := p.changes.run(x, rec.Column(p.changeAt).Data(), &place{name: millrace.ColChangeType})
		if err != nil {
			return row.Rows{}, nil, err
		}
		rows.Changes = x.changeTypes(data)
	}
	arrays := make([]arrow.Array, len(p.sources))
	defer func() {
		for _, a := range arrays {
			if a != nil {
				a.Release()
			}
		}
	}()
	for i, s := range p.sources {
		c := p.columns[i]
		at := &place{name: c.Name}
		if s.lenient {
			at.exempt = rows.Changes
		}
		var data arrow.ArrayData
		if s.at >= 0 {
			data, err = s.cast.run(x, rec.Column(s.at).Data(), at)
		} else {
			data, err = x.absent(n, p.schema.Field(i).Type, s.missing, at)
		}
		if err != nil {
			return row.Rows{}, nil, fmt.Errorf("column %q: %w", c.Name, err)
		}
		if s.numbered {
			x.numbered(data, at)
		}
		arrays[i] = array.MakeFromData(data)
		data.Release()
	}
	if err := x.gaveUp(); err != nil {
		return row.Rows{}, nil, err
	}
	rows.Columns = p.columns
	rows.Record = array.NewRecordBatch(p.schema, arrays, int64(n))
	return rows, r, nil
}

// changeTypes reads the texts of _change_type, which are not NULL by then.
func (x *run) changeTypes(data arrow.ArrayData) []millrace.ChangeType {
	texts := array.NewStringData(data)
	defer texts.Release()
	out := make([]millrace.ChangeType, texts.Len())
	at := &place{name: millrace.ColChangeType}
	for i := range out {
		if texts.IsNull(i) {
			continue // reported as a NULL
		}
		c, err := millrace.ParseChangeType(texts.Value(i))
		if err != nil {
			x.fail(at, i, errs.InvalidValue, "%q: want one of +I, -U, +U, -D", clip(texts.Value(i)))
		}
		out[i] = c
	}
	return out
}

// absent is a column of NULL. With a code, absence is an error in rows that are not
// exempt.
func (x *run) absent(n int, typ arrow.DataType, code errs.Code, at *place) (arrow.ArrayData, error) {
	if code != "" {
		for i := range n {
			if !at.exempts(i) {
				x.fail(at, i, code, "the column is missing, and it is NOT NULL")
			}
		}
	}
	return x.nulls(n, typ)
}

// numbered reports the values of a column that takes none.
func (x *run) numbered(data arrow.ArrayData, at *place) {
	for i := range data.Len() {
		if !isNull(data, i) && !at.exempts(i) {
			x.fail(at, i, errs.InvalidValue, "the server numbers this column: leave it out, or send NULL")
		}
	}
}

// nulls is an array of n NULLs.
func (x *run) nulls(n int, typ arrow.DataType) (arrow.ArrayData, error) {
	if err := x.spend(int64(n) * nullSize(typ)); err != nil {
		return nil, err
	}
	arr := array.MakeArrayOfNull(memory.DefaultAllocator, typ, n)
	defer arr.Release()
	arr.Data().Retain()
	return arr.Data(), nil
}

// nullSize is about how many bytes a NULL takes.
func nullSize(typ arrow.DataType) int64 {
	switch t := typ.(type) {
	case *arrow.StructType:
		size := int64(1)
		for _, f := range t.Fields() {
			size += nullSize(f.Type)
		}
		return size
	case arrow.FixedWidthDataType:
		return int64(t.Bytes()) + 1
	}
	return 5
}
