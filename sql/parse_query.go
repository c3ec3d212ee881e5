package sql

import (
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/filter"
)

// query is SELECT … FROM table.
type query struct {
	all   bool // SELECT *
	items []item
	from  tableName
	where *condition // nil: every row
	group []name
	order []ordering
	limit *limit
	at    int // of the list
}

// item is a column of a SELECT: a column of the table, or an aggregate.
type item struct {
	function string // COUNT, SUM, MIN, MAX, AVG; "" for a column
	column   name   // text "" for COUNT(*)
	alias    name   // text "" without AS
	at       int
}

// label is what the column of the answer is called.
func (i item) label() string {
	switch {
	case i.alias.text != "":
		return i.alias.text
	case i.function == "":
		return i.column.text
	case i.column.text == "":
		return i.function + "(*)"
	}
	return i.function + "(" + i.column.text + ")"
}

// ordering is one column of ORDER BY.
type ordering struct {
	name name
	desc bool
}

// limit is LIMIT n, or LIMIT ?.
type limit struct {
	n     int64
	param int // number of the parameter, from 0; -1: n
	at    int
}

// condition is the text of a WHERE, which package filter reads.
type condition struct {
	text  string // comments blanked, so that places in it are places in the statement
	at    int    // where it begins in the statement
	param int    // its first parameter
	count int    // how many it has
}

var aggregates = []string{"COUNT", "SUM", "MIN", "MAX", "AVG"}

// query reads what comes after SELECT.
func (p *parser) query() statement {
	q := &query{at: p.tok.at}
	p.list(q)
	if p.tok.kind == endToken && p.err == nil {
		p.unsupported(q.at, "SELECT without FROM")
	}
	if !p.accept("FROM") {
		p.expected("FROM or a comma", "FROM", "AS")
	}
	p.source(q)
	if p.accept("WHERE") {
		q.where = p.condition()
	}
	if p.accept("GROUP") {
		p.expect("BY")
		p.grouping(q)
	}
	if p.accept("ORDER") {
		p.expect("BY")
		p.ordering(q)
	}
	if p.accept("LIMIT") {
		q.limit = p.limit()
	}
	if p.otherClause() {
		return nil
	}
	rest := []string{"WHERE", "GROUP", "ORDER", "LIMIT"}
	switch {
	case q.limit != nil:
		rest = nil
	case q.order != nil:
		rest = rest[3:]
	case q.group != nil:
		rest = rest[2:]
	case q.where != nil:
		rest = rest[1:]
	}
	if i := slices.IndexFunc([]string{"WHERE", "GROUP", "ORDER"}, p.tok.word); i >= 0 {
		p.invalid(p.tok.at, "%s stands in the wrong place; the order is WHERE, GROUP BY, ORDER BY, LIMIT", strings.ToUpper(p.tok.val))
	}
	p.end(rest...)
	return q
}

// list reads the columns of the answer.
func (p *parser) list(q *query) {
	if p.tok.word("DISTINCT") || p.tok.word("ALL") {
		p.unsupported(p.tok.at, "SELECT "+strings.ToUpper(p.tok.val)+" (GROUP BY gives each combination once)")
	}
	if p.acceptSymbol("*") {
		q.all = true
		if p.tok.symbol(",") {
			p.unsupported(p.tok.at, "columns beside *")
		}
		return
	}
	for {
		q.items = append(q.items, p.item())
		if !p.acceptSymbol(",") {
			return
		}
		if p.tok.symbol("*") {
			p.unsupported(p.tok.at, "* beside columns")
		}
	}
}

func (p *parser) item() item {
	i := item{at: p.tok.at}
	next := p.peek()
	switch {
	case p.tok.word("CASE"):
		p.unsupported(i.at, "CASE")
	case p.tok.kind == wordToken && next.symbol("("):
		p.aggregate(&i)
	case p.tok.kind == wordToken && next.kind == textToken, p.tok.kind == textToken, p.tok.kind == numberToken, p.tok.kind == hexToken,
		p.tok.symbol("?"), p.tok.word("NULL"), p.tok.word("TRUE"), p.tok.word("FALSE"):
		p.unsupported(i.at, "a constant in the list of a SELECT")
	case p.tok.symbol("(") && next.word("SELECT"):
		p.unsupported(i.at, "a subquery")
	case p.tok.symbol("("), p.tok.symbol("-"), p.tok.symbol("+"), p.tok.word("NOT"), p.tok.word("CURRENT_TIMESTAMP"), p.tok.word("INTERVAL"):
		p.unsupported(i.at, "an expression in the list of a SELECT")
	default:
		i.column = p.name("a column, *, or COUNT, SUM, MIN, MAX, AVG")
		if p.tok.symbol(".") {
			p.unsupported(p.tok.at, "a table or a field in front of a column (there is one table: name its column alone)")
		}
	}
	p.afterItem(i)
	if p.accept("AS") {
		i.alias = p.name("the name of a column of the answer")
	}
	return i
}

