package client

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// seen is a request as the fake server saw it.
type seen struct {
	method, path, query string
	header              http.Header
	body                string
}

// fake is a server that records requests and gives the answers it was told to, in order; the last one again and again.
type fake struct {
	*httptest.Server
	mu       sync.Mutex
	requests []seen
	answers  []http.HandlerFunc
}

func newFake(t *testing.T, answers ...http.HandlerFunc) (*fake, *Client) {
	t.Helper()
	f := &fake{answers: answers}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		f.mu.Lock()
		answer := f.answers[min(len(f.requests), len(f.answers)-1)]
		f.requests = append(f.requests, seen{r.Method, r.URL.EscapedPath(), r.URL.RawQuery, r.Header, string(body)})
		f.mu.Unlock()
		answer(w, r)
	}))
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		f.Close()
	})
	c, err := New(Options{Server: f.URL, Token: "secret", UserAgent: "test", HTTPClient: &http.Client{Transport: transport}})
	require.NoError(t, err)
	return f, c
}

// only is the one request that was made.
func (f *fake) only(t *testing.T) seen {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	require.Len(t, f.requests, 1)
	return f.requests[0]
}

func (f *fake) all() []seen {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]seen(nil), f.requests...)
}

func table(t *testing.T, c *Client, name string) *Table {
	t.Helper()
	tb, err := c.Table(name)
	require.NoError(t, err)
	return tb
}

// answer sends JSON.
func answer(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", mediaJSON)
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
}

// problem sends problem+json with further members.
func problem(status int, code, detail string, more map[string]any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		p := map[string]any{"type": "/docs/errors#" + code, "title": "T", "status": status, "detail": detail, "code": code, "request_id": "r1"}
		maps.Copy(p, more)
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		if err := json.NewEncoder(w).Encode(p); err != nil {
			panic(err)
		}
	}
}

// cut sends this much of a body and breaks the connection.
func cut(mediaType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", mediaType)
		w.WriteHeader(http.StatusOK)
		fmt.Fprint(w, body)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
}

// stream sends a whole body of a media type, with statistics as trailer.
func stream(mediaType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", mediaType)
		w.Header().Set("Trailer", statsHeader)
		fmt.Fprint(w, body)
		w.(http.Flusher).Flush()
		w.Header().Set(statsHeader, `{"rows_read":2,"rows_skipped":0,"rows_shipped":2,"bytes_read":10,"bytes_skipped":5,"bytes_shipped":7}`)
	}
}
