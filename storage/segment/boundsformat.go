package segment

import (
	"math"

	"github.com/apache/arrow-go/v18/arrow/decimal128"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/filter"
)

// stats reads the statistics that follow the buffers.
func (e *entry) stats(meta []byte) (filter.Stats, bool) {
	if e.bounds&boundStats == 0 {
		return filter.Stats{}, false
	}
	length, nulls := e.node(meta, 0)
	s := filter.Stats{Rows: int64(length), Nulls: int64(nulls), HasMin: e.bounds&boundMin != 0, HasMax: e.bounds&boundMax != 0}
	b := meta[e.detail+8*e.nodes+4*e.buffers:]
	ok := true
	if e.kind == millrace.Float || e.kind == millrace.Double {
		if ok = len(b) >= 4; ok {
			s.NaNs, b = int64(le.Uint32(b)), b[4:]
		}
	}
	if ok && s.HasMin {
		s.Min, b, ok = readBound(b, e.kind)
	}
	if ok && s.HasMax {
		s.Max, _, ok = readBound(b, e.kind)
	}
	return s, ok
}

// A bound is as wide as its kind: integers and times 1 to 8 bytes, DECIMAL 16,
// strings one byte of length and up to 32 bytes.
func boundWidth(k millrace.Kind) int {
	switch k {
	case millrace.Boolean, millrace.TinyInt:
		return 1
	case millrace.SmallInt:
		return 2
	case millrace.Int, millrace.Date, millrace.Float:
		return 4
	case millrace.Decimal:
		return 16
	default:
		return 8
	}
}

func stringKind(k millrace.Kind) bool {
	return k == millrace.Char || k == millrace.String || k == millrace.Binary || k == millrace.Bytes
}

func appendBound(dst []byte, k millrace.Kind, v *filter.Bound) []byte {
	switch {
	case stringKind(k):
		return append(append(dst, byte(len(v.Bytes))), v.Bytes...)
	case k == millrace.Decimal:
		return le.AppendUint64(le.AppendUint64(dst, v.Dec.LowBits()), uint64(v.Dec.HighBits()))
	case k == millrace.Float:
		return le.AppendUint32(dst, math.Float32bits(float32(v.Float)))
	case k == millrace.Double:
		return le.AppendUint64(dst, math.Float64bits(v.Float))
	}
	var b [8]byte
	le.PutUint64(b[:], uint64(v.Int))
	return append(dst, b[:boundWidth(k)]...)
}

func readBound(b []byte, k millrace.Kind) (v filter.Bound, rest []byte, ok bool) {
	if stringKind(k) {
		if len(b) < 1 || len(b) < 1+int(b[0]) {
			return v, nil, false
		}
		n := 1 + int(b[0])
		v.Bytes = b[1:n:n]
		return v, b[n:], true
	}
	w := boundWidth(k)
	if len(b) < w {
		return v, nil, false
	}
	switch k {
	case millrace.Decimal:
		v.Dec = decimal128.New(int64(le.Uint64(b[8:])), le.Uint64(b))
	case millrace.Float:
		v.Float = float64(math.Float32frombits(le.Uint32(b)))
	case millrace.Double:
		v.Float = math.Float64frombits(le.Uint64(b))
	default:
		switch w {
		case 1:
			v.Int = int64(int8(b[0]))
		case 2:
			v.Int = int64(int16(le.Uint16(b)))
		case 4:
			v.Int = int64(int32(le.Uint32(b)))
		default:
			v.Int = int64(le.Uint64(b))
		}
	}
	return v, b[w:], true
}
