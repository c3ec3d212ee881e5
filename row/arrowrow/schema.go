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
	if t.enum(0) != 0 {
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
	index := arrow.PrimitiveTypes.Int32
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

// clip is a name for a message, shortened when it is long.
func clip(s string) string {
	if len(s) <= 64 {
		return s
	}
	return fmt.Sprintf("%.64s…", s)
}
