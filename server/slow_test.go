package server

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A body that never stops and brings next to nothing is given up.
func TestTrickle(t *testing.T) {
	read := make(chan error, 1)
	f := newTestFront(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		read <- err
	}))
	c := connect(t, f.addr)
	fmt.Fprint(c, "POST /v1/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n")
	for end := time.Now().Add(time.Minute); ; {
		require.True(t, time.Now().Before(end), "the body is still read")
		if _, err := c.Write([]byte("x")); err != nil {
			break
		}
		f.advance(10 * time.Second)
		time.Sleep(time.Millisecond)
		select {
		case err := <-read:
			require.ErrorContains(t, err, "less than 1024 bytes")
			return
		default:
		}
	}
	require.ErrorContains(t, <-read, "less than 1024 bytes")
}

// slowTaker takes a second for each write, and notes how large it was and until when it
// could have taken.
type slowTaker struct {
	http.ResponseWriter

	now    time.Time
	until  time.Time
	most   int
	taken  int
	closer time.Duration // the least that was left of a deadline after a write
}

func (s *slowTaker) SetWriteDeadline(t time.Time) error { s.until = t; return nil }

func (s *slowTaker) Write(b []byte) (int, error) {
	s.now = s.now.Add(time.Second)
	s.most, s.taken, s.closer = max(s.most, len(b)), s.taken+len(b), min(s.closer, s.until.Sub(s.now))
	return len(b), nil
}

// What a slow client is sent is under deadlines of its own pace: a piece at a time,
// however much the handler writes at once.
func TestSlowTaker(t *testing.T) {
	s := &slowTaker{ResponseWriter: httptest.NewRecorder(), now: time.Now(), closer: stallTime}
	rec := newRecorder(s, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil), func() time.Time { return s.now })
	n, err := rec.Write(make([]byte, 8<<20))
	require.NoError(t, err)
	require.Equal(t, 8<<20, n)
	require.Equal(t, 8<<20, s.taken)
	require.Equal(t, writePiece, s.most)
	require.Greater(t, s.closer, stallTime-3*time.Second)
	n, err = rec.Write(nil)
	require.NoError(t, err)
	require.Zero(t, n)
}

// What is answered without its body does not hold a connection by a body that does not come,
// least of all where no caller is asked for.
func TestUnreadBody(t *testing.T) {
	api := okAPI().(*chi.Mux)
	api.Get("/openapi.json", func(http.ResponseWriter, *http.Request) {})
	f := newTestFront(t, api)
	f.callers = keyring{}
	observing := httptest.NewUnstartedServer(nil)
	observing.Config = newHTTPServer(f.observing(), f.log)
	observing.Start()
	t.Cleanup(observing.Close)
	f.advance(200*time.Millisecond - restTime)
	for _, ask := range []struct{ addr, path, want string }{
		{f.addr, "/v1/things/1", "401"},
		{f.addr, "/healthz", "200"},
		{f.addr, "/readyz", "200"},
		{f.addr, "/openapi.json", "200"},
		{observing.Listener.Addr().String(), "/healthz", "200"},
		{observing.Listener.Addr().String(), "/metrics", "200"},
	} {
		c := connect(t, ask.addr)
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\nx", ask.path)
		require.NoError(t, c.SetReadDeadline(time.Now().Add(stallTime-5*time.Second)))
		b, err := io.ReadAll(c.in)
		require.NoError(t, err, "%s: closed by the server, well before a body may stall", ask.path)
		require.Contains(t, string(b), ask.want)
		require.Contains(t, string(b), "Connection: close")
	}
}

// flood is a connection of HTTP/2 that says what it likes.
type flood struct {
	*http2.Framer

	out *bufio.Writer
	c   *tls.Conn
}

func openFlood(t *testing.T, address string, config *tls.Config) *flood {
	t.Helper()
	config = config.Clone()
	config.NextProtos = []string{"h2"}
	c, err := tls.Dial("tcp", address, config)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	f := &flood{out: bufio.NewWriterSize(c, 64<<10), c: c}
	f.Framer = http2.NewFramer(f.out, c)
	_, err = io.WriteString(f.out, http2.ClientPreface)
	require.NoError(t, err)
	require.NoError(t, f.WriteSettings())
	go func() { _, _ = io.Copy(io.Discard, c) }() // what the server says does not matter
	return f
}

