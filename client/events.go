package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// event is a block of a stream of server-sent events.
type event struct {
	kind  string
	id    string
	hasID bool
	data  []byte
}

// events reads server-sent events (HTML, section 9.2).
type events struct {
	in    *bufio.Scanner
	retry time.Duration
}

func newEvents(r io.Reader) *events {
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, 0, 64<<10), maxLineBytes)
	return &events{in: in}
}

// next reads a block; io.EOF at the end. A block that the end cuts off is dropped,
// as the standard has it.
func (e *events) next() (event, error) {
	var ev event
	any := false
	for e.in.Scan() {
		line := e.in.Bytes()
		if len(line) == 0 {
			if any {
				return ev, nil
			}
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "event":
			ev.kind = string(value)
		case "data":
			if ev.data != nil {
				ev.data = append(ev.data, '\n')
			}
			ev.data = append(ev.data, value...)
		case "id":
			ev.id, ev.hasID = string(value), true
		case "retry":
			if ms, err := strconv.Atoi(string(value)); err == nil && ms >= 0 {
				e.retry = time.Duration(ms) * time.Millisecond
			}
			continue
		default:
			continue // a comment, or a field of the future
		}
		any = true
	}
	if err := e.in.Err(); err != nil {
		return event{}, err
	}
	return event{}, io.EOF
}

// follower reads server-sent events and opens the stream anew when it breaks.
// Records of a group are held back until the group is whole, so that C3 holds
// wherever the stream breaks.
type follower struct {
	t       *Table
	request ReadRequest
	cursor  string   // after the last whole group
	group   []Change // of the group that is coming in
	given   int64
	inState bool // current rows of a keyed table were given, and no cursor since
	idle    int  // streams in a row that broke without news
}

var errStopped = errors.New("the reader stopped")

func (f *follower) run(ctx context.Context, yield func(Change, error) bool) {
	bounded := len(f.request.Until) > 0 && string(f.request.Until) != string(Never)
	for {
		retry, err := f.stream(ctx, yield)
		switch {
		case errors.Is(err, errStopped):
			return
		case err == nil && (bounded || f.request.Limit > 0), f.request.Limit > 0 && f.given >= f.request.Limit:
			return // the end was reached
		case ctx.Err() != nil:
			yield(Change{}, ctx.Err())
			return
		case err != nil && (!errs.KindOf(errs.CodeOf(err)).Retry || f.idle >= f.t.c.retries):
			yield(Change{}, err)
			return
		case f.inState:
			yield(Change{}, &errs.Error{Code: errs.SnapshotGone, Message: "the stream broke off amid the table's current rows, where no cursor stands; start again", Err: err})
			return
		}
		// The server ended an endless stream (it drains), or the connection broke.
		f.idle++
		f.group = f.group[:0]
		if !sleep(ctx, max(retry/4, pause(f.idle-1, 0))) {
			yield(Change{}, ctx.Err())
			return
		}
	}
}

// stream reads one stream to its end; nil is a clean end.
func (f *follower) stream(ctx context.Context, yield func(Change, error) bool) (retry time.Duration, err error) {
	r := f.request
	if r.Limit > 0 {
		r.Limit -= f.given
	}
	resp, err := f.t.openChangelog(ctx, r, mediaEvents, f.cursor)
	s, err := openStream(resp, err, mediaEvents)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	in := newEvents(s)
	for {
		ev, err := in.next()
		if errors.Is(err, io.EOF) {
			if len(f.group) > 0 || f.inState {
				return in.retry, s.broken(io.ErrUnexpectedEOF)
			}
			return in.retry, nil
		}
		if err != nil {
			return in.retry, err
		}
		if ev.kind == "problem" {
			return in.retry, asError(ev.data, "the stream")
		}
		if ev.data != nil {
			c, err := parseChange(json.RawMessage(ev.data))
			if err != nil {
				return in.retry, err
			}
			if c.Offset == millrace.NoOffset && !ev.hasID {
				f.inState = true // not held back: there may be millions before a cursor
				f.given++
				if !yield(c, nil) {
					return 0, errStopped
				}
				continue
			}
			f.group = append(f.group, c)
		}
		if !ev.hasID {
			continue
		}
		f.cursor, f.idle, f.inState = ev.id, 0, false
		if n := len(f.group); n > 0 {
			f.group[n-1].Cursor = ev.id
		}
		for _, c := range f.group {
			f.given++
			if !yield(c, nil) {
				return 0, errStopped
			}
		}
		f.group = f.group[:0]
	}
}
