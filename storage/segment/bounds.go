package segment

import (
	"bytes"
	"cmp"
	"encoding/binary"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/filter"
)

// maxBoundBytes is where string bounds are cut.
const maxBoundBytes = 32

// columnStats computes the statistics of a scalar column; false for nested ones.
// Bytes of the bounds may lie in the column.
func columnStats(kind millrace.Kind, data arrow.ArrayData) (filter.Stats, bool) {
	n := data.Len()
	s := filter.Stats{Rows: int64(n), Nulls: int64(nullCount(data, data.Offset(), n))}
	if kind == millrace.Array || kind == millrace.Map || kind == millrace.Row {
		return s, false
	}
	if s.Nulls == s.Rows {
		return s, true
	}
	var validity []byte
	if s.Nulls > 0 {
		validity = data.Buffers()[0].Bytes()
	}
	v := window{validity: validity, start: data.Offset(), n: n}
	if stringKind(kind) {
		stringBounds(&s, data, v)
		return s, true
	}
	b := data.Buffers()[1].Bytes()
	switch kind {
	case millrace.Boolean:
		boolBounds(&s, b, v)
	case millrace.TinyInt:
		intBounds(&s, arrow.Int8Traits.CastFromBytes(b), v)
	case millrace.SmallInt:
		intBounds(&s, arrow.Int16Traits.CastFromBytes(b), v)
	case millrace.Float:
		floatBounds(&s, arrow.Float32Traits.CastFromBytes(b), v)
	case millrace.Double:
		floatBounds(&s, arrow.Float64Traits.CastFromBytes(b), v)
	case millrace.Decimal:
		decimalBounds(&s, arrow.Decimal128Traits.CastFromBytes(b), v)
	default:
		// INT, BIGINT, dates and times: by the width of their Arrow type.
		if data.DataType().(arrow.FixedWidthDataType).Bytes() == 4 {
			intBounds(&s, arrow.Int32Traits.CastFromBytes(b), v)
		} else {
			intBounds(&s, arrow.Int64Traits.CastFromBytes(b), v)
		}
	}
	return s, true
}

// window is n positions from start, of which validity says which hold values;
// nil: all do.
type window struct {
	validity []byte
	start, n int
}

// runs calls fn for each stretch [i, j) of absolute positions that hold values.
func (w window) runs(fn func(i, j int)) {
	end := w.start + w.n
	if w.validity == nil {
		fn(w.start, end)
		return
	}
	for i := w.start; i < end; {
		if i%8 == 0 && i+8 <= end && w.validity[i/8] == 0 {
			i += 8
			continue
		}
		if !bitutil.BitIsSet(w.validity, i) {
			i++
			continue
		}
		j := i + 1
		for j < end {
			if j%8 == 0 && j+8 <= end && w.validity[j/8] == 0xff {
				j += 8
			} else if bitutil.BitIsSet(w.validity, j) {
				j++
			} else {
				break
			}
		}
		fn(i, j)
		i = j
	}
}

func boolBounds(s *filter.Stats, b []byte, w window) {
	trues, all := 0, 0
	w.runs(func(i, j int) {
		trues += bitutil.CountSetBits(b, i, j-i)
		all += j - i
	})
	s.HasMin, s.HasMax = true, true
	if trues > 0 {
		s.Max.Int = 1
	}
	if trues == all {
		s.Min.Int = 1
	}
}

func intBounds[T int8 | int16 | int32 | int64](s *filter.Stats, values []T, w window) {
	var lo, hi T
	seen := false
	w.runs(func(i, j int) {
		run := values[i:j]
		if !seen {
			lo, hi, seen = run[0], run[0], true
		}
		a, b := lo, hi // registers, unlike what a closure holds
		for _, v := range run {
			a, b = min(a, v), max(b, v)
		}
		lo, hi = a, b
	})
	s.HasMin, s.HasMax = seen, seen
	s.Min.Int, s.Max.Int = int64(lo), int64(hi)
}

