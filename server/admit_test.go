package server

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
	code, answer, _ := r.ask(t, "GET", "/v1/databases/d/tables/u/count", "")
	require.Equal(t, 200, code, answer)
	cancel()
	for range cap(ended) {
		<-ended
	}
	require.Eventually(t, func() bool {
		code, _, _ := r.ask(t, "POST", records, `{"rows":[{"a":"x"}]}`)
		return code == 200
	}, time.Minute, 10*time.Millisecond)
}
