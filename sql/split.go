package sql

import (
	"strings"
	"unicode/utf8"
)

// Piece is one statement of a script.
type Piece struct {
	// Text is the statement. It begins with as many line breaks and spaces as stand
	// before it in the script, so that errors name lines and columns of the script.
	Text string
	Line int // where it begins, from 1
}

// Split cuts a script at its semicolons. White space and comments alone are no
// statement.
func Split(script string) ([]Piece, error) {
	s := source(script)
	if !utf8.ValidString(script) {
		return nil, s.invalid(0, "the script is not valid UTF-8")
	}
	var out []Piece
	start, at := -1, 0
	line, from := 1, 0 // of the last statement's begin: its line, and where that begins
	for {
		t, err := s.token(at)
		if err != nil {
			return nil, err
		}
		if start >= 0 && (t.kind == endToken || t.symbol(";")) {
			skipped := script[from:start]
			if i := strings.LastIndexByte(skipped, '\n'); i >= 0 {
				line, from = line+strings.Count(skipped, "\n"), from+i+1
			}
			indent := utf8.RuneCountInString(script[from:start])
			out = append(out, Piece{Text: strings.Repeat("\n", line-1) + strings.Repeat(" ", indent) + script[start:at], Line: line})
			start = -1
		} else if start < 0 && !t.symbol(";") {
			start = t.at
		}
		if t.kind == endToken {
			return out, nil
		}
		at = t.end
	}
}

// Reads says whether a statement gives rows, by its first word.
func Reads(text string) bool {
	t, err := source(text).token(0)
	return err == nil && (t.word("SELECT") || t.word("SHOW") || t.word("DESCRIBE") || t.word("DESC"))
}

// ShowsStatement says whether a statement gives another statement: SHOW CREATE TABLE.
func ShowsStatement(text string) bool {
	p := newParser(text)
	return p.accept("SHOW", "CREATE")
}

// ParseUse reads USE database; ok says whether the statement is one.
func ParseUse(text string) (database string, ok bool, err error) {
	p := newParser(text)
	if !p.tok.word("USE") {
		return "", false, nil
	}
	st := p.statement()
	if p.err != nil {
		return "", true, p.err
	}
	return st.(*useDatabase).name.text, true, nil
}
