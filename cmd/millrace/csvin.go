package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/row/jsonrow"
)

// skippedRows are rows that could not be read while loading went on.
type skippedRows struct {
	on    bool
	count int64
	first []*badRow // at most errs.MaxFieldErrors
}

func (s *skippedRows) add(b *badRow) {
	s.count++
	if len(s.first) < errs.MaxFieldErrors {
		s.first = append(s.first, b)
	}
}

// csvLoader turns CSV into Arrow batches of the table's types.
type csvLoader struct {
	in        *csv.Reader
	cols      []millrace.Column // of the picked fields, in order of the file
	positions []int             // their positions in the file
	null      string
	skipped   *skippedRows

	// A row on its way into the decoder.
	names, texts []string
	object       []byte // nested values, which the file holds as JSON
}

func newCSVLoader(in *input, table []millrace.Column, pick picker, null string, skipped *skippedRows) (*csvLoader, error) {
	l := &csvLoader{in: csv.NewReader(in.text), null: null, skipped: skipped}
	l.in.ReuseRecord = true
	header, err := l.in.Read()
	if errors.Is(err, io.EOF) {
		return nil, errs.New(errs.InvalidValue, "%s is empty; CSV needs a header that names the columns", in.name)
	}
	if err != nil {
		return nil, errs.New(errs.InvalidValue, "%s: %v", in.name, err)
	}
	header = slices.Clone(header)
	for i := range header {
		header[i] = strings.Clone(strings.TrimSpace(header[i]))
	}
	positions, names, err := pick(header)
	if err != nil {
		return nil, err
	}
	l.positions = positions
	for _, n := range names {
		i := slices.IndexFunc(table, func(c millrace.Column) bool { return c.Name == n })
		switch {
		case i >= 0:
			c := table[i]
			c.Nullable = true // the server judges what may be NULL
			l.cols = append(l.cols, c)
		case n == millrace.ColChangeType:
			l.cols = append(l.cols, millrace.Column{Name: n, Type: millrace.DataType{Kind: millrace.String}, Nullable: true})
		default:
			return nil, errs.New(errs.UnknownColumn, "%s has column %q, which the table does not have; name those to load with --columns (a partial update), or rename it with --rename", in.name, n)
		}
	}
	return l, nil
}

func (l *csvLoader) arrow() bool { return true }

// send implements loader.
func (l *csvLoader) send(w io.Writer) error {
	body, err := newArrowBody(w, row.ArrowSchema(l.cols), func(names []string) ([]int, []string, error) {
		all := make([]int, len(names))
		for i := range all {
			all[i] = i
		}
		return all, names, nil
	})
	if err != nil {
		return err
	}
	dec := jsonrow.NewDecoder(l.cols, jsonrow.Options{})
	flush := func() error {
		if dec.Len() == 0 {
			return nil
		}
		rows := dec.Finish()
		defer rows.Release()
		return body.write(rows.Record)
	}
	size := 0
	for index := int64(0); ; index++ {
		record, err := l.in.Read()
		if errors.Is(err, io.EOF) {
			if err := flush(); err != nil {
				return err
			}
			return body.close()
		}
		var bad *badRow
		if err != nil {
			var parse *csv.ParseError
			if !errors.As(err, &parse) {
				return err // the file cannot be read
			}
			bad = &badRow{where: fmt.Sprintf("line %d", parse.Line), err: errs.New(errs.InvalidValue, "%v", parse.Err)}
			if !errors.Is(parse.Err, csv.ErrFieldCount) {
				l.skipped.on = false // where the next row begins is not known
			}
		} else if bad = l.add(dec, record, index); bad == nil {
			for _, f := range record {
				size += len(f)
			}
		}
		if bad != nil {
			if l.skipped.on {
				l.skipped.add(bad)
				continue
			}
			if err := flush(); err != nil {
				return err
			}
			if err := body.close(); err != nil {
				return err
			}
			return bad
		}
		if dec.Len() >= messageRows || size >= messageBytes || dec.Full() {
			if err := flush(); err != nil {
				return err
			}
			size = 0
		}
	}
}

// add puts a record into the decoder.
func (l *csvLoader) add(dec *jsonrow.Decoder, record []string, index int64) *badRow {
	l.names, l.texts, l.object = l.names[:0], l.texts[:0], l.object[:0]
	for i, c := range l.cols {
		text := record[l.positions[i]]
		if text == l.null || text == "" && c.Type.Kind != millrace.String && c.Type.Kind != millrace.Char {
			continue // absent is NULL
		}
		if c.Type.Nested() {
			l.object = append(l.object, map[bool]byte{true: '{', false: ','}[len(l.object) == 0])
			l.object = fmt.Appendf(l.object, "%q:%s", c.Name, text)
			continue
		}
		l.names, l.texts = append(l.names, c.Name), append(l.texts, csvText(c.Type.Kind, text))
	}
	var object []byte
	if len(l.object) > 0 {
		l.object = append(l.object, '}')
		object = l.object
	}
	err := dec.AddKeyed(l.names, l.texts, object, index)
	if err == nil {
		return nil
	}
	line, _ := l.in.FieldPos(0)
	if e, ok := errors.AsType[*errs.Error](err); ok && len(e.Fields) == 1 {
		f := e.Fields[0]
		err = errs.New(e.Code, "column %q: %s", f.Field, f.Message)
	}
	return &badRow{where: fmt.Sprintf("line %d", line), err: err}
}

// csvText brings spellings that are common in CSV into the form of our JSON.
func csvText(k millrace.Kind, s string) string {
	switch k {
	case millrace.Boolean:
		switch strings.ToLower(s) {
		case "true", "t", "1", "yes", "y":
			return "true"
		case "false", "f", "0", "no", "n":
			return "false"
		}
	case millrace.Timestamp, millrace.TimestampLTZ:
		if len(s) > 10 && s[10] == ' ' {
			return s[:10] + "T" + s[11:]
		}
	default:
		// Other kinds are spelt in CSV as they are in JSON.
	}
	return s
}
