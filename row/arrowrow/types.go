package arrowrow

import (
	"fmt"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// dataType is the Arrow type of a field, whose children are known.
func (s *schemaReader) dataType(id int, def table, n *node) (arrow.DataType, error) {
	f := def.f
	if f.err != nil {
		return nil, f.err
	}
	want := 0
	switch id {
	case typeList, typeLargeList, typeListView, typeLargeListView, typeFixedSizeList, typeMap:
		want = 1
	case typeStruct:
		want = len(n.children)
	}
	if len(n.children) != want && id != typeUnion && id != typeRunEndEncoded {
		f.fail("its column %q has %d children, not %d", n.path(), len(n.children), want)
		return nil, f.err
	}
	switch id {
	case typeNull:
		return arrow.Null, nil
	case typeInt:
		return intType(def, n)
	case typeFloat:
		return pick(def.enum(0), n, "floating-point precision", arrow.FixedWidthTypes.Float16, arrow.PrimitiveTypes.Float32, arrow.PrimitiveTypes.Float64)
	case typeBinary:
		return arrow.BinaryTypes.Binary, nil
	case typeUTF8:
		return arrow.BinaryTypes.String, nil
	case typeBool:
		return arrow.FixedWidthTypes.Boolean, nil
	case typeDecimal:
		return decimalType(def, n)
	case typeDate:
		return pick(def.enum(1), n, "unit", arrow.FixedWidthTypes.Date32, arrow.FixedWidthTypes.Date64)
	case typeTime:
		return timeType(def, n)
	case typeTimestamp:
		return timestampType(def, n)
	case typeFixedSizeBinary:
		width := def.i32(0, 0)
		if width < 1 || width > millrace.MaxTypeLength {
			return nil, mismatch(n, "a fixed-size binary of %d bytes is not taken", width)
		}
		return &arrow.FixedSizeBinaryType{ByteWidth: width}, f.err
	case typeLargeBinary:
		return arrow.BinaryTypes.LargeBinary, nil
	case typeLargeUTF8:
		return arrow.BinaryTypes.LargeString, nil
	case typeBinaryView:
		return arrow.BinaryTypes.BinaryView, nil
	case typeUTF8View:
		return arrow.BinaryTypes.StringView, nil
	case typeList, typeLargeList, typeListView, typeLargeListView, typeFixedSizeList:
		return listType(id, def, n)
	case typeMap:
		return mapType(def, n)
	case typeStruct:
		return structType(n)
	}
	return nil, mismatch(n, "Arrow type %s is not taken", typeName(id))
}

func typeName(id int) string {
	switch id {
	case typeInterval:
		return "interval"
	case typeUnion:
		return "union"
	case typeDuration:
		return "duration"
	case typeRunEndEncoded:
		return "run_end_encoded"
	}
	return fmt.Sprintf("number %d", id)
}

// pick is types[i].
func pick(i int, n *node, what string, types ...arrow.DataType) (arrow.DataType, error) {
	if i < 0 || i >= len(types) {
		return nil, mismatch(n, "%s %d is not taken", what, i)
	}
	return types[i], nil
}

func intType(def table, n *node) (arrow.DataType, error) {
	signed := []arrow.DataType{arrow.PrimitiveTypes.Int8, arrow.PrimitiveTypes.Int16, arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Int64}
	if !def.bool(1) {
		signed = []arrow.DataType{arrow.PrimitiveTypes.Uint8, arrow.PrimitiveTypes.Uint16, arrow.PrimitiveTypes.Uint32, arrow.PrimitiveTypes.Uint64}
	}
	switch bits := def.i32(0, 0); bits {
	case 8:
		return signed[0], def.f.err
	case 16:
		return signed[1], def.f.err
	case 32:
		return signed[2], def.f.err
	case 64:
		return signed[3], def.f.err
	default:
		return nil, mismatch(n, "integers of %d bits are not taken", bits)
	}
}

func decimalType(def table, n *node) (arrow.DataType, error) {
	precision, scale, bits := def.i32(0, 0), def.i32(1, 0), def.i32(2, 128)
	most := map[int]int{32: 9, 64: 18, 128: 38, 256: 76}[bits]
	if precision < 1 || precision > most || scale < -most || scale > most {
		return nil, mismatch(n, "decimal(%d, %d) of %d bits is not taken", precision, scale, bits)
	}
	p, s := int32(precision), int32(scale)
	switch bits {
	case 32:
		return &arrow.Decimal32Type{Precision: p, Scale: s}, def.f.err
	case 64:
		return &arrow.Decimal64Type{Precision: p, Scale: s}, def.f.err
	case 128:
		return &arrow.Decimal128Type{Precision: p, Scale: s}, def.f.err
	default:
		return &arrow.Decimal256Type{Precision: p, Scale: s}, def.f.err
	}
}

func timeType(def table, n *node) (arrow.DataType, error) {
	unit, bits := def.enum(1), def.i32(1, 32)
	if want := map[bool]int{true: 32, false: 64}[unit <= 1]; bits != want {
		return nil, mismatch(n, "times of unit %d and %d bits are not taken", unit, bits)
	}
	return pick(unit, n, "time unit", arrow.FixedWidthTypes.Time32s, arrow.FixedWidthTypes.Time32ms, arrow.FixedWidthTypes.Time64us, arrow.FixedWidthTypes.Time64ns)
}

func timestampType(def table, n *node) (arrow.DataType, error) {
	unit, zone := def.enum(0), def.text(1)
	if unit < 0 || unit > int(arrow.Nanosecond) || len(zone) > maxZone || !utf8.Valid(zone) {
		return nil, mismatch(n, "timestamps of unit %d and zone %s are not taken", unit, clip(string(zone)))
	}
	return &arrow.TimestampType{Unit: arrow.TimeUnit(unit), TimeZone: string(zone)}, def.f.err
}

func listType(id int, def table, n *node) (arrow.DataType, error) {
	elem := n.children[0].field
	switch id {
	case typeList:
		return arrow.ListOfField(elem), nil
	case typeLargeList:
		return arrow.LargeListOfField(elem), nil
	case typeListView:
		return arrow.ListViewOfField(elem), nil
	case typeLargeListView:
		return arrow.LargeListViewOfField(elem), nil
	}
	size := def.i32(0, 0)
	if size < 1 {
		return nil, mismatch(n, "a fixed-size list of %d is not taken", size)
	}
	return arrow.FixedSizeListOfField(int32(size), elem), def.f.err
}

func mapType(def table, n *node) (arrow.DataType, error) {
	entries := n.children[0]
	if _, ok := entries.typ.(*arrow.StructType); !ok || len(entries.children) != 2 || entries.dict != nil {
		def.f.fail("its column %q is a map whose entries are no keys and values", n.path())
		return nil, def.f.err
	}
	k, v := entries.children[0].field, entries.children[1].field
	k.Nullable = false
	t := arrow.MapOfFields(k, v)
	t.KeysSorted = def.bool(0)
	// The arrays of entries must have the map's own idea of their type.
	entries.typ, entries.field.Type = t.Elem(), t.Elem()
	return t, def.f.err
}

func structType(n *node) (arrow.DataType, error) {
	fields := make([]arrow.Field, len(n.children))
	seen := make(map[string]bool, len(fields))
	for i, c := range n.children {
		if seen[c.field.Name] {
			return nil, faultError([]errs.FieldError{{Field: c.path(), Code: errs.DuplicateField, Message: "the field stands twice"}}, 1, "column")
		}
		seen[c.field.Name] = true
		fields[i] = c.field
	}
	return arrow.StructOf(fields...), nil
}
