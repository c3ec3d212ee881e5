package arrowrow

import (
	"fmt"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// The numbers of Arrow's metadata, as Message.fbs and Schema.fbs have them.
const (
	messageSchema     = 1
	messageDictionary = 2
	messageBatch      = 3

	typeNull            = 1
	typeInt             = 2
	typeFloat           = 3
	typeBinary          = 4
	typeUTF8            = 5
	typeBool            = 6
	typeDecimal         = 7
	typeDate            = 8
	typeTime            = 9
	typeTimestamp       = 10
	typeInterval        = 11
	typeList            = 12
	typeStruct          = 13
	typeUnion           = 14
	typeFixedSizeBinary = 15
	typeFixedSizeList   = 16
	typeMap             = 17
	typeDuration        = 18
	typeLargeBinary     = 19
	typeLargeUTF8       = 20
	typeLargeList       = 21
	typeRunEndEncoded   = 22
	typeBinaryView      = 23
	typeUTF8View        = 24
	typeListView        = 25
	typeLargeListView   = 26
)

const (
	// maxFields bounds the fields of a schema, nested ones included: tables may lead
	// to one another in circles or many times to the same one.
	maxFields = 1 << 15
	// maxNames bounds the bytes of all their names.
	maxNames = 4 << 20
	// maxFieldDepth is twice what a type of ours nests, since an Arrow map has a
	// struct within; and one for the field itself.
	maxFieldDepth = 2*millrace.MaxTypeNesting + 1
	// maxPath is about the longest path that a message shows, from its end.
	maxPath = 256
	// maxZone is the longest name of a time zone.
	maxZone = 128
)

// node is a field of a stream, as its record batches lay it out.
type node struct {
	parent   *node
	field    arrow.Field
	typ      arrow.DataType // that of the values: of a dictionary, the indices
	dict     *dictionary
	children []*node
}

// path is the field's name under those of its parents, for messages. It is made
// when needed: those of a hostile schema would be far larger than itself.
func (n *node) path() string {
	path := clip(n.field.Name)
	for p := n.parent; p != nil && len(path) < maxPath; p = p.parent {
		path = clip(p.field.Name) + "." + path
	}
	return path
}

// schemaReader reads a Schema message.
type schemaReader struct {
	fields int
	names  int
	dicts  map[int64]*dictionary
}

// mismatch is an error about a column whose type is not taken.
func mismatch(n *node, format string, args ...any) error {
	return faultError([]errs.FieldError{{Field: n.path(), Code: errs.TypeMismatch, Message: fmt.Sprintf(format, args...)}}, 1, "column")
}

func (s *schemaReader) read(t table) ([]*node, error) {
	if t.i16(0, 0) != 0 {
		return nil, errs.New(errs.InvalidRequest, "the Arrow stream is big-endian; send little-endian")
	}
	return s.children(t.vector(1, 4), nil, 1)
}

func (s *schemaReader) children(v vector, parent *node, depth int) ([]*node, error) {
	if s.fields += v.n; s.fields > maxFields {
		v.f.fail("its schema has more than %d fields", maxFields)
	}
	if depth > maxFieldDepth && v.n > 0 {
		v.f.fail("its schema is nested more than %d deep", maxFieldDepth)
	}
	var nodes []*node
	for i := range v.n {
		if v.f.err != nil {
			return nil, v.f.err
		}
		n, err := s.field(v.table(i), parent, depth)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	return nodes, v.f.err
}

func (s *schemaReader) field(t table, parent *node, depth int) (*node, error) {
	name := t.text(0)
	if s.names += len(name); s.names > maxNames {
		t.f.fail("its schema has more than %d bytes of names", maxNames)
	}
	if !utf8.Valid(name) {
		t.f.fail("its schema has a name that is not UTF-8")
	}
	n := &node{parent: parent, field: arrow.Field{Name: string(name), Nullable: t.bool(1)}}
	kids, err := s.children(t.vector(5, 4), n, depth+1)
	if err != nil {
		return nil, err
	}
	def, ok := t.table(3)
	if !ok && t.f.err == nil {
		t.f.fail("its schema has a field without a type")
	}
	n.children = kids
	if n.typ, err = s.dataType(t.u8(2), def, n); err != nil {
		return nil, err
	}
	n.field.Type = n.typ
	if enc, ok := t.table(4); ok {
		if err := s.dictionary(n, enc); err != nil {
			return nil, err
		}
	}
	return n, t.f.err
}

// dictionary makes n a field of dictionary indices; until then it has the type
// of the values.
func (s *schemaReader) dictionary(n *node, enc table) error {
	index := arrow.DataType(arrow.PrimitiveTypes.Int32)
	if def, ok := enc.table(1); ok {
		var err error
		if index, err = intType(def, n); err != nil {
			return err
		}
	}
	if len(n.children) > 0 {
		return mismatch(n, "a dictionary of %s is not taken", n.typ.Name())
	}
	id := enc.i64(0)
	d := s.dicts[id]
	if d == nil {
		d = &dictionary{id: id, node: &node{parent: n.parent, typ: n.typ, field: n.field}}
		s.dicts[id] = d
	}
	if !arrow.TypeEqual(d.node.typ, n.typ) {
		enc.f.fail("its dictionary %d has values of two types", id)
	}
	n.field.Type = &arrow.DictionaryType{IndexType: index, ValueType: n.typ, Ordered: enc.bool(2)}
	n.typ, n.dict = index, d
	return enc.f.err
}

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
		return pick(def.i16(0, 0), n, "floating-point precision", arrow.FixedWidthTypes.Float16, arrow.PrimitiveTypes.Float32, arrow.PrimitiveTypes.Float64)
	case typeBinary:
		return arrow.BinaryTypes.Binary, nil
	case typeUTF8:
		return arrow.BinaryTypes.String, nil
	case typeBool:
		return arrow.FixedWidthTypes.Boolean, nil
	case typeDecimal:
		return decimalType(def, n)
	case typeDate:
		return pick(def.i16(0, 1), n, "unit", arrow.FixedWidthTypes.Date32, arrow.FixedWidthTypes.Date64)
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
	unit, bits := def.i16(0, 1), def.i32(1, 32)
	if want := map[bool]int{true: 32, false: 64}[unit <= 1]; bits != want {
		return nil, mismatch(n, "times of unit %d and %d bits are not taken", unit, bits)
	}
	return pick(unit, n, "time unit", arrow.FixedWidthTypes.Time32s, arrow.FixedWidthTypes.Time32ms, arrow.FixedWidthTypes.Time64us, arrow.FixedWidthTypes.Time64ns)
}

func timestampType(def table, n *node) (arrow.DataType, error) {
	unit, zone := def.i16(0, 0), def.text(1)
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

// clip is a name for a message, shortened when it is long.
func clip(s string) string {
	if len(s) <= 64 {
		return s
	}
	return fmt.Sprintf("%.64s…", s)
}
