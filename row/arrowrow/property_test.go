package arrowrow

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/decimal256"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/row/jsonrow"
)

var propertyTypes = []string{
	"BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(12,3)", "DECIMAL(38,10)", "CHAR(4)", "STRING", "BINARY(2)", "BYTES",
	"DATE", "TIME(0)", "TIME(3)", "TIME(6)", "TIME(9)", "TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP_LTZ(6)", "TIMESTAMP_LTZ(9)",
	"ARRAY<INT>", "ARRAY<ARRAY<STRING>>", "ARRAY<ROW<a DATE, b ARRAY<BIGINT>>>", "MAP<STRING, INT>", "MAP<SMALLINT, ARRAY<STRING>>",
	"ROW<a INT, b STRING, c ROW<d DECIMAL(9,1)>>", "ROW<m MAP<DATE, DOUBLE>>",
}

// drawJSON is a value of the type as JSON.
func drawJSON(t *rapid.T, typ millrace.DataType, nullable bool) string {
	if nullable && rapid.IntRange(0, 4).Draw(t, "null") == 0 {
		return "null"
	}
	n := func(lo, hi int64) int64 { return rapid.Int64Range(lo, hi).Draw(t, "n") }
	nanos := func() string {
		if typ.Precision == 0 {
			return ""
		}
		return fmt.Sprintf(".%09d", n(0, 999_999_999))[:1+typ.Precision]
	}
	switch typ.Kind {
	case millrace.Boolean:
		return strconv.FormatBool(rapid.Bool().Draw(t, "b"))
	case millrace.TinyInt:
		return fmt.Sprint(n(-128, 127))
	case millrace.SmallInt:
		return fmt.Sprint(n(-32768, 32767))
	case millrace.Int:
		return fmt.Sprint(n(-1<<31, 1<<31-1))
	case millrace.BigInt:
		return fmt.Sprint(n(-1<<63, 1<<63-1))
	case millrace.Float, millrace.Double:
		return fmt.Sprintf("%de%d", n(-1000, 1000), n(-5, 5))
	case millrace.Decimal:
		return fmt.Sprintf("%de-%d", n(-999_999_999, 999_999_999), typ.Scale)
	case millrace.Char, millrace.String:
		return strconv.Quote(rapid.StringMatching(`[a-zäé漢]{0,4}`).Draw(t, "text"))
	case millrace.Binary:
		return `"` + rapid.StringMatching(`[A-Z]{2}Q=`).Draw(t, "bytes") + `"`
	case millrace.Bytes:
		return `"` + rapid.StringMatching(`([A-Z]{4}){0,5}`).Draw(t, "bytes") + `"`
	case millrace.Date:
		return fmt.Sprintf(`"%04d-%02d-%02d"`, n(1, 9999), n(1, 12), n(1, 28))
	case millrace.Time:
		return fmt.Sprintf(`"%02d:%02d:%02d%s"`, n(0, 23), n(0, 59), n(0, 59), nanos())
	case millrace.Timestamp, millrace.TimestampLTZ:
		zone := ""
		if typ.Kind == millrace.TimestampLTZ {
			zone = "Z"
		}
		return fmt.Sprintf(`"%04d-%02d-%02dT%02d:%02d:%02d%s%s"`, n(1700, 2200), n(1, 12), n(1, 28), n(0, 23), n(0, 59), n(0, 59), nanos(), zone)
	default: // nested
	}
	var parts []string
	switch typ.Kind {
	case millrace.Array:
		for range n(0, 4) {
			parts = append(parts, drawJSON(t, typ.Children[0].Type, true))
		}
	case millrace.Map:
		seen := map[string]bool{}
		for range n(0, 4) {
			k := drawJSON(t, typ.Children[0].Type, false)
			if !seen[k] {
				parts = append(parts, fmt.Sprintf(`{"key":%s,"value":%s}`, k, drawJSON(t, typ.Children[1].Type, true)))
			}
			seen[k] = true
		}
	default:
		for _, c := range typ.Children {
			parts = append(parts, fmt.Sprintf("%q:%s", c.Name, drawJSON(t, c.Type, true)))
		}
		return "{" + strings.Join(parts, ",") + "}"
	}
	return "[" + strings.Join(parts, ",") + "]"
}

