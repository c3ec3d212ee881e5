package sql

import (
	"math"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/row"
)

// grouper numbers the combinations of values of some columns in the order in which
// they come. Each column has a dictionary of its values, by number; then pairs of
// numbers are numbered, column after column. So no value is boxed and no key built.
type grouper struct {
	dicts []dictionary
	pairs []map[uint64]uint32 // of the columns up to i+1: number of those before <<32 | number of the value

	members [][]uint32 // by column: the number of its value in each group
	numbers []uint32   // of the rows at hand: of the columns so far
	of      [][]uint32 // of the rows at hand: of each column
}

// What an entry takes, about: in a map and beside it.
const (
	bytesPerPair  = 40
	bytesPerValue = 56
)

func newGrouper(cols []millrace.Column) *grouper {
	g := &grouper{members: make([][]uint32, len(cols)), of: make([][]uint32, len(cols))}
	for i, c := range cols {
		g.dicts = append(g.dicts, newDictionary(c.Type))
		if i > 0 {
			g.pairs = append(g.pairs, map[uint64]uint32{})
		}
	}
	return g
}

// groups is how many there are.
func (g *grouper) groups() int { return len(g.members[0]) }

func (g *grouper) size() int64 {
	n := int64(4 * len(g.members) * g.groups())
	for _, d := range g.dicts {
		n += d.size()
	}
	for _, p := range g.pairs {
		n += bytesPerPair * int64(len(p))
	}
	return n
}

// number gives the group of each row; cols are the arrays of the columns. The
// answer is good until the next call.
func (g *grouper) number(cols []arrow.Array) []uint32 {
	for i, d := range g.dicts {
		g.of[i] = d.number(cols[i], g.of[i][:0])
	}
	numbers := append(g.numbers[:0], g.of[0]...)
	for i, pairs := range g.pairs {
		for r, v := range g.of[i+1] {
			pair := uint64(numbers[r])<<32 | uint64(v)
			n, ok := pairs[pair]
			if !ok {
				n = uint32(len(pairs))
				pairs[pair] = n
			}
			numbers[r] = n
		}
	}
	have := uint32(g.groups())
	for r, n := range numbers {
		if n == have { // groups are numbered in the order in which they come
			for i := range g.members {
				g.members[i] = append(g.members[i], g.of[i][r])
			}
			have++
		}
	}
	g.numbers = numbers
	return numbers
}

// column is the value of column i in each group. It is asked for once.
func (g *grouper) column(i int) arrow.Array {
	values := g.dicts[i].array()
	defer values.Release()
	rec := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Type: values.DataType(), Nullable: true}}, nil), []arrow.Array{values}, int64(values.Len()))
	defer rec.Release()
	idx := make([]int32, len(g.members[i]))
	for j, m := range g.members[i] {
		idx[j] = int32(m)
	}
	taken := row.Take(memory.DefaultAllocator, rec, idx)
	defer taken.Release()
	out := taken.Column(0)
	out.Retain()
	return out
}

// dictionary numbers the values of a column, NULL among them.
type dictionary interface {
	number(arr arrow.Array, dst []uint32) []uint32
	array() arrow.Array // the values by number
	size() int64
}

func newDictionary(t millrace.DataType) dictionary {
	d := dictionaryBase{values: array.NewBuilder(memory.DefaultAllocator, row.ArrowType(t)), null: noNumber}
	switch t.Kind {
	case millrace.Decimal:
		return &decimalValues{dictionaryBase: d, numbers: map[decimal128.Num]uint32{}}
	case millrace.Char, millrace.String, millrace.Bytes, millrace.Binary:
		return &textValues{dictionaryBase: d, numbers: map[string]uint32{}}
	default:
		return &wordValues{dictionaryBase: d, numbers: map[int64]uint32{}}
	}
}

const noNumber = math.MaxUint32

type dictionaryBase struct {
	values array.Builder
	null   uint32 // the number of NULL
	bytes  int64
}

func (d *dictionaryBase) size() int64 { return d.bytes }

func (d *dictionaryBase) array() arrow.Array {
	defer d.values.Release()
	return d.values.NewArray()
}

func (d *dictionaryBase) nullNumber() uint32 {
	if d.null == noNumber {
		d.null = uint32(d.values.Len())
		d.values.AppendNull()
	}
	return d.null
}

// wordValues numbers what fits into 64 bits.
type wordValues struct {
	dictionaryBase
	numbers map[int64]uint32
}

