package jsonrow

import (
	"errors"
	"slices"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// maxPartitionBytes is the longest text of a partition: of its object and of its
// name, which stands in offsets and cursors.
const maxPartitionBytes = 4 << 10

// The canonical text of a partition column's value is that of its JSON form without
// quotes and escapes: 7, 2026-08-26, true, EU, base64 of bytes. Two texts of one
// value, such as 07:00:00.0 and 07:00:00, have one canonical text, so that two
// partitions of a table never hold the same values.

// PartitionOfObject reads a partition as the JSON object of its column values, and
// returns their canonical texts in the order of t.PartitionBy.
// REQUIRES: t is partitioned, here and below.
func PartitionOfObject(t *millrace.Table, raw []byte) ([]string, error) {
	if len(raw) > maxPartitionBytes {
		return nil, errs.New(errs.ValueOutOfRange, "the partition takes %d bytes; at most %d are allowed", len(raw), maxPartitionBytes)
	}
	cols := t.Columns(t.PartitionBy)
	d := NewDecoder(cols, Options{})
	if err := d.AddObject(raw, 0); err != nil {
		return nil, partitionError(err)
	}
	rows := d.Finish()
	defer rows.Release()
	out := make([]string, len(cols))
	for i, c := range cols {
		out[i] = string(AppendPartitionText(nil, c.Type, rows.Record.Column(i), 0))
	}
	if n := len(millrace.PartitionName(t.Names(t.PartitionBy), out)); n > maxPartitionBytes {
		return nil, errs.New(errs.ValueOutOfRange, "the partition's name has %d bytes; at most %d are allowed", n, maxPartitionBytes)
	}
	return out, nil
}

// PartitionOfTexts is PartitionOfObject for the texts of the values, which need not
// be canonical, in the order of t.PartitionBy.
func PartitionOfTexts(t *millrace.Table, texts []string) ([]string, error) {
	if len(texts) != len(t.PartitionBy) {
		return nil, errs.New(errs.InvalidValue, "a partition of table %s has %d values (%v), not %d", t.Path, len(t.PartitionBy), t.Names(t.PartitionBy), len(texts))
	}
	for i, c := range t.Columns(t.PartitionBy) {
		if !utf8.ValidString(texts[i]) {
			return nil, partitionError(errs.Row(errs.InvalidValue, 0, c.Name, "the text is not valid UTF-8"))
		}
	}
	return PartitionOfObject(t, AppendPartitionObject(nil, t, texts))
}

// PartitionOfName is PartitionOfObject for the name of a partition, such as
// dt=2026-08-26/hour=7.
func PartitionOfName(t *millrace.Table, name string) ([]string, error) {
	if len(name) > 3*maxPartitionBytes {
		return nil, errs.New(errs.ValueOutOfRange, "the partition's name has %d bytes; at most %d are allowed", len(name), maxPartitionBytes)
	}
	columns, texts, err := millrace.ParsePartitionName(name)
	if err != nil {
		return nil, errs.New(errs.InvalidValue, "%v", err)
	}
	if want := t.Names(t.PartitionBy); !slices.Equal(columns, want) {
		return nil, errs.New(errs.InvalidValue, "%s is not the name of a partition of table %s, whose columns are %v, in this order", clip([]byte(name)), t.Path, want)
	}
	return PartitionOfTexts(t, texts)
}

// AppendPartitionObject appends the JSON object of a partition's values.
func AppendPartitionObject(dst []byte, t *millrace.Table, texts []string) []byte {
	dst = append(dst, '{')
	for i, c := range t.Columns(t.PartitionBy) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendText(dst, []byte(c.Name)), ':')
		switch text := []byte(texts[i]); {
		case c.Type.Kind == millrace.Boolean && (texts[i] == "true" || texts[i] == "false"),
			c.Type.Kind <= millrace.BigInt && isNumber(text):
			dst = append(dst, text...)
		default:
			dst = appendText(dst, text)
		}
	}
	return append(dst, '}')
}

// AppendPartitionText appends the canonical text of value i of arr, which is of the
// type of a partition column and not NULL.
func AppendPartitionText(dst []byte, t millrace.DataType, arr arrow.Array, i int) []byte {
	if t.Kind == millrace.String || t.Kind == millrace.Char {
		return append(dst, arr.(*array.String).Value(i)...)
	}
	at := len(dst)
	dst = AppendValue(dst, t, arr, i, EncodeOptions{})
	if dst[at] == '"' { // what stands in it needs no escapes
		dst = append(dst[:at], dst[at+1:len(dst)-1]...)
	}
	return dst
}

// partitionError makes an error about row 0 one about a partition.
func partitionError(err error) error {
	e, ok := errors.AsType[*errs.Error](err)
	if !ok || len(e.Fields) != 1 {
		return err
	}
	f := e.Fields[0]
	f.Index = nil
	if f.Field == "" {
		return errs.New(e.Code, "the partition: %s", f.Message)
	}
	return &errs.Error{Code: e.Code, Message: "the partition, column \"" + f.Field + "\": " + f.Message, Fields: []errs.FieldError{f}}
}