// disguise is the same values in another type that can be cast back.
func disguise(t *rapid.T, in arrow.ArrayData) arrow.ArrayData {
	if in.NullN() == in.Len() && rapid.Bool().Draw(t, "as null") {
		return array.NewNull(in.Len()).Data()
	}
	with := func(typ arrow.DataType, children []arrow.ArrayData, buffers ...[]byte) arrow.ArrayData {
		bufs := []*memory.Buffer{in.Buffers()[0]}
		for _, b := range buffers {
			bufs = append(bufs, memory.NewBufferBytes(b))
		}
		return array.NewData(typ, in.Len(), bufs, children, in.NullN(), 0)
	}
	raw := func(i int) []byte {
		if in.Buffers()[i] == nil {
			return nil
		}
		return in.Buffers()[i].Bytes()
	}
	switch typ := in.DataType().(type) {
	case *arrow.Int8Type:
		return reint[int8](t, in, with)
	case *arrow.Int16Type:
		return reint[int16](t, in, with)
	case *arrow.Int32Type:
		return reint[int32](t, in, with)
	case *arrow.Int64Type:
		return reint[int64](t, in, with)
	case *arrow.Decimal128Type:
		if rapid.Bool().Draw(t, "as it is") {
			return in
		}
		more := rapid.Int32Range(-2, 30).Draw(t, "scale")
		var out []byte
		for i, v := range values[decimal128.Num](in) {
			n := v.BigInt()
			f := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(more, -more))), nil)
			if more >= 0 {
				n = n.Mul(n, f)
			} else if n.Sign() != 0 && !isNull(in, i) && new(big.Int).Rem(n, f).Sign() != 0 {
				return in
			} else {
				n = n.Quo(n, f)
			}
			d := decimal256.FromBigInt(n)
			for _, w := range d.Array() {
				out = binary.LittleEndian.AppendUint64(out, w)
			}
		}
		return with(&arrow.Decimal256Type{Precision: 76, Scale: typ.Scale + more}, nil, out)
	case *arrow.StringType:
		return retext(t, in, with, arrow.BinaryTypes.String, arrow.BinaryTypes.LargeString, arrow.BinaryTypes.StringView)
	case *arrow.BinaryType:
		return retext(t, in, with, arrow.BinaryTypes.Binary, arrow.BinaryTypes.LargeBinary, arrow.BinaryTypes.BinaryView)
	case *arrow.FixedSizeBinaryType:
		offsets := make([]int32, in.Len()+1)
		for i := range offsets {
			offsets[i] = int32(i * typ.ByteWidth)
		}
		return with(arrow.BinaryTypes.Binary, nil, arrow.Int32Traits.CastToBytes(offsets), raw(1))
	case *arrow.Date32Type:
		var out []int64
		for _, v := range values[int32](in) {
			out = append(out, int64(v)*86400_000)
		}
		return with(arrow.FixedWidthTypes.Date64, nil, arrow.Int64Traits.CastToBytes(out))
	case *arrow.Time32Type:
		var out []int64
		for _, v := range values[int32](in) {
			out = append(out, int64(v)*1e6)
		}
		return with(arrow.FixedWidthTypes.Time64ns, nil, arrow.Int64Traits.CastToBytes(out))
	case *arrow.TimestampType:
		if typ.Unit == arrow.Nanosecond {
			return in
		}
		var out []int64
		for i, v := range values[int64](in) {
			if isNull(in, i) {
				v = 0
			}
			out = append(out, v*(1e9/perSecond(typ.Unit)))
		}
		zone := typ.TimeZone
		if zone != "" {
			zone = "America/New_York"
		}
		return with(&arrow.TimestampType{Unit: arrow.Nanosecond, TimeZone: zone}, nil, arrow.Int64Traits.CastToBytes(out))
	case *arrow.ListType:
		return relist(t, in, with, disguise(t, in.Children()[0]))
	case *arrow.MapType:
		entries := in.Children()[0]
		k, v := disguise(t, entries.Children()[0]), disguise(t, entries.Children()[1])
		if entries.Len() > 0 && rapid.Bool().Draw(t, "map") {
			m := arrow.MapOf(k.DataType(), v.DataType())
			return with(m, []arrow.ArrayData{array.NewData(m.Elem(), entries.Len(), []*memory.Buffer{nil}, []arrow.ArrayData{k, v}, 0, 0)}, raw(1))
		}
		pair := arrow.StructOf(field("value", v.DataType()), field("key", k.DataType()))
		return relist(t, in, with, array.NewData(pair, entries.Len(), []*memory.Buffer{nil}, []arrow.ArrayData{v, k}, 0, 0))
	case *arrow.StructType:
		order := rapid.Permutation(typ.Fields()).Draw(t, "order")
		var fields []arrow.Field
		var children []arrow.ArrayData
		for _, f := range order {
			i, _ := typ.FieldIdx(f.Name)
			c := disguise(t, in.Children()[i])
			fields, children = append(fields, field(f.Name, c.DataType())), append(children, c)
		}
		return with(arrow.StructOf(fields...), children)
	}
	return in
}

type withFunc func(typ arrow.DataType, children []arrow.ArrayData, buffers ...[]byte) arrow.ArrayData

