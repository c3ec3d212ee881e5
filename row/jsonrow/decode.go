package jsonrow

import (
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row"
)

const (
	// MaxRowBytes is the longest text of a row.
	MaxRowBytes = 1 << 20
	// MaxChunkBytes is the most that the rows of one decoder take in columns.
	MaxChunkBytes = 64 << 20
	// maxPlaceholders is the most that the NULLs within one row take in columns:
	// an array of empty objects could else be ten thousand times its text.
	maxPlaceholders = 16 << 20
)

// Options say what rows must and may hold besides valid values.
type Options struct {
	// Key names the key columns. A row without one is missing_key.
	Key []string
	// Required names further columns that each row must give, nullable ones too: a
	// partial write gives exactly its columns. Otherwise an absent column is NULL
	// if it may be, else missing_column.
	Required []string
	// KeyOnly lets columns outside Key be absent or NULL even where they are NOT
	// NULL: for deletes and for lookups.
	KeyOnly bool
	// AllowChangeType takes the field _change_type. Of a row that deletes (-D, or -U,
	// which is ignored by those who apply it) only the key must be there, as with
	// KeyOnly.
	AllowChangeType bool
}

// Decoder collects JSON objects into rows. One decoder serves one stream.
type Decoder struct {
	cols    []millrace.Column
	schema  *arrow.Schema
	row     *column // the row as if it were a ROW; its n counts the rows
	absent  []absence
	options Options
	// numbered is the auto-increment column, or -1.
	numbered int

	changes  []millrace.ChangeType
	changed  bool // some row of this chunk gave _change_type
	estimate int  // upper bound of the bytes held
	perRow   int  // bytes of a row that does not depend on its text
	// The bytes held, and the estimate of them, when they were measured last.
	measured, measuredAt int

	// The object being read.
	buf       []byte
	pos       int
	scratch   []byte // unescaped text
	change    millrace.ChangeType
	hasChange bool
	nullAt    int      // first lenient column that is NULL, or -1
	missing   *absence // why nullAt is an error, when its field was absent
	spent     int      // bytes of placeholders
	fault     fault
	keys      keySet

	// givenIn is, by column, the last generation of fields in which the column came
	// with AddKeyed and may stand in the object once more.
	givenIn []uint64
}

// absence is what it means that an object lacks a column.
type absence struct {
	code    errs.Code // "" = NULL
	why     string
	lenient bool // of no matter in a row that deletes
}

const whyMissing = "the field is missing, and it is NOT NULL"

// NewDecoder returns a decoder of the given columns: all columns of whole rows,
// the named ones of partial rows, or the key columns. Their order is that of the
// rows' columns; callers give schema order.
func NewDecoder(cols []millrace.Column, opts Options) *Decoder {
	root := newColumn(millrace.Column{Type: millrace.DataType{Kind: millrace.Row, Children: cols}})
	d := &Decoder{
		cols: cols, schema: row.ArrowSchema(cols), row: root, options: opts,
		absent: make([]absence, len(cols)), givenIn: make([]uint64, len(cols)), perRow: root.nullSize, nullAt: -1,
		numbered: slices.IndexFunc(cols, func(c millrace.Column) bool { return c.AutoIncrement }),
	}
	for i, c := range cols {
		key := slices.Contains(opts.Key, c.Name)
		col := root.children[i]
		col.nullable = !key && (c.Nullable || c.AutoIncrement) // NULL asks for the next number
		col.lenient = !key && (opts.KeyOnly || opts.AllowChangeType)
		d.absent[i].lenient = col.lenient
		switch {
		case key:
			d.absent[i].code, d.absent[i].why = errs.MissingKey, "the key column is missing"
		case slices.Contains(opts.Required, c.Name):
			d.absent[i].code, d.absent[i].why = errs.MissingColumn, "the column is missing; each row gives the columns that the request names"
		case !col.nullable && !opts.KeyOnly:
			d.absent[i].code, d.absent[i].why = errs.MissingColumn, whyMissing
		}
	}
	return d
}

// Len is the number of rows held.
func (d *Decoder) Len() int { return d.row.n }

// Full says that the rows take MaxChunkBytes; the next object is refused. Those
// who stream call Finish then. It depends on the rows alone, so the same rows
// are always cut alike.
func (d *Decoder) Full() bool {
	if d.estimate < MaxChunkBytes {
		return false
	}
	d.estimate = d.row.size() // exact, now that it matters
	return d.estimate >= MaxChunkBytes
}

// measureEvery is by how much the bytes held may have grown before they are measured again.
const measureEvery = 64 << 10

