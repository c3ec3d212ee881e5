package sql

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row"
)

// maxHeldBytes is the most that a query holds of rows to sort, or of groups (Q3).
const maxHeldBytes = 64 << 20

// appendSortKey appends the place of value i of a column: bytes that compare as the
// values do, NULL below every value, NaN above every number, and the other way round
// with desc. They hold their own end, so that keys of several columns can follow
// each other.
func appendSortKey(dst []byte, rec arrow.RecordBatch, col, i int, desc bool) []byte {
	from := len(dst)
	arr := rec.Column(col)
	if arr.IsNull(i) {
		dst = append(dst, 0)
	} else {
		dst = append(dst, 1)
		switch a := arr.(type) {
		case *array.Float32:
			dst = binary.BigEndian.AppendUint64(dst, floatKey(float64(a.Value(i))))
		case *array.Float64:
			dst = binary.BigEndian.AppendUint64(dst, floatKey(a.Value(i)))
		default:
			dst = row.AppendKey(dst, rec, []int{col}, i)
		}
	}
	if desc {
		for j := from; j < len(dst); j++ {
			dst[j] = ^dst[j]
		}
	}
	return dst
}

// floatKey is a number that orders floats: NaN is one value above all others, -0 is 0.
func floatKey(f float64) uint64 {
	switch {
	case math.IsNaN(f):
		return math.MaxUint64
	case f == 0:
		f = 0
	}
	b := math.Float64bits(f)
	if b>>63 == 1 {
		return ^b
	}
	return b | 1<<63
}

// sorter gathers rows and sorts them. With a limit it keeps no more than the first.
type sorter struct {
	by    []int // columns
	desc  []bool
	limit int64 // -1: none
	most  int64 // bytes that may be held

	recs  []arrow.RecordBatch // what rows refer to
	rows  []sortedRow
	keys  []byte // the arena of the rows' keys
	bytes int64  // of recs
	worst []byte // the key of the last row within the limit, once there are so many
}

type sortedRow struct {
	key [2]int // in keys
	rec int32
	row int32
}

// perRow is what a row takes in the sorter besides its record and its key.
const perRow = 24

func (s *sorter) release() {
	for _, r := range s.recs {
		r.Release()
	}
	s.recs = nil
}

func (s *sorter) size() int64 { return s.bytes + int64(len(s.keys)) + perRow*int64(len(s.rows)) }

// add takes the rows of a record.
func (s *sorter) add(rec arrow.RecordBatch) error {
	before := len(s.rows)
	for i := range int(rec.NumRows()) {
		from := len(s.keys)
		for j, col := range s.by {
			s.keys = appendSortKey(s.keys, rec, col, i, s.desc[j])
		}
		if s.worst != nil && bytes.Compare(s.keys[from:], s.worst) >= 0 {
			s.keys = s.keys[:from]
			continue
		}
		s.rows = append(s.rows, sortedRow{key: [2]int{from, len(s.keys)}, rec: int32(len(s.recs)), row: int32(i)})
	}
	if len(s.rows) == before {
		return nil
	}
	rec.Retain()
	s.recs = append(s.recs, rec)
	s.bytes += recordSize(rec)
	if s.limit >= 0 && int64(len(s.rows)) > s.limit && (s.size() > s.most/2 || int64(len(s.rows)) > 2*s.limit+heldRows) {
		if err := s.compact(); err != nil {
			return err
		}
	}
	if s.size() > s.most {
		return errs.New(errs.TooLarge, "the rows to sort take more than %d MiB; take fewer with WHERE or LIMIT, or leave ORDER BY out and sort what comes", s.most>>20)
	}
	return nil
}

// recordSize is the memory that a record stands on.
func recordSize(rec arrow.RecordBatch) int64 {
	n := int64(0)
	for _, c := range rec.Columns() {
		n += dataSize(c.Data())
	}
	return n
}

func dataSize(d arrow.ArrayData) int64 {
	n := int64(0)
	for _, b := range d.Buffers() {
		if b != nil {
			n += int64(b.Len())
		}
	}
	for _, child := range d.Children() {
		n += dataSize(child)
	}
	return n
}

