package e2e

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// event is one block of an event stream.
type event struct {
	id, name, data, retry string
}

// eventReader reads text/event-stream as the HTML standard says.
type eventReader struct{ r *bufio.Reader }

// next returns the next block; comments are skipped, io.EOF ends the stream.
func (e eventReader) next() (event, error) {
	var ev event
	var data []string
	some := false
	for {
		line, err := e.r.ReadString('\n')
		if err != nil {
			return event{}, err
		}
		line = strings.TrimRight(line, "\r\n")
		if line == "" {
			if some {
				ev.data = strings.Join(data, "\n")
				return ev, nil
			}
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "id":
			ev.id, some = value, true
		case "event":
			ev.name, some = value, true
		case "data":
			data, some = append(data, value), true
		case "retry":
			ev.retry, some = value, true
		}
	}
}

// eventNames are the change types as event streams name them.
var eventNames = map[string]string{"insert": "+I", "update_before": "-U", "update_after": "+U", "delete": "-D"}

// subscription is an open event stream of a changelog.
type subscription struct {
	eventReader
	body   io.Closer
	lastID string // as a browser keeps it
}

// subscribe opens an event stream; lastID may be empty.
func (tb table) subscribe(ctx context.Context, query url.Values, lastID string) (*subscription, error) {
	req, err := tb.s.request("GET", tb.path()+"/changelog?"+query.Encode(), nil, "Accept", mediaSSE)
	if err != nil {
		return nil, err
	}
	if lastID != "" {
		req.Header.Set("Last-Event-ID", lastID)
	}
	resp, err := tb.s.client.Do(req.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(resp.Body) // what it says is for the message only
		resp.Body.Close()
		return nil, &statusError{resp.StatusCode, string(b)}
	}
	return &subscription{eventReader{bufio.NewReaderSize(resp.Body, 64<<10)}, resp.Body, lastID}, nil
}

type statusError struct {
	status int
	body   string
}

func (e *statusError) Error() string { return http.StatusText(e.status) + ": " + e.body }

func (s *subscription) close() { s.body.Close() }

// change returns the next change, skipping blocks that only move the id.
func (s *subscription) change(t testing.TB) (change, error) {
	t.Helper()
	for {
		ev, err := s.next()
		if err != nil {
			return change{}, err
		}
		if ev.id != "" {
			s.lastID = ev.id
		}
		if ev.name == "problem" {
			return change{}, &statusError{0, ev.data}
		}
		if ev.data == "" {
			continue
		}
		c := parseChange(t, []byte(ev.data))
		require.Equal(t, c.Type, eventNames[ev.name], "event %s with data %s", ev.name, ev.data)
		return c, nil
	}
}

// take returns the next n changes.
func (s *subscription) take(t testing.TB, n int) []change {
	t.Helper()
	out := make([]change, 0, n)
	for len(out) < n {
		c, err := s.change(t)
		require.NoError(t, err, "after %d of %d changes", len(out), n)
		out = append(out, c)
	}
	return out
}
