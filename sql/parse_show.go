package sql

import "strings"

type showDatabases struct{}

type showTables struct{ database name } // text "": that of the request

type showPartitions struct{ table tableName }

type showCreateTable struct{ table tableName }

type describe struct{ table tableName }

// show reads what comes after SHOW.
func (p *parser) show() statement {
	var st statement
	switch at := p.tok.at; {
	case p.accept("DATABASES"):
		st = &showDatabases{}
	case p.accept("TABLES"):
		s := &showTables{}
		if p.accept("IN") || p.accept("FROM") {
			s.database = p.database()
		}
		st = s
	case p.accept("PARTITIONS"):
		st = &showPartitions{table: p.plainTable()}
	case p.accept("CREATE"):
		if p.tok.kind == wordToken && !p.tok.word("TABLE") {
			p.object("SHOW CREATE", "TABLE")
		}
		p.expect("TABLE")
		st = &showCreateTable{table: p.plainTable()}
	default:
		switch up := strings.ToUpper(p.tok.val); up {
		case "VIEWS", "FUNCTIONS", "COLUMNS", "INDEXES", "SCHEMAS", "CATALOGS", "GRANTS", "JOBS", "PROCEDURES", "MODULES", "CURRENT", "USER", "VARIABLES", "STATUS", "FULL", "EXTENDED", "PROCESSLIST":
			p.unsupported(at, "SHOW "+up)
		default:
			words := []string{"DATABASES", "TABLES", "PARTITIONS", "CREATE"}
			p.expected("DATABASES, TABLES, PARTITIONS or CREATE TABLE after SHOW", words...)
		}
	}
	if p.tok.word("LIKE") || p.tok.word("WHERE") || p.tok.word("NOT") || p.tok.word("PARTITION") {
		p.unsupported(p.tok.at, "SHOW with "+strings.ToUpper(p.tok.val))
	}
	p.end()
	return st
}

// describe reads what comes after DESCRIBE.
func (p *parser) describe() statement {
	if next := p.peek(); p.tok.word("TABLE") && next.kind != endToken && !next.symbol(";") {
		p.advance()
	}
	if (p.tok.word("EXTENDED") || p.tok.word("FORMATTED") || p.tok.word("DATABASE")) && p.peek().kind != endToken {
		p.unsupported(p.tok.at, "DESCRIBE "+strings.ToUpper(p.tok.val))
	}
	st := &describe{table: p.tableName()}
	p.end()
	return st
}
