package jsonrow

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// maxNumber is the longest text of a number that is read.
const maxNumber = 4096

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// skipSpace is the first position at or after i that is not white space.
func skipSpace(b []byte, i int) int {
	for i < len(b) && isSpace(b[i]) {
		i++
	}
	return i
}

// delimits says whether c may follow a number or literal.
func delimits(c byte) bool {
	return c == ',' || c == '}' || c == ']' || isSpace(c)
}

// ended says whether a number or literal that stops at i stops well.
func ended(b []byte, i int) bool { return i >= len(b) || delimits(b[i]) }

// scanNumber is the end of the JSON number at i, or -1.
func scanNumber(b []byte, i int) int {
	if i < len(b) && b[i] == '-' {
		i++
	}
	digits := func() bool {
		from := i
		for i < len(b) && b[i]-'0' <= 9 {
			i++
		}
		return i > from
	}
	first := i
	if !digits() || b[first] == '0' && i > first+1 {
		return -1
	}
	if i < len(b) && b[i] == '.' {
		i++
		if !digits() {
			return -1
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if !digits() {
			return -1
		}
	}
	return i
}

// isNumber says whether the whole of b is one JSON number.
func isNumber(b []byte) bool { return scanNumber(b, 0) == len(b) }

const (
	lsb = 0x0101010101010101
	msb = 0x8080808080808080
)

// hasSpecial has the high bit set in bytes that are a quote, a backslash, a
// control character or not ASCII. Bits above the first such byte may be wrong.
func hasSpecial(w uint64) uint64 {
	q := w ^ lsb*'"'
	s := w ^ lsb*'\\'
	return (w | (w - lsb*0x20) | ((q - lsb) &^ q) | ((s - lsb) &^ s)) & msb
}

// plainEnd is the first position at or after i of a quote, a backslash or a
// control character; ascii says that nothing before it is above 0x7f.
func plainEnd(b []byte, i int) (end int, ascii bool) {
	for i+8 <= len(b) {
		if m := hasSpecial(binary.LittleEndian.Uint64(b[i:])); m != 0 {
			i += bits.TrailingZeros64(m) >> 3
			break
		}
		i += 8
	}
	// The rest, and all of a text in another script: the words would stop at each
	// of its bytes.
	ascii = true
	for ; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"' || c == '\\' || c < 0x20:
			return i, ascii
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	return i, ascii
}

// What can be wrong with a string.
type stringFault uint8

const (
	stringOK stringFault = iota
	stringOpen
	stringControl
	stringEscape
	stringSurrogate
	stringUTF8
)

func (f stringFault) String() string {
	switch f {
	case stringOpen:
		return "the string has no end"
	case stringControl:
		return "the string holds a control character that is not escaped"
	case stringEscape:
		return "the string holds an escape that JSON does not know"
	case stringSurrogate:
		return "the string holds half of a surrogate pair"
	case stringUTF8:
		return "the string is not valid UTF-8"
	default:
		return "the string is well formed"
	}
}

// scanString reads the string whose opening quote is at i. Without escapes text
// is a part of b; with them it is appended to scratch, which is returned as
// grown. end is behind the closing quote.
func scanString(b []byte, i int, scratch []byte) (text []byte, end int, grown []byte, fault stringFault) {
	i++
	from := i
	end, ascii := plainEnd(b, i)
	if end >= len(b) {
		return nil, end, scratch, stringOpen
	}
	if b[end] == '"' {
		text = b[from:end]
		if !ascii && !utf8.Valid(text) {
			return nil, end, scratch, stringUTF8
		}
		return text, end + 1, scratch, stringOK
	}
	start := len(scratch)
	for {
		piece := b[i:end]
		if !ascii && !utf8.Valid(piece) {
			return nil, end, scratch, stringUTF8
		}
		scratch = append(scratch, piece...)
		switch b[end] {
		case '"':
			return scratch[start:], end + 1, scratch, stringOK
		case '\\':
			var ok stringFault
			if scratch, i, ok = unescape(scratch, b, end); ok != stringOK {
				return nil, end, scratch, ok
			}
		default:
			return nil, end, scratch, stringControl
		}
		if end, ascii = plainEnd(b, i); end >= len(b) {
			return nil, end, scratch, stringOpen
		}
	}
}

// unescape appends what the escape at i stands for and returns where it ends.
func unescape(dst, b []byte, i int) ([]byte, int, stringFault) {
	if i+1 >= len(b) {
		return dst, i, stringOpen
	}
	switch c := b[i+1]; c {
	case '"', '\\', '/':
		return append(dst, c), i + 2, stringOK
	case 'b':
		return append(dst, '\b'), i + 2, stringOK
	case 'f':
		return append(dst, '\f'), i + 2, stringOK
	case 'n':
		return append(dst, '\n'), i + 2, stringOK
	case 'r':
		return append(dst, '\r'), i + 2, stringOK
	case 't':
		return append(dst, '\t'), i + 2, stringOK
	case 'u':
		r := hex4(b, i+2)
		if r < 0 {
			return dst, i, stringEscape
		}
		i += 6
		if !utf16.IsSurrogate(r) {
			return utf8.AppendRune(dst, r), i, stringOK
		}
		if i+1 >= len(b) || b[i] != '\\' || b[i+1] != 'u' {
			return dst, i, stringSurrogate
		}
		r = utf16.DecodeRune(r, hex4(b, i+2))
		if r == utf8.RuneError {
			return dst, i, stringSurrogate
		}
		return utf8.AppendRune(dst, r), i + 6, stringOK
	default:
		return dst, i, stringEscape
	}
}

// hex4 is the number of the four hex digits at i, or -1.
func hex4(b []byte, i int) rune {
	if i+4 > len(b) {
		return -1
	}
	var r rune
	for _, c := range b[i : i+4] {
		switch {
		case c-'0' <= 9:
			r = r<<4 | rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return -1
		}
	}
	return r
}
