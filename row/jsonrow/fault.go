package jsonrow

import (
	"fmt"
	"strconv"
	"unicode/utf8"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// fault is what is wrong with the object being read. It is filled at the deepest
// place; the path grows towards the front as the levels above return.
type fault struct {
	code       errs.Code
	path       string
	why        string
	start, end int // the offending text, when there is some
}

// under puts a field name in front of the path.
func (f *fault) under(name string) {
	switch {
	case f.path == "":
		f.path = name
	case f.path[0] == '[':
		f.path = name + f.path
	default:
		f.path = name + "." + f.path
	}
}

// within puts an array index in front of the path.
func (f *fault) within(i int) {
	at := "[" + strconv.Itoa(i) + "]"
	if f.path != "" && f.path[0] != '[' {
		at += "."
	}
	f.path = at + f.path
}

// fail records the fault and returns false. The text at fault.start is shown
// with it.
func (d *Decoder) fail(code errs.Code, why string) bool {
	d.fault.code, d.fault.why, d.fault.path = code, why, ""
	return false
}

// failUnder is fail about a field of the object being read.
func (d *Decoder) failUnder(name string, code errs.Code, why string) bool {
	d.fail(code, why)
	d.fault.path = name
	return false
}

// failName is fail about a field whose name stands in the text.
func (d *Decoder) failName(name []byte, code errs.Code, why string) bool {
	d.fault.start, d.fault.end = 0, 0
	return d.failUnder(clip(name), code, why)
}

// syntax is fail about text that is not JSON.
func (d *Decoder) syntax(why string) bool {
	d.fault.start, d.fault.end = 0, 0
	return d.fail(errs.InvalidRequest, fmt.Sprintf("not valid JSON: %s, at byte %d of the row", why, d.pos))
}

func (d *Decoder) failString(bad stringFault, at int) bool {
	if bad == stringUTF8 || bad == stringSurrogate {
		d.fault.start, d.fault.end = 0, 0
		return d.fail(errs.InvalidValue, bad.String())
	}
	d.pos = at
	return d.syntax(bad.String())
}

// failType is fail about a value of the wrong JSON kind at pos.
func (d *Decoder) failType(c *column) bool {
	if d.pos >= len(d.buf) {
		return d.syntax("an object is missing")
	}
	d.fault.start, d.fault.end = d.pos, d.skip(d.pos)
	return d.failVerdict(c, wrongType)
}

// skip is a position behind the beginning of the value at i, for showing it.
func (d *Decoder) skip(i int) int { return min(i+maxShown+1, len(d.buf)) }

// failVerdict is fail about a value whose text was judged.
func (d *Decoder) failVerdict(c *column, v verdict) bool {
	t := c.typ.String()
	switch v {
	case wrongType:
		return d.fail(errs.TypeMismatch, "want "+t+", "+formOf(c.typ))
	case badText:
		return d.fail(errs.InvalidValue, "not a value of "+t+"; want "+formOf(c.typ))
	case tooLong:
		if c.kind == millrace.Binary {
			return d.fail(errs.ValueOutOfRange, fmt.Sprintf("%s holds exactly %d bytes", t, c.typ.Length))
		}
		return d.fail(errs.ValueOutOfRange, fmt.Sprintf("%s holds at most %d characters", t, c.typ.Length))
	case inexact:
		return d.fail(errs.ValueOutOfRange, "more digits than "+t+" holds")
	default:
		return d.fail(errs.ValueOutOfRange, "out of the range of "+t)
	}
}

// formOf describes the JSON form of a type.
func formOf(t millrace.DataType) string {
	switch t.Kind {
	case millrace.Boolean:
		return "true or false"
	case millrace.TinyInt, millrace.SmallInt, millrace.Int, millrace.BigInt:
		return "a whole number, or the same as a string"
	case millrace.Float, millrace.Double:
		return `a number, "NaN", "Infinity" or "-Infinity"`
	case millrace.Decimal:
		return `a string such as "12.50", or a number`
	case millrace.Char, millrace.String:
		return "a string"
	case millrace.Binary, millrace.Bytes:
		return "a string in base64"
	case millrace.Date:
		return `a string such as "2026-11-29"`
	case millrace.Time:
		return `a string such as "10:00:00"`
	case millrace.Timestamp:
		return `a string such as "2026-11-29T10:00:00", without a time zone`
	case millrace.TimestampLTZ:
		return `a string such as "2026-11-29T10:00:00Z", or epoch milliseconds`
	case millrace.Array:
		return "an array"
	case millrace.Map:
		if k := t.Children[0].Type.Kind; k == millrace.String || k == millrace.Char {
			return `an object, or an array of {"key","value"}`
		}
		return `an array of {"key","value"}`
	default:
		return "an object"
	}
}

// maxShown is how much of a value or name a message shows.
const maxShown = 64

// clip is b as text of at most maxShown bytes, cut between characters.
func clip(b []byte) string {
	if len(b) <= maxShown {
		return string(b)
	}
	n := maxShown
	for n > maxShown-utf8.UTFMax && !utf8.RuneStart(b[n]) {
		n--
	}
	return string(b[:n]) + "…"
}

// takeFault makes the fault an error about a row. REQUIRES: d.buf is the row.
func (d *Decoder) takeFault(index int64) error {
	f := d.fault
	d.fault = fault{}
	if f.end > f.start {
		return errs.Row(f.code, index, f.path, "%s: %s", clip(d.buf[f.start:f.end]), f.why)
	}
	return errs.Row(f.code, index, f.path, "%s", f.why)
}
