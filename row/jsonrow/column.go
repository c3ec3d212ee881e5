package jsonrow

import (
	"encoding/binary"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/bitutil"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/row"
)

// column collects the values of one column or nested field. Unlike the builders
// of arrow-go it can be cut back, which is how a bad row leaves no trace (J1).
type column struct {
	name     string
	label    string // the name as it mostly stands in an object: in quotes, with its colon
	typ      millrace.DataType
	kind     millrace.Kind
	nullable bool
	// lenient: NULL or absence is an error only if the row turns out not to be a
	// delete, so a NULL is taken and judged when the row is complete.
	lenient bool
	dt      arrow.DataType

	n       int
	valid   []byte // bit i: value i is not NULL; kept only once hasNull
	hasNull bool

	fixed   []byte  // values of fixed width, or the bits of BOOLEAN
	width   int     // bytes of a value in fixed; 0 for other kinds
	data    []byte  // bytes of STRING, CHAR, BYTES
	offsets []int32 // n+1 ends in data, or in the children of ARRAY and MAP

	children []*column // of ARRAY (1), MAP (2), ROW
	fields   fieldSet  // of ROW and of the row itself
	unit     timeUnit  // of TIME and the timestamps
	nullSize int       // bytes that a NULL takes, children included
	hint     hint
}

func newColumn(c millrace.Column) *column {
	col := &column{name: c.Name, label: `"` + c.Name + `":`, typ: c.Type, kind: c.Type.Kind, nullable: c.Nullable, dt: row.ArrowType(c.Type)}
	switch c.Type.Kind {
	case millrace.TinyInt:
		col.width = 1
	case millrace.SmallInt:
		col.width = 2
	case millrace.Int, millrace.Float, millrace.Date:
		col.width = 4
	case millrace.BigInt, millrace.Double, millrace.Timestamp, millrace.TimestampLTZ:
		col.width = 8
	case millrace.Time:
		col.width = col.dt.(arrow.FixedWidthDataType).Bytes()
	case millrace.Decimal:
		col.width = 16
	case millrace.Binary:
		col.width = c.Type.Length
	case millrace.Char, millrace.String, millrace.Bytes, millrace.Array, millrace.Map:
		col.offsets = []int32{0}
	default: // BOOLEAN has bits, ROW has only children
	}
	switch c.Type.Kind {
	case millrace.Time, millrace.Timestamp, millrace.TimestampLTZ:
		col.unit = unitOf(c.Type)
	default:
	}
	for _, ch := range c.Type.Children {
		col.children = append(col.children, newColumn(ch))
	}
	if c.Type.Kind == millrace.Row {
		col.fields = newFieldSet(col.children)
		for _, ch := range col.children {
			col.nullSize += ch.nullSize
		}
	}
	col.nullSize += max(col.width, 1)
	if col.offsets != nil {
		col.nullSize += 4
	}
	return col
}

// took counts a value that is not NULL, after its bytes were appended.
func (c *column) took() {
	if c.hasNull {
		c.mark(true)
	}
	c.n++
}

func (c *column) mark(valid bool) {
	if c.n>>3 == len(c.valid) {
		c.valid = append(c.valid, 0)
	}
	if valid {
		c.valid[c.n>>3] |= 1 << (c.n & 7)
	}
}

// appendNull adds a NULL with a placeholder wherever Arrow wants one.
func (c *column) appendNull() {
	if !c.hasNull {
		c.hasNull = true
		c.valid = c.valid[:0]
		for n := c.n; n > 0; n -= 8 {
			c.valid = append(c.valid, byte(0xff>>(8-min(n, 8))))
		}
	}
	c.mark(false)
	switch {
	case c.kind == millrace.Boolean:
		c.growBit()
	case c.width > 0:
		c.fixed = append(c.fixed, make([]byte, c.width)...)
	case c.offsets != nil:
		c.offsets = append(c.offsets, c.offsets[c.n])
	default:
		for _, ch := range c.children {
			ch.appendNull()
		}
	}
	c.n++
}

