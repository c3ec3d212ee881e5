package jsonrow

import (
	"math"
	"unicode/utf8"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// value reads the value at pos into c.
func (d *Decoder) value(c *column) bool {
	d.pos = skipSpace(d.buf, d.pos)
	if d.pos >= len(d.buf) {
		return d.syntax("the text ends inside an object")
	}
	at := d.pos
	var v verdict
	switch b := d.buf[d.pos]; {
	case b == '"':
		if c.kind == millrace.String || c.kind == millrace.Char {
			return d.text(c)
		}
		text, ok := d.stringAt()
		if !ok {
			return false
		}
		v = c.setText(text)
	case b == '-' || b-'0' <= 9:
		if c.kind <= millrace.Double && d.shortInt(c) {
			return true
		}
		end := scanNumber(d.buf, d.pos)
		if end < 0 || !ended(d.buf, end) {
			return d.syntax("a number is not well formed")
		}
		d.pos = end
		if end-at > maxNumber {
			d.fault.start, d.fault.end = at, end
			return d.fail(errs.InvalidValue, "the number is too long")
		}
		v = c.setNumber(d.buf[at:end])
	case b == '[' || b == '{':
		return d.nested(c, b)
	default:
		word, ok := d.literal()
		if !ok {
			return d.syntax("a value is missing or is no JSON value")
		}
		if word == 'n' {
			return d.null(c, at)
		}
		if c.kind != millrace.Boolean {
			v = wrongType
			break
		}
		c.appendBool(word == 't')
	}
	if v == good {
		return true
	}
	d.fault.start, d.fault.end = at, d.pos
	return d.failVerdict(c, v)
}

// literal eats true, false or null and returns its first letter.
func (d *Decoder) literal() (byte, bool) {
	rest := d.buf[d.pos:]
	for _, w := range [...]string{"null", "true", "false"} {
		if len(rest) >= len(w) && string(rest[:len(w)]) == w && ended(rest, len(w)) {
			d.pos += len(w)
			return w[0], true
		}
	}
	return 0, false
}

func (d *Decoder) null(c *column, at int) bool {
	if !c.nullable && !c.lenient {
		d.fault.start, d.fault.end = at, d.pos
		return d.fail(errs.NullNotAllowed, "NULL where the type "+c.typ.String()+" is NOT NULL")
	}
	if !d.spend(c) {
		return false
	}
	c.appendNull()
	return true
}

// stringAt reads the string at pos.
func (d *Decoder) stringAt() ([]byte, bool) {
	if d.pos = skipSpace(d.buf, d.pos); d.pos >= len(d.buf) || d.buf[d.pos] != '"' {
		return nil, d.syntax("a string is missing")
	}
	text, end, grown, bad := scanString(d.buf, d.pos, d.scratch)
	d.scratch = grown
	if bad != stringOK {
		return nil, d.failString(bad, end)
	}
	d.pos = end
	return text, true
}

// text reads the string at pos into a CHAR or STRING column, straight into place.
func (d *Decoder) text(c *column) bool {
	at := d.pos
	from := len(c.data)
	text, end, grown, bad := scanString(d.buf, at, c.data)
	c.data = grown
	if bad != stringOK {
		return d.failString(bad, end)
	}
	if len(grown) == from {
		c.data = append(c.data, text...)
	}
	d.pos = end
	if c.kind == millrace.Char && len(text) > c.typ.Length && utf8.RuneCount(text) > c.typ.Length {
		d.fault.start, d.fault.end = at, end
		return d.failVerdict(c, tooLong)
	}
	c.end()
	return true
}

// shortInt reads the usual whole number into a numeric column; anything else it
// leaves to the general way.
func (d *Decoder) shortInt(c *column) bool {
	b, i := d.buf, d.pos
	neg := b[i] == '-'
	if neg {
		i++
	}
	from := i
	var n int64
	for i < len(b) && i-from < 18 && b[i]-'0' <= 9 {
		n = n*10 + int64(b[i]-'0')
		i++
	}
	if i == from || i >= len(b) || b[i] != ',' && b[i] != '}' && b[i] != ']' || b[from] == '0' && i > from+1 {
		return false
	}
	if neg {
		if n == 0 {
			return false // -0 is something else for floats
		}
		n = -n
	}
	switch c.kind {
	case millrace.BigInt:
		c.append64(n)
	case millrace.Int:
		if int64(int32(n)) != n {
			return false
		}
		c.append32(int32(n))
	case millrace.SmallInt:
		if int64(int16(n)) != n {
			return false
		}
		c.append16(int16(n))
	case millrace.TinyInt:
		if int64(int8(n)) != n {
			return false
		}
		c.append8(int8(n))
	case millrace.Double:
		if i-from > 15 {
			return false
		}
		c.append64(int64(math.Float64bits(float64(n))))
	default:
		return false
	}
	d.pos = i
	return true
}

// setNumber appends the value of a JSON number. REQUIRES: isNumber(text).
func (c *column) setNumber(text []byte) verdict {
	switch c.kind {
	case millrace.TinyInt, millrace.SmallInt, millrace.Int, millrace.BigInt:
		return c.setInt(text)
	case millrace.Float:
		f, v := parseFloat(text, 32)
		if v == good {
			c.append32(int32(math.Float32bits(float32(f))))
		}
		return v
	case millrace.Double:
		f, v := parseFloat(text, 64)
		if v == good {
			c.append64(int64(math.Float64bits(f)))
		}
		return v
	case millrace.Decimal:
		return c.setDecimal(text)
	case millrace.TimestampLTZ:
		ms, v := parseInt(text, math.MinInt64, math.MaxInt64)
		if v != good {
			return v
		}
		ts, v := millisTimestamp(ms, c.typ.Precision, c.unit)
		if v == good {
			c.append64(ts)
		}
		return v
	default:
		return wrongType
	}
}

func (c *column) setInt(text []byte) verdict {
	bits := 8 * c.width
	n, v := parseInt(text, math.MinInt64>>(64-bits), math.MaxInt64>>(64-bits))
	if v != good {
		return v
	}
	switch c.width {
	case 1:
		c.append8(int8(n))
	case 2:
		c.append16(int16(n))
	case 4:
		c.append32(int32(n))
	default:
		c.append64(n)
	}
	return good
}

func (c *column) setDecimal(text []byte) verdict {
	hi, lo, v := parseDecimal(text, c.typ.Precision, c.typ.Scale)
	if v == good {
		c.append128(hi, lo)
	}
	return v
}

// setText appends the value that the text of a JSON string stands for.
func (c *column) setText(text []byte) verdict {
	switch c.kind {
	case millrace.TinyInt, millrace.SmallInt, millrace.Int, millrace.BigInt, millrace.Decimal:
		if len(text) > maxNumber {
			return badText
		}
		if c.kind == millrace.Decimal {
			return c.setDecimal(text)
		}
		return c.setInt(text)
	case millrace.Float, millrace.Double:
		f, ok := namedFloat(text)
		switch {
		case !ok:
			return wrongType
		case c.kind == millrace.Float:
			c.append32(int32(math.Float32bits(float32(f))))
		default:
			c.append64(int64(math.Float64bits(f)))
		}
		return good
	case millrace.Binary, millrace.Bytes:
		return c.setBase64(text)
	case millrace.Date:
		n, v := parseDate(text)
		if v == good {
			c.append32(n)
		}
		return v
	case millrace.Time:
		n, v := parseTime(text, c.typ.Precision, c.unit)
		switch {
		case v != good:
		case c.width == 4:
			c.append32(int32(n))
		default:
			c.append64(n)
		}
		return v
	case millrace.Timestamp, millrace.TimestampLTZ:
		n, v := parseTimestamp(text, c.typ.Precision, c.unit, c.kind == millrace.TimestampLTZ)
		if v == good {
			c.append64(n)
		}
		return v
	default:
		return wrongType
	}
}
