package filter

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

// pattern is a LIKE pattern: runs, with any characters between one and the
// next. The first run begins the text and the last one ends it; a pattern
// without % is a single run that is the whole text.
type pattern struct {
	runs []run
	// plain says that no run has a _, and so all are bytes to be found.
	plain bool
}

// run is texts with exactly one character between one and the next; begin is the
// first, and each of more comes after one character.
type run struct {
	begin []byte
	more  [][]byte
	chars int // in all
}

// compilePattern reads a pattern; escape, if it is not empty, is one character.
func compilePattern(text, escape string) (*pattern, error) {
	esc, size := utf8.DecodeRuneInString(escape)
	if size != len(escape) {
		return nil, fmt.Errorf("ESCAPE takes a single character, not %s", quoteText(escape))
	}
	p := &pattern{plain: true}
	var r run
	var lit strings.Builder
	begun := false
	endText := func() {
		if t := []byte(lit.String()); begun {
			r.more = append(r.more, t)
		} else {
			r.begin = t
		}
		begun = true
		lit.Reset()
	}
	escaped := false
	for _, c := range text {
		switch {
		case escaped:
			if c != '%' && c != '_' && c != esc {
				return nil, fmt.Errorf("in the pattern %s the escape character stands before %q; only %%, _ and the escape character itself can be escaped", quoteText(text), c)
			}
			escaped = false
			lit.WriteRune(c)
			r.chars++
		case size > 0 && c == esc:
			escaped = true
		case c == '_':
			endText()
			r.chars++
			p.plain = false
		case c == '%':
			endText()
			p.runs = append(p.runs, r)
			r, begun = run{}, false
		default:
			lit.WriteRune(c)
			r.chars++
		}
	}
	if escaped {
		return nil, fmt.Errorf("the pattern %s ends in the escape character", quoteText(text))
	}
	endText()
	p.runs = append(p.runs, r)
	return p, nil
}

// text returns the only text that matches a pattern without wildcards.
func (p *pattern) text() (string, bool) {
	return string(p.runs[0].begin), len(p.runs) == 1 && p.plain
}

// any says whether every text matches.
func (p *pattern) any() bool {
	for i := range p.runs {
		if p.runs[i].chars > 0 {
			return false
		}
	}
	return len(p.runs) > 1
}

// prefix is what every matching text begins with; only says that every text that
// begins so matches.
func (p *pattern) prefix() (prefix []byte, only bool) {
	return p.runs[0].begin, p.plain && len(p.runs) == 2 && p.runs[1].chars == 0
}

// inside is what every matching text has somewhere; only says that every text
// that has it matches.
func (p *pattern) inside() (part []byte, only bool) {
	if !p.plain || len(p.runs) != 3 || p.runs[0].chars != 0 || p.runs[2].chars != 0 {
		return nil, false
	}
	return p.runs[1].begin, true
}

func (p *pattern) match(s []byte) bool {
	first, last := &p.runs[0], &p.runs[len(p.runs)-1]
	if p.plain {
		if !bytes.HasPrefix(s, first.begin) {
			return false
		}
		s = s[len(first.begin):]
		if len(p.runs) == 1 {
			return len(s) == 0
		}
		if !bytes.HasSuffix(s, last.begin) {
			return false
		}
		s = s[:len(s)-len(last.begin)]
	} else {
		n := first.match(s)
		if n < 0 {
			return false
		}
		s = s[n:]
		if len(p.runs) == 1 {
			return len(s) == 0
		}
		end := len(s)
		for range last.chars {
			if end == 0 {
				return false
			}
			_, size := utf8.DecodeLastRune(s[:end])
			end -= size
		}
		if n := last.match(s[end:]); n < 0 || end+n != len(s) {
			return false
		}
		s = s[:end]
	}
	for i := 1; i < len(p.runs)-1; i++ { // the leftmost place is as good as any
		end := p.runs[i].find(s)
		if end < 0 {
			return false
		}
		s = s[end:]
	}
	return true
}

// match returns how much of s the run takes at its beginning, or -1.
func (r *run) match(s []byte) int {
	if !bytes.HasPrefix(s, r.begin) {
		return -1
	}
	n := len(r.begin)
	for _, t := range r.more {
		if n == len(s) {
			return -1
		}
		_, size := utf8.DecodeRune(s[n:])
		n += size
		if !bytes.HasPrefix(s[n:], t) {
			return -1
		}
		n += len(t)
	}
	return n
}

// find returns where the leftmost match of the run in s ends, or -1.
func (r *run) find(s []byte) int {
	for from := 0; ; {
		i := bytes.Index(s[from:], r.begin)
		if i < 0 {
			return -1
		}
		from += i
		if n := r.match(s[from:]); n >= 0 {
			return from + n
		}
		if from == len(s) {
			return -1
		}
		_, size := utf8.DecodeRune(s[from:])
		from += size
	}
}
