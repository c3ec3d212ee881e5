package arrowrow

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/bitutil"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row"
)

// report collects the rows of a batch that are at fault.
type report struct {
	base   int64 // number of the batch's first row
	rows   int
	bad    []bool // by row; nil while there are none
	count  int64  // of bad rows
	faults []errs.FieldError
}

// maxFaults bounds the faults that are written out; more are only counted. They are
// found column by column, so it takes more than are listed to list those of the
// first rows.
const maxFaults = 10 * errs.MaxFieldErrors

func (r *report) add(i int, what func() errs.FieldError) {
	// One fault a row will do.
	if r.mark(i) && len(r.faults) < maxFaults {
		index := r.base + int64(i)
		f := what()
		f.Index = &index
		r.faults = append(r.faults, f)
	}
}

// mark puts row i among those at fault; first says that it was not.
func (r *report) mark(i int) (first bool) {
	if r.bad == nil {
		r.bad = make([]bool, r.rows)
	}
	if first = !r.bad[i]; first {
		r.bad[i] = true
		r.count++
	}
	return first
}

func (r *report) sorted() []errs.FieldError {
	slices.SortStableFunc(r.faults, func(a, b errs.FieldError) int { return cmp.Compare(*a.Index, *b.Index) })
	return r.faults
}

// keep is rows without those at fault.
func (r *report) keep(rows row.Rows) row.Rows {
	good := make([]int32, 0, r.rows-int(r.count))
	for i := range r.rows {
		if !r.bad[i] {
			good = append(good, int32(i))
		}
	}
	return rows.Keep(good, r.base)
}

// place is an array within a batch: a column, or something nested in one. It leads
// from a value back to its row, which is needed only when something is wrong.
type place struct {
	parent *place
	name   string          // of a column or field; "" for the elements of a list
	array  arrow.ArrayData // of the parent: a value below its NULL is of no matter
	// offsets leads from elements to lists; nil where parent and child go in step.
	offsets []int32
	// exempt are the change types for a column that matters only in some rows.
	exempt []millrace.ChangeType
	// catch, when set, takes what is wrong instead of the parent.
	catch *catch
}

// exempts says whether row i of a column may hold NULL because it deletes.
func (p *place) exempts(i int) bool {
	return p.exempt != nil && (p.exempt[i] == millrace.Delete || p.exempt[i] == millrace.UpdateBefore)
}

// row is the row that value i belongs to; ok is false when the value belongs to
// none, such as the values below a NULL. Where there is a catch above, the row is
// the number of a value there.
func (p *place) row(i int) (row int, c *catch, ok bool) {
	for ; p.parent != nil; p = p.parent {
		if p.offsets != nil {
			if i = p.list(i); i < 0 {
				return 0, nil, false
			}
		}
		if isNull(p.array, i) {
			return 0, nil, false
		}
	}
	return i, p.catch, true
}

// list is the list that element i belongs to, or -1: the last that begins at or
// before it, as empty ones end there too.
func (p *place) list(i int) int {
	at := sort.Search(len(p.offsets), func(j int) bool { return int(p.offsets[j]) > i }) - 1
	if at >= len(p.offsets)-1 {
		return -1
	}
	return at
}

// path is the path to value i. REQUIRES: row says that it belongs to a row.
func (p *place) path(i int) string {
	switch {
	case p.parent == nil:
		return p.name
	case p.offsets == nil:
		return p.parent.path(i) + "." + p.name
	}
	at := p.list(i)
	return p.parent.path(at) + "[" + strconv.Itoa(i-int(p.offsets[at])) + "]"
}

// field is the place of a struct's field.
func (p *place) field(name string, parent arrow.ArrayData) *place {
	return &place{parent: p, name: name, array: parent}
}

// elements is the place of the elements of lists.
func (p *place) elements(offsets []int32, parent arrow.ArrayData) *place {
	return &place{parent: p, array: parent, offsets: offsets}
}

// catch holds the faults of an array whose values belong to lists in no order: the
// values at fault, and what is wrong with the first of them.
type catch struct {
	bad    []bool
	any    bool
	faults map[int]errs.FieldError
}

// run is the work on one batch.
type run struct {
	budget int // bytes that casts may still take
	calls  int // nested values at fault
	report *report
}

// maxCalls is how many nested values at fault are looked at in one batch: finding the
// row of each costs more than casting it.
const maxCalls = 1 << 20

// spend takes n bytes from the budget.
func (x *run) spend(n int64) error {
	if n > int64(x.budget) {
		return errs.New(errs.TooLarge, "the batch takes too much memory once it has the table's types; send fewer rows at a time")
	}
	x.budget -= int(n)
	return nil
}

// bytes are n bytes of the budget.
func (x *run) bytes(n int) ([]byte, error) {
	if err := x.spend(int64(n)); err != nil {
		return nil, err
	}
	return make([]byte, n), nil
}

// counted says that a fault was counted and need not be described, as those of a
// column full of them need not once there are enough: that costs more than a cast.
func (x *run) counted(p *place, i int) bool {
	if p.parent != nil || p.catch != nil || len(x.report.faults) < maxFaults {
		return false
	}
	x.report.mark(i)
	return true
}

// fail reports value i at a place, unless it belongs to no row or one that is at
// fault already.
func (x *run) fail(p *place, i int, code errs.Code, format string, args ...any) {
	x.failBelow(p, i, "", func() errs.FieldError { return errs.FieldError{Code: code, Message: fmt.Sprintf(format, args...)} })
}

// failBelow is fail about something below value i, by a path that goes on from its.
func (x *run) failBelow(p *place, i int, path string, what func() errs.FieldError) {
	if p.parent != nil {
		if x.calls++; x.calls > maxCalls {
			return
		}
	}
	row, c, ok := p.row(i)
	if !ok {
		return
	}
	full := func() errs.FieldError {
		f := what()
		f.Field = p.path(i) + path + f.Field
		return f
	}
	if c == nil {
		x.report.add(row, full)
		return
	}
	if !c.bad[row] && len(c.faults) < maxFaults {
		c.faults[row] = full()
	}
	c.bad[row], c.any = true, true
}

// gaveUp is the error of a batch with more values at fault than are looked at.
func (x *run) gaveUp() error {
	if x.calls <= maxCalls {
		return nil
	}
	if f := x.report.sorted(); len(f) > 0 {
		return faultError(f, x.report.count, "row")
	}
	return errs.New(errs.InvalidValue, "more than %d nested values of the batch are at fault", maxCalls)
}

func isNull(data arrow.ArrayData, i int) bool {
	if data.NullN() == 0 || len(data.Buffers()) == 0 || data.Buffers()[0] == nil {
		return data.NullN() > 0 && data.DataType().ID() == arrow.NULL
	}
	return !bitutil.BitIsSet(data.Buffers()[0].Bytes(), data.Offset()+i)
}
