package filter

import (
	"strings"
	"unicode/utf8"
)

// Limits of a filter's text.
const (
	MaxTextBytes = 64 << 10
	MaxDepth     = 100 // levels of parentheses and NOT
	MaxInList    = 10_000
)

// parser reads the grammar
//
//	or        = and { OR and }
//	and       = not { AND not }
//	not       = NOT not | predicate
//	predicate = operand [ compare operand | [NOT] IN ( operand {, operand} )
//	          | [NOT] BETWEEN operand AND operand
//	          | [NOT] LIKE operand [ESCAPE operand] | IS [NOT] NULL ]
//	operand   = ( or ) | literal | ? | name
//	          | CURRENT_TIMESTAMP { (+|-) INTERVAL 'n' unit }
//
// with a literal or name wanted wherever ( or ) is not a whole predicate.
type parser struct {
	source
	tok    token // the next, not yet taken
	depth  int
	params int
}

// parse reads a whole text. The number of parameters it has is returned too.
func parse(text string) (expr, int, error) {
	p := parser{source: source(text)}
	if len(text) > MaxTextBytes {
		return nil, 0, p.invalid(0, "the text has %d bytes; at most %d are allowed", len(text), MaxTextBytes)
	}
	if !utf8.ValidString(text) {
		return nil, 0, p.invalid(0, "the text is not valid UTF-8")
	}
	if err := p.advance(); err != nil {
		return nil, 0, err
	}
	if p.tok.kind == tokenEnd {
		return nil, 0, p.invalid(0, "the text is empty; without a filter, leave it out")
	}
	e, err := p.chain(true)
	if err != nil {
		return nil, 0, err
	}
	if p.tok.kind != tokenEnd {
		return nil, 0, p.unexpected("AND, OR or the end of the filter")
	}
	return e, p.params, nil
}

func (p *parser) advance() (err error) {
	p.tok, err = p.token(p.tok.end)
	return err
}

// found describes the next token for a message.
func (p *parser) found() string {
	if p.tok.kind == tokenEnd {
		return "the end of the filter"
	}
	return clip(string(p.source[p.tok.at:p.tok.end]))
}

func (p *parser) unexpected(wanted string) error {
	if p.tok.kind == tokenSymbol && strings.Contains("+-*/", p.tok.val) {
		return p.invalid(p.tok.at, "expected %s, found %s; the only arithmetic is CURRENT_TIMESTAMP plus or minus INTERVAL 'n' unit", wanted, p.found())
	}
	return p.invalid(p.tok.at, "expected %s, found %s", wanted, p.found())
}

// accept takes the next token if it is the given keyword.
func (p *parser) accept(word string) (bool, error) {
	if !p.tok.word(word) {
		return false, nil
	}
	return true, p.advance()
}

func (p *parser) expect(symbol, wanted string) error {
	if !p.tok.symbol(symbol) {
		return p.unexpected(wanted)
	}
	return p.advance()
}

func (p *parser) enter() error {
	if p.depth++; p.depth > MaxDepth {
		return p.invalid(p.tok.at, "nested more than %d levels deep", MaxDepth)
	}
	return nil
}

// chain reads operands of OR, or of AND.
func (p *parser) chain(or bool) (expr, error) {
	word, next := "AND", p.negation
	if or {
		word, next = "OR", func() (expr, error) { return p.chain(false) }
	}
	at := pos(p.tok.at)
	var args []expr
	for {
		e, err := next()
		if err != nil {
			return nil, err
		}
		args = append(args, e)
		if more, err := p.accept(word); err != nil {
			return nil, err
		} else if !more {
			break
		}
	}
	if len(args) == 1 {
		return args[0], nil
	}
	return logic{pos: at, or: or, args: args}, nil
}

