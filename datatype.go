package millrace

import (
	"fmt"
	"strconv"
	"strings"
)

// Kind is the family of a type. The numbers are in files.
type Kind uint8

// The kinds, in the order of the type table of docs/types.md.
const (
	Boolean      Kind = 1
	TinyInt      Kind = 2
	SmallInt     Kind = 3
	Int          Kind = 4
	BigInt       Kind = 5
	Float        Kind = 6
	Double       Kind = 7
	Decimal      Kind = 8
	Char         Kind = 9
	String       Kind = 10
	Binary       Kind = 11 // BINARY(n), fixed size
	Bytes        Kind = 12
	Date         Kind = 13
	Time         Kind = 14
	Timestamp    Kind = 15
	TimestampLTZ Kind = 16
	Array        Kind = 17
	Map          Kind = 18
	Row          Kind = 19
)

var kindNames = map[Kind]string{
	Boolean: "BOOLEAN", TinyInt: "TINYINT", SmallInt: "SMALLINT", Int: "INT", BigInt: "BIGINT",
	Float: "FLOAT", Double: "DOUBLE", Decimal: "DECIMAL", Char: "CHAR", String: "STRING",
	Binary: "BINARY", Bytes: "BYTES", Date: "DATE", Time: "TIME", Timestamp: "TIMESTAMP",
	TimestampLTZ: "TIMESTAMP_LTZ", Array: "ARRAY", Map: "MAP", Row: "ROW",
}

