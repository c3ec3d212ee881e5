package jsonrow

import (
	"bytes"
	"unicode/utf8"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// AddTexts adds a row whose columns of these names have the values that the texts
// stand for: keys in paths and queries. A text is that of the JSON value without
// quotes, such as 42, true, 2026-11-29; bytes are base64 of either alphabet.
func (d *Decoder) AddTexts(names, texts []string, index int64) error {
	return d.AddKeyed(names, texts, nil, index)
}

// AddKeyed adds the row that raw, a JSON object, describes, with some columns
// given as for AddTexts. A column that stands in both must be equal, else
// key_mismatch.
func (d *Decoder) AddKeyed(names, texts []string, raw []byte, index int64) error {
	if len(raw) > MaxRowBytes {
		return errs.Row(errs.TooLarge, index, "", "the row has %d bytes of JSON; at most %d are allowed", len(raw), MaxRowBytes)
	}
	if err := d.begin(raw, index); err != nil {
		return err
	}
	d.row.fields.gen++
	size := len(raw)
	ok := true
	for i, name := range names {
		size += len(texts[i])
		if ok = d.given(name, texts[i]); !ok {
			break
		}
	}
	switch {
	case !ok:
	case raw == nil:
		ok = d.fillAbsent(d.row, true)
	default:
		ok = d.whole()
	}
	return d.commit(ok && d.judge(), size, index)
}

// given reads the value of one column from its text.
func (d *Decoder) given(name, text string) bool {
	i, ok := d.row.fields.byName[name]
	if !ok {
		return d.failName([]byte(name), errs.UnknownColumn, "no such key column")
	}
	c := d.row.children[i]
	if d.row.fields.seen[i] == d.row.fields.gen {
		return d.failUnder(c.name, errs.DuplicateField, "the column is given twice")
	}
	d.row.fields.seen[i], d.givenIn[i] = d.row.fields.gen, d.row.fields.gen
	v := c.setKey([]byte(text))
	if v == good {
		return true
	}
	d.failVerdict(c, v)
	d.fault.path = c.name
	d.fault.why = clip([]byte(text)) + ": " + d.fault.why
	return false
}

// setKey appends the value that a text without quotes stands for.
func (c *column) setKey(text []byte) verdict {
	switch c.kind {
	case millrace.Char, millrace.String:
		if !utf8.Valid(text) {
			return badText
		}
		if c.kind == millrace.Char && utf8.RuneCount(text) > c.typ.Length {
			return tooLong
		}
		c.data = append(c.data, text...)
		c.end()
		return good
	case millrace.Boolean:
		if s := string(text); s != "true" && s != "false" {
			return badText
		}
		c.appendBool(text[0] == 't')
		return good
	case millrace.Float, millrace.Double, millrace.TimestampLTZ:
		if isNumber(text) && len(text) <= maxNumber {
			return c.setNumber(text)
		}
	default:
	}
	return c.setText(text)
}

// again reads the value of a column that was given already, and compares.
func (d *Decoder) again(c *column) bool {
	n := c.n
	if !d.value(c) {
		d.fault.under(c.name)
		return false
	}
	same := !c.lastNull() && c.equal(n-1, n)
	c.truncate(n)
	if !same {
		d.fault.start, d.fault.end = 0, 0
		return d.failUnder(c.name, errs.KeyMismatch, "the key in the body is not the key in the path")
	}
	return true
}

// equal compares two values of a column that may be in a key.
func (c *column) equal(i, j int) bool {
	if c.kind == millrace.Boolean {
		return c.fixed[i>>3]>>(i&7)&1 == c.fixed[j>>3]>>(j&7)&1
	}
	return bytes.Equal(c.bytesOf(i), c.bytesOf(j))
}
