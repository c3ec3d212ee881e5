package server

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Bodies that do not end take all the memory there is for bodies: others are refused with
// overloaded and a hint, reads are served, and all is well when they have gone.
func TestBodiesBeyondTheRoom(t *testing.T) {
	r := startServerWith(t, t.TempDir(), func(s *Settings) { s.ReceiveMemory = "64MiB" })
	defer r.stop(t)
	r.call(t, "POST", "/v1/databases", `{"name":"d"}`)
	r.call(t, "POST", "/v1/databases/d/tables", `{"name":"u","columns":[{"name":"a","type":"STRING"}],"buckets":1}`)
	const records = "/v1/databases/d/tables/u/records"
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	piece := strings.Repeat(" ", 1<<20)
	ended := make(chan struct{}, 6)
	for range cap(ended) {
		body, w := io.Pipe()
		context.AfterFunc(ctx, func() { _ = w.CloseWithError(io.ErrUnexpectedEOF) })
		go func() {
			for range 15 { // of the 16 MiB that a document may have
				if _, err := io.WriteString(w, piece); err != nil {
					return
				}
			}
		}()
		go func() {
			defer func() { ended <- struct{}{} }()
			req, err := http.NewRequestWithContext(ctx, "POST", "http://"+r.addr.HTTP+records+"?timeout=120s", body)
			if err != nil {
				return
			}
			req.Header.Set("Content-Type", "application/json")
			if resp, err := http.DefaultClient.Do(req); err == nil {
				_ = resp.Body.Close()
			}
			_ = body.Close()
		}()
	}
	require.Eventually(t, func() bool {
		code, answer, h := r.ask(t, "POST", records, `{"rows":[{"a":"x"}]}`)
		if code == 200 {
			return false
		}
		require.Equal(t, 429, code, answer)
		require.Contains(t, answer, "overloaded")
		require.Regexp(t, `^[1-9]\d*$`, h.Get("Retry-After"))
		return true
	}, time.Minute, 10*time.Millisecond)
	for _, path := range []string{"/v1/databases/d/tables/u/count", "/healthz", "/readyz", "/metrics"} {
		code, answer, _ := r.ask(t, "GET", path, "")
		require.Equal(t, 200, code, answer)
	}
	cancel()
	for range cap(ended) {
		<-ended
	}
	require.Eventually(t, func() bool {
		code, _, _ := r.ask(t, "POST", records, `{"rows":[{"a":"x"}]}`)
		return code == 200
	}, time.Minute, 10*time.Millisecond)
}

// Clients that ask for a whole table and take nothing of it hold all the memory there is for
// answers: a read is refused with overloaded and a hint over each door, writes, health and
// metrics are served, and all is well when those have gone.
func TestReadersBeyondTheRoom(t *testing.T) {
	r := startServerWith(t, t.TempDir(), func(s *Settings) { s.ReceiveMemory = "64MiB" })
	defer r.stop(t)
	r.call(t, "POST", "/v1/databases", `{"name":"d"}`)
	r.call(t, "POST", "/v1/databases/d/tables", `{"name":"u","columns":[{"name":"a","type":"STRING"}],"buckets":1}`)
	const table = "/v1/databases/d/tables/u"
	rows := `{"rows":[` + strings.Repeat(`{"a":"`+strings.Repeat("x", 1000)+`"},`, 999) + `{"a":"x"}]}`
	for range 20 {
		r.call(t, "POST", table+"/records", rows)
	}
	var readers []net.Conn
	defer func() {
		for _, c := range readers {
			_ = c.Close() // once more
		}
	}()
	dial := func() {
		d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
			return c.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
		}}
		c, err := d.DialContext(t.Context(), "tcp", r.addr.HTTP)
		require.NoError(t, err)
		readers = append(readers, c)
		_, err = io.WriteString(c, "POST "+table+"/scan HTTP/1.1\r\nHost: localhost\r\nAccept: application/x-ndjson\r\nContent-Length: 2\r\n\r\n{}")
		require.NoError(t, err)
	}
	scan := func() (int, string, http.Header) {
		return r.ask(t, "POST", table+"/scan", `{"columns":["a"],"limit":1}`)
	}
	require.Eventually(t, func() bool {
		if len(readers) < 100 {
			dial()
		}
		code, answer, h := scan()
		if code == 200 {
			return false
		}
		require.Equal(t, 429, code, answer)
		require.Contains(t, answer, "overloaded")
		require.Regexp(t, `^[1-9]\d*$`, h.Get("Retry-After"))
		return true
	}, time.Minute, time.Millisecond)
	get, err := r.flightClient(t).DoGet(t.Context(), &flight.Ticket{Ticket: []byte(`{"op":"scan","table":"d.u"}`)})
	require.NoError(t, err)
	for err == nil {
		_, err = get.Recv()
	}
	require.Equal(t, codes.ResourceExhausted, status.Code(err), err)
	for _, path := range []string{"/healthz", "/readyz", "/metrics", table} {
		code, answer, _ := r.ask(t, "GET", path, "")
		require.Equal(t, 200, code, answer)
	}
	r.call(t, "POST", table+"/records", `{"rows":[{"a":"y"}]}`)
	for _, c := range readers {
		require.NoError(t, c.Close())
	}
	require.Eventually(t, func() bool {
		code, _, _ := scan()
		return code == 200
	}, time.Minute, 10*time.Millisecond)
}