// String is the kind's SQL word.
func (k Kind) String() string {
	if s, ok := kindNames[k]; ok {
		return s
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Limits of types.
const (
	MaxTypeNesting      = 16      // levels of ARRAY, MAP, ROW
	MaxTypeFields       = 2000    // fields of one ROW
	MaxTypeLength       = 1 << 20 // n of CHAR(n), BINARY(n)
	MaxDecimalPrecision = 38
	MaxTimePrecision    = 9
)

// DataType is the type of a column or nested field.
//
// Precision belongs to DECIMAL (1–38), TIME, TIMESTAMP and TIMESTAMP_LTZ (0–9);
// Scale to DECIMAL (0–Precision); Length to CHAR and BINARY (1–MaxTypeLength).
// Children: one for ARRAY ("element"), two for MAP ("key", "value"; the key is
// NOT NULL), the fields for ROW.
type DataType struct {
	Kind      Kind     `json:"kind"`
	Precision int      `json:"precision,omitempty"`
	Scale     int      `json:"scale,omitempty"`
	Length    int      `json:"length,omitempty"`
	Children  []Column `json:"children,omitempty"`
}

// Names of the children of ARRAY and MAP.
const (
	ElementName = "element"
	KeyName     = "key"
	ValueName   = "value"
)

// Nested says whether t is ARRAY, MAP or ROW.
func (t DataType) Nested() bool { return t.Kind == Array || t.Kind == Map || t.Kind == Row }

// String is the SQL spelling, which ParseType reads back, with every precision written out.
func (t DataType) String() string {
	var b strings.Builder
	t.write(&b)
	return b.String()
}

func (t DataType) write(b *strings.Builder) {
	b.WriteString(t.Kind.String())
	switch t.Kind {
	case Decimal:
		fmt.Fprintf(b, "(%d,%d)", t.Precision, t.Scale)
	case Char, Binary:
		fmt.Fprintf(b, "(%d)", t.Length)
	case Time, Timestamp, TimestampLTZ:
		fmt.Fprintf(b, "(%d)", t.Precision)
	case Array:
		b.WriteByte('<')
		t.Children[0].writeType(b)
		b.WriteByte('>')
	case Map:
		b.WriteByte('<')
		t.Children[0].Type.write(b)
		b.WriteString(", ")
		t.Children[1].writeType(b)
		b.WriteByte('>')
	case Row:
		b.WriteByte('<')
		for i, c := range t.Children {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(quoteFieldName(c.Name))
			b.WriteByte(' ')
			c.writeType(b)
		}
		b.WriteByte('>')
	default: // no parameters
	}
}

func (c Column) writeType(b *strings.Builder) {
	c.Type.write(b)
	if !c.Nullable {
		b.WriteString(" NOT NULL")
	}
}

// quoteFieldName backquotes a ROW field name that a reader could take for a type or a keyword.
func quoteFieldName(name string) string {
	u := strings.ToUpper(name)
	if u == "NOT" || u == "NULL" {
		return "`" + name + "`"
	}
	return name
}

// Equal compares types by kind and parameters, children by name, type and
// nullability; ids and comments are not compared.
func (t DataType) Equal(o DataType) bool {
	if t.Kind != o.Kind || t.Precision != o.Precision || t.Scale != o.Scale || t.Length != o.Length || len(t.Children) != len(o.Children) {
		return false
	}
	for i := range t.Children {
		a, b := t.Children[i], o.Children[i]
		if a.Name != b.Name || a.Nullable != b.Nullable || !a.Type.Equal(b.Type) {
			return false
		}
	}
	return true
}

// ParseType reads a SQL type: a name of the type table (case-insensitive),
// parameters in parentheses, children in <…>, "NOT NULL" after a child's type.
// INTEGER, BOOL, VARCHAR and VARBINARY (without a length), NUMERIC, DEC, STRUCT
// and "TIMESTAMP(p) WITH LOCAL TIME ZONE" are read as synonyms. Field ids are zero.
func ParseType(s string) (DataType, error) {
	p := typeParser{in: s}
	t, err := p.parse(0)
	if err == nil {
		p.space()
		if p.pos < len(p.in) {
			err = fmt.Errorf("unexpected %s", clip(p.in[p.pos:]))
		}
	}
	if err != nil {
		return DataType{}, fmt.Errorf("type %s: %w", clip(s), err)
	}
	return t, nil
}

type typeParser struct {
	in  string
	pos int
}

func (p *typeParser) space() {
	for p.pos < len(p.in) && (p.in[p.pos] == ' ' || p.in[p.pos] == '\t' || p.in[p.pos] == '\n' || p.in[p.pos] == '\r') {
		p.pos++
	}
}

func (p *typeParser) eat(c byte) bool {
	p.space()
	if p.pos < len(p.in) && p.in[p.pos] == c {
		p.pos++
		return true
	}
	return false
}

func (p *typeParser) expect(c byte) error {
	if !p.eat(c) {
		return fmt.Errorf("expected %q at position %d", string(c), p.pos)
	}
	return nil
}

func (p *typeParser) word() string {
	p.space()
	start := p.pos
	for p.pos < len(p.in) {
		c := p.in[p.pos]
		if c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			break
		}
		p.pos++
	}
	return p.in[start:p.pos]
}

// words eats the given words when all of them follow.
func (p *typeParser) words(ws ...string) bool {
	at := p.pos
	for _, w := range ws {
		if !strings.EqualFold(p.word(), w) {
			p.pos = at
			return false
		}
	}
	return true
}

func (p *typeParser) fieldName() (string, error) {
	p.space()
	if p.pos < len(p.in) && (p.in[p.pos] == '`' || p.in[p.pos] == '"') {
		q := p.in[p.pos]
		end := strings.IndexByte(p.in[p.pos+1:], q)
		if end < 0 {
			return "", fmt.Errorf("unclosed %q", string(q))
		}
		name := p.in[p.pos+1 : p.pos+1+end]
		p.pos += end + 2
		return name, ValidateName("field", name)
	}
	name := p.word()
	return name, ValidateName("field", name)
}

// params reads "(a)" or "(a,b)"; none gives nil.
func (p *typeParser) params() ([]int, error) {
	if !p.eat('(') {
		return nil, nil
	}
	var out []int
	for {
		w := p.word()
		n, err := strconv.Atoi(w)
		if err != nil {
			return nil, fmt.Errorf("expected a number at position %d", p.pos)
		}
		out = append(out, n)
		if p.eat(',') {
			continue
		}
		return out, p.expect(')')
	}
}

var kindWords = map[string]Kind{
	"BOOLEAN": Boolean, "BOOL": Boolean, "TINYINT": TinyInt, "SMALLINT": SmallInt, "INT": Int, "INTEGER": Int,
	"BIGINT": BigInt, "FLOAT": Float, "DOUBLE": Double, "DECIMAL": Decimal, "NUMERIC": Decimal, "DEC": Decimal,
	"CHAR": Char, "STRING": String, "VARCHAR": String, "BINARY": Binary, "BYTES": Bytes, "VARBINARY": Bytes,
	"DATE": Date, "TIME": Time, "TIMESTAMP": Timestamp, "TIMESTAMP_LTZ": TimestampLTZ,
	"ARRAY": Array, "MAP": Map, "ROW": Row, "STRUCT": Row,
}

func (p *typeParser) parse(depth int) (DataType, error) {
	if depth > MaxTypeNesting {
		return DataType{}, fmt.Errorf("nested more than %d levels deep", MaxTypeNesting)
	}
	w := p.word()
	k, ok := kindWords[strings.ToUpper(w)]
	if !ok {
		if w == "" {
			return DataType{}, fmt.Errorf("expected a type at position %d", p.pos)
		}
		return DataType{}, fmt.Errorf("%s is not a type", clip(w))
	}
	if k == Double {
		p.words("PRECISION")
	}
	t := DataType{Kind: k}
	switch k {
	case Array, Map, Row:
		return p.parseNested(t, depth)
	case Decimal, Char, Binary, Time, Timestamp, TimestampLTZ:
		return p.parseParams(t)
	default:
		return t, nil
	}
}

func (p *typeParser) parseParams(t DataType) (DataType, error) {
	ps, err := p.params()
	if err != nil {
		return t, err
	}
	most := 1
	if t.Kind == Decimal {
		most = 2
	}
	if len(ps) > most {
		return t, fmt.Errorf("%s takes at most %d parameters", t.Kind, most)
	}
	arg := func(i, dflt int) int {
		if i < len(ps) {
			return ps[i]
		}
		return dflt
	}
	switch t.Kind {
	case Decimal:
		t.Precision, t.Scale = arg(0, 10), arg(1, 0)
		if t.Precision < 1 || t.Precision > MaxDecimalPrecision || t.Scale < 0 || t.Scale > t.Precision {
			return t, fmt.Errorf("DECIMAL(p,s) needs 1 ≤ p ≤ %d and 0 ≤ s ≤ p", MaxDecimalPrecision)
		}
	case Char, Binary:
		t.Length = arg(0, 1)
		if t.Length < 1 || t.Length > MaxTypeLength {
			return t, fmt.Errorf("%s(n) needs 1 ≤ n ≤ %d", t.Kind, MaxTypeLength)
		}
	default:
		dflt := 6
		if t.Kind == Time {
			dflt = 0
		}
		t.Precision = arg(0, dflt)
		if t.Precision < 0 || t.Precision > MaxTimePrecision {
			return t, fmt.Errorf("%s(p) needs 0 ≤ p ≤ %d", t.Kind, MaxTimePrecision)
		}
		if t.Kind == Timestamp && p.words("WITH", "LOCAL", "TIME", "ZONE") {
			t.Kind = TimestampLTZ
		}
	}
	return t, nil
}

func (p *typeParser) parseNested(t DataType, depth int) (DataType, error) {
	if err := p.expect('<'); err != nil {
		return t, err
	}
	child := func(name string) error {
		ct, err := p.parse(depth + 1)
		if err != nil {
			return err
		}
		t.Children = append(t.Children, Column{Name: name, Type: ct, Nullable: !p.words("NOT", "NULL")})
		return nil
	}
	switch t.Kind {
	case Array:
		if err := child(ElementName); err != nil {
			return t, err
		}
	case Map:
		if err := child(KeyName); err != nil {
			return t, err
		}
		t.Children[0].Nullable = false
		if err := p.expect(','); err != nil {
			return t, err
		}
		if err := child(ValueName); err != nil {
			return t, err
		}
	default:
		seen := map[string]bool{}
		for {
			name, err := p.fieldName()
			if err != nil {
				return t, err
			}
			key := strings.ToLower(name)
			if seen[key] {
				return t, fmt.Errorf("field %s stands twice (names may not differ in case only)", clip(name))
			}
			seen[key] = true
			p.eat(':')
			if err := child(name); err != nil {
				return t, err
			}
			if len(t.Children) > MaxTypeFields {
				return t, fmt.Errorf("a ROW has at most %d fields", MaxTypeFields)
			}
			if !p.eat(',') {
				break
			}
		}
	}
	return t, p.expect('>')
}