// afterItem refuses what makes an expression of a column or an aggregate.
func (p *parser) afterItem(i item) {
	switch t := p.tok; {
	case t.word("OVER"):
		p.unsupported(t.at, "a window function (OVER)")
	case t.word("FILTER"), t.word("WITHIN"):
		p.unsupported(t.at, i.function+" with "+strings.ToUpper(t.val))
	case t.kind == symbolToken && strings.Contains("+-*/%|<>=![:^&", t.val), t.word("AND"), t.word("OR"), t.word("IS"), t.word("IN"), t.word("LIKE"), t.word("BETWEEN"), t.word("COLLATE"):
		p.unsupported(i.at, "an expression in the list of a SELECT")
	}
}

func (p *parser) aggregate(i *item) {
	fn := strings.ToUpper(p.tok.val)
	if !slices.Contains(aggregates, fn) {
		p.unsupported(i.at, "the function "+fn)
		return
	}
	i.function = fn
	p.advance()
	p.advance()
	switch next := p.peek(); {
	case p.tok.word("DISTINCT"), p.tok.word("ALL"):
		p.unsupported(p.tok.at, fn+"("+strings.ToUpper(p.tok.val)+" …)")
	case fn == "COUNT" && p.tok.symbol("*"):
		p.advance()
	case p.tok.symbol(")"):
		p.expected("a column in " + fn)
	case p.tok.kind == wordToken && next.symbol("("), p.tok.kind == numberToken, p.tok.kind == textToken, p.tok.symbol("?"),
		p.tok.symbol("-"), p.tok.symbol("+"), p.tok.symbol("("), p.tok.word("CASE"), p.tok.word("NULL"):
		p.unsupported(p.tok.at, "an expression in "+fn)
	default:
		i.column = p.name("a column in " + fn)
		if !p.tok.symbol(")") && p.tok.kind == symbolToken {
			p.unsupported(p.tok.at, "an expression in "+fn)
		}
	}
	p.expectSymbol(")", "after the column of "+fn)
}

// source reads the table of a query, and refuses a second one.
func (p *parser) source(q *query) {
	if p.tok.symbol("(") {
		p.unsupported(p.tok.at, "a subquery in FROM")
	}
	if p.tok.kind == wordToken && (p.tok.word("UNNEST") || p.tok.word("TABLE") || p.tok.word("LATERAL")) && p.peek().symbol("(") {
		p.unsupported(p.tok.at, "the table function "+strings.ToUpper(p.tok.val))
	}
	q.from = p.tableName()
	next := p.peek()
	switch t := p.tok; {
	case t.symbol(","):
		p.unsupported(t.at, "a join (a second table in FROM)")
	case t.symbol("("):
		p.unsupported(q.from.at, "the table function "+strings.ToUpper(q.from.table))
	case t.kind == wordToken && slices.ContainsFunc(joins, t.word) && (t.word("JOIN") || next.kind == wordToken || next.kind == quotedToken):
		p.unsupported(t.at, "a join ("+strings.ToUpper(t.val)+")")
	case t.word("AS") && !next.word("OF"):
		p.unsupported(t.at, "an alias of the table")
	case t.word("AS"):
		p.unsupported(t.at, "time travel (AS OF)")
	case t.kind == quotedToken, t.kind == wordToken && !reserved[strings.ToUpper(t.val)] && !p.clauseWord():
		p.unsupported(t.at, "an alias of the table")
	}
}

// clauseWord says whether the next word is a clause that is refused by name, or a
// misspelt one of ours.
func (p *parser) clauseWord() bool {
	up := strings.ToUpper(p.tok.val)
	if slices.Contains([]string{"OFFSET", "FETCH", "WINDOW", "QUALIFY", "FOR", "TABLESAMPLE", "PIVOT", "UNPIVOT", "MATCH_RECOGNIZE", "MINUS"}, up) {
		return true
	}
	_, near := filter.Nearest(up, []string{"WHERE", "GROUP", "ORDER", "LIMIT"})
	return near && len(up) > 3
}

// grouping reads the columns of GROUP BY.
func (p *parser) grouping(q *query) {
	for {
		next := p.peek()
		switch {
		case p.tok.kind == numberToken:
			p.unsupported(p.tok.at, "GROUP BY with the number of a column")
		case p.tok.word("GROUPING"), p.tok.kind == wordToken && next.symbol("("), p.tok.symbol("("):
			p.unsupported(p.tok.at, "GROUP BY with an expression")
		}
		q.group = append(q.group, p.name("a column in GROUP BY"))
		if p.tok.kind == symbolToken && !p.tok.symbol(",") && !p.tok.symbol(";") {
			p.unsupported(p.tok.at, "GROUP BY with an expression")
		}
		if !p.acceptSymbol(",") {
			return
		}
	}
}