// sort puts the rows in order, of which only those within the limit stay. Rows of
// equal keys keep the order in which they came.
func (s *sorter) sort() {
	slices.SortStableFunc(s.rows, func(a, b sortedRow) int {
		return bytes.Compare(s.keys[a.key[0]:a.key[1]], s.keys[b.key[0]:b.key[1]])
	})
	if s.limit >= 0 && int64(len(s.rows)) > s.limit {
		s.rows = s.rows[:s.limit]
	}
}

// compact makes one record of the rows within the limit and lets the others go.
func (s *sorter) compact() error {
	rec, err := s.record()
	if err != nil {
		return err
	}
	keys := make([]byte, 0, len(s.keys))
	for i, r := range s.rows {
		from := len(keys)
		keys = append(keys, s.keys[r.key[0]:r.key[1]]...)
		s.rows[i] = sortedRow{key: [2]int{from, len(keys)}, row: int32(i)}
	}
	s.worst = nil
	if len(s.rows) > 0 {
		last := s.rows[len(s.rows)-1].key
		s.worst = keys[last[0]:last[1]:last[1]]
	}
	s.release()
	s.keys, s.recs, s.bytes = keys, []arrow.RecordBatch{rec}, recordSize(rec)
	return nil
}

// record is the sorted rows, as one record. REQUIRES: a record was added.
func (s *sorter) record() (arrow.RecordBatch, error) {
	s.sort()
	mem := memory.DefaultAllocator
	// The rows of each record, and where in all of them together each sorted row is.
	byRec := make([][]int32, len(s.recs))
	for _, r := range s.rows {
		byRec[r.rec] = append(byRec[r.rec], r.row)
	}
	starts := make([]int32, len(s.recs))
	total := int32(0)
	var parts []arrow.RecordBatch
	defer func() {
		for _, p := range parts {
			p.Release()
		}
	}()
	for i, idx := range byRec {
		starts[i] = total
		total += int32(len(idx))
		if len(idx) > 0 {
			parts = append(parts, row.Take(mem, s.recs[i], idx))
		}
	}
	if len(parts) == 0 {
		return s.recs[0].NewSlice(0, 0), nil
	}
	all, err := concatenate(parts)
	if err != nil {
		return nil, err
	}
	defer all.Release()
	perm := make([]int32, len(s.rows))
	for i, r := range s.rows {
		perm[i] = starts[r.rec]
		starts[r.rec]++
	}
	return row.Take(mem, all, perm), nil
}

// concatenate makes one record of several of the same columns.
func concatenate(parts []arrow.RecordBatch) (arrow.RecordBatch, error) {
	if len(parts) == 1 {
		parts[0].Retain()
		return parts[0], nil
	}
	cols := make([]arrow.Array, parts[0].NumCols())
	defer func() {
		for _, c := range cols {
			if c != nil {
				c.Release()
			}
		}
	}()
	n := int64(0)
	for _, p := range parts {
		n += p.NumRows()
	}
	for i := range cols {
		of := make([]arrow.Array, len(parts))
		for j, p := range parts {
			of[j] = p.Column(i)
		}
		var err error
		if cols[i], err = array.Concatenate(of, memory.DefaultAllocator); err != nil {
			return nil, errs.Wrap(errs.Internal, "sql.concatenate", err)
		}
	}
	return array.NewRecordBatch(parts[0].Schema(), cols, n), nil
}

// sortRows reads all of in, whose columns are cols, and gives its rows sorted.
func (c *call) sortRows(ctx context.Context, in batches, cols []millrace.Column, order []sorting, limit int64) (batches, error) {
	s := &sorter{limit: limit, most: c.most}
	defer s.release()
	for _, o := range order {
		s.by = append(s.by, slices.IndexFunc(cols, func(c millrace.Column) bool { return c.ID == o.column.ID }))
		s.desc = append(s.desc, o.desc)
	}
	cost, err := each(ctx, in, s.add)
	if err != nil {
		return nil, err
	}
	if len(s.recs) == 0 {
		return &held{cost: cost}, nil
	}
	rec, err := s.record()
	if err != nil {
		return nil, err
	}
	return &held{rec: rec, cost: cost}, nil
}
