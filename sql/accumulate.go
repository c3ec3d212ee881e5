package sql

import (
	"math"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row"
)

// accumulator is an aggregate under way, in every group.
type accumulator interface {
	// grow makes room for that many groups.
	grow(groups int)
	// add takes the values of some rows; groups are the groups of the rows.
	add(arr arrow.Array, groups []uint32)
	// array is the aggregate of each group.
	array() (arrow.Array, error)
	size() int64
}

// newAccumulator makes the accumulator of an aggregate over a column, and says what
// type the aggregate has. A function that does not go with the column's type is
// errs.TypeMismatch.
func newAccumulator(function string, col millrace.Column) (accumulator, millrace.DataType, error) {
	k := col.Type.Kind
	kind := func(k millrace.Kind) millrace.DataType { return millrace.DataType{Kind: k} }
	integers := k == millrace.TinyInt || k == millrace.SmallInt || k == millrace.Int || k == millrace.BigInt
	floats := k == millrace.Float || k == millrace.Double
	switch {
	case function == "COUNT":
		return &counter{}, kind(millrace.BigInt), nil
	case function == "MIN" || function == "MAX":
		if col.Type.Nested() {
			break
		}
		return newExtreme(function == "MAX", col.Type), col.Type, nil
	case integers && function == "SUM":
		return &sum{name: "SUM(" + col.Name + ")", as: kind(millrace.BigInt)}, kind(millrace.BigInt), nil
	case integers:
		return &sum{name: "AVG(" + col.Name + ")", as: kind(millrace.Double), mean: true}, kind(millrace.Double), nil
	case floats:
		return &floatSum{mean: function == "AVG"}, kind(millrace.Double), nil
	case k == millrace.Decimal && function == "SUM":
		as := millrace.DataType{Kind: k, Precision: millrace.MaxDecimalPrecision, Scale: col.Type.Scale}
		return &sum{name: "SUM(" + col.Name + ")", as: as}, as, nil
	case k == millrace.Decimal:
		as := millrace.DataType{Kind: k, Precision: millrace.MaxDecimalPrecision, Scale: max(col.Type.Scale, averageScale)}
		return &sum{name: "AVG(" + col.Name + ")", as: as, mean: true, more: as.Scale - col.Type.Scale}, as, nil
	}
	return nil, millrace.DataType{}, errs.New(errs.TypeMismatch, "%s takes no %s, which column %q is", function, col.Type, col.Name)
}

// averageScale is the least number of decimals of an AVG of decimals.
const averageScale = 6

// counter counts the values that are not NULL.
type counter struct{ n []int64 }

func (c *counter) grow(groups int) { c.n = grown(c.n, groups) }

func (c *counter) size() int64 { return 8 * int64(len(c.n)) }

func (c *counter) add(arr arrow.Array, groups []uint32) {
	if arr == nil || arr.NullN() == 0 { // COUNT(*), or as good
		for _, g := range groups {
			c.n[g]++
		}
		return
	}
	for i, g := range groups {
		if arr.IsValid(i) {
			c.n[g]++
		}
	}
}

func (c *counter) array() (arrow.Array, error) {
	b := array.NewInt64Builder(memory.DefaultAllocator)
	defer b.Release()
	b.AppendValues(c.n, nil)
	return b.NewArray(), nil
}

// sum adds integers or decimals up, exactly.
type sum struct {
	name string
	as   millrace.DataType
	mean bool
	more int // decimals that the mean has more than the column

	sums []wide
	n    []int64 // values that are not NULL
}

func (s *sum) grow(groups int) { s.sums, s.n = grown(s.sums, groups), grown(s.n, groups) }

func (s *sum) size() int64 { return 32 * int64(len(s.n)) }

func (s *sum) add(arr arrow.Array, groups []uint32) {
	switch a := arr.(type) {
	case *array.Int64:
		addIntegers(s, a, a.Values(), groups)
	case *array.Int32:
		addIntegers(s, a, a.Values(), groups)
	case *array.Int16:
		addIntegers(s, a, a.Values(), groups)
	case *array.Int8:
		addIntegers(s, a, a.Values(), groups)
	case *array.Decimal128:
		nulls := a.NullN() > 0
		for i, v := range a.Values() {
			if !nulls || a.IsValid(i) {
				s.sums[groups[i]].addDecimal(v)
				s.n[groups[i]]++
			}
		}
	default:
		panic("sql: no sum of " + arr.DataType().String())
	}
}

