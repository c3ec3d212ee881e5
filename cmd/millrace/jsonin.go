package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row/jsonrow"
)

// lineLoader passes NDJSON on: the server reads it as well as we could.
type lineLoader struct {
	in     io.Reader
	rename map[string]string
}

func (l *lineLoader) arrow() bool { return false }

// send implements loader.
func (l *lineLoader) send(w io.Writer) error {
	out := bufio.NewWriterSize(w, 256<<10)
	if len(l.rename) == 0 {
		if _, err := io.Copy(out, l.in); err != nil {
			return err
		}
		return out.Flush()
	}
	lines := jsonrow.NewLines(l.in)
	for n := 1; ; n++ {
		line, _, err := lines.Next()
		if errors.Is(err, io.EOF) {
			return out.Flush()
		}
		if err == nil {
			line, err = renameFields(line, l.rename)
		}
		if err != nil {
			return endBadly(out, fmt.Sprintf("object %d", n), err)
		}
		if err := writeLine(out, line); err != nil {
			return err
		}
	}
}

// endBadly ends a body well before a row that is not fit to be sent.
func endBadly(out *bufio.Writer, where string, err error) error {
	if flushErr := out.Flush(); flushErr != nil {
		return flushErr
	}
	return &badRow{where: where, err: err}
}

// jsonLoader sends the objects of a JSON array, or of a sequence of values, as
// NDJSON.
type jsonLoader struct {
	in     *bufio.Reader
	rename map[string]string
}

func (l *jsonLoader) arrow() bool { return false }

// send implements loader.
func (l *jsonLoader) send(w io.Writer) error {
	out := bufio.NewWriterSize(w, 256<<10)
	dec := json.NewDecoder(l.in)
	array, err := l.isArray()
	if err != nil {
		return err
	}
	if array {
		if _, err := dec.Token(); err != nil {
			return endBadly(out, "the file", notJSON(err))
		}
	}
	var compact bytes.Buffer
	for n := 1; ; n++ {
		if array && !dec.More() {
			if _, err := dec.Token(); err != nil {
				return endBadly(out, "the end of the array", notJSON(err))
			}
			return out.Flush()
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			if errors.Is(err, io.EOF) && !array {
				return out.Flush()
			}
			return endBadly(out, fmt.Sprintf("object %d", n), notJSON(err))
		}
		line := []byte(value)
		if len(l.rename) > 0 {
			if line, err = renameFields(line, l.rename); err != nil {
				return endBadly(out, fmt.Sprintf("object %d", n), err)
			}
		}
		compact.Reset()
		if err := json.Compact(&compact, line); err != nil { // an object over several lines
			return endBadly(out, fmt.Sprintf("object %d", n), notJSON(err))
		}
		if err := writeLine(out, compact.Bytes()); err != nil {
			return err
		}
	}
}

func notJSON(err error) error { return errs.New(errs.InvalidRequest, "this is not JSON: %v", err) }

// isArray looks at the first byte that is no white space.
func (l *jsonLoader) isArray() (bool, error) {
	for {
		b, err := l.in.ReadByte()
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if b == ' ' || b == '\t' || b == '\r' || b == '\n' {
			continue
		}
		return b == '[', l.in.UnreadByte()
	}
}

// renameFields renames the fields of an object and leaves all else as it is.
func renameFields(object []byte, rename map[string]string) ([]byte, error) {
	if t := bytes.TrimSpace(object); len(t) == 0 || t[0] != '{' {
		return nil, errs.New(errs.TypeMismatch, "want an object, a field for each column")
	}
	names, values, err := members(object)
	if err != nil {
		return nil, notJSON(err)
	}
	out := []byte{'{'}
	for i, n := range names {
		if to, ok := rename[n]; ok {
			n = to
		}
		if i > 0 {
			out = append(out, ',')
		}
		name, err := json.Marshal(n)
		if err != nil {
			return nil, err
		}
		out = append(append(append(out, name...), ':'), values[i]...)
	}
	return append(out, '}'), nil
}
