package sql

import (
	"slices"
	"strings"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
)

type createDatabase struct {
	name        name
	comment     string
	ifNotExists bool
}

type dropDatabase struct {
	name              name
	ifExists, cascade bool
}

type useDatabase struct{ name name }

type createTable struct {
	table       tableName
	spec        catalog.Spec
	ifNotExists bool
}

type dropTable struct {
	table    tableName
	ifExists bool
}

// create reads what comes after CREATE.
func (p *parser) create() statement {
	switch {
	case p.accept("DATABASE"):
		st := &createDatabase{ifNotExists: p.exists("NOT")}
		st.name = p.database()
		if p.accept("COMMENT") {
			st.comment = p.text("a comment")
		}
		if p.tok.word("WITH") {
			p.unsupported(p.tok.at, "properties of a database (WITH)")
		}
		p.end("COMMENT")
		return st
	case p.accept("TABLE"):
		return p.createTable()
	}
	p.object("CREATE", "DATABASE", "TABLE")
	return nil
}

// exists reads IF [NOT] EXISTS.
func (p *parser) exists(not ...string) bool {
	if !p.accept("IF") {
		return false
	}
	p.expect(append(not, "EXISTS")...)
	return true
}

func (p *parser) database() name {
	n := p.name("the name of a database")
	if p.tok.symbol(".") {
		p.unsupported(p.tok.at, "a catalog in front of the database")
	}
	p.checkName("database", n)
	return n
}

// drop reads what comes after DROP.
func (p *parser) drop() statement {
	switch {
	case p.accept("DATABASE"):
		st := &dropDatabase{ifExists: p.exists()}
		st.name = p.database()
		if !p.accept("RESTRICT") {
			st.cascade = p.accept("CASCADE")
		}
		p.end("CASCADE")
		return st
	case p.accept("TABLE"):
		st := &dropTable{ifExists: p.exists()}
		st.table = p.plainTable()
		if p.tok.symbol(",") {
			p.unsupported(p.tok.at, "DROP TABLE of several tables")
		}
		p.end()
		return st
	}
	p.object("DROP", "DATABASE", "TABLE")
	return nil
}

// createTable reads what comes after CREATE TABLE.
func (p *parser) createTable() statement {
	st := &createTable{ifNotExists: p.exists("NOT")}
	st.table = p.plainTable()
	st.spec.Name = st.table.table
	if p.tok.word("AS") || p.tok.word("LIKE") {
		p.unsupported(p.tok.at, "CREATE TABLE "+strings.ToUpper(p.tok.val))
	}
	p.expectSymbol("(", "before the columns of the table")
	for {
		p.element(&st.spec)
		if !p.acceptSymbol(",") {
			break
		}
	}
	if p.tok.kind == wordToken || p.tok.kind == quotedToken {
		p.expected("a comma or \")\" behind a column", "NOT", "NULL", "PRIMARY", "COMMENT", "AUTO_INCREMENT")
	}
	p.expectSymbol(")", "or a comma after a column")
	p.tableOptions(&st.spec)
	return st
}

// constraint refuses what can stand among the columns of a table in SQL, and is
// neither a column nor the primary key.
func (p *parser) constraint() bool {
	t, next := p.tok, p.peek()
	construct := ""
	switch {
	case t.word("WATERMARK") && next.word("FOR"):
		construct = "a watermark (event time is the reader's business)"
	case t.word("UNIQUE") && (next.symbol("(") || next.word("KEY") || next.word("INDEX")):
		construct = "a UNIQUE constraint"
	case t.word("FOREIGN") && next.word("KEY"):
		construct = "a FOREIGN KEY"
	case t.word("CHECK") && next.symbol("("):
		construct = "a CHECK constraint"
	case (t.word("INDEX") || t.word("KEY")) && next.symbol("("):
		construct = "an index"
	case t.word("LIKE") && next.kind != endToken:
		construct = "LIKE in a table's columns"
	}
	if construct != "" {
		p.unsupported(t.at, construct)
	}
	return construct != ""
}

