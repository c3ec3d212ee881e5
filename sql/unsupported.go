package sql

import "strings"

// otherStatements names the statements of SQL that the subset has not.
var otherStatements = map[string]string{
	"UPDATE":   "UPDATE (INSERT INTO t (key, column) VALUES … updates columns of a keyed table)",
	"MERGE":    "MERGE",
	"UPSERT":   "UPSERT (INSERT is one on a keyed table)",
	"REPLACE":  "REPLACE (INSERT does that on a keyed table)",
	"TRUNCATE": "TRUNCATE",
	"WITH":     "a common table expression (WITH)",
	"EXPLAIN":  "EXPLAIN",
	"ANALYZE":  "ANALYZE",
	"VALUES":   "VALUES as a query",
	"TABLE":    "TABLE as a query",
	"FROM":     "a query that begins with FROM",
	"GRANT":    "GRANT", "REVOKE": "REVOKE", "CALL": "CALL", "EXECUTE": "EXECUTE", "PREPARE": "PREPARE",
	"BEGIN": "a transaction (BEGIN)", "START": "a transaction (START)", "COMMIT": "a transaction (COMMIT)", "ROLLBACK": "a transaction (ROLLBACK)",
	"SET": "SET", "RESET": "RESET", "COPY": "COPY", "LOAD": "LOAD", "LOCK": "LOCK", "VACUUM": "VACUUM", "OPTIMIZE": "OPTIMIZE",
	"REFRESH": "REFRESH", "DECLARE": "DECLARE", "COMMENT": "COMMENT ON", "RENAME": "RENAME", "MSCK": "MSCK", "PRAGMA": "PRAGMA",
}

// otherObjects names what else can be created, dropped or altered in SQL.
var otherObjects = map[string]bool{
	"VIEW": true, "INDEX": true, "FUNCTION": true, "PROCEDURE": true, "TRIGGER": true, "SEQUENCE": true, "TYPE": true, "SCHEMA": true,
	"USER": true, "ROLE": true, "CATALOG": true, "MATERIALIZED": true, "TEMPORARY": true, "TEMP": true, "EXTERNAL": true, "UNIQUE": true,
	"CONNECTION": true, "MODEL": true, "EXTENSION": true, "DOMAIN": true, "STREAM": true, "SOURCE": true, "SINK": true, "GLOBAL": true,
}

// object refuses what comes after CREATE, DROP or ALTER and is not ours.
func (p *parser) object(verb string, ours ...string) {
	if up := strings.ToUpper(p.tok.val); p.tok.kind == wordToken {
		switch {
		case otherObjects[up]:
			p.unsupported(p.tok.at, verb+" "+up)
			return
		case up == "OR" && p.peek().word("REPLACE"):
			p.unsupported(p.tok.at, verb+" OR REPLACE")
			return
		}
	}
	p.expected(strings.Join(ours, " or ")+" after "+verb, ours...)
}

// joins are the words that bring in a second table.
var joins = []string{"JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL", "LATERAL", "SEMI", "ANTI", "ASOF"}

// clauses are the clauses of a query that the subset has not.
func (p *parser) otherClause() bool {
	t := p.tok
	next := p.peek()
	construct := ""
	switch {
	case t.kind != wordToken:
	case t.word("HAVING"):
		construct = "HAVING"
	case t.word("UNION"), t.word("INTERSECT"), t.word("EXCEPT"):
		construct = strings.ToUpper(t.val)
	case t.word("MINUS") && (next.word("SELECT") || next.word("ALL")):
		construct = "MINUS"
	case t.word("OFFSET") && (next.kind == numberToken || next.symbol("?")):
		construct = "OFFSET"
	case t.word("FETCH") && (next.word("FIRST") || next.word("NEXT")):
		construct = "FETCH (write LIMIT)"
	case t.word("WINDOW") && next.kind == wordToken:
		construct = "WINDOW"
	case t.word("QUALIFY"):
		construct = "QUALIFY"
	case t.word("FOR") && (next.word("UPDATE") || next.word("SHARE")):
		construct = "FOR " + strings.ToUpper(next.val)
	case t.word("FOR"):
		construct = "time travel (FOR …)"
	case t.word("TABLESAMPLE"):
		construct = "TABLESAMPLE"
	case t.word("PIVOT"), t.word("UNPIVOT"), t.word("MATCH_RECOGNIZE"):
		construct = strings.ToUpper(t.val)
	case t.word("ON"), t.word("USING"):
		construct = "a join condition (" + strings.ToUpper(t.val) + ")"
	}
	if construct == "" {
		return false
	}
	p.unsupported(t.at, construct)
	return true
}