func addIntegers[T integer](s *sum, arr arrow.Array, values []T, groups []uint32) {
	if arr.NullN() == 0 {
		for i, v := range values {
			s.sums[groups[i]].addInt(int64(v))
			s.n[groups[i]]++
		}
		return
	}
	for i, v := range values {
		if arr.IsValid(i) {
			s.sums[groups[i]].addInt(int64(v))
			s.n[groups[i]]++
		}
	}
}

func (s *sum) array() (arrow.Array, error) {
	b := array.NewBuilder(memory.DefaultAllocator, row.ArrowType(s.as))
	defer b.Release()
	for g := range s.sums {
		if s.n[g] == 0 {
			b.AppendNull()
			continue
		}
		if err := s.appendTo(b, g); err != nil {
			return nil, err
		}
	}
	return b.NewArray(), nil
}

func (s *sum) appendTo(b array.Builder, g int) error {
	switch b := b.(type) {
	case *array.Float64Builder:
		b.Append(quotient(s.sums[g].big(), s.n[g]))
	case *array.Int64Builder:
		v, ok := s.sums[g].int64()
		if !ok {
			return errs.New(errs.IntegerOverflow, "%s is %s, which is beyond BIGINT", s.name, s.sums[g].big())
		}
		b.Append(v)
	case *array.Decimal128Builder:
		n := s.sums[g].big()
		if s.mean {
			n = average(n, s.n[g], s.more)
		}
		v, ok := decimalOf(n)
		if !ok {
			return errs.New(errs.IntegerOverflow, "%s has more than %d digits", s.name, millrace.MaxDecimalPrecision)
		}
		b.Append(v)
	}
	return nil
}

// floatSum adds floats up. It carries what each addition rounds off (Neumaier), so
// that the sum hardly depends on the order of the rows.
type floatSum struct {
	mean      bool
	sums, off []float64
	n         []int64
}

func (s *floatSum) grow(groups int) {
	s.sums, s.off, s.n = grown(s.sums, groups), grown(s.off, groups), grown(s.n, groups)
}

func (s *floatSum) size() int64 { return 24 * int64(len(s.n)) }

func (s *floatSum) add(arr arrow.Array, groups []uint32) {
	switch a := arr.(type) {
	case *array.Float64:
		addFloats(s, a, a.Values(), groups)
	case *array.Float32:
		addFloats(s, a, a.Values(), groups)
	default:
		panic("sql: no sum of " + arr.DataType().String())
	}
}

func addFloats[T float32 | float64](s *floatSum, arr arrow.Array, values []T, groups []uint32) {
	nulls := arr.NullN() > 0
	for i, v := range values {
		if nulls && arr.IsNull(i) {
			continue
		}
		g, v := groups[i], float64(v)
		was := s.sums[g]
		now := was + v
		if math.Abs(was) >= math.Abs(v) {
			s.off[g] += (was - now) + v
		} else {
			s.off[g] += (v - now) + was
		}
		s.sums[g] = now
		s.n[g]++
	}
}

func (s *floatSum) array() (arrow.Array, error) {
	b := array.NewFloat64Builder(memory.DefaultAllocator)
	defer b.Release()
	for g, n := range s.n {
		v := s.sums[g]
		if !math.IsInf(v, 0) { // beyond that, what was rounded off is no number
			v += s.off[g]
		}
		switch {
		case n == 0:
			b.AppendNull()
		case s.mean:
			b.Append(v / float64(n))
		default:
			b.Append(v)
		}
	}
	return b.NewArray(), nil
}

// extreme is MIN or MAX of values of one Go type.
type extreme[T any] struct {
	typ    millrace.DataType
	better func(v, than T) bool
	keep   func(T) T // makes a value ours
	weigh  func(T) int64
	values func(arr arrow.Array) func(i int) T
	append func(b array.Builder, v T)

	best  []T
	seen  []bool
	bytes int64
}

func (e *extreme[T]) grow(groups int) { e.best, e.seen = grown(e.best, groups), grown(e.seen, groups) }

func (e *extreme[T]) size() int64 { return 24*int64(len(e.best)) + e.bytes }

func (e *extreme[T]) add(arr arrow.Array, groups []uint32) {
	value := e.values(arr)
	nulls := arr.NullN() > 0
	for i, g := range groups {
		if nulls && arr.IsNull(i) {
			continue
		}
		v := value(i)
		if e.seen[g] && !e.better(v, e.best[g]) {
			continue
		}
		if e.weigh != nil {
			e.bytes += e.weigh(v) - e.weigh(e.best[g])
			v = e.keep(v)
		}
		e.best[g], e.seen[g] = v, true
	}
}

