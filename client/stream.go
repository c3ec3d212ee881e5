package client

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"

	"github.com/millrace/millrace/errs"
)

// maxLineBytes bounds a line of NDJSON or of an event: a row of 1 MiB grows when
// its bytes become JSON text.
const maxLineBytes = 8 << 20

// Stream is an answer that is read as it comes. Read gives its bytes; where an
// Arrow stream was cut off it gives an error instead of io.EOF.
type Stream struct {
	resp  *http.Response
	arrow bool
	tail  [8]byte // the last bytes read, to find the end marker
	n     int64   // bytes read
	done  bool
}

// arrowEnd is how an Arrow IPC stream ends: a continuation and a length of zero.
var arrowEnd = [8]byte{0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0}

func openStream(resp *http.Response, err error, mediaType string) (*Stream, error) {
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, readProblem(resp)
	}
	return &Stream{resp: resp, arrow: mediaType == mediaArrow}, nil
}

// Read implements io.Reader.
func (s *Stream) Read(p []byte) (int, error) {
	n, err := s.resp.Body.Read(p)
	s.n += int64(n)
	if s.arrow {
		s.keepTail(p[:n])
	}
	switch {
	case err == nil:
		return n, nil
	case !errors.Is(err, io.EOF):
		return n, s.broken(err)
	case s.arrow && s.tail != arrowEnd:
		return n, s.broken(io.ErrUnexpectedEOF)
	}
	s.done = true
	return n, io.EOF
}

func (s *Stream) keepTail(p []byte) {
	if len(p) >= len(s.tail) {
		copy(s.tail[:], p[len(p)-len(s.tail):])
		return
	}
	copy(s.tail[:], s.tail[len(p):])
	copy(s.tail[len(s.tail)-len(p):], p)
}

func (s *Stream) broken(err error) error {
	if ctxErr := s.resp.Request.Context().Err(); ctxErr != nil {
		return ctxErr
	}
	return &errs.Error{Code: errs.Unavailable, Message: "the stream broke off before its end; what came so far is not everything", Err: err}
}

// BytesRead is how much has been read so far.
func (s *Stream) BytesRead() int64 { return s.n }

// Stats says what the read cost; known when the stream has been read to its end.
func (s *Stream) Stats() (ReadStats, bool) {
	if !s.done {
		return ReadStats{}, false
	}
	return parseStats(s.resp.Trailer)
}

// Close ends the stream. Of one that has been read to its end marker it takes the
// trailer too, so that Stats knows and the connection can be used again.
func (s *Stream) Close() error {
	if !s.done && s.arrow && s.tail == arrowEnd {
		var rest [1]byte
		if n, err := s.resp.Body.Read(rest[:]); n == 0 && errors.Is(err, io.EOF) {
			s.done = true
		}
	}
	return s.resp.Body.Close()
}

// Lines ranges over the lines of NDJSON, each a JSON object that is good until the
// next; the line that tells of a failure becomes an error.
func (s *Stream) Lines() iter.Seq2[json.RawMessage, error] { return s.lines }

func (s *Stream) lines(yield func(json.RawMessage, error) bool) {
	in := bufio.NewScanner(s)
	in.Buffer(make([]byte, 0, 64<<10), maxLineBytes)
	for in.Scan() {
		line := bytes.TrimSpace(in.Bytes())
		if len(line) == 0 {
			continue
		}
		if err := errorLine(line); err != nil {
			yield(nil, err)
			return
		}
		if !yield(line, nil) {
			return
		}
	}
	if err := in.Err(); err != nil {
		yield(nil, err)
	}
}

var errorLinePrefix = []byte(`{"__error"`)

// errorLine is the error that ends a stream which failed after its first byte.
// No column is called __error: names that begin with __ are reserved.
func errorLine(line []byte) error {
	if !bytes.HasPrefix(line, errorLinePrefix) {
		return nil
	}
	var l struct {
		Error json.RawMessage `json:"__error"`
	}
	if err := json.Unmarshal(line, &l); err != nil {
		return asError(line, "the stream")
	}
	return asError(l.Error, "the stream")
}