// element reads a column of a table, or its primary key.
func (p *parser) element(spec *catalog.Spec) {
	if p.constraint() {
		return
	}
	if p.tok.word("CONSTRAINT") && p.peek().kind != symbolToken {
		p.advance()
		p.name("the name of the constraint")
		if p.constraint() {
			return
		}
		if !p.tok.word("PRIMARY") {
			p.expected("PRIMARY KEY", "PRIMARY")
		}
	}
	if p.tok.word("PRIMARY") {
		at := p.advance().at
		p.expect("KEY")
		p.primaryKey(spec, at, p.names("a column of the primary key"))
		return
	}
	p.column(spec)
}

func (p *parser) primaryKey(spec *catalog.Spec, at int, key []name) {
	if spec.PrimaryKey != nil {
		p.invalid(at, "the table has a primary key already")
		return
	}
	spec.PrimaryKey = texts(key)
	if p.accept("NOT") {
		p.expect("ENFORCED")
	}
	if p.tok.word("ENFORCED") {
		p.advance() // which it is
	}
}

// column reads the definition of a column of a new table.
func (p *parser) column(spec *catalog.Spec) {
	n := p.name("a column or PRIMARY KEY")
	c := p.columnType(n)
	for p.err == nil {
		at := p.tok.at
		if p.accept("PRIMARY") {
			p.expect("KEY")
			p.primaryKey(spec, at, []name{n})
			continue
		}
		if !p.attribute(&c) {
			break
		}
	}
	spec.Columns = append(spec.Columns, c)
}

// columnType reads the type of a column with this name.
func (p *parser) columnType(n name) catalog.ColumnSpec {
	at := p.tok.at
	c := catalog.ColumnSpec{Name: n.text}
	if p.tok.word("AS") {
		p.unsupported(at, "a computed column (AS)")
	}
	if p.tok.word("METADATA") {
		p.unsupported(at, "a METADATA column ($changelog has _log_offset and _commit_timestamp)")
	}
	c.Type = p.typeText()
	if p.err != nil {
		return c
	}
	if _, err := millrace.ParseType(c.Type); err != nil {
		p.stop(p.src.fail(errs.InvalidSchema, at, "column %s: %v", clip(n.text), err))
	}
	return c
}

// typeText cuts the text of a type out: a word, what stands in parentheses or angle
// brackets behind it, and the words that belong to it.
func (p *parser) typeText() string {
	if p.tok.kind != wordToken {
		p.expected("the type of the column")
		return ""
	}
	text := append([]byte(nil), p.advance().val...)
	if p.tok.symbol("(") || p.tok.symbol("<") {
		text = p.typeParameters(text)
	}
	switch {
	case p.accept("PRECISION"):
		text = append(text, " PRECISION"...)
	case p.accept("WITH", "LOCAL", "TIME", "ZONE"):
		text = append(text, " WITH LOCAL TIME ZONE"...)
	case p.accept("WITHOUT", "TIME", "ZONE"): // as it is without these words
	case p.tok.word("WITH") && p.peek().word("TIME"):
		p.unsupported(p.tok.at, "a type WITH TIME ZONE (TIMESTAMP_LTZ is a point in time)")
	}
	return string(text)
}

// typeParameters appends what stands in parentheses or angle brackets, without
// comments.
func (p *parser) typeParameters(text []byte) []byte {
	depth := 0
	for p.err == nil && p.tok.kind != endToken {
		switch {
		case p.tok.symbol("("), p.tok.symbol("<"):
			depth++
		case p.tok.symbol(")"), p.tok.symbol(">"):
			depth--
		}
		if p.tok.kind != symbolToken {
			text = append(text, ' ')
		}
		text = append(text, p.src[p.tok.at:p.tok.end]...)
		p.advance()
		if depth == 0 {
			return text
		}
	}
	p.expected("the end of the type")
	return text
}