func headerBlock(authority, path string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for _, h := range [][2]string{{":method", "POST"}, {":scheme", "https"}, {":authority", authority}, {":path", path}, {"content-type", "application/grpc"}, {"te", "trailers"}} {
		_ = e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}) // to memory
	}
	return b.Bytes()
}

// Requests that are made and taken back at once, as fast as a connection carries them,
// hold up nobody else, on either port.
func TestRapidReset(t *testing.T) {
	dir, p := t.TempDir(), newPair(t, "me")
	p.write(t, dir)
	r := startServerWith(t, filepath.Join(dir, "data"), func(s *Settings) {
		s.TLSCert, s.TLSKey = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	})
	for address, path := range map[string]string{r.addr.HTTP: "/v1/sql", r.addr.Flight: "/arrow.flight.protocol.FlightService/ListActions"} {
		stop, stopped := make(chan struct{}), make(chan int)
		f := openFlood(t, address, trustedBy(p))
		block := headerBlock("127.0.0.1", path)
		go func() {
			sent := 0
			defer func() { stopped <- sent }()
			for id := uint32(1); id < 1<<21; id += 2 {
				select {
				case <-stop:
					return
				default:
				}
				if f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true}) != nil ||
					f.WriteRSTStream(id, http2.ErrCodeCancel) != nil || f.out.Flush() != nil {
					return // the server has had enough
				}
				sent++
			}
		}()
		client := httpsClient(t, trustedBy(p), true)
		for range 20 {
			resp, err := client.Get("https://" + r.addr.HTTP + "/v1/databases")
			require.NoError(t, err)
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			require.Equal(t, http.StatusOK, resp.StatusCode)
		}
		close(stop)
		f.c.Close()
		t.Logf("%s: %d requests made and taken back", path, <-stopped)
	}
	r.stop(t)
}

// A browser cannot speak to Flight: what it sends, whatever name it used for this machine,
// is not taken.
func TestFlightTakesNoPages(t *testing.T) {
	r := startServer(t, filepath.Join(t.TempDir(), "data"))
	for _, request := range []string{
		"POST /arrow.flight.protocol.FlightService/DoAction HTTP/1.1\r\nHost: evil.example\r\nOrigin: http://evil.example\r\nContent-Type: application/grpc-web+proto\r\nContent-Length: 5\r\n\r\n\x00\x00\x00\x00\x00",
		"POST /arrow.flight.protocol.FlightService/DoAction HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n\r\n",
		"OPTIONS / HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://evil.example\r\nAccess-Control-Request-Method: POST\r\n\r\n",
	} {
		c := connect(t, r.addr.Flight)
		fmt.Fprint(c, request)
		require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
		b, _ := io.ReadAll(c.in) // the preface of HTTP/2 at most, and the end
		require.NotContains(t, string(b), "HTTP/1.1 2")
		require.NotContains(t, string(b), "access-control")
	}
	r.stop(t)
}

// A connection goes on after a body that was streamed: what watches over such a body lets
// go of the connection when the body has ended.
func TestConnectionAfterAStreamedBody(t *testing.T) {
	r := startServer(t, filepath.Join(t.TempDir(), "data"))
	defer r.stop(t)
	r.call(t, "POST", "/v1/databases", `{"name":"d"}`)
	r.call(t, "POST", "/v1/databases/d/tables", `{"name":"t","columns":[{"name":"a","type":"BIGINT"}],"buckets":1}`)
	transport := &http.Transport{MaxConnsPerHost: 1}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	for n := range 100 {
		for _, c := range []struct {
			media, body string
			status      int
		}{
			{"application/x-ndjson", "{\"b\":1}\n", http.StatusUnprocessableEntity}, // which ends before anything is waited for
			{"application/json", `{"rows":[{"a":1}]}`, http.StatusOK},
		} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.addr.HTTP+"/v1/databases/d/tables/t/records", strings.NewReader(c.body))
			require.NoError(t, err)
			req.Header.Set("Content-Type", c.media)
			resp, err := client.Do(req)
			require.NoError(t, err)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, c.status, resp.StatusCode, "%d, %s: %s", n, c.media, body)
		}
	}
}
