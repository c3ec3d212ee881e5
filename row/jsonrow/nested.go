package jsonrow

import (
	"bytes"
	"fmt"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// nested reads the array or object at pos. It goes no deeper than the column's
// type does, however deep the text is.
func (d *Decoder) nested(c *column, open byte) bool {
	switch {
	case c.kind == millrace.Array && open == '[':
		return d.array(c)
	case c.kind == millrace.Row && open == '{':
		c.fields.gen++
		if !d.object(c, false) {
			return false
		}
		c.took()
		return true
	case c.kind == millrace.Map && open == '[':
		return d.entries(c)
	case c.kind == millrace.Map && c.textKeys():
		return d.textMap(c)
	}
	return d.failType(c)
}

// next steps over what stands between the members of an array or object: it says
// whether another member follows. At the end it eats the closing bracket.
func (d *Decoder) next(closing byte, first bool) (more, ok bool) {
	d.pos = skipSpace(d.buf, d.pos)
	switch {
	case d.pos >= len(d.buf):
		return false, d.syntax("the text ends inside an array or object")
	case d.buf[d.pos] == closing:
		d.pos++
		return false, true
	case first:
		return true, true
	case d.buf[d.pos] != ',':
		return false, d.syntax("a comma is missing")
	}
	d.pos = skipSpace(d.buf, d.pos+1)
	if d.pos < len(d.buf) && d.buf[d.pos] == closing {
		return false, d.syntax("a comma stands before a closing bracket")
	}
	return true, true
}

// name reads a field name and its colon.
func (d *Decoder) name() ([]byte, bool) {
	name, ok := d.stringAt()
	if !ok {
		return nil, false
	}
	if d.pos = skipSpace(d.buf, d.pos); d.pos >= len(d.buf) || d.buf[d.pos] != ':' {
		return nil, d.syntax("a colon is missing")
	}
	d.pos++
	return name, true
}

func (d *Decoder) array(c *column) bool {
	d.pos++
	elem := c.children[0]
	for i := 0; ; i++ {
		more, ok := d.next(']', i == 0)
		if !ok {
			return false
		}
		if !more {
			break
		}
		if !d.value(elem) {
			d.fault.within(i)
			return false
		}
	}
	c.offsets = append(c.offsets, offset(elem.n))
	c.took()
	return true
}

// textKeys says whether a MAP has a JSON object as its form.
func (c *column) textKeys() bool {
	return c.children[0].kind == millrace.String || c.children[0].kind == millrace.Char
}

// textMap reads {"key": value, …}.
func (d *Decoder) textMap(c *column) bool {
	d.pos++
	key, val := c.children[0], c.children[1]
	from := key.n
	for first := true; ; first = false {
		more, ok := d.next('}', first)
		if !ok {
			return false
		}
		if !more {
			break
		}
		at := d.pos
		if d.buf[at] != '"' {
			return d.syntax("a string is missing")
		}
		if !d.text(key) {
			return false
		}
		name := key.data[key.offsets[key.n-1]:]
		if d.pos = skipSpace(d.buf, d.pos); d.pos >= len(d.buf) || d.buf[d.pos] != ':' {
			return d.syntax("a colon is missing")
		}
		d.pos++
		if !d.value(val) {
			d.fault.under(clip(name))
			return false
		}
	}
	return d.endMap(c, from)
}

// entries reads [{"key": …, "value": …}, …].
func (d *Decoder) entries(c *column) bool {
	d.pos++
	key, val := c.children[0], c.children[1]
	from := key.n
	for i := 0; ; i++ {
		more, ok := d.next(']', i == 0)
		if !ok {
			return false
		}
		if !more {
			break
		}
		if !d.entry(key, val) {
			d.fault.within(i)
			return false
		}
	}
	return d.endMap(c, from)
}

func (d *Decoder) entry(key, val *column) bool {
	if d.buf[d.pos] != '{' {
		d.fault.start = d.pos
		d.fault.end = d.skip(d.pos)
		return d.fail(errs.TypeMismatch, `want an object with "key" and "value"`)
	}
	d.pos++
	n := key.n
	for first := true; ; first = false {
		more, ok := d.next('}', first)
		if !ok {
			return false
		}
		if !more {
			break
		}
		name, ok := d.name()
		if !ok {
			return false
		}
		var c *column
		switch string(name) {
		case millrace.KeyName:
			c = key
		case millrace.ValueName:
			c = val
		default:
			return d.failName(name, errs.UnknownField, `a MAP entry has "key" and "value" only`)
		}
		if c.n > n {
			return d.failName(name, errs.DuplicateField, "the field stands twice in one object")
		}
		if !d.value(c) {
			d.fault.under(c.name)
			return false
		}
	}
	if key.n == n {
		d.fault.start, d.fault.end = 0, 0
		return d.failUnder(millrace.KeyName, errs.MissingColumn, "the MAP entry has no key")
	}
	if val.n > n {
		return true
	}
	if !val.nullable {
		d.fault.start, d.fault.end = 0, 0
		return d.failUnder(millrace.ValueName, errs.MissingColumn, "the MAP entry has no value, and its type is NOT NULL")
	}
	if !d.spend(val) {
		return false
	}
	val.appendNull()
	return true
}

func (d *Decoder) endMap(c *column, from int) bool {
	key := c.children[0]
	if twice := d.keys.duplicate(key, from); twice >= 0 {
		d.fault.start, d.fault.end = 0, 0
		return d.fail(errs.DuplicateField, fmt.Sprintf("entries %d and before have the same key", twice-from))
	}
	c.offsets = append(c.offsets, offset(key.n))
	c.took()
	return true
}

// keySet finds keys of a MAP that stand twice.
type keySet struct {
	seen map[string]struct{}
	text []byte
	ends []int
}

// fewKeys is up to how many keys comparing each with each costs less than a set.
const fewKeys = 8

// duplicate is the number of the first key of c, from the given one on, that
// equals one before it, or -1.
func (s *keySet) duplicate(c *column, from int) int {
	if c.n-from < 2 {
		return -1
	}
	at := c.bytesOf
	switch {
	case c.kind == millrace.Boolean, c.typ.Nested():
		at = s.encoded(c, from)
	case c.kind == millrace.Float, c.kind == millrace.Double:
		at = c.floatBytes
	}
	if c.n-from <= fewKeys {
		for i := from + 1; i < c.n; i++ {
			for j := from; j < i; j++ {
				if bytes.Equal(at(i), at(j)) {
					return i
				}
			}
		}
		return -1
	}
	if s.seen == nil {
		s.seen = map[string]struct{}{}
	}
	defer clear(s.seen)
	for i := from; i < c.n; i++ {
		if _, ok := s.seen[string(at(i))]; ok {
			return i
		}
		s.seen[string(at(i))] = struct{}{}
	}
	return -1
}

// floatBytes is bytesOf with 0 for -0, which equals it.
func (c *column) floatBytes(i int) []byte {
	b := c.bytesOf(i)
	if b[len(b)-1] == 0x80 && len(bytes.TrimRight(b[:len(b)-1], "\x00")) == 0 {
		return make([]byte, len(b))
	}
	return b
}

// encoded gives keys as their JSON, which is the same for equal values of every
// type once -0 is written as 0.
func (s *keySet) encoded(c *column, from int) func(i int) []byte {
	data := c.peek()
	defer data.Release()
	w := newWriter(millrace.Column{Type: c.typ}, EncodeOptions{plusZero: true})
	w.bind(data, 0)
	s.text, s.ends = s.text[:0], append(s.ends[:0], 0)
	for i := from; i < c.n; i++ {
		s.text = w.append(s.text, i)
		s.ends = append(s.ends, len(s.text))
	}
	return func(i int) []byte { return s.text[s.ends[i-from]:s.ends[i-from+1]] }
}