// attribute reads one thing that is said of a column behind its type; false when
// there is none.
func (p *parser) attribute(c *catalog.ColumnSpec) bool {
	at := p.tok.at
	switch {
	case p.accept("NOT"):
		p.expect("NULL")
		p.setNullable(c, at, false)
	case p.accept("NULL"):
		p.setNullable(c, at, true)
	case p.accept("COMMENT"):
		c.Comment = p.text("a comment")
	case p.accept("AUTO_INCREMENT"):
		c.AutoIncrement = true
	case p.tok.word("DEFAULT"):
		p.unsupported(at, "a DEFAULT value")
	case p.tok.word("GENERATED"), p.tok.word("AS"), p.tok.word("VIRTUAL"), p.tok.word("STORED"):
		p.unsupported(at, "a computed column ("+strings.ToUpper(p.tok.val)+")")
	case p.tok.word("METADATA"):
		p.unsupported(at, "a METADATA column ($changelog has _log_offset and _commit_timestamp)")
	case p.tok.word("UNIQUE"), p.tok.word("CHECK"), p.tok.word("REFERENCES"), p.tok.word("CONSTRAINT"):
		p.unsupported(at, "the constraint "+strings.ToUpper(p.tok.val))
	case p.tok.word("COLLATE"), p.tok.word("CHARACTER"):
		p.unsupported(at, strings.ToUpper(p.tok.val)+" of a column (text is UTF-8 and compared by its bytes)")
	default:
		return false
	}
	return true
}

func (p *parser) setNullable(c *catalog.ColumnSpec, at int, on bool) {
	if c.Nullable != nil && p.err == nil {
		p.invalid(at, "the column says twice whether it may be NULL")
	}
	c.Nullable = &on
}

// tableOptions reads what comes after the columns of a table.
func (p *parser) tableOptions(spec *catalog.Spec) {
	left := []string{"COMMENT", "PARTITIONED", "WITH"}
	for p.err == nil && p.tok.kind == wordToken {
		i := slices.IndexFunc(left, p.tok.word)
		at := p.tok.at
		if i < 0 {
			p.otherOption(left)
			return
		}
		word := left[i]
		left = slices.Delete(left, i, i+1)
		p.advance()
		switch word {
		case "COMMENT":
			spec.Comment = p.text("a comment")
		case "PARTITIONED":
			p.expect("BY")
			spec.PartitionBy = texts(p.names("a column in PARTITIONED BY"))
		default:
			spec.Properties = p.properties()
			if len(spec.Properties) == 0 {
				p.invalid(at, "WITH names at least one property")
			}
		}
	}
	p.end(left...)
}

func (p *parser) otherOption(left []string) {
	at := p.tok.at
	switch {
	case p.tok.word("DISTRIBUTED"), p.tok.word("CLUSTERED"):
		p.unsupported(at, strings.ToUpper(p.tok.val)+" BY (write WITH ('bucket.num' = '4', 'bucket.key' = 'a,b'))")
	case p.tok.word("AS"), p.tok.word("LIKE"), p.tok.word("SELECT"):
		p.unsupported(at, "CREATE TABLE "+strings.ToUpper(p.tok.val))
	case p.tok.word("ENGINE"), p.tok.word("USING"), p.tok.word("TBLPROPERTIES"), p.tok.word("LOCATION"), p.tok.word("STORED"), p.tok.word("ROW"):
		p.unsupported(at, strings.ToUpper(p.tok.val)+" of a table")
	case p.tok.word("COMMENT"), p.tok.word("PARTITIONED"), p.tok.word("WITH"):
		p.invalid(at, "%s stands twice", strings.ToUpper(p.tok.val))
	default:
		p.end(left...)
	}
}

// properties reads ('key' = 'value', …).
func (p *parser) properties() map[string]string {
	out := map[string]string{}
	p.expectSymbol("(", "before properties")
	for p.err == nil && !p.tok.symbol(")") {
		at := p.tok.at
		key := p.text("the key of a property")
		p.expectSymbol("=", "after the key of a property")
		value := p.text("the value of a property")
		if _, twice := out[key]; twice && p.err == nil {
			p.invalid(at, "the property %s stands twice", clip(key))
		}
		out[key] = value
		if !p.acceptSymbol(",") {
			break
		}
	}
	p.expectSymbol(")", "or a comma after a property")
	return out
}

// keys reads ('key', …).
func (p *parser) keys() []string {
	var out []string
	p.expectSymbol("(", "before the keys of properties")
	for {
		out = append(out, p.text("the key of a property"))
		if !p.acceptSymbol(",") {
			break
		}
	}
	p.expectSymbol(")", "or a comma after the key of a property")
	return out
}
