package iceberg

import (
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/filter"
	"github.com/millrace/millrace/row"
)

// keySet is a set of primary keys, as row.AppendKey writes them, which data is looked
// through for.
type keySet struct {
	columns []millrace.Column // of the key
	all     map[string]struct{}
	sorted  []string
}

func newKeySet(columns []millrace.Column, keys map[string]struct{}) *keySet {
	k := &keySet{columns: columns, all: keys, sorted: make([]string, 0, len(keys))}
	for key := range keys {
		k.sorted = append(k.sorted, key)
	}
	slices.Sort(k.sorted)
	return k
}

// mayHold says whether data with these statistics may have a row with one of the keys.
// Keys sort as their values do, so they lie between the key of the least values and
// that of the greatest, as far as the columns before a range have one value.
func (k *keySet) mayHold(stats func(millrace.Column) (filter.Stats, bool)) bool {
	var least, most []byte
	for _, c := range k.columns {
		st, ok := stats(c)
		if !ok || !st.HasMin || !st.HasMax {
			break
		}
		n := len(least)
		least, most = appendBound(least, c.Type, st.Min), appendBound(most, c.Type, st.Max)
		if string(least[n:]) != string(most[n:]) {
			break
		}
	}
	i, _ := slices.BinarySearch(k.sorted, string(least))
	return i < len(k.sorted) && (k.sorted[i] <= string(most) || strings.HasPrefix(k.sorted[i], string(most)))
}

// appendBound appends the key of a bound of a column.
func appendBound(dst []byte, t millrace.DataType, b filter.Bound) []byte {
	bld := array.NewBuilder(memory.DefaultAllocator, row.ArrowType(t))
	defer bld.Release()
	switch bld := bld.(type) {
	case *array.BooleanBuilder:
		bld.Append(b.Int != 0)
	case *array.Int8Builder:
		bld.Append(int8(b.Int))
	case *array.Int16Builder:
		bld.Append(int16(b.Int))
	case *array.Int32Builder:
		bld.Append(int32(b.Int))
	case *array.Int64Builder:
		bld.Append(b.Int)
	case *array.Date32Builder:
		bld.Append(arrow.Date32(b.Int))
	case *array.Time32Builder:
		bld.Append(arrow.Time32(b.Int))
	case *array.Time64Builder:
		bld.Append(arrow.Time64(b.Int))
	case *array.TimestampBuilder:
		bld.Append(arrow.Timestamp(b.Int))
	case *array.Decimal128Builder:
		bld.Append(b.Dec)
	case *array.StringBuilder:
		bld.Append(string(b.Bytes))
	case *array.BinaryBuilder:
		bld.Append(b.Bytes)
	case *array.FixedSizeBinaryBuilder:
		// Bounds that were cut: what begins with the lower one lies above it with zeros,
		// and below the upper one, which was raised, all the same.
		fixed := make([]byte, t.Length)
		copy(fixed, b.Bytes)
		bld.Append(fixed)
	}
	arr := bld.NewArray()
	defer arr.Release()
	rec := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "bound", Type: arr.DataType()}}, nil), []arrow.Array{arr}, 1)
	defer rec.Release()
	return row.AppendKey(dst, rec, []int{0}, 0)
}
