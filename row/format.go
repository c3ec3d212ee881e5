package row

import (
	"encoding/binary"
	"fmt"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// A compact row, all numbers little endian (docs/formats/row.md):
//
//	+----------------+---------+-----------------------------------------+
//	| schema id u24  | format  | tuple of the schema's columns           |
//	| 3 bytes        | 1 byte  |                                         |
//	+----------------+---------+-----------------------------------------+
//
//	tuple: +--------------------+-----------------+------------------+
//	       | null bitmap        | slots           | variable section |
//	       | ceil(fields/8)     | one a field     |                  |
//	       +--------------------+-----------------+------------------+
//
//	vector: the same for n values of one type, n known from outside
//	ARRAY:  n u32 | vector of elements
//	MAP:    n u32 | vector of keys | vector of values
//	ROW:    tuple of the fields
//
// Bit i of the bitmap (of byte i/8, from the lowest) is 1 when value i is NULL.
// A slot is the value itself, or, for a value in the variable section, a u32:
// where the value ends, from the start of the variable section. It begins where
// the one before it ends.

// formatV1 is in byte 3 of every row of version 1, the only one there is.
const formatV1 = 0

const (
	headerBytes = 4
	endBytes    = 4 // slot of a value in the variable section
	maxSchemaID = 1<<24 - 1
	// inlineBytes is the longest BINARY(n) that lies in its slot. A longer one
	// would take its n bytes in every row where it is NULL.
	inlineBytes = 16
)

// layout says how the values of one type lie in rows.
type layout struct {
	typ   millrace.DataType
	width int     // of the slot when the value lies in it; 0: in the variable section
	key   *layout // of MAP
	elem  *layout // of ARRAY and MAP
	tuple *tuple  // of ROW
}

func newLayout(t millrace.DataType) *layout {
	l := &layout{typ: t, width: slotWidth(t)}
	switch t.Kind {
	case millrace.Array:
		l.elem = newLayout(t.Children[0].Type)
	case millrace.Map:
		l.key, l.elem = newLayout(t.Children[0].Type), newLayout(t.Children[1].Type)
	case millrace.Row:
		l.tuple = newTuple(t.Children)
	default:
	}
	return l
}

// slotWidth is the bytes of a value that lies in its slot; 0 for others.
func slotWidth(t millrace.DataType) int {
	switch t.Kind {
	case millrace.Boolean, millrace.TinyInt:
		return 1
	case millrace.SmallInt:
		return 2
	case millrace.Int, millrace.Float, millrace.Date:
		return 4
	case millrace.BigInt, millrace.Double, millrace.Timestamp, millrace.TimestampLTZ:
		return 8
	case millrace.Time:
		if t.Precision <= 3 {
			return 4
		}
		return 8
	case millrace.Decimal:
		return 16
	case millrace.Binary:
		if t.Length <= inlineBytes {
			return t.Length
		}
		return 0
	case millrace.Char, millrace.String, millrace.Bytes, millrace.Array, millrace.Map, millrace.Row:
		return 0
	}
	panic(fmt.Sprintf("row: no slot for %v", t.Kind))
}

// slotBytes is the size of the slot, whatever lies in it.
func (l *layout) slotBytes() int {
	if l.width == 0 {
		return endBytes
	}
	return l.width
}

// tuple is the layout of the columns of a row or the fields of a ROW.
type tuple struct {
	fields []field
	head   int // bytes of bitmap and slots: where the variable section begins
	last   int // slot of the last field in the variable section; -1: there is none
}

type field struct {
	*layout
	id      millrace.ColumnID
	width   int  // the layout's, copied to where each value needs it
	at      int  // its slot, from the start of the tuple
	prev    int  // slot of the field before it in the variable section; -1: it is the first there
	nullAt  int  // byte of its null bit
	nullBit byte // the bit
}

func newTuple(cols []millrace.Column) *tuple {
	t := &tuple{fields: make([]field, len(cols)), last: -1}
	at := bitmapBytes(len(cols))
	for i, c := range cols {
		l := newLayout(c.Type)
		f := field{layout: l, id: c.ID, width: l.width, at: at, prev: t.last, nullAt: i / 8, nullBit: 1 << (i % 8)}
		if f.width == 0 {
			t.last = at
		}
		at += f.slotBytes()
		t.fields[i] = f
	}
	t.head = at
	return t
}

func bitmapBytes(n int) int { return (n + 7) / 8 }

// SchemaIDOf is the id of the schema that the row was written with; 0 when the
// bytes are not a row or are a row of a later format.
func SchemaIDOf(row []byte) millrace.SchemaID {
	if len(row) < headerBytes || row[3] != formatV1 {
		return 0
	}
	return millrace.SchemaID(binary.LittleEndian.Uint32(row))
}

// end reads the end of a variable value from its slot.
func end(b []byte, at int) int { return int(binary.LittleEndian.Uint32(b[at:])) }

// variable is the value of f in the variable section of the tuple in b.
// REQUIRES: len(b) ≥ head.
func (t *tuple) variable(b []byte, f *field) ([]byte, error) {
	from, to := 0, end(b, f.at)
	if f.prev >= 0 {
		from = end(b, f.prev)
	}
	if from > to || to > len(b)-t.head {
		return nil, errs.New(errs.CorruptData, "a row's value lies at [%d, %d) of %d bytes", from, to, len(b)-t.head)
	}
	return b[t.head+from : t.head+to], nil
}

// check says whether the tuple in b is framed right: its fixed part is there,
// ends rise, and the variable section ends with the last value. It does not look
// into the values.
func (t *tuple) check(b []byte) error {
	if len(b) < t.head {
		return errs.New(errs.CorruptData, "a row of %d bytes where its columns need %d at least", len(b), t.head)
	}
	at := 0
	for i := range t.fields {
		f := &t.fields[i]
		if f.width != 0 {
			continue
		}
		e := end(b, f.at)
		if e < at {
			return errs.New(errs.CorruptData, "a row's value ends at %d, before it begins at %d", e, at)
		}
		at = e
	}
	if t.head+at != len(b) {
		return errs.New(errs.CorruptData, "a row of %d bytes where its values end at %d", len(b), t.head+at)
	}
	return nil
}

// Codec reads and writes rows of one schema. It is immutable, so any number of
// goroutines may use it.
type Codec struct {
	schema *millrace.Schema
	tuple  *tuple
}

// NewCodec makes the codec of a schema.
func NewCodec(s *millrace.Schema) *Codec {
	if s.ID == 0 || s.ID > maxSchemaID {
		panic(fmt.Sprintf("row: schema id %d is not in [1, %d]", s.ID, maxSchemaID))
	}
	return &Codec{schema: s, tuple: newTuple(s.Columns)}
}

// Schema is the schema of the codec's rows.
func (c *Codec) Schema() *millrace.Schema { return c.schema }

// Check says whether row is a row of this schema that is framed right: whatever
// takes rows without returning an error needs rows that were made by this
// package or passed Check. A broken row is errs.CorruptData.
func (c *Codec) Check(row []byte) error {
	if id := SchemaIDOf(row); id != c.schema.ID {
		return errs.New(errs.CorruptData, "a row of schema %d where one of schema %d should be", id, c.schema.ID)
	}
	return c.tuple.check(row[headerBytes:])
}
