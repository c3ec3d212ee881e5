package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"unicode/utf8"
)

// cell is a value as text.
type cell struct {
	text string
	null bool
}

// textWriter writes rows as text: CSV, or a table for people. header comes first
// and once; right says which columns hold numbers.
type textWriter interface {
	header(names []string, right []bool)
	row(cells []cell) error // does not keep cells
	flush() error           // shows what has come so far
	close() error
}

// csvWriter writes CSV (RFC 4180, lines end in \n). NULL is an empty cell, an
// empty string is "".
type csvWriter struct {
	out  *bufio.Writer
	null string
	line []byte
	err  error
}

func newCSVWriter(w io.Writer, null string) *csvWriter {
	return &csvWriter{out: bufio.NewWriterSize(w, 64<<10), null: null}
}

func (w *csvWriter) header(names []string, _ []bool) {
	cells := make([]cell, len(names))
	for i, n := range names {
		cells[i].text = n
	}
	w.err = w.row(cells)
}

func (w *csvWriter) row(cells []cell) error {
	if w.err != nil {
		return w.err
	}
	w.line = w.line[:0]
	for i, c := range cells {
		if i > 0 {
			w.line = append(w.line, ',')
		}
		if c.null {
			w.line = append(w.line, w.null...)
		} else {
			w.line = w.appendCell(w.line, c.text)
		}
	}
	w.line = append(w.line, '\n')
	_, err := w.out.Write(w.line)
	return err
}

func (w *csvWriter) appendCell(dst []byte, s string) []byte {
	if s != "" && s != w.null && !strings.ContainsAny(s, ",\"\r\n") && s[0] != ' ' && s[len(s)-1] != ' ' {
		return append(dst, s...)
	}
	dst = append(dst, '"')
	for {
		before, after, found := strings.Cut(s, `"`)
		dst = append(dst, before...)
		if !found {
			return append(dst, '"')
		}
		dst = append(dst, `""`...)
		s = after
	}
}

func (w *csvWriter) flush() error { return w.out.Flush() }
func (w *csvWriter) close() error { return w.out.Flush() }

// Sizes of tables for people.
const (
	tableSample  = 1000 // rows that decide the widths
	widestOnTerm = 60   // characters of a cell on a terminal; longer ones are cut
)

// tableWriter writes a table for people. The first rows decide the widths of the
// columns; later ones that are wider stick out.
type tableWriter struct {
	out     *bufio.Writer
	narrow  bool // cut long cells
	names   []string
	right   []bool
	widths  []int
	waiting [][]cell
	begun   bool
	text    []byte
}

func newTableWriter(w io.Writer, narrow bool) *tableWriter {
	return &tableWriter{out: bufio.NewWriterSize(w, 64<<10), narrow: narrow}
}

func (w *tableWriter) header(names []string, right []bool) {
	w.names, w.right = names, right
	w.widths = make([]int, len(names))
	for i, n := range names {
		w.widths[i] = utf8.RuneCountInString(n)
	}
}

func (w *tableWriter) row(cells []cell) error {
	shown := make([]cell, len(cells))
	for i, c := range cells {
		shown[i] = w.shown(c)
	}
	if w.begun {
		return w.line(shown)
	}
	w.waiting = append(w.waiting, shown)
	if len(w.waiting) >= tableSample {
		return w.begin()
	}
	return nil
}

func (w *tableWriter) shown(c cell) cell {
	if c.null {
		return cell{text: "NULL", null: true}
	}
	c.text = printable(strings.Clone(c.text))
	if w.narrow && utf8.RuneCountInString(c.text) > widestOnTerm {
		c.text = string([]rune(c.text)[:widestOnTerm-1]) + "…"
	}
	return c
}

