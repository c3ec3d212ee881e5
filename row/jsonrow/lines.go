package jsonrow

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"github.com/millrace/millrace/errs"
)

// Lines cuts a stream of newline-delimited JSON into its lines.
type Lines struct {
	in    *bufio.Reader
	limit int
	long  []byte // a line that is longer than the buffer of in
	index int64
	err   error
}

// NewLines returns the lines of r, of at most MaxRowBytes each.
func NewLines(r io.Reader) *Lines { return NewLinesSize(r, 64<<10) }

// NewLinesSize is NewLines with a buffer of so many bytes.
func NewLinesSize(r io.Reader, buffer int) *Lines {
	return &Lines{in: bufio.NewReaderSize(r, buffer), limit: MaxRowBytes}
}

// Next is the next line that is not blank, and its number among them from 0; it
// is good until the next call. The error is io.EOF at the end, an *errs.Error for
// a line that is too long, else that of the reader. After an error there is
// nothing more.
func (l *Lines) Next() (line []byte, index int64, err error) {
	for l.err == nil {
		line, err := l.read()
		if err != nil && (!errors.Is(err, io.EOF) || len(line) == 0) {
			l.err = err
			break
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			l.index++
			return line, l.index - 1, nil
		}
	}
	return nil, l.index, l.err
}

func (l *Lines) read() ([]byte, error) {
	line, err := l.in.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, err
	}
	l.long = l.long[:0]
	for {
		l.long = append(l.long, line...)
		if len(l.long) > l.limit+1 { // the newline is not counted
			return nil, errs.Row(errs.TooLarge, l.index, "", "the line is longer than %d bytes", l.limit)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return l.long, err
		}
		line, err = l.in.ReadSlice('\n')
	}
}