func (w *wordValues) number(arr arrow.Array, dst []uint32) []uint32 {
	switch a := arr.(type) {
	case *array.Int64:
		return wordNumbers(w, a, a.Values(), dst, w.values.(*array.Int64Builder).Append)
	case *array.Int32:
		return wordNumbers(w, a, a.Values(), dst, w.values.(*array.Int32Builder).Append)
	case *array.Int16:
		return wordNumbers(w, a, a.Values(), dst, w.values.(*array.Int16Builder).Append)
	case *array.Int8:
		return wordNumbers(w, a, a.Values(), dst, w.values.(*array.Int8Builder).Append)
	case *array.Date32:
		return wordNumbers(w, a, a.Values(), dst, w.values.(*array.Date32Builder).Append)
	case *array.Time32:
		return wordNumbers(w, a, a.Values(), dst, w.values.(*array.Time32Builder).Append)
	case *array.Time64:
		return wordNumbers(w, a, a.Values(), dst, w.values.(*array.Time64Builder).Append)
	case *array.Timestamp:
		return wordNumbers(w, a, a.Values(), dst, w.values.(*array.TimestampBuilder).Append)
	case *array.Float64:
		b := w.values.(*array.Float64Builder)
		for i, v := range a.Values() {
			dst = append(dst, w.one(a, i, floatBits(v), func() { b.Append(math.Float64frombits(uint64(floatBits(v)))) }))
		}
	case *array.Float32:
		b := w.values.(*array.Float32Builder)
		for i, v := range a.Values() {
			bits := floatBits(float64(v))
			dst = append(dst, w.one(a, i, bits, func() { b.Append(float32(math.Float64frombits(uint64(bits)))) }))
		}
	case *array.Boolean:
		b := w.values.(*array.BooleanBuilder)
		for i := range a.Len() {
			yes := a.Value(i)
			key := int64(0)
			if yes {
				key = 1
			}
			dst = append(dst, w.one(a, i, key, func() { b.Append(yes) }))
		}
	default:
		panic("sql: no groups of " + arr.DataType().String())
	}
	return dst
}

// floatBits are the bits by which equal floats are known: one NaN, one zero.
func floatBits(f float64) int64 {
	switch {
	case math.IsNaN(f):
		return int64(math.Float64bits(math.NaN()))
	case f == 0:
		return 0
	}
	return int64(math.Float64bits(f))
}

func (w *wordValues) one(arr arrow.Array, i int, key int64, add func()) uint32 {
	if arr.IsNull(i) {
		return w.nullNumber()
	}
	n, ok := w.numbers[key]
	if !ok {
		n = uint32(w.values.Len())
		w.numbers[key] = n
		w.bytes += bytesPerValue
		add()
	}
	return n
}

type integer interface {
	~int8 | ~int16 | ~int32 | ~int64
}

func wordNumbers[T integer](w *wordValues, arr arrow.Array, values []T, dst []uint32, add func(T)) []uint32 {
	nulls := arr.NullN() > 0
	last, lastNumber := int64(0), uint32(noNumber) // runs are common
	for i, v := range values {
		if nulls && arr.IsNull(i) {
			dst = append(dst, w.nullNumber())
			continue
		}
		key := int64(v)
		if lastNumber == noNumber || key != last {
			n, ok := w.numbers[key]
			if !ok {
				n = uint32(w.values.Len())
				w.numbers[key] = n
				w.bytes += bytesPerValue
				add(v)
			}
			last, lastNumber = key, n
		}
		dst = append(dst, lastNumber)
	}
	return dst
}

// textValues numbers texts and binary values.
type textValues struct {
	dictionaryBase
	numbers map[string]uint32
}

func (t *textValues) number(arr arrow.Array, dst []uint32) []uint32 {
	var value func(i int) string // of the array's memory, not to be kept
	var add func(s string)
	switch a := arr.(type) {
	case *array.String:
		value, add = a.Value, t.values.(*array.StringBuilder).Append
	case *array.Binary:
		value, add = a.ValueString, func(s string) { t.values.(*array.BinaryBuilder).AppendString(s) }
	case *array.FixedSizeBinary:
		value = func(i int) string { return string(a.Value(i)) }
		add = func(s string) { t.values.(*array.FixedSizeBinaryBuilder).Append([]byte(s)) }
	default:
		panic("sql: no groups of " + arr.DataType().String())
	}
	for i := range arr.Len() {
		if arr.IsNull(i) {
			dst = append(dst, t.nullNumber())
			continue
		}
		v := value(i)
		n, ok := t.numbers[v]
		if !ok {
			n = uint32(t.values.Len())
			t.numbers[strings.Clone(v)] = n
			t.bytes += bytesPerValue + 2*int64(len(v))
			add(v)
		}
		dst = append(dst, n)
	}
	return dst
}

// decimalValues numbers decimals.
type decimalValues struct {
	dictionaryBase
	numbers map[decimal128.Num]uint32
}

func (d *decimalValues) number(arr arrow.Array, dst []uint32) []uint32 {
	a := arr.(*array.Decimal128)
	b := d.values.(*array.Decimal128Builder)
	for i, v := range a.Values() {
		if a.IsNull(i) {
			dst = append(dst, d.nullNumber())
			continue
		}
		n, ok := d.numbers[v]
		if !ok {
			n = uint32(d.values.Len())
			d.numbers[v] = n
			d.bytes += bytesPerValue
			b.Append(v)
		}
		dst = append(dst, n)
	}
	return dst
}
