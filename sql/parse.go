package sql

import (
	"strings"
	"unicode/utf8"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/filter"
)

// MaxTextBytes bounds a statement: that of a batch of rows over HTTP.
const MaxTextBytes = 16 << 20

// statement is a statement that was read.
type statement interface {
	kind() Kind
}

// parser reads one statement. Its first error stays: from then on the next token is
// the end, whatever is asked for fails, and loops end.
type parser struct {
	src    source
	tok    token // the next, not yet taken
	params int   // question marks taken so far
	err    error
}

func newParser(text string) *parser {
	p := &parser{src: source(text)}
	switch {
	case len(text) > MaxTextBytes:
		p.stop(errs.New(errs.TooLarge, "the statement has %d bytes; at most %d are allowed", len(text), MaxTextBytes))
	case !utf8.ValidString(text):
		p.stop(p.src.invalid(0, "the statement is not valid UTF-8"))
	default:
		p.advance()
	}
	return p
}

// parse reads a whole text. The number of its parameters is returned too.
func parse(text string) (statement, int, error) {
	p := newParser(text)
	st := p.statement()
	if p.err != nil {
		return nil, 0, p.err
	}
	return st, p.params, nil
}

func (p *parser) stop(err error) {
	if p.err == nil {
		p.err = err
	}
	p.tok = token{kind: endToken, at: len(p.src), end: len(p.src)}
}

func (p *parser) invalid(at int, format string, args ...any) {
	p.stop(p.src.invalid(at, format, args...))
}

// unsupported refuses a construct that the subset has not.
func (p *parser) unsupported(at int, construct string) {
	p.stop(p.src.unsupported(at, construct))
}

func (s source) unsupported(at int, construct string) *errs.Error {
	return s.fail(errs.UnsupportedSQL, at, "%s: not in this SQL subset; Flink, Spark or DuckDB do it on the same tables", construct)
}

// advance takes the next token and returns it.
func (p *parser) advance() token {
	was := p.tok
	if p.err != nil {
		return was
	}
	t, err := p.src.token(was.end)
	if err != nil {
		p.stop(err)
		return was
	}
	p.tok = t
	return was
}

// peek is the token after the next.
func (p *parser) peek() token {
	t, err := p.src.token(p.tok.end)
	if err != nil {
		return token{kind: endToken, at: t.at, end: t.at} // said when it is reached
	}
	return t
}

// accept takes the next tokens if they are the given keywords.
func (p *parser) accept(words ...string) bool {
	at := p.tok
	for i, w := range words {
		if !at.word(w) {
			return false
		}
		if i < len(words)-1 {
			var err error
			if at, err = p.src.token(at.end); err != nil {
				return false
			}
		}
	}
	p.tok = at
	p.advance()
	return p.err == nil
}

// acceptSymbol takes the next token if it is the given character.
func (p *parser) acceptSymbol(s string) bool {
	if !p.tok.symbol(s) {
		return false
	}
	p.advance()
	return p.err == nil
}

// expect takes the given keywords.
func (p *parser) expect(words ...string) {
	for _, w := range words {
		if !p.accept(w) {
			p.expected(w, w)
			return
		}
	}
}

func (p *parser) expectSymbol(s, where string) {
	if !p.acceptSymbol(s) {
		p.expected(`"` + s + `" ` + where)
	}
}

// expected fails because of what stands next. words are the keywords that may stand
// there: a misspelt one is recognised.
func (p *parser) expected(what string, words ...string) {
	hint := ""
	if p.tok.kind == wordToken {
		if near, ok := filter.Nearest(strings.ToUpper(p.tok.val), words); ok {
			hint = "; did you mean " + near + "?"
		}
	}
	p.invalid(p.tok.at, "expected %s, found %s%s", what, p.found(), hint)
}

// found describes the next token for a message.
func (p *parser) found() string {
	if p.tok.kind == endToken {
		return "the end of the statement"
	}
	return clip(string(p.src[p.tok.at:p.tok.end]))
}

// end sees that the statement ends here; words are what could also have come.
func (p *parser) end(words ...string) {
	for p.acceptSymbol(";") {
		if p.tok.kind != endToken && !p.tok.symbol(";") {
			p.invalid(p.tok.at, "a second statement begins here; send one at a time (millrace sql -f runs scripts)")
			return
		}
	}
	if p.tok.kind != endToken {
		before := ""
		if len(words) > 0 {
			before = strings.Join(words, ", ") + " or "
		}
		p.expected(before+"the end of the statement", words...)
	}
}

// name is a name in the statement, and where.
type name struct {
	text string
	at   int
}

