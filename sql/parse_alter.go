package sql

import (
	"strings"

	"github.com/millrace/millrace/catalog"
)

// alterTable is ALTER TABLE table and what to change.
type alterTable struct {
	table tableName
	steps []catalog.AlterStep
}

// alterPartition is ALTER TABLE table ADD or DROP PARTITION.
type alterPartition struct {
	table     tableName
	drop      bool
	tolerant  bool   // IF [NOT] EXISTS
	partition []byte // the JSON object of its values
	at        int
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
	st := &alterTable{table: p.plainTable()}
	switch {
	case p.accept("ADD"):
		if p.partitionNext() {
			return p.partition(&alterPartition{table: st.table, tolerant: p.exists("NOT")})
		}
		p.addColumns(st)
	case p.accept("RENAME"):
		p.renameColumn(st)
	case p.accept("DROP"):
		if p.partitionNext() {
			return p.partition(&alterPartition{table: st.table, drop: true, tolerant: p.exists()})
		}
		p.dropColumns(st)
	case p.accept("MODIFY"):
		p.modifyColumn(st)
	case p.accept("SET"):
		st.steps = []catalog.AlterStep{{Op: catalog.SetProperties, Properties: p.properties()}}
	case p.accept("RESET"):
		st.steps = []catalog.AlterStep{{Op: catalog.ResetProperties, Keys: p.keys()}}
	case p.accept("COMMENT"):
		st.steps = []catalog.AlterStep{{Op: catalog.SetComment, Comment: new(p.text("a comment"))}}
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

func (p *parser) addColumn() catalog.AlterStep {
	c := p.columnType(p.field("the name of the column"))
	s := catalog.AlterStep{Op: catalog.AddColumn, Column: &c}
	for p.err == nil {
		at := p.tok.at
		switch {
		case p.accept("FIRST"):
			s.First = true
		case p.accept("AFTER"):
			s.After = p.field("the name of a column").text
		case p.tok.word("PRIMARY"):
			p.unsupported(at, "a change of the primary key")
		default:
			if p.attribute(&c) {
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
	s := catalog.AlterStep{Op: catalog.RenameColumn, Name: p.field("the name of a column").text}
	p.expect("TO")
	s.To = p.name("the new name of the column").text
	st.steps = []catalog.AlterStep{s}
}

// dropColumns reads DROP [COLUMN] name, or DROP (name, …).
func (p *parser) dropColumns(st *alterTable) {
	p.otherPart("DROP")
	p.optionalColumn()
	names := []name{}
	if p.tok.symbol("(") {
		names = p.names("the name of a column")
	} else {
		names = append(names, p.field("the name of a column"))
	}
	for _, n := range names {
		st.steps = append(st.steps, catalog.AlterStep{Op: catalog.DropColumn, Name: n.text})
	}
}

// modifyColumn reads MODIFY [COLUMN] name TYPE [COMMENT '…'].
func (p *parser) modifyColumn(st *alterTable) {
	p.otherPart("MODIFY")
	p.optionalColumn()
	if p.tok.symbol("(") {
		p.unsupported(p.tok.at, "MODIFY of several columns")
	}
	n := p.field("the name of a column")
	st.steps = append(st.steps, catalog.AlterStep{Op: catalog.AlterType, Name: n.text, Type: p.columnType(n).Type})
	if p.tok.word("NOT") || p.tok.word("NULL") {
		p.unsupported(p.tok.at, "a change of what may be NULL")
	}
	if p.tok.word("FIRST") || p.tok.word("AFTER") {
		p.unsupported(p.tok.at, "moving a column ("+strings.ToUpper(p.tok.val)+")")
	}
	if p.accept("COMMENT") {
		st.steps = append(st.steps, catalog.AlterStep{Op: catalog.SetComment, Name: n.text, Comment: new(p.text("a comment"))})
	}
}

// field takes the name of a column, or the path of a field within one.
func (p *parser) field(noun string) name {
	n := p.name(noun)
	for p.acceptSymbol(".") {
		n.text += "." + p.name("the name of a field").text
	}
	return n
}

// partitionNext says whether [IF [NOT] EXISTS] PARTITION (… comes next, which is no column.
func (p *parser) partitionNext() bool {
	return p.tok.word("IF") || p.tok.word("PARTITION") && p.peek().symbol("(")
}

// partition reads PARTITION (column = value, …).
func (p *parser) partition(st *alterPartition) statement {
	p.expect("PARTITION")
	st.at = p.tok.at
	p.expectSymbol("(", "before the values of the partition")
	r := rowReader{p: p, object: []byte{'{'}}
	for p.err == nil {
		if len(r.object) > 1 {
			r.object = append(r.object, ',')
		}
		r.object = append(appendJSONText(r.object, p.name("a partition column").text), ':')
		p.expectSymbol("=", "after the name of a partition column")
		if p.tok.symbol("?") {
			p.unsupported(p.tok.at, "? in PARTITION")
		}
		r.value(nil, 0)
		if !p.acceptSymbol(",") {
			break
		}
	}
	p.expectSymbol(")", "or a comma after a value")
	st.partition = append(r.object, '}')
	if p.tok.symbol(",") || p.tok.word("PARTITION") {
		p.unsupported(p.tok.at, "several partitions in one ALTER TABLE")
	}
	p.end()
	return st
}
