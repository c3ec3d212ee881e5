package filter

import (
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/millrace/millrace/errs"
)

type tokenKind uint8

const (
	tokenEnd    tokenKind = iota
	tokenName             // a bare word: a keyword or a name
	tokenQuoted           // "name" or `name`; val is the name
	tokenText             // 'text'; val is the text, '' unescaped
	tokenHex              // X'00ff'; val is the digits
	tokenNumber           // without a sign
	tokenSymbol
)

type token struct {
	kind tokenKind
	at   int // where it begins and ends, in bytes
	end  int
	val  string
}

func (t token) symbol(s string) bool { return t.kind == tokenSymbol && t.val == s }

// word says whether t is the given keyword.
func (t token) word(upper string) bool {
	return t.kind == tokenName && strings.EqualFold(t.val, upper)
}

// source is a filter text and knows how to complain about a place in it.
type source string

// fail is an error about what stands at byte at.
func (s source) fail(code errs.Code, at int, format string, args ...any) error {
	e := errs.New(code, format, args...)
	e.Message = positionPrefix + itoa(utf8.RuneCountInString(string(s[:at]))+1) + ": " + e.Message
	return e
}

const positionPrefix = "filter, position "

// Position is where in its text (characters, from 1) a filter is wrong, by an
// error of Compile, and what is wrong there; ok is false when the error is about no
// place. It is for those whose filter is a piece of a longer text.
func Position(err error) (at int, message string, ok bool) {
	e, isOurs := errors.AsType[*errs.Error](err)
	if !isOurs {
		return 0, "", false
	}
	rest, found := strings.CutPrefix(e.Message, positionPrefix)
	number, message, cut := strings.Cut(rest, ": ")
	at, nerr := strconv.Atoi(number)
	if !found || !cut || nerr != nil {
		return 0, "", false
	}
	return at, message, true
}

func (s source) invalid(at int, format string, args ...any) error {
	return s.fail(errs.InvalidFilter, at, format, args...)
}

// token reads the token that begins at or after byte at.
func (s source) token(at int) (token, error) {
	for at < len(s) && isSpace(s[at]) {
		at++
	}
	if at == len(s) {
		return token{kind: tokenEnd, at: at, end: at}, nil
	}
	switch c := s[at]; {
	case (c == 'x' || c == 'X') && at+1 < len(s) && s[at+1] == '\'':
		t, err := s.quoted(at+1, tokenHex)
		t.at = at
		return t, err
	case isNameStart(c):
		end := at + 1
		for end < len(s) && isNamePart(s[end]) {
			end++
		}
		return s.cut(tokenName, at, end), nil
	case isDigit(c), c == '.' && at+1 < len(s) && isDigit(s[at+1]):
		return s.number(at)
	case c == '\'':
		return s.quoted(at, tokenText)
	case c == '"', c == '`':
		return s.quoted(at, tokenQuoted)
	}
	return s.symbol(at)
}

func (s source) cut(kind tokenKind, at, end int) token {
	return token{kind: kind, at: at, end: end, val: string(s[at:end])}
}

// quoted reads what stands between the quote at byte at and its partner; a
// doubled quote stands for one.
func (s source) quoted(at int, kind tokenKind) (token, error) {
	q := string(s[at])
	var val strings.Builder
	for from := at + 1; ; {
		i := strings.Index(string(s[from:]), q)
		if i < 0 {
			return token{}, s.invalid(at, "the %s that opens here is never closed", q)
		}
		val.WriteString(string(s[from : from+i]))
		from += i + 1
		if from == len(s) || s[from] != q[0] {
			return token{kind: kind, at: at, end: from, val: val.String()}, nil
		}
		val.WriteString(q)
		from++
	}
}

func (s source) number(at int) (token, error) {
	end := at
	digits := func() {
		for end < len(s) && isDigit(s[end]) {
			end++
		}
	}
	digits()
	if end < len(s) && s[end] == '.' {
		end++
		digits()
	}
	if end < len(s) && (s[end] == 'e' || s[end] == 'E') {
		end++
		if end < len(s) && (s[end] == '+' || s[end] == '-') {
			end++
		}
		digits()
	}
	for end < len(s) && (isNamePart(s[end]) || s[end] == '.') {
		end++ // 12abc and 1.2.3 are one bad number, not two tokens
	}
	t := s.cut(tokenNumber, at, end)
	if _, ok := parseNumber(t.val); !ok {
		return token{}, s.invalid(at, "%s is not a number", clip(t.val))
	}
	return t, nil
}

func (s source) symbol(at int) (token, error) {
	rest := string(s[at:])
	for _, sym := range []string{"!=", "<>", "<=", ">=", "=", "<", ">", "(", ")", ",", "?", "+", "-", "*", "/"} {
		if strings.HasPrefix(rest, sym) {
			if strings.HasPrefix(rest, "==") {
				return token{}, s.invalid(at, `"==" is not an operator; equality is written =`)
			}
			return s.cut(tokenSymbol, at, at+len(sym)), nil
		}
	}
	switch {
	case strings.HasPrefix(rest, "&&"):
		return token{}, s.invalid(at, `"&&" is not an operator; write AND`)
	case strings.HasPrefix(rest, "||"):
		return token{}, s.invalid(at, `"||" is not an operator; write OR`)
	case rest[0] == '.':
		return token{}, s.invalid(at, `unexpected "."; a filter names columns of one table, without a prefix and without fields inside them`)
	}
	r, _ := utf8.DecodeRuneInString(rest)
	return token{}, s.invalid(at, "unexpected character %q", r)
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }
func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isNameStart(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
}

func isNamePart(c byte) bool { return isNameStart(c) || isDigit(c) }
