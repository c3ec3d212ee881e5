package jsonrow

import (
	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// object reads the object at pos into the children of c: the fields of a ROW, or,
// at the top, the columns. REQUIRES: a brace at pos; a new generation of c.fields.
func (d *Decoder) object(c *column, top bool) bool {
	d.pos++
	found, next := 0, 0
	for first := true; ; first = false {
		more, ok := d.next('}', first)
		if !ok {
			return false
		}
		if !more {
			break
		}
		i := next
		if next >= len(c.children) || !d.eat(c.children[next].label) {
			name, ok := d.name()
			if !ok {
				return false
			}
			if i, ok = c.fields.byName[string(name)]; !ok {
				if top && d.options.AllowChangeType && string(name) == millrace.ColChangeType {
					if !d.changeType() {
						return false
					}
					continue
				}
				return d.failName(name, errs.UnknownField, "no such field")
			}
		}
		child := c.children[i]
		if c.fields.seen[i] == c.fields.gen {
			if !top || d.givenIn[i] != c.fields.gen {
				return d.failUnder(child.name, errs.DuplicateField, "the field stands twice in one object")
			}
			d.givenIn[i] = 0 // once
			if !d.again(child) {
				return false
			}
			continue
		}
		c.fields.seen[i] = c.fields.gen
		if !d.value(child) {
			d.fault.under(child.name)
			return false
		}
		if child.lenient && d.nullAt < 0 && !child.nullable && child.lastNull() {
			d.nullAt = i
		}
		found, next = found+1, i+1
	}
	if found < len(c.children) {
		return d.fillAbsent(c, top)
	}
	return true
}

// eat steps over a text when it stands at pos.
func (d *Decoder) eat(text string) bool {
	end := d.pos + len(text)
	if end > len(d.buf) || string(d.buf[d.pos:end]) != text {
		return false
	}
	d.pos = end
	return true
}

// fillAbsent gives NULL to the fields that the object lacked.
func (d *Decoder) fillAbsent(c *column, top bool) bool {
	for i, child := range c.children {
		if c.fields.seen[i] == c.fields.gen {
			continue
		}
		var why *absence
		if top {
			why = &d.absent[i]
		} else if !child.nullable {
			why = &absence{code: errs.MissingColumn, why: whyMissing}
		}
		if why != nil && why.code != "" {
			if !why.lenient {
				return d.failAbsent(child, why)
			}
			if d.nullAt < 0 {
				d.nullAt, d.missing = i, why
			}
		}
		if !top && !d.spend(child) {
			return false
		}
		child.appendNull()
	}
	return true
}

func (d *Decoder) failAbsent(c *column, why *absence) bool {
	d.fault.start, d.fault.end = 0, 0
	return d.failUnder(c.name, why.code, why.why)
}

// spend counts the placeholder of a NULL inside a row.
func (d *Decoder) spend(c *column) bool {
	d.spent += c.nullSize
	if d.spent > maxPlaceholders {
		return d.fail(errs.TooLarge, "the row takes too much room once decoded")
	}
	return true
}

// changeType reads the value of _change_type.
func (d *Decoder) changeType() bool {
	at := skipSpace(d.buf, d.pos)
	if at < len(d.buf) && d.buf[at] != '"' {
		d.fault.start, d.fault.end = at, d.skip(at)
		return d.failUnder(millrace.ColChangeType, errs.TypeMismatch, "want one of the strings +I, -U, +U, -D")
	}
	text, ok := d.stringAt()
	if !ok {
		d.fault.under(millrace.ColChangeType)
		return false
	}
	change, err := millrace.ParseChangeType(string(text))
	switch {
	case err != nil:
		d.fault.start, d.fault.end = at, d.pos
		return d.failUnder(millrace.ColChangeType, errs.InvalidValue, "want one of +I, -U, +U, -D")
	case d.hasChange:
		return d.failUnder(millrace.ColChangeType, errs.DuplicateField, "the field stands twice in one object")
	}
	d.change, d.hasChange = change, true
	return true
}