// begin writes the header and the rows that waited for the widths.
func (w *tableWriter) begin() error {
	for _, r := range w.waiting {
		for i, c := range r {
			w.widths[i] = max(w.widths[i], utf8.RuneCountInString(c.text))
		}
	}
	w.begun = true
	head := make([]cell, len(w.names))
	rule := make([]cell, len(w.names))
	for i, n := range w.names {
		head[i].text = printable(n)
		rule[i].text = strings.Repeat("─", w.widths[i])
	}
	lines := append([][]cell{head, rule}, w.waiting...)
	w.waiting = nil
	for _, l := range lines {
		if err := w.line(l); err != nil {
			return err
		}
	}
	return nil
}

func (w *tableWriter) line(cells []cell) error {
	b := w.text[:0]
	for i, c := range cells {
		if i > 0 {
			b = append(b, "  "...)
		}
		pad := max(0, w.widths[i]-utf8.RuneCountInString(c.text))
		right := w.right != nil && w.right[i]
		if right {
			b = appendSpaces(b, pad)
		}
		b = append(b, c.text...)
		if !right && i < len(cells)-1 {
			b = appendSpaces(b, pad)
		}
	}
	w.text = append(bytes.TrimRight(b, " "), '\n')
	_, err := w.out.Write(w.text)
	return err
}

func appendSpaces(b []byte, n int) []byte {
	for range n {
		b = append(b, ' ')
	}
	return b
}

func (w *tableWriter) flush() error {
	if !w.begun && w.names != nil {
		if err := w.begin(); err != nil {
			return err
		}
	}
	return w.out.Flush()
}

func (w *tableWriter) close() error { return w.flush() }

// jsonRows writes rows that come as JSON objects to a textWriter; the first one's
// fields are the columns.
type jsonRows struct {
	out   textWriter
	index map[string]int
	cells []cell
}

func (j *jsonRows) write(object json.RawMessage) error {
	names, values, err := members(object)
	if err != nil {
		return err
	}
	if j.index == nil {
		j.columns(names, values)
	}
	for i := range j.cells {
		j.cells[i] = cell{null: true}
	}
	for i, n := range names {
		if at, ok := j.index[n]; ok {
			j.cells[at] = cellOf(string(values[i]))
		}
	}
	return j.out.row(j.cells)
}

// learn takes the columns from an object without writing it.
func (j *jsonRows) learn(object json.RawMessage) error {
	names, values, err := members(object)
	if err == nil {
		j.columns(names, values)
	}
	return err
}

func (j *jsonRows) columns(names []string, values []json.RawMessage) {
	j.index = make(map[string]int, len(names))
	right := make([]bool, len(names))
	for i, n := range names {
		j.index[n] = i
		right[i] = len(values[i]) > 0 && (values[i][0] == '-' || values[i][0] >= '0' && values[i][0] <= '9')
	}
	j.cells = make([]cell, len(names))
	j.out.header(names, right)
}

// cellOf is a JSON value as text: strings without quotes, everything else as it is.
func cellOf(v string) cell {
	switch {
	case v == "null":
		return cell{null: true}
	case v[0] == '"' && strings.IndexByte(v, '\\') < 0:
		return cell{text: v[1 : len(v)-1]}
	case v[0] == '"':
		var s string
		if json.Unmarshal([]byte(v), &s) == nil {
			return cell{text: s}
		}
	}
	return cell{text: v}
}

// members are the members of a JSON object, in order.
func members(object json.RawMessage) (names []string, values []json.RawMessage, err error) {
	dec := json.NewDecoder(bytes.NewReader(object))
	if _, err := dec.Token(); err != nil {
		return nil, nil, err
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, nil, err
		}
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			return nil, nil, err
		}
		name, ok := key.(string)
		if !ok {
			return nil, nil, &json.SyntaxError{Offset: dec.InputOffset()}
		}
		names, values = append(names, name), append(values, v)
	}
	return names, values, nil
}

func writeLine(w *bufio.Writer, line []byte) error {
	if _, err := w.Write(line); err != nil {
		return err
	}
	return w.WriteByte('\n')
}