func floatBounds[T float32 | float64](s *filter.Stats, values []T, w window) {
	var lo, hi T
	seen := false
	w.runs(func(i, j int) {
		a, b := lo, hi
		for _, v := range values[i:j] {
			switch {
			case v != v:
				s.NaNs++
			case !seen:
				a, b, seen = v, v, true
			case v < a:
				a = v
			case v > b:
				b = v
			}
		}
		lo, hi = a, b
	})
	s.HasMin, s.HasMax = seen, seen
	s.Min.Float, s.Max.Float = float64(lo), float64(hi)
}

func decimalBounds(s *filter.Stats, values []decimal128.Num, w window) {
	w.runs(func(i, j int) {
		for _, v := range values[i:j] {
			if !s.HasMin {
				s.Min.Dec, s.Max.Dec, s.HasMin, s.HasMax = v, v, true, true
			} else if v.Cmp(s.Min.Dec) < 0 {
				s.Min.Dec = v
			} else if v.Cmp(s.Max.Dec) > 0 {
				s.Max.Dec = v
			}
		}
	})
}

// stringBounds compares the first eight bytes as a number and looks at the rest
// only when they are equal.
func stringBounds(s *filter.Stats, data arrow.ArrayData, w window) {
	var at []int32
	var b []byte
	width := 0
	if f, ok := data.DataType().(*arrow.FixedSizeBinaryType); ok {
		width, b = f.ByteWidth, data.Buffers()[1].Bytes()
	} else {
		at = arrow.Int32Traits.CastFromBytes(data.Buffers()[1].Bytes())
		if data.Buffers()[2] != nil {
			b = data.Buffers()[2].Bytes()
		}
	}
	var least, most bytesBound
	seen := false
	w.runs(func(i, j int) {
		lo, hi := least, most // registers, unlike what a closure holds
		for ; i < j; i++ {
			from, to := i*width, (i+1)*width
			if at != nil {
				from, to = int(at[i]), int(at[i+1])
			}
			head := headOf(b, from, to)
			if !seen {
				lo = bytesBound{head, b[from:to]}
				hi, seen = lo, true
				continue
			}
			if head <= lo.head && lo.compare(head, b[from:to]) < 0 {
				lo = bytesBound{head, b[from:to]}
			}
			if head >= hi.head && hi.compare(head, b[from:to]) > 0 {
				hi = bytesBound{head, b[from:to]}
			}
		}
		least, most = lo, hi
	})
	s.HasMin = seen
	s.Min.Bytes = least.value[:min(len(least.value), maxBoundBytes)]
	s.Max.Bytes, s.HasMax = raise(most.value)
	s.HasMax = s.HasMax && seen
}

// bytesBound is the least or greatest value so far.
type bytesBound struct {
	head  uint64
	value []byte
}

// compare says how a value compares with the bound.
func (b *bytesBound) compare(head uint64, value []byte) int {
	switch {
	case head != b.head:
		return cmp.Compare(head, b.head)
	case len(value) <= 8 && len(b.value) <= 8:
		// Equal but for zero bytes at the end of one of them.
		return len(value) - len(b.value)
	}
	return bytes.Compare(value, b.value)
}

// headOf is the first eight bytes of b[from:to] as a number that orders as the
// bytes do; a shorter value is filled up with zeros.
func headOf(b []byte, from, to int) uint64 {
	if n := to - from; len(b)-from >= 8 {
		head := binary.BigEndian.Uint64(b[from:])
		if n < 8 {
			head &^= 1<<(64-8*n) - 1 // what follows the value
		}
		return head
	}
	var v [8]byte
	copy(v[:], b[from:to])
	return binary.BigEndian.Uint64(v[:])
}

// raise cuts an upper bound; what was cut makes it too low, so the last byte
// that can be is raised. False when all are 0xff.
func raise(v []byte) ([]byte, bool) {
	if len(v) <= maxBoundBytes {
		return v, true
	}
	out := bytes.Clone(v[:maxBoundBytes])
	for i := len(out) - 1; i >= 0; i-- {
		if out[i] != 0xff {
			out[i]++
			return out[:i+1], true
		}
	}
	return nil, false
}
