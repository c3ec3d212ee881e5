package jsonrow

import (
	"bytes"
	"encoding/binary"

	millrace "github.com/millrace/millrace"
)

// base64Values holds the number of each digit of both base64 alphabets; 0xff is
// none.
var base64Values = func() (t [256]byte) {
	for i := range t {
		t[i] = 0xff
	}
	for i, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/") {
		t[c] = byte(i)
	}
	t['-'], t['_'] = 62, 63
	return t
}()

// setBase64 appends the bytes of base64 text: either alphabet, with or without
// padding, but no bits set that stand for nothing, so that a value has one text
// in each alphabet.
func (c *column) setBase64(text []byte) verdict {
	if n := len(text); n > 0 && n&3 == 0 && text[n-1] == '=' {
		text = bytes.TrimSuffix(text[:n-1], []byte("="))
	}
	size := len(text) / 4 * 3
	switch len(text) & 3 {
	case 1:
		return badText
	case 2, 3:
		size += len(text)&3 - 1
	}
	if c.kind == millrace.Binary && size != c.width {
		return tooLong
	}
	out := c.data
	if c.kind == millrace.Binary {
		out = c.fixed
	}
	for ; len(text) >= 4; text = text[4:] {
		a, b, e, f := base64Values[text[0]], base64Values[text[1]], base64Values[text[2]], base64Values[text[3]]
		if a|b|e|f > 63 {
			return badText
		}
		w := uint32(a)<<18 | uint32(b)<<12 | uint32(e)<<6 | uint32(f)
		out = append(out, byte(w>>16), byte(w>>8), byte(w))
	}
	if len(text) > 0 {
		var tail [4]byte
		for i, ch := range text {
			if tail[i] = base64Values[ch]; tail[i] > 63 {
				return badText
			}
		}
		w := uint32(tail[0])<<18 | uint32(tail[1])<<12 | uint32(tail[2])<<6
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], w<<8)
		n := len(text) - 1
		if b[n] != 0 {
			return badText
		}
		out = append(out, b[:n]...)
	}
	if c.kind == millrace.Binary {
		c.fixed = out
		c.took()
	} else {
		c.data = out
		c.end()
	}
	return good
}
