package sql

import (
	"strings"

	"github.com/millrace/millrace/catalog"
)

// alterTable is ALTER TABLE table and what to change.
type alterTable struct {
	table tableName
	steps []alterStep
	at    int // of what to change
}

func (*alterTable) statement() {}

// alterStep is one change; op says which of the others count.
type alterStep struct {
	op         string // as in PATCH of a table: add_column, rename_column, …
	column     catalog.ColumnSpec
	first      bool
	after      string
	name, to   string
	comment    string
	properties map[string]string
	keys       []string
}

// alter reads what comes after ALTER.
func (p *parser) alter() statement {
	if !p.accept("TABLE") {
		if p.tok.word("DATABASE") {
			p.unsupported(p.tok.at, "ALTER DATABASE")
		}
		p.object("ALTER", "TABLE")
		return nil
	}
	if p.tok.word("IF") {
		p.unsupported(p.tok.at, "ALTER TABLE IF EXISTS")
	}
	st := &alterTable{table: p.plainTable(), at: p.tok.at}
	switch {
	case p.accept("ADD"):
		p.addColumns(st)
	case p.accept("RENAME"):
		p.renameColumn(st)
	case p.accept("DROP"):
		p.dropColumns(st)
	case p.accept("MODIFY"):
		p.modifyColumn(st)
	case p.accept("SET"):
		st.steps = []alterStep{{op: "set_properties", properties: p.properties()}}
	case p.accept("RESET"):
		st.steps = []alterStep{{op: "reset_properties", keys: p.keys()}}
	case p.accept("COMMENT"):
		st.steps = []alterStep{{op: "set_comment", comment: p.text("a comment")}}
	case p.tok.word("ALTER"), p.tok.word("CHANGE"):
		p.unsupported(p.tok.at, "ALTER TABLE … "+strings.ToUpper(p.tok.val)+" (write MODIFY name TYPE)")
	default:
		p.expected("ADD, RENAME, DROP, MODIFY, SET, RESET or COMMENT", "ADD", "RENAME", "DROP", "MODIFY", "SET", "RESET", "COMMENT")
	}
	if p.tok.symbol(",") {
		p.unsupported(p.tok.at, "several kinds of changes in one ALTER TABLE (the HTTP operation takes them)")
	}
	p.end()
	return st
}

// otherPart refuses what ALTER TABLE changes in SQL besides columns.
func (p *parser) otherPart(verb string) {
	next := p.peek()
	switch t := p.tok; {
	case t.word("CONSTRAINT"), t.word("PRIMARY") && next.word("KEY"), t.word("UNIQUE"), t.word("FOREIGN") && next.word("KEY"),
		t.word("WATERMARK") && (next.word("FOR") || next.kind == endToken), t.word("INDEX") && next.kind != endToken,
		t.word("DISTRIBUTION"):
		p.unsupported(t.at, "ALTER TABLE … "+verb+" "+strings.ToUpper(t.val))
	}
}

// addColumns reads ADD [COLUMN] column, or ADD (column, …).
func (p *parser) addColumns(st *alterTable) {
	p.otherPart("ADD")
	p.optionalColumn()
	if p.acceptSymbol("(") {
		for {
			st.steps = append(st.steps, p.addColumn())
			if !p.acceptSymbol(",") {
				break
			}
		}
		p.expectSymbol(")", "or a comma after a column")
		return
	}
	st.steps = append(st.steps, p.addColumn())
}

func (p *parser) addColumn() alterStep {
	s := alterStep{op: "add_column"}
	s.column = p.columnType(p.name("the name of the column"))
	for p.err == nil {
		at := p.tok.at
		switch {
		case p.accept("FIRST"):
			s.first = true
		case p.accept("AFTER"):
			s.after = p.name("the name of a column").text
		case p.tok.word("PRIMARY"):
			p.unsupported(at, "a change of the primary key")
		default:
			if p.attribute(&s.column) {
				continue
			}
			return s
		}
	}
	return s
}

// optionalColumn takes the word COLUMN, unless it is the name of a column.
func (p *parser) optionalColumn() {
	if next := p.peek(); p.tok.word("COLUMN") && (next.kind == wordToken || next.kind == quotedToken || next.symbol("(")) {
		p.advance()
	}
}

func (p *parser) renameColumn(st *alterTable) {
	if next := p.peek(); p.tok.word("TO") && !next.word("TO") {
		p.unsupported(p.tok.at, "renaming a table (RENAME TO)")
		return
	}
	p.optionalColumn()
	s := alterStep{op: "rename_column", name: p.name("the name of a column").text}
	p.expect("TO")
	s.to = p.name("the new name of the column").text
	st.steps = []alterStep{s}
}

// dropColumns reads DROP [COLUMN] name, or DROP (name, …).
func (p *parser) dropColumns(st *alterTable) {
	p.otherPart("DROP")
	p.optionalColumn()
	names := []name{}
	if p.tok.symbol("(") {
		names = p.names("the name of a column")
	} else {
		names = append(names, p.name("the name of a column"))
	}
	for _, n := range names {
		st.steps = append(st.steps, alterStep{op: "drop_column", name: n.text})
	}
}

// modifyColumn reads MODIFY [COLUMN] name TYPE [COMMENT '…'].
func (p *parser) modifyColumn(st *alterTable) {
	p.otherPart("MODIFY")
	p.optionalColumn()
	if p.tok.symbol("(") {
		p.unsupported(p.tok.at, "MODIFY of several columns")
	}
	n := p.name("the name of a column")
	s := alterStep{op: "alter_type", name: n.text}
	s.column = p.columnType(n)
	st.steps = append(st.steps, s)
	if p.tok.word("NOT") || p.tok.word("NULL") {
		p.unsupported(p.tok.at, "a change of what may be NULL")
	}
	if p.tok.word("FIRST") || p.tok.word("AFTER") {
		p.unsupported(p.tok.at, "moving a column ("+strings.ToUpper(p.tok.val)+")")
	}
	if p.accept("COMMENT") {
		st.steps = append(st.steps, alterStep{op: "set_comment", name: n.text, comment: p.text("a comment")})
	}
}