func (c *column) growBit() {
	if c.n>>3 == len(c.fixed) {
		c.fixed = append(c.fixed, 0)
	}
}

func (c *column) appendBool(v bool) {
	c.growBit()
	if v {
		c.fixed[c.n>>3] |= 1 << (c.n & 7)
	}
	c.took()
}

func (c *column) append8(v int8) {
	c.fixed = append(c.fixed, byte(v))
	c.took()
}

func (c *column) append16(v int16) {
	c.fixed = binary.LittleEndian.AppendUint16(c.fixed, uint16(v))
	c.took()
}

func (c *column) append32(v int32) {
	c.fixed = binary.LittleEndian.AppendUint32(c.fixed, uint32(v))
	c.took()
}

func (c *column) append64(v int64) {
	c.fixed = binary.LittleEndian.AppendUint64(c.fixed, uint64(v))
	c.took()
}

func (c *column) append128(hi, lo uint64) {
	c.fixed = binary.LittleEndian.AppendUint64(c.fixed, lo)
	c.fixed = binary.LittleEndian.AppendUint64(c.fixed, hi)
	c.took()
}

// end closes a value of variable length that was appended to data.
func (c *column) end() {
	c.offsets = append(c.offsets, offset(len(c.data)))
	c.took()
}

// offset is n as an Arrow offset. A decoder holds one chunk of a request, whose
// limits are far below.
func offset(n int) int32 {
	if n > math.MaxInt32 {
		panic("jsonrow: more than 2 GiB in one column; the caller must cut its chunks smaller")
	}
	return int32(n)
}

// truncate cuts the column back to n values.
func (c *column) truncate(n int) {
	if c.hasNull {
		c.valid = cutBits(c.valid, n)
	}
	switch {
	case c.kind == millrace.Boolean:
		c.fixed = cutBits(c.fixed, n)
	case c.width > 0:
		c.fixed = c.fixed[:n*c.width]
	case c.offsets != nil:
		c.offsets = c.offsets[:n+1]
		if c.children == nil {
			c.data = c.data[:c.offsets[n]]
		}
		for _, ch := range c.children {
			ch.truncate(int(c.offsets[n]))
		}
	default:
		for _, ch := range c.children {
			ch.truncate(n)
		}
	}
	c.n = n
}

// cutBits keeps n bits and clears the rest of the last byte, since bits are set
// by OR.
func cutBits(b []byte, n int) []byte {
	b = b[:bitutil.BytesForBits(int64(n))]
	if n&7 != 0 {
		b[len(b)-1] &= 1<<(n&7) - 1
	}
	return b
}

// lastNull says whether the newest value is NULL.
func (c *column) lastNull() bool {
	return c.hasNull && !bitutil.BitIsSet(c.valid, c.n-1)
}

// bytesOf is the value with this number of a column that is neither nested nor
// BOOLEAN.
func (c *column) bytesOf(i int) []byte {
	if c.width > 0 {
		return c.fixed[i*c.width : (i+1)*c.width]
	}
	return c.data[c.offsets[i]:c.offsets[i+1]]
}

// size is the bytes held.
func (c *column) size() int {
	n := len(c.fixed) + len(c.data) + 4*len(c.offsets)
	if c.hasNull {
		n += len(c.valid)
	}
	for _, ch := range c.children {
		n += ch.size()
	}
	return n
}

// fieldSet finds the fields of an object and knows which it has met.
type fieldSet struct {
	byName map[string]int
	seen   []uint64 // seen[i] == gen: field i stands in the object being read
	gen    uint64
}

func newFieldSet(cols []*column) fieldSet {
	f := fieldSet{byName: make(map[string]int, len(cols)), seen: make([]uint64, len(cols))}
	for i, c := range cols {
		f.byName[c.name] = i
	}
	return f
}