func reint[S int8 | int16 | int32 | int64](t *rapid.T, in arrow.ArrayData, with withFunc) arrow.ArrayData {
	low, high := int64(0), int64(0)
	for i, v := range values[S](in) {
		if !isNull(in, i) {
			low, high = min(low, int64(v)), max(high, int64(v))
		}
	}
	size := rapid.SampledFrom([]int{1, 2, 4, 8}).Draw(t, "bytes")
	signed := low < 0 || rapid.Bool().Draw(t, "signed")
	limit := func(bits int) bool { return bits == 64 || high < 1<<bits && low >= -1<<bits }
	if signed && !limit(8*size-1) && size < 8 || !signed && !limit(8*size) {
		return in
	}
	var out []byte
	for _, v := range values[S](in) {
		out = append(out, binary.LittleEndian.AppendUint64(nil, uint64(int64(v)))[:size]...)
	}
	types := map[bool]map[int]arrow.DataType{
		true:  {1: arrow.PrimitiveTypes.Int8, 2: arrow.PrimitiveTypes.Int16, 4: arrow.PrimitiveTypes.Int32, 8: arrow.PrimitiveTypes.Int64},
		false: {1: arrow.PrimitiveTypes.Uint8, 2: arrow.PrimitiveTypes.Uint16, 4: arrow.PrimitiveTypes.Uint32, 8: arrow.PrimitiveTypes.Uint64},
	}
	return with(types[signed][size], nil, out)
}

func retext(t *rapid.T, in arrow.ArrayData, with withFunc, plain, large, view arrow.DataType) arrow.ArrayData {
	offsets, data := text(in)
	switch rapid.IntRange(0, 3).Draw(t, "layout") {
	case 1:
		var wide []int64
		for _, o := range offsets {
			wide = append(wide, int64(o))
		}
		return with(large, nil, arrow.Int64Traits.CastToBytes(wide), data)
	case 2:
		var headers []arrow.ViewHeader
		for i := range in.Len() {
			var h arrow.ViewHeader
			if v := data[offsets[i]:offsets[i+1]]; len(v) > 12 {
				h.SetBytes(v)
				h.SetIndexOffset(0, offsets[i])
			} else {
				h.SetBytes(v)
			}
			headers = append(headers, h)
		}
		return with(view, nil, arrow.ViewHeaderTraits.CastToBytes(headers), data)
	case 3:
		// The dictionary is the values themselves, backwards, and a NULL.
		n := in.Len()
		b := array.NewBinaryBuilder(memory.DefaultAllocator, plain.(arrow.BinaryDataType))
		var index []int16
		for i := n - 1; i >= 0; i-- {
			b.Append(data[offsets[i]:offsets[i+1]])
		}
		b.AppendNull()
		nullByIndex := rapid.Bool().Draw(t, "null in the dictionary")
		for i := range n {
			at := int16(n - 1 - i)
			if isNull(in, i) && nullByIndex {
				at = int16(n)
			}
			index = append(index, at)
		}
		typ := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int16, ValueType: plain}
		buffers, nulls := []*memory.Buffer{in.Buffers()[0], memory.NewBufferBytes(arrow.Int16Traits.CastToBytes(index))}, in.NullN()
		if nullByIndex {
			buffers[0], nulls = nil, 0
		}
		return array.NewDataWithDictionary(typ, n, buffers, nulls, 0, b.NewArray().Data().(*array.Data))
	}
	return in
}

func relist(t *rapid.T, in arrow.ArrayData, with withFunc, child arrow.ArrayData) arrow.ArrayData {
	n := in.Len()
	offsets := []int32{0}
	if n > 0 {
		offsets = arrow.GetData[int32](in.Buffers()[1].Bytes())[:n+1]
	}
	children := []arrow.ArrayData{child}
	switch rapid.IntRange(0, 3).Draw(t, "layout") {
	case 1:
		var wide []int64
		for _, o := range offsets {
			wide = append(wide, int64(o))
		}
		return with(arrow.LargeListOf(child.DataType()), children, arrow.Int64Traits.CastToBytes(wide))
	case 2:
		sizes := make([]int32, n)
		for i := range n {
			sizes[i] = offsets[i+1] - offsets[i]
		}
		return with(arrow.ListViewOf(child.DataType()), children, arrow.Int32Traits.CastToBytes(offsets[:n]), arrow.Int32Traits.CastToBytes(sizes))
	case 3:
		if n > 0 && offsets[n] > 0 && int(offsets[n])%n == 0 && offsets[0] == 0 {
			size := offsets[n] / int32(n)
			for i := range n {
				if offsets[i+1]-offsets[i] != size {
					return with(arrow.ListOf(child.DataType()), children, in.Buffers()[1].Bytes())
				}
			}
			return with(arrow.FixedSizeListOf(size, child.DataType()), children)
		}
	}
	return with(arrow.ListOf(child.DataType()), children, arrow.Int32Traits.CastToBytes(offsets))
}