func (p *parser) negation() (expr, error) {
	at := pos(p.tok.at)
	not, err := p.accept("NOT")
	if err != nil {
		return nil, err
	}
	if !not {
		return p.predicate()
	}
	if err := p.enter(); err != nil {
		return nil, err
	}
	arg, err := p.negation()
	p.depth--
	return negation{pos: at, arg: arg}, err
}

func (p *parser) predicate() (expr, error) {
	e, err := p.operand()
	if err != nil {
		return nil, err
	}
	left, ok := e.(operand)
	if !ok {
		if p.atTest() {
			return nil, p.unexpected("AND, OR or ) after a condition, which cannot be compared")
		}
		return e, nil
	}
	result, err := p.test(left)
	if err != nil {
		return nil, err
	}
	if p.atTest() {
		return nil, p.invalid(p.tok.at, "unexpected %s: comparisons are not chained; join them with AND", p.found())
	}
	return result, nil
}

// atTest says whether what follows can only come after a value.
func (p *parser) atTest() bool {
	_, compare := compareOps[p.tok.val]
	return compare && p.tok.kind == tokenSymbol || p.tok.word("IN") || p.tok.word("BETWEEN") ||
		p.tok.word("LIKE") || p.tok.word("IS") || p.tok.word("NOT")
}

// test reads what follows a value; when nothing does, the value is the predicate.
func (p *parser) test(left operand) (expr, error) {
	at := pos(left.at())
	if op, ok := compareOps[p.tok.val]; ok && p.tok.kind == tokenSymbol {
		if err := p.advance(); err != nil {
			return nil, err
		}
		right, err := p.value()
		return comparison{pos: at, op: op, left: left, right: right}, err
	}
	if is, err := p.accept("IS"); is || err != nil {
		if err != nil {
			return nil, err
		}
		not, err := p.accept("NOT")
		if err != nil {
			return nil, err
		}
		if !p.tok.word("NULL") {
			return nil, p.unexpected("NULL or NOT NULL after IS")
		}
		return nullTest{pos: at, not: not, left: left}, p.advance()
	}
	not, err := p.accept("NOT")
	if err != nil {
		return nil, err
	}
	for _, t := range []struct {
		word string
		read func(pos, bool, operand) (expr, error)
	}{{"IN", p.membership}, {"BETWEEN", p.between}, {"LIKE", p.like}} {
		if found, err := p.accept(t.word); err != nil {
			return nil, err
		} else if found {
			return t.read(at, not, left)
		}
	}
	if not {
		return nil, p.unexpected("IN, BETWEEN or LIKE after NOT")
	}
	return left, nil
}

func (p *parser) membership(at pos, not bool, left operand) (expr, error) {
	e := membership{pos: at, not: not, left: left}
	if err := p.expect("(", "( after IN"); err != nil {
		return nil, err
	}
	for {
		if len(e.list) == MaxInList {
			return nil, p.invalid(p.tok.at, "IN lists more than %d values", MaxInList)
		}
		v, err := p.value()
		if err != nil {
			return nil, err
		}
		e.list = append(e.list, v)
		if !p.tok.symbol(",") {
			return e, p.expect(")", ", or ) in the list after IN")
		}
		if err := p.advance(); err != nil {
			return nil, err
		}
	}
}

func (p *parser) between(at pos, not bool, left operand) (expr, error) {
	low, err := p.value()
	if err != nil {
		return nil, err
	}
	if and, err := p.accept("AND"); err != nil {
		return nil, err
	} else if !and {
		return nil, p.unexpected("AND after the lower bound of BETWEEN")
	}
	high, err := p.value()
	return between{pos: at, not: not, left: left, low: low, high: high}, err
}

func (p *parser) like(at pos, not bool, left operand) (expr, error) {
	pattern, err := p.value()
	if err != nil {
		return nil, err
	}
	e := like{pos: at, not: not, left: left, pattern: pattern}
	if esc, err := p.accept("ESCAPE"); err != nil || !esc {
		return e, err
	}
	e.escape, err = p.value()
	return e, err
}
