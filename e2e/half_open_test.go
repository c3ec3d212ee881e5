package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Who opens a connection, says a part of what he began to say and then nothing, or is gone
// without a word, is dropped in the time that is his; others go on meanwhile.
func TestHalfOpen(t *testing.T) {
	t.Parallel()
	s := shared(t)
	tb := create(t, s, newDB(t, s), "t", "id BIGINT, v BIGINT", "id", 1)
	web := strings.TrimPrefix(s.base, "http://")
	// The beginning of HTTP/2: the preface, and settings without any. Pings are not answered.
	const http2 = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	type dropped struct {
		what  string
		after time.Duration
	}
	drops := make(chan dropped, 8)
	var waits sync.WaitGroup
	for _, c := range []struct{ what, address, says string }{
		{"http, nothing (10 s)", web, ""},
		{"http, a part of the headers (10 s)", web, "GET /v1/databases HTTP/1.1\r\nHost: loc"},
		{"http, a part of the body (30 s)", web, "POST " + tb.path() + "/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"},
		{"flight, nothing (10 s)", s.flight, ""},
		{"flight, a connection that answers no ping (45 s)", s.flight, http2},
		{"flight, a part of the headers (45 s)", s.flight, http2 + "\x00\x01\x00\x01\x04\x00\x00\x00\x01ab"},
	} {
		conn, err := net.Dial("tcp", c.address)
		require.NoError(t, err)
		defer conn.Close()
		_, err = io.WriteString(conn, c.says)
		require.NoError(t, err)
		began := time.Now()
		waits.Go(func() {
			_ = conn.SetReadDeadline(began.Add(3 * time.Minute)) // of a real connection
			_, err := io.Copy(io.Discard, conn)
			if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
				t.Errorf("%s: the connection is still open after 3 min", c.what)
			}
			drops <- dropped{c.what, time.Since(began)}
		})
	}
	ended := make(chan struct{})
	go func() { waits.Wait(); close(ended); close(drops) }()
	var longest time.Duration
	for n := 0; ; n++ {
		began := time.Now()
		a := s.do(t, "POST", tb.path()+"/records", fmt.Sprintf(`{"rows":[{"id":1,"v":%d}]}`, n))
		require.Equal(t, http.StatusOK, a.status)
		longest = max(longest, time.Since(began))
		select {
		case <-ended:
			for d := range drops {
				t.Logf("%s: dropped after %v", d.what, d.after.Round(100*time.Millisecond))
			}
			t.Logf("the longest of %d writes meanwhile: %v", n+1, longest)
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}
