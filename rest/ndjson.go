package rest

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row/jsonrow"
)

// ndjson applies a stream of lines, in chunks cut by rows and bytes alone, so that
// a retry cuts the same.
func (wr *writing) ndjson() error {
	b, err := body(wr.r)
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }() // read to its end, or given up
	d, err := wr.decoder()
	if err != nil {
		return err
	}
	lines := jsonrow.NewLinesSize(b, lineBuffer(wr.r))
	c := chunk{decoder: d}
	n := 0
	for {
		raw, index, err := lines.Next()
		if errors.Is(err, io.EOF) {
			return wr.applyChunk(&c, n)
		}
		if err != nil {
			return bodyError(err)
		}
		n++
		wr.add(&c, raw, index)
		if err := wr.decoded(&c); err != nil {
			return err
		}
		if n >= chunkRows || c.bytes >= chunkBytes || d.Full() {
			if err := wr.applyChunk(&c, n); err != nil {
				return err
			}
			n = 0
			doneWith(wr.r)
			if err := wr.waitWrite(); err != nil {
				return err
			}
		}
	}
}

// A small body needs a small buffer for its lines.
const (
	leastLineBuffer = 4 << 10
	mostLineBuffer  = 64 << 10
)

// lineBuffer is the buffer for the lines of a body.
func lineBuffer(r *http.Request) int {
	if r.ContentLength < 0 || r.Header.Get("Content-Encoding") != "" { // its length is not known
		return mostLineBuffer
	}
	return int(min(max(r.ContentLength, leastLineBuffer), mostLineBuffer))
}

// applyChunk writes a chunk of a stream under a deadline of its own. A chunk of
// which every row was bad takes its number all the same, so that those after it
// keep theirs.
func (wr *writing) applyChunk(c *chunk, lines int) error {
	if lines == 0 {
		return nil
	}
	if c.decoder.Len() == 0 && wr.bad == nil {
		wr.pass()
		return nil
	}
	return wr.withDeadline(func() error { return wr.apply(c) })
}

// withDeadline bounds one step of a stream.
func (wr *writing) withDeadline(step func() error) error {
	r := wr.r
	ctx, cancel := context.WithTimeout(r.Context(), defaultTimeout)
	defer cancel()
	wr.r = r.WithContext(ctx)
	defer func() { wr.r = r }()
	err := step()
	if err != nil && errors.Is(err, context.DeadlineExceeded) {
		return errs.New(errs.Unavailable, "a chunk was not written in time")
	}
	return err
}
