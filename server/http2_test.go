package server

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// overHTTP2 serves a front over HTTP/2.
func overHTTP2(t *testing.T, f *testFront) (base string, client *http.Client) {
	t.Helper()
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = newHTTPServer(f.handler(), slog.New(slog.DiscardHandler))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv.URL, srv.Client()
}

// Over HTTP/2, too, an answer that nobody takes is given up, and a body that stops coming;
// the connection goes on with what else there is.
func TestStalledHTTP2(t *testing.T) {
	failed := make(chan error, 2)
	f := newTestFront(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/take":
			var err error
			for piece := make([]byte, 1<<20); err == nil; {
				_, err = w.Write(piece)
			}
			failed <- err
		case "/v1/give":
			_, err := io.ReadAll(r.Body)
			failed <- err
		}
	}))
	base, client := overHTTP2(t, f)
	resp, err := client.Get(base + "/v1/quick")
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, 2, resp.ProtoMajor)
	late := func() error {
		t.Helper()
		select {
		case err := <-failed:
			return err
		case <-time.After(time.Minute):
			t.Fatal("the handler still waits")
			return nil
		}
	}
	f.advance(200*time.Millisecond - stallTime) // what the deadlines are behind
	resp, err = client.Get(base + "/v1/take")
	require.NoError(t, err)
	require.ErrorIs(t, late(), os.ErrDeadlineExceeded)
	resp.Body.Close()

	in, out := io.Pipe()
	defer out.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		resp, err := client.Post(base+"/v1/give", "application/json", in)
		if err == nil {
			resp.Body.Close()
		}
	}()
	_, err = io.WriteString(out, "a part of it")
	require.NoError(t, err)
	require.ErrorIs(t, late(), os.ErrDeadlineExceeded)
	out.Close()
	<-ended
	f.advance(stallTime)
	resp, err = client.Get(base + "/v1/quick")
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode)
}

// A client of gRPC that pings without end is sent away.
func TestPingFlood(t *testing.T) {
	dir, p := t.TempDir(), newPair(t, "me")
	p.write(t, dir)
	r := startServerWith(t, filepath.Join(dir, "data"), func(s *Settings) {
		s.TLSCert, s.TLSKey = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	})
	f := openFlood(t, r.addr.Flight, trustedBy(p))
	var err error
	for end := time.Now().Add(time.Minute); err == nil && time.Now().Before(end); {
		if err = f.WritePing(false, [8]byte{1}); err == nil {
			err = f.out.Flush()
		}
	}
	require.Error(t, err, "the server takes any number of pings")
	r.stop(t)
}

// Headers beyond the bound are refused on both ports, before there is a call.
func TestLargeHeaders(t *testing.T) {
	dir, p := t.TempDir(), newPair(t, "me")
	p.write(t, dir)
	r := startServerWith(t, filepath.Join(dir, "data"), func(s *Settings) {
		s.TLSCert, s.TLSKey = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	})
	large := strings.Repeat("x", 2*maxHeaderBytes)
	for _, two := range []bool{false, true} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+r.addr.HTTP+"/v1/databases", nil)
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+large)
		resp, err := httpsClient(t, trustedBy(p), two).Do(req)
		if two { // a header that is too long ends the connection
			require.Error(t, err)
			continue
		}
		require.NoError(t, err)
		resp.Body.Close()
		require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, resp.StatusCode)
	}
	r.stop(t)
}
