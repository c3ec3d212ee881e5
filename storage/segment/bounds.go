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
	value := stringAt(data)
	var lo, hi []byte
	var loHead, hiHead uint64
	seen := false
	w.runs(func(i, j int) {
		for ; i < j; i++ {
			v := value(i)
			head := headOf(v)
			if !seen {
				lo, hi, loHead, hiHead, seen = v, v, head, head, true
				continue
			}
			if c := cmp.Compare(head, loHead); c < 0 || c == 0 && bytes.Compare(v, lo) < 0 {
				lo, loHead = v, head
			} else if c := cmp.Compare(head, hiHead); c > 0 || c == 0 && bytes.Compare(v, hi) > 0 {
				hi, hiHead = v, head
			}
		}
	})
	s.HasMin = seen
	s.Min.Bytes = lo[:min(len(lo), maxBoundBytes)]
	s.Max.Bytes, s.HasMax = raise(hi)
	s.HasMax = s.HasMax && seen
}

// stringAt returns the value at an absolute position.
func stringAt(data arrow.ArrayData) func(i int) []byte {
	if f, ok := data.DataType().(*arrow.FixedSizeBinaryType); ok {
		b, width := data.Buffers()[1].Bytes(), f.ByteWidth
		return func(i int) []byte { return b[i*width : (i+1)*width] }
	}
	offsets := arrow.Int32Traits.CastFromBytes(data.Buffers()[1].Bytes())
	var b []byte
	if data.Buffers()[2] != nil {
		b = data.Buffers()[2].Bytes()
	}
	return func(i int) []byte { return b[offsets[i]:offsets[i+1]] }
}

// headOf is the first eight bytes as a number that orders as the bytes do;
// shorter values are filled up with zeros, so equal heads decide nothing.
func headOf(v []byte) uint64 {
	if len(v) >= 8 {
		return binary.BigEndian.Uint64(v)
	}
	var b [8]byte
	copy(b[:], v)
	return binary.BigEndian.Uint64(b[:])
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