// reserved are the words that are names only in quotes.
var reserved = map[string]bool{
	"SELECT": true, "FROM": true, "WHERE": true, "GROUP": true, "ORDER": true, "BY": true, "LIMIT": true, "HAVING": true,
	"UNION": true, "INTERSECT": true, "EXCEPT": true, "JOIN": true, "ON": true, "USING": true, "AS": true, "AND": true, "OR": true,
	"NOT": true, "NULL": true, "TRUE": true, "FALSE": true, "IN": true, "IS": true, "LIKE": true, "BETWEEN": true, "CASE": true,
	"CREATE": true, "DROP": true, "ALTER": true, "INSERT": true, "INTO": true, "DELETE": true, "VALUES": true, "TABLE": true,
	"PRIMARY": true, "WITH": true, "DISTINCT": true,
}

// name takes a name; noun says of what.
func (p *parser) name(noun string) name {
	t := p.tok
	switch {
	case t.kind == quotedToken:
	case t.kind == wordToken && !reserved[strings.ToUpper(t.val)]:
	case t.kind == wordToken:
		p.invalid(t.at, "expected %s, found the keyword %s; a name that is a keyword is written in quotes, \"%s\"", noun, clip(t.val), t.val)
		return name{}
	case t.kind == textToken:
		p.invalid(t.at, `expected %s, found a text; names are bare or in quotes like "a" or `+"`a`", noun)
		return name{}
	default:
		p.expected(noun)
		return name{}
	}
	p.advance()
	return name{text: t.val, at: t.at}
}

// names takes names in parentheses.
func (p *parser) names(noun string) []name {
	p.expectSymbol("(", "before names of columns")
	var out []name
	for {
		out = append(out, p.name(noun))
		if !p.acceptSymbol(",") {
			break
		}
	}
	p.expectSymbol(")", "or a comma after the name of a column")
	return out
}

func texts(names []name) []string {
	var out []string
	for _, n := range names {
		out = append(out, n.text)
	}
	return out
}

// tableName is [database.]table[$suffix].
type tableName struct {
	database, table string
	suffix          string // with its $; "" for the table itself
	at              int
}

func (p *parser) tableName() tableName {
	first := p.name("the name of a table")
	n := tableName{at: first.at}
	last := first
	if p.acceptSymbol(".") {
		last = p.name("the name of a table")
		n.database = first.text
		if p.tok.symbol(".") {
			p.unsupported(p.tok.at, "a catalog in front of the database")
			return n
		}
		p.checkName("database", first)
	}
	n.table = last.text
	if i := strings.IndexByte(last.text, '$'); i >= 0 {
		n.table, n.suffix = last.text[:i], last.text[i:]
	}
	p.checkName("table", name{text: n.table, at: last.at})
	return n
}

func (p *parser) checkName(noun string, n name) {
	if p.err != nil {
		return
	}
	if err := millrace.ValidateName(noun, n.text); err != nil {
		p.stop(p.src.fail(errs.InvalidName, n.at, "%v", err))
	}
}

// plainTable is the name of a table that is not only read.
func (p *parser) plainTable() tableName {
	n := p.tableName()
	if n.suffix != "" && p.err == nil {
		p.stop(p.src.fail(errs.ReadOnlyTable, n.at, "%q is a view and can only be read; the table is %q", n.table+n.suffix, n.table))
	}
	return n
}

// text takes a text in single quotes.
func (p *parser) text(what string) string {
	if p.tok.kind != textToken {
		hint := ""
		if p.tok.kind == quotedToken {
			hint = "; texts are written in single quotes, '…'"
		}
		p.invalid(p.tok.at, "expected %s in single quotes, found %s%s", what, p.found(), hint)
		return ""
	}
	return p.advance().val
}

// statements are the words that begin one of ours.
var statements = []string{"CREATE", "DROP", "ALTER", "SHOW", "DESCRIBE", "DESC", "INSERT", "DELETE", "SELECT", "USE"}

// statement reads the statement by its first word.
func (p *parser) statement() statement {
	at := p.tok.at
	switch {
	case p.err != nil:
	case p.accept("SELECT"):
		return p.query()
	case p.accept("INSERT"):
		return p.insert()
	case p.accept("DELETE"):
		return p.delete()
	case p.accept("CREATE"):
		return p.create()
	case p.accept("DROP"):
		return p.drop()
	case p.accept("ALTER"):
		return p.alter()
	case p.accept("SHOW"):
		return p.show()
	case p.accept("DESCRIBE"), p.accept("DESC"):
		return p.describe()
	case p.accept("USE"):
		st := &useDatabase{name: p.name("the name of a database")}
		p.end()
		return st
	case p.tok.kind == endToken:
		p.invalid(at, "the statement is empty")
	case p.tok.symbol("("):
		p.unsupported(at, "a statement in parentheses")
	default:
		if c, ok := otherStatements[strings.ToUpper(p.tok.val)]; ok && p.tok.kind == wordToken {
			p.unsupported(at, c)
			break
		}
		p.expected("a statement (CREATE, DROP, ALTER, SHOW, DESCRIBE, INSERT, DELETE or SELECT)", statements...)
	}
	return nil
}
