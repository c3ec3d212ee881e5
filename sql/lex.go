package sql

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/millrace/millrace/errs"
)

type tokenKind uint8

const (
	endToken    tokenKind = iota
	wordToken             // a bare word: a keyword or a name
	quotedToken           // "name" or `name`; val is the name
	textToken             // 'text'; val is the text, '' unescaped
	hexToken              // X'00ff'; val is the digits
	numberToken           // without a sign
	symbolToken           // one character
)

type token struct {
	kind tokenKind
	at   int // where it begins and ends, in bytes
	end  int
	val  string
}

func (t token) symbol(s string) bool { return t.kind == symbolToken && t.val == s }

// word says whether t is the given keyword.
func (t token) word(upper string) bool {
	return t.kind == wordToken && len(t.val) == len(upper) && strings.EqualFold(t.val, upper)
}

// source is the text of a statement and knows how to complain about a place in it.
type source string

// place is the line and column, in characters from 1, of byte at.
func (s source) place(at int) (line, column int) {
	before := string(s[:min(at, len(s))])
	line = 1 + strings.Count(before, "\n")
	return line, 1 + utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:])
}

// fail is an error about what stands at byte at.
func (s source) fail(code errs.Code, at int, format string, args ...any) *errs.Error {
	e := errs.New(code, format, args...)
	return s.point(e, at)
}

// point says in e, which it changes, what place it is about.
func (s source) point(e *errs.Error, at int) *errs.Error {
	line, column := s.place(at)
	e.Message = fmt.Sprintf("line %d, column %d: %s", line, column, e.Message)
	e.Tell("line", line)
	e.Tell("column", column)
	return e
}

func (s source) invalid(at int, format string, args ...any) *errs.Error {
	return s.fail(errs.InvalidRequest, at, format, args...)
}

// skip is where the next token begins, behind white space and comments.
func (s source) skip(at int) (int, error) {
	for at < len(s) {
		switch rest := s[at:]; {
		case isSpace(rest[0]):
			at++
		case strings.HasPrefix(string(rest), "--"):
			if i := strings.IndexByte(string(rest), '\n'); i >= 0 {
				at += i + 1
			} else {
				at = len(s)
			}
		case strings.HasPrefix(string(rest), "/*"):
			i := strings.Index(string(rest[2:]), "*/")
			if i < 0 {
				return at, s.invalid(at, "the comment that begins here has no end, */")
			}
			at += 2 + i + 2
		default:
			return at, nil
		}
	}
	return at, nil
}

// token reads the token that begins at or after byte at.
func (s source) token(at int) (token, error) {
	at, err := s.skip(at)
	if err != nil {
		return token{kind: endToken, at: at, end: at}, err
	}
	if at >= len(s) {
		return token{kind: endToken, at: len(s), end: len(s)}, nil
	}
	switch c := s[at]; {
	case (c == 'x' || c == 'X') && at+1 < len(s) && s[at+1] == '\'':
		t, err := s.quoted(at+1, hexToken)
		t.at = at
		return t, err
	case isWordStart(c):
		end := at + 1
		for end < len(s) && isWordPart(s[end]) {
			end++
		}
		return s.cut(wordToken, at, end), nil
	case isDigit(c), c == '.' && at+1 < len(s) && isDigit(s[at+1]):
		return s.number(at)
	case c == '\'':
		return s.quoted(at, textToken)
	case c == '"', c == '`':
		return s.quoted(at, quotedToken)
	}
	_, n := utf8.DecodeRuneInString(string(s[at:]))
	return s.cut(symbolToken, at, at+n), nil
}

func (s source) cut(kind tokenKind, at, end int) token {
	return token{kind: kind, at: at, end: end, val: string(s[at:end])}
}

// quoted reads what stands between the quote at byte at and its partner; a
// doubled quote stands for one.
func (s source) quoted(at int, kind tokenKind) (token, error) {
	q := s[at]
	doubled := false
	for i := at + 1; i < len(s); i++ {
		next := strings.IndexByte(string(s[i:]), q)
		if next < 0 {
			break
		}
		i += next
		if i+1 < len(s) && s[i+1] == q {
			doubled = true
			i++
			continue
		}
		val := string(s[at+1 : i])
		if doubled {
			val = strings.ReplaceAll(val, string([]byte{q, q}), string(q))
		}
		return token{kind: kind, at: at, end: i + 1, val: val}, nil
	}
	return token{kind: endToken, at: at, end: at}, s.invalid(at, "the %c that opens here is never closed", q)
}

func (s source) number(at int) (token, error) {
	end := at
	digits := func() bool {
		from := end
		for end < len(s) && isDigit(s[end]) {
			end++
		}
		return end > from
	}
	good := digits()
	if end < len(s) && s[end] == '.' {
		end++
		good = digits() || good
	}
	if end < len(s) && (s[end] == 'e' || s[end] == 'E') {
		end++
		if end < len(s) && (s[end] == '+' || s[end] == '-') {
			end++
		}
		good = digits() && good
	}
	for end < len(s) && (isWordPart(s[end]) || s[end] == '.') {
		end++ // 12abc and 1.2.3 are one bad number, not two tokens
		good = false
	}
	t := s.cut(numberToken, at, end)
	if !good {
		return t, s.invalid(at, "%s is not a number", clip(t.val))
	}
	return t, nil
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }
func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isWordStart(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
}

// isWordPart takes the dollar of t$changelog into a word.
func isWordPart(c byte) bool { return isWordStart(c) || isDigit(c) || c == '$' }

const clipBytes = 64

// clip quotes a piece of the statement for a message, cut when it is long.
func clip(s string) string {
	if len(s) > clipBytes {
		cut := clipBytes
		for cut > 0 && !utf8.RuneStart(s[cut]) {
			cut--
		}
		return fmt.Sprintf("%q…", s[:cut])
	}
	return fmt.Sprintf("%q", s)
}