func (e *extreme[T]) array() (arrow.Array, error) {
	b := array.NewBuilder(memory.DefaultAllocator, row.ArrowType(e.typ))
	defer b.Release()
	for g, v := range e.best {
		if e.seen[g] {
			e.append(b, v)
		} else {
			b.AppendNull()
		}
	}
	return b.NewArray(), nil
}

// grown is s with at least n entries.
func grown[T any](s []T, n int) []T {
	if n <= len(s) {
		return s
	}
	return append(s, make([]T, n-len(s))...)
}

func newExtreme(highest bool, t millrace.DataType) accumulator {
	switch t.Kind {
	case millrace.Decimal:
		return &extreme[decimal128.Num]{
			typ:    t,
			better: func(v, than decimal128.Num) bool { return v != than && v.Less(than) != highest },
			values: func(arr arrow.Array) func(int) decimal128.Num { return arr.(*array.Decimal128).Value },
			append: func(b array.Builder, v decimal128.Num) { b.(*array.Decimal128Builder).Append(v) },
		}
	case millrace.Float, millrace.Double:
		return &extreme[float64]{
			typ: t,
			better: func(v, than float64) bool {
				a, b := floatKey(v), floatKey(than)
				return a != b && (a < b) != highest
			},
			values: floatValues,
			append: appendFloat,
		}
	case millrace.Char, millrace.String, millrace.Bytes, millrace.Binary:
		return &extreme[string]{
			typ:    t,
			better: func(v, than string) bool { return v != than && (v < than) != highest },
			keep:   strings.Clone,
			weigh:  func(v string) int64 { return int64(len(v)) },
			values: stringValues,
			append: appendString,
		}
	default:
		return &extreme[int64]{
			typ:    t,
			better: func(v, than int64) bool { return v != than && (v < than) != highest },
			values: integerValues,
			append: appendInteger,
		}
	}
}

func floatValues(arr arrow.Array) func(int) float64 {
	if a, ok := arr.(*array.Float64); ok {
		return a.Value
	}
	a := arr.(*array.Float32)
	return func(i int) float64 { return float64(a.Value(i)) }
}

func appendFloat(b array.Builder, v float64) {
	if b, ok := b.(*array.Float64Builder); ok {
		b.Append(v)
		return
	}
	b.(*array.Float32Builder).Append(float32(v))
}

func stringValues(arr arrow.Array) func(int) string {
	switch a := arr.(type) {
	case *array.String:
		return a.Value
	case *array.Binary:
		return a.ValueString
	}
	a := arr.(*array.FixedSizeBinary)
	return func(i int) string { return string(a.Value(i)) }
}

func appendString(b array.Builder, v string) {
	switch b := b.(type) {
	case *array.StringBuilder:
		b.Append(v)
	case *array.BinaryBuilder:
		b.AppendString(v)
	case *array.FixedSizeBinaryBuilder:
		b.Append([]byte(v))
	}
}

func integerValues(arr arrow.Array) func(int) int64 {
	switch a := arr.(type) {
	case *array.Int64:
		return a.Value
	case *array.Int32:
		return func(i int) int64 { return int64(a.Value(i)) }
	case *array.Int16:
		return func(i int) int64 { return int64(a.Value(i)) }
	case *array.Int8:
		return func(i int) int64 { return int64(a.Value(i)) }
	case *array.Date32:
		return func(i int) int64 { return int64(a.Value(i)) }
	case *array.Time32:
		return func(i int) int64 { return int64(a.Value(i)) }
	case *array.Time64:
		return func(i int) int64 { return int64(a.Value(i)) }
	case *array.Timestamp:
		return func(i int) int64 { return int64(a.Value(i)) }
	case *array.Boolean:
		return func(i int) int64 {
			if a.Value(i) {
				return 1
			}
			return 0
		}
	}
	panic("sql: no order of " + arr.DataType().String())
}

func appendInteger(b array.Builder, v int64) {
	switch b := b.(type) {
	case *array.Int64Builder:
		b.Append(v)
	case *array.Int32Builder:
		b.Append(int32(v))
	case *array.Int16Builder:
		b.Append(int16(v))
	case *array.Int8Builder:
		b.Append(int8(v))
	case *array.Date32Builder:
		b.Append(arrow.Date32(v))
	case *array.Time32Builder:
		b.Append(arrow.Time32(v))
	case *array.Time64Builder:
		b.Append(arrow.Time64(v))
	case *array.TimestampBuilder:
		b.Append(arrow.Timestamp(v))
	case *array.BooleanBuilder:
		b.Append(v != 0)
	}
}