// ordering reads the columns of ORDER BY.
func (p *parser) ordering(q *query) {
	for {
		next := p.peek()
		switch {
		case p.tok.kind == numberToken:
			p.unsupported(p.tok.at, "ORDER BY with the number of a column")
		case p.tok.kind == wordToken && next.symbol("("), p.tok.symbol("("), p.tok.symbol("-"):
			p.unsupported(p.tok.at, "ORDER BY with an expression (name an aggregate with AS and order by that name)")
		}
		o := ordering{name: p.name("a column in ORDER BY")}
		if !p.accept("ASC") {
			o.desc = p.accept("DESC")
		}
		if p.tok.word("NULLS") {
			p.unsupported(p.tok.at, "NULLS FIRST and NULLS LAST (NULL is below every value)")
		}
		if p.tok.kind == symbolToken && !p.tok.symbol(",") && !p.tok.symbol(";") {
			p.unsupported(p.tok.at, "ORDER BY with an expression")
		}
		q.order = append(q.order, o)
		if !p.acceptSymbol(",") {
			return
		}
	}
}

func (p *parser) limit() *limit {
	l := &limit{param: -1, at: p.tok.at}
	switch {
	case p.tok.symbol("?"):
		l.param = p.params
		p.params++
		p.advance()
	case p.tok.kind == numberToken:
		n, err := strconv.ParseInt(p.tok.val, 10, 64)
		if err != nil {
			p.invalid(p.tok.at, "LIMIT takes a whole number of rows, not %s", clip(p.tok.val))
		}
		l.n = n
		p.advance()
	default:
		p.expected("a whole number of rows or ? after LIMIT")
	}
	if p.tok.symbol(",") {
		p.unsupported(p.tok.at, "OFFSET (LIMIT with two numbers)")
	}
	return l
}

// ends says whether the next token ends a condition.
func (p *parser) ends() bool {
	t := p.tok
	if t.kind == endToken || t.symbol(";") {
		return true
	}
	if t.kind != wordToken {
		return false
	}
	next := p.peek()
	switch strings.ToUpper(t.val) {
	case "GROUP", "ORDER", "LIMIT", "HAVING", "UNION", "INTERSECT", "EXCEPT", "QUALIFY", "WHERE":
		return true
	case "OFFSET":
		return next.kind == numberToken || next.symbol("?")
	case "FETCH":
		return next.word("FIRST") || next.word("NEXT")
	case "WINDOW":
		return next.kind == wordToken && !slices.ContainsFunc(conditionWords, next.word)
	case "FOR":
		return next.word("UPDATE") || next.word("SHARE") || next.word("SYSTEM_TIME")
	case "MINUS":
		return next.word("SELECT")
	}
	return false
}

// conditionWords may stand before a parenthesis in a condition, or after a name.
var conditionWords = []string{"AND", "OR", "NOT", "IN", "IS", "LIKE", "BETWEEN", "ESCAPE"}

// condition cuts a WHERE out: up to what ends it outside of parentheses. What it
// says is for package filter to read; only what is SQL beyond that is refused here.
func (p *parser) condition() *condition {
	c := &condition{at: p.tok.at, param: p.params}
	text := []byte(nil)
	depth, end := 0, c.at
	for p.err == nil && p.tok.kind != endToken && (depth > 0 && !p.tok.symbol(";") || !p.ends()) {
		next := p.peek()
		switch t := p.tok; {
		case t.symbol("("):
			depth++
		case t.symbol(")"):
			depth--
		case t.symbol("?"):
			p.params++
			c.count++
		case t.word("SELECT"), t.word("EXISTS") && next.symbol("("):
			p.unsupported(t.at, "a subquery")
		case t.word("CASE") && (next.word("WHEN") || next.kind == wordToken && !slices.ContainsFunc(conditionWords, next.word)):
			p.unsupported(t.at, "CASE")
		case t.kind == wordToken && next.symbol("(") && !slices.ContainsFunc(conditionWords, t.word):
			p.unsupported(t.at, "the function "+strings.ToUpper(t.val)+" in a condition")
		}
		for range p.tok.at - end {
			text = append(text, ' ') // white space and comments
		}
		text = append(text, p.src[p.tok.at:p.tok.end]...)
		end = p.tok.end
		p.advance()
	}
	if c.text = string(text); c.text == "" {
		p.expected("a condition after WHERE")
	}
	return c
}