// TestDisguises shows that values which arrive in other types and layouts, through
// a stream with any compression, become what they were in the table's own types.
func TestDisguises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var cols []millrace.Column
		for i := range rapid.IntRange(1, 4).Draw(t, "columns") {
			typ, err := millrace.ParseType(rapid.SampledFrom(propertyTypes).Draw(t, "type"))
			if err != nil {
				t.Fatal(err)
			}
			cols = append(cols, millrace.Column{ID: millrace.ColumnID(i + 1), Name: fmt.Sprintf("c%d", i), Type: typ, Nullable: true})
		}
		d := jsonrow.NewDecoder(cols, jsonrow.Options{})
		rowType := millrace.DataType{Kind: millrace.Row, Children: cols}
		for range rapid.IntRange(0, 12).Draw(t, "rows") {
			text := drawJSON(t, rowType, false)
			if err := d.AddObject([]byte(text), 0); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
		}
		rows := d.Finish()
		want := rendered(rows)
		var fields []arrow.Field
		var arrays []arrow.Array
		for i := range cols {
			data := disguise(t, rows.Record.Column(i).Data())
			fields, arrays = append(fields, field(cols[i].Name, data.DataType())), append(arrays, array.MakeFromData(data))
		}
		schema := arrow.NewSchema(fields, nil)
		var b bytes.Buffer
		opts := rapid.SampledFrom([][]ipc.Option{nil, {ipc.WithLZ4()}, {ipc.WithZstd()}}).Draw(t, "compression")
		w := ipc.NewWriter(&b, append(opts, ipc.WithSchema(schema))...)
		if err := w.Write(array.NewRecordBatch(schema, arrays, int64(rows.Len()))); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		recs, err := readAll(b.Bytes(), Limits{})
		if err != nil {
			t.Fatalf("%v: %v", schema, err)
		}
		p, err := NewPlan(recs[0].Schema(), cols, Options{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.Conform(recs[0])
		if err != nil {
			t.Fatalf("%v: %v", schema, err)
		}
		if err := array.ValidateRecordFull(got.Record); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, rendered(got)); diff != "" {
			t.Fatalf("%v:\n%s", schema, diff)
		}
	})
}

// TestDecimals shows that decimals are cast exactly when math/big says that they
// fit.
func TestDecimals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from := rapid.IntRange(-38, 76).Draw(t, "from scale")
		typ := millrace.DataType{Kind: millrace.Decimal, Precision: rapid.IntRange(1, 38).Draw(t, "precision")}
		typ.Scale = rapid.IntRange(0, typ.Precision).Draw(t, "scale")
		ten := func(n int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil) }
		n := new(big.Int).SetBytes(rapid.SliceOfN(rapid.Byte(), 0, 31).Draw(t, "digits"))
		if zeros := rapid.IntRange(0, 60).Draw(t, "zeros"); n.BitLen() < 40 {
			n.Mul(n, ten(zeros))
		}
		if n.Rem(n, ten(76)); rapid.Bool().Draw(t, "negative") {
			n.Neg(n)
		}
		d := decimal256.FromBigInt(n)
		var raw []byte
		for _, w := range d.Array() {
			raw = binary.LittleEndian.AppendUint64(raw, w)
		}
		in := &arrow.Decimal256Type{Precision: 76, Scale: int32(from)}
		arr := array.MakeFromData(array.NewData(in, 1, []*memory.Buffer{nil, memory.NewBufferBytes(raw)}, nil, 0, 0))
		rec := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{field("v", in)}, nil), []arrow.Array{arr}, 1)

		value := new(big.Rat).SetFrac(n, ten(max(from, 0)))
		value.Mul(value, new(big.Rat).SetInt(ten(max(-from, 0))))
		scaled := new(big.Rat).Mul(value, new(big.Rat).SetInt(ten(typ.Scale)))
		fits := scaled.IsInt() && new(big.Int).Abs(scaled.Num()).Cmp(ten(typ.Precision)) < 0

		p, err := NewPlan(rec.Schema(), []millrace.Column{{ID: 1, Name: "v", Type: typ}}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		rows, err := p.Conform(rec)
		if fits != (err == nil) {
			t.Fatalf("%v of scale %d as %s: fits %v, got %v", n, from, typ, fits, err)
		}
		if fits {
			if got := rows.Record.Column(0).(*array.Decimal128).Value(0).BigInt(); got.Cmp(scaled.Num()) != 0 {
				t.Fatalf("%v of scale %d as %s became %v", n, from, typ, got)
			}
		}
	})
}
