package sql

import (
	"encoding/json"
	"slices"
	"strings"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// MaxRows is the most rows that one INSERT writes: a batch of a write over HTTP.
const MaxRows = 10_000

// insert is INSERT INTO table [(columns)] VALUES ….
type insert struct {
	table   tableName
	columns []name // nil without a list
	values  token  // the first token of the rows
	width   int    // how many values each row has
	rowAt   int    // where the first row begins
	rows    int
	text    string
}

// remove is DELETE FROM table WHERE the whole key.
type remove struct {
	table tableName
	where *condition
	at    int // of the condition
}

// insert reads what comes after INSERT. The values are checked for their form, and
// read again when the columns are known: no tree of them is kept.
func (p *parser) insert() statement {
	if p.tok.word("OVERWRITE") || p.tok.word("OR") || p.tok.word("IGNORE") {
		p.unsupported(p.tok.at, "INSERT "+strings.ToUpper(p.tok.val))
	}
	p.expect("INTO")
	if p.tok.word("TABLE") {
		p.advance()
	}
	st := &insert{table: p.plainTable(), text: string(p.src)}
	if p.tok.word("PARTITION") && p.peek().symbol("(") {
		p.unsupported(p.tok.at, "INSERT INTO a PARTITION (the values of its columns say where a row goes)")
	}
	if p.tok.symbol("(") && !p.peek().word("SELECT") {
		st.columns = p.names("a column")
	}
	next := p.peek()
	switch t := p.tok; {
	case t.word("SELECT"), t.word("WITH"), t.word("TABLE"), t.symbol("(") && next.word("SELECT"):
		p.unsupported(t.at, "INSERT … SELECT")
	case t.word("DEFAULT"):
		p.unsupported(t.at, "DEFAULT VALUES")
	}
	if !p.accept("VALUES") {
		p.expected("VALUES", "VALUES", "SELECT")
	}
	st.values, st.rowAt = p.tok, p.tok.at
	p.checkRows(st)
	switch t := p.tok; {
	case t.word("ON"), t.word("RETURNING"), t.word("AS"):
		p.unsupported(t.at, "INSERT … "+strings.ToUpper(t.val))
	case t.symbol("("):
		p.invalid(t.at, "expected a comma between rows")
	}
	p.end()
	return st
}

// checkRows reads the rows without keeping anything.
func (p *parser) checkRows(st *insert) {
	r := rowReader{p: p}
	for p.err == nil {
		at := p.tok.at
		n := r.row()
		if st.rows == 0 {
			st.width = n
		}
		switch st.rows++; {
		case p.err != nil:
			return
		case st.columns != nil && n != len(st.columns):
			p.invalid(at, "row %d has %d values, and %d columns are named", st.rows-1, n, len(st.columns))
		case n != st.width:
			p.invalid(at, "row %d has %d values, and the rows before it have %d", st.rows-1, n, st.width)
		case st.rows > MaxRows:
			p.stop(p.src.fail(errs.TooLarge, at, "more than %d rows; send several statements, or write rows over /records", MaxRows))
		}
		if !p.acceptSymbol(",") {
			return
		}
	}
}

// delete reads what comes after DELETE.
func (p *parser) delete() statement {
	p.expect("FROM")
	st := &remove{table: p.plainTable()}
	switch t := p.tok; {
	case t.word("USING"), t.symbol(","):
		p.unsupported(t.at, "DELETE with a second table")
	case t.word("AS"), t.kind == quotedToken:
		p.unsupported(t.at, "an alias of the table")
	case t.kind == endToken && p.err == nil, t.symbol(";"):
		p.unsupported(t.at, "DELETE without a WHERE (it deletes by the whole primary key)")
	}
	if !p.accept("WHERE") {
		p.expected("WHERE", "WHERE")
	}
	st.at = p.tok.at
	st.where = p.condition()
	for _, w := range []string{"GROUP", "ORDER", "LIMIT", "RETURNING", "HAVING"} {
		if p.tok.word(w) {
			p.unsupported(p.tok.at, "DELETE with "+w)
		}
	}
	p.end()
	return st
}

// maxValueDepth is how deep ARRAY, MAP and ROW may nest: as deep as types do.
const maxValueDepth = millrace.MaxTypeNesting

// rowReader reads rows of values. With columns it makes the JSON object of each
// row, by which row/jsonrow knows it; without, it only sees that their form is right.
type rowReader struct {
	p       *parser
	columns []millrace.Column
	params  []json.RawMessage
	names   [][]byte // `"name":` of each column

	object []byte
	starts []int // where each value of the row stands
}

// newRowReader begins with the rows of st.
func newRowReader(st *insert, columns []millrace.Column, params []json.RawMessage) *rowReader {
	r := &rowReader{p: &parser{src: source(st.text), tok: st.values}, columns: columns, params: params}
	for _, c := range columns {
		r.names = append(r.names, append(appendJSONText(nil, c.Name), ':'))
	}
	return r
}

// row reads a row, in parentheses, and says how many values it has.
func (r *rowReader) row() (n int) {
	r.object, r.starts = append(r.object[:0], '{'), r.starts[:0]
	r.p.expectSymbol("(", "before the values of a row")
	for r.p.err == nil {
		r.starts = append(r.starts, r.p.tok.at)
		var t *millrace.DataType
		if n < len(r.columns) {
			t = &r.columns[n].Type
			if n > 0 {
				r.object = append(r.object, ',')
			}
			r.object = append(r.object, r.names[n]...)
		}
		r.value(t, 0)
		n++
		if len(r.columns) == 0 {
			r.object = r.object[:0] // nobody wants it
		}
		if !r.p.acceptSymbol(",") {
			break
		}
	}
	r.object = append(r.object, '}')
	r.afterValue()
	r.p.expectSymbol(")", "or a comma after a value")
	return n
}

// afterValue refuses what makes an expression of a value.
func (r *rowReader) afterValue() {
	switch t := r.p.tok; {
	case t.kind == symbolToken && strings.Contains("+-*/%|:=<>", t.val):
		r.p.unsupported(t.at, "an expression in VALUES")
	}
}

// value appends the JSON of one value, for a column of type t; nil: of any.
func (r *rowReader) value(t *millrace.DataType, depth int) {
	p := r.p
	at, next := p.tok, p.peek()
	switch {
	case at.kind == textToken:
		p.advance()
		r.object = appendJSONText(r.object, at.val)
	case at.kind == numberToken:
		p.advance()
		r.object = appendJSONNumber(r.object, at.val)
	case at.symbol("-") && next.kind == numberToken, at.symbol("+") && next.kind == numberToken:
		p.advance()
		if at.symbol("-") {
			r.object = append(r.object, '-')
		}
		r.object = appendJSONNumber(r.object, p.advance().val)
	case at.symbol("?"):
		p.advance()
		if r.params != nil {
			r.object = append(r.object, r.params[p.params]...)
		}
		p.params++
	case at.word("NULL"), at.word("TRUE"), at.word("FALSE"):
		p.advance()
		r.object = append(r.object, strings.ToLower(at.val)...)
	case at.kind == hexToken:
		p.advance()
		r.hex(at, t)
	case at.kind == wordToken && next.kind == textToken:
		r.temporal(at, t)
	case at.word("ARRAY") && next.symbol("["), at.word("MAP") && next.symbol("["), at.word("ROW") && next.symbol("("):
		if depth == maxValueDepth {
			p.invalid(at.at, "ARRAY, MAP and ROW are nested more than %d deep", maxValueDepth)
			return
		}
		r.nested(at, t, depth)
	default:
		r.noValue(next)
	}
}

// noValue says what is wrong with what stands where a value should.
func (r *rowReader) noValue(next token) {
	p := r.p
	switch t := p.tok; {
	case t.symbol("(") && next.word("SELECT"):
		p.unsupported(t.at, "a subquery in VALUES")
	case t.word("DEFAULT"):
		p.unsupported(t.at, "DEFAULT in VALUES (a column that the list leaves out is NULL, or keeps its value)")
	case t.kind == wordToken && next.symbol("("):
		p.unsupported(t.at, "the function "+strings.ToUpper(t.val)+" in VALUES")
	case t.word("CURRENT_TIMESTAMP"), t.word("CASE"), t.word("INTERVAL"), t.symbol("("), t.symbol("-"), t.symbol("+"):
		p.unsupported(t.at, "an expression in VALUES")
	case t.kind == quotedToken, t.kind == wordToken && !reserved[strings.ToUpper(t.val)]:
		p.invalid(t.at, "expected a value, found %s; a text is written in single quotes, '%s'", p.found(), t.val[:min(len(t.val), clipBytes)])
	default:
		p.expected("a value")
	}
}

func (r *rowReader) mismatch(at int, what string, t *millrace.DataType) {
	if t != nil {
		r.p.stop(r.p.src.fail(errs.TypeMismatch, at, "%s for a column or field of type %s", what, t))
	}
}

// hex appends X'00ff' in the form that binary values have in JSON.
func (r *rowReader) hex(at token, t *millrace.DataType) {
	b, err := decodeHex(at.val)
	switch {
	case err != nil:
		r.p.invalid(at.at, "X'…' holds pairs of hexadecimal digits")
	case t != nil && t.Kind != millrace.Bytes && t.Kind != millrace.Binary:
		r.mismatch(at.at, "a binary value", t)
	default:
		r.object = append(r.object, '"')
		r.object = appendBase64(r.object, b)
		r.object = append(r.object, '"')
	}
}

// temporal appends DATE '…', TIME '…', TIMESTAMP '…' or TIMESTAMP_LTZ '…'.
func (r *rowReader) temporal(word token, t *millrace.DataType) {
	kinds := []millrace.Kind{millrace.Date, millrace.Time, millrace.Timestamp, millrace.TimestampLTZ}
	i := slices.IndexFunc(kinds, func(k millrace.Kind) bool { return word.word(k.String()) })
	if i < 0 {
		if word.word("INTERVAL") {
			r.p.unsupported(word.at, "an INTERVAL in VALUES")
		} else {
			r.p.invalid(word.at, "expected a value, found %s", clip(word.val))
		}
		return
	}
	r.p.advance()
	text := r.p.advance().val
	if t != nil && t.Kind != kinds[i] {
		r.mismatch(word.at, "a "+kinds[i].String(), t)
	}
	r.object = appendJSONText(r.object, text)
}

// nested appends ARRAY[…], MAP[key, value, …] or ROW(…).
func (r *rowReader) nested(word token, t *millrace.DataType, depth int) {
	p := r.p
	kind := map[byte]millrace.Kind{'A': millrace.Array, 'M': millrace.Map, 'R': millrace.Row}[word.val[0]&^0x20]
	if t != nil && t.Kind != kind {
		r.mismatch(word.at, "a value of "+kind.String(), t)
		return
	}
	p.advance()
	p.advance()
	closing, open, end := "]", byte('['), byte(']')
	if kind == millrace.Row {
		closing, open, end = ")", '{', '}'
	}
	r.object = append(r.object, open)
	n := 0
	for p.err == nil && !p.tok.symbol(closing) {
		r.member(kind, t, n, depth)
		n++
		r.afterValue()
		if !p.acceptSymbol(",") {
			break
		}
	}
	switch {
	case p.err != nil:
		return
	case kind == millrace.Map && n%2 == 1:
		p.invalid(word.at, "MAP[…] lists keys and values in turn; it has %d entries", n)
	case kind == millrace.Row && t != nil && n != len(t.Children):
		p.invalid(word.at, "ROW(…) has %d values, and the type %s has %d fields", n, t, len(t.Children))
	}
	r.object = append(r.object, end)
	p.expectSymbol(closing, "or a comma after a value")
}

// member appends value n within a nested one.
func (r *rowReader) member(kind millrace.Kind, t *millrace.DataType, n, depth int) {
	var child *millrace.Column
	if t != nil {
		switch {
		case kind == millrace.Array:
			child = &t.Children[0]
		case kind == millrace.Map:
			child = &t.Children[n%2]
		case n < len(t.Children):
			child = &t.Children[n]
		}
	}
	if n > 0 && (kind != millrace.Map || n%2 == 0) {
		r.object = append(r.object, ',')
	}
	switch {
	case kind == millrace.Map && n%2 == 0:
		r.object = append(r.object, `{"key":`...)
	case kind == millrace.Map:
		r.object = append(r.object, `,"value":`...)
	case kind == millrace.Row && child != nil:
		r.object = append(appendJSONText(r.object, child.Name), ':')
	}
	var ct *millrace.DataType
	if child != nil {
		ct = &child.Type
	}
	r.value(ct, depth+1)
	if kind == millrace.Map && n%2 == 1 {
		r.object = append(r.object, '}')
	}
}
