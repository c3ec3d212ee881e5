package filter

import (
	"slices"
	"strings"
)

// reserved words are no names unless quoted.
var reserved = []string{
	"AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "IS", "NULL", "TRUE", "FALSE", "CURRENT_TIMESTAMP",
}

// typedLiterals are words that make a literal of the text behind them, and
// ordinary names otherwise.
var typedLiterals = map[string]valueKind{
	"DATE": valueDate, "TIME": valueTime, "TIMESTAMP": valueTimestamp, "TIMESTAMP_LTZ": valueTimestampLTZ,
}

// value reads an operand where a condition has no place.
func (p *parser) value() (operand, error) {
	at := p.tok.at
	e, err := p.operand()
	if err != nil {
		return nil, err
	}
	if v, ok := e.(operand); ok {
		return v, nil
	}
	return nil, p.invalid(at, "expected a value or a column, found a condition in parentheses")
}

// operand reads a value, or anything in parentheses.
func (p *parser) operand() (expr, error) {
	t := p.tok
	at := pos(t.at)
	switch t.kind {
	case tokenName:
		return p.word()
	case tokenQuoted:
		return columnRef{pos: at, name: t.val, quoted: p.source[t.at]}, p.advance()
	case tokenText:
		return literal{pos: at, end: p.tok.end, value: value{kind: valueText, str: t.val}}, p.advance()
	case tokenHex:
		v, err := readHex(t.val)
		if err != nil {
			return nil, p.invalid(t.at, "%v", err)
		}
		return literal{pos: at, end: p.tok.end, value: v}, p.advance()
	case tokenNumber:
		return p.number(at, false)
	case tokenSymbol:
		switch t.val {
		case "(":
			return p.parenthesis()
		case "?":
			p.params++
			return parameter{pos: at, n: p.params - 1}, p.advance()
		case "-", "+":
			if err := p.advance(); err != nil {
				return nil, err
			}
			if p.tok.kind != tokenNumber {
				return nil, p.unexpected("a number after the sign")
			}
			return p.number(at, t.val == "-")
		}
	case tokenEnd:
	}
	return nil, p.unexpected("a value or a column")
}

func (p *parser) number(at pos, neg bool) (expr, error) {
	n, ok := parseNumber(p.tok.val)
	if !ok {
		panic("filter: the lexer let a bad number through")
	}
	n.neg = neg && n.digits != ""
	return literal{pos: at, end: p.tok.end, value: value{kind: valueNumber, num: n}}, p.advance()
}

func (p *parser) parenthesis() (expr, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	if err := p.advance(); err != nil {
		return nil, err
	}
	e, err := p.chain(true)
	if err != nil {
		return nil, err
	}
	p.depth--
	return e, p.expect(")", "AND, OR or )")
}

// word reads what begins with a bare word.
func (p *parser) word() (expr, error) {
	t := p.tok
	at := pos(t.at)
	upper := strings.ToUpper(t.val)
	switch upper {
	case "TRUE", "FALSE":
		return literal{pos: at, end: p.tok.end, value: value{kind: valueBool, yes: upper == "TRUE"}}, p.advance()
	case "NULL":
		return literal{pos: at, end: p.tok.end}, p.advance()
	case "CURRENT_TIMESTAMP":
		return p.currentTime(at)
	}
	if slices.Contains(reserved, upper) {
		return nil, p.unexpected("a value or a column")
	}
	if err := p.advance(); err != nil {
		return nil, err
	}
	if kind, ok := typedLiterals[upper]; ok && p.tok.kind == tokenText {
		v, err := readTemporal(p.tok.val, kind)
		if err != nil {
			return nil, p.invalid(p.tok.at, "%v", err)
		}
		return literal{pos: at, end: p.tok.end, value: v}, p.advance()
	}
	if p.tok.symbol("(") {
		return nil, p.invalid(t.at, "%s looks like a function; a filter has none", clip(t.val))
	}
	return columnRef{pos: at, name: t.val}, nil
}

func (p *parser) currentTime(at pos) (expr, error) {
	e := currentTime{pos: at}
	if err := p.advance(); err != nil {
		return nil, err
	}
	for p.tok.symbol("+") || p.tok.symbol("-") {
		sign := int64(1)
		if p.tok.val == "-" {
			sign = -1
		}
		if err := p.advance(); err != nil {
			return nil, err
		}
		if ok, err := p.accept("INTERVAL"); err != nil {
			return nil, err
		} else if !ok {
			return nil, p.unexpected("INTERVAL 'n' unit")
		}
		count := p.tok
		if count.kind != tokenText {
			return nil, p.unexpected("a number in quotes after INTERVAL, as in INTERVAL '1' DAY")
		}
		if err := p.advance(); err != nil {
			return nil, err
		}
		if p.tok.kind != tokenName {
			return nil, p.unexpected("a unit such as DAY")
		}
		by, err := readInterval(count.val, p.tok.val, sign)
		if err != nil {
			return nil, p.invalid(count.at, "INTERVAL: %v", err)
		}
		e.shifts = append(e.shifts, by)
		if err := p.advance(); err != nil {
			return nil, err
		}
	}
	return e, nil
}