// Bytes is what the rows held take in columns; at most measureEvery of it may be missing.
func (d *Decoder) Bytes() int {
	if d.estimate < d.measuredAt || d.estimate-d.measuredAt >= measureEvery {
		d.measured, d.measuredAt = d.row.size(), d.estimate
	}
	return d.measured
}

// AddObject adds the row that raw, one JSON object, describes; white space may
// surround it. index is the row's number in the request, for errors. raw is not
// kept.
func (d *Decoder) AddObject(raw []byte, index int64) error {
	if len(raw) > MaxRowBytes {
		return errs.Row(errs.TooLarge, index, "", "the row has %d bytes of JSON; at most %d are allowed", len(raw), MaxRowBytes)
	}
	if err := d.begin(raw, index); err != nil {
		return err
	}
	d.row.fields.gen++
	return d.commit(d.whole() && d.judge(), len(raw), index)
}

// whole reads the object that is all of the text.
func (d *Decoder) whole() bool {
	if d.pos = skipSpace(d.buf, 0); d.pos >= len(d.buf) || d.buf[d.pos] != '{' {
		return d.notObject()
	}
	if !d.object(d.row, true) {
		return false
	}
	if d.pos = skipSpace(d.buf, d.pos); d.pos < len(d.buf) {
		return d.syntax("there is more text after the object")
	}
	return true
}

// notObject tells a value of another type from no value at all.
func (d *Decoder) notObject() bool {
	if d.pos >= len(d.buf) {
		return d.syntax("the text is empty")
	}
	b := d.buf[d.pos]
	if _, word := d.literal(); !word && b != '"' && b != '[' && scanNumber(d.buf, d.pos) < 0 {
		return d.syntax("want an object")
	}
	d.pos = skipSpace(d.buf, 0)
	d.fault.start, d.fault.end = d.pos, d.skip(d.pos)
	return d.fail(errs.TypeMismatch, "want an object, a field for each column")
}

func (d *Decoder) begin(raw []byte, index int64) error {
	if d.row.n == 0 {
		d.row.reserve()
	} else if d.Full() {
		return errs.Row(errs.TooLarge, index, "", "the rows take more than %d MiB once decoded; send fewer at a time", MaxChunkBytes>>20)
	}
	d.buf, d.pos = raw, 0
	d.change, d.hasChange, d.nullAt, d.missing, d.spent = 0, false, -1, nil, 0
	d.scratch = d.scratch[:0]
	return nil
}

// whyNumbered is the fault of a row that gives the auto-increment column a value.
const whyNumbered = "the server numbers this column: leave it out, or send null"

// judge decides about what only matters in rows that are not deletes.
func (d *Decoder) judge() bool {
	if d.options.KeyOnly || d.change == millrace.Delete || d.change == millrace.UpdateBefore {
		return true
	}
	if d.numbered >= 0 && !d.row.children[d.numbered].lastNull() {
		d.fault.start, d.fault.end = 0, 0
		return d.failUnder(d.row.children[d.numbered].name, errs.InvalidValue, whyNumbered)
	}
	if d.nullAt < 0 {
		return true
	}
	c := d.row.children[d.nullAt]
	if d.missing != nil {
		return d.failAbsent(c, d.missing)
	}
	d.fault.start, d.fault.end = 0, 0
	return d.failUnder(c.name, errs.NullNotAllowed, "NULL in a column that is NOT NULL")
}

// commit keeps the row or takes it back.
func (d *Decoder) commit(ok bool, textBytes int, index int64) error {
	defer func() { d.buf = nil }()
	if !ok {
		for _, c := range d.row.children {
			c.truncate(d.row.n)
		}
		return d.takeFault(index)
	}
	if d.hasChange && !d.changed {
		d.changed = true
		d.changes = make([]millrace.ChangeType, d.row.n, d.row.n+64) // Insert for those before
	}
	if d.changed {
		d.changes = append(d.changes, d.change)
	}
	d.row.n++
	// No byte of text becomes more than four bytes of values, as 1, becomes a BIGINT.
	d.estimate += d.perRow + 4*textBytes + d.spent
	return nil
}

// Finish returns the rows, which the caller then owns, and starts again.
func (d *Decoder) Finish() row.Rows {
	n := d.row.n
	arrays := make([]arrow.Array, len(d.cols))
	for i, c := range d.row.children {
		data := c.finish()
		arrays[i] = array.MakeFromData(data)
		data.Release()
	}
	rec := array.NewRecordBatch(d.schema, arrays, int64(n))
	for _, a := range arrays {
		a.Release()
	}
	rows := row.Rows{Record: rec, Columns: d.cols, Changes: d.changes}
	d.row.n, d.changes, d.changed, d.estimate, d.measured, d.measuredAt = 0, nil, false, 0, 0, 0
	return rows
}
