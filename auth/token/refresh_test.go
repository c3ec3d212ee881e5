package token_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/auth/token"
	"github.com/millrace/millrace/auth/token/tokentest"
	"github.com/millrace/millrace/errs"
)

// issuer is a real server of a set of keys.
type issuer struct {
	*httptest.Server

	asked  atomic.Int64
	mu     sync.Mutex
	answer func(http.ResponseWriter, *http.Request)
}

func newIssuer(t *testing.T, keys ...any) *issuer {
	i := &issuer{}
	i.publish(keys...)
	i.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.asked.Add(1)
		i.mu.Lock()
		answer := i.answer
		i.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(i.Close)
	return i
}

func (i *issuer) serve(answer http.HandlerFunc) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.answer = answer
}

func (i *issuer) publish(keys ...any) {
	b := tokentest.Set(keys...)
	i.serve(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(b) })
}

func (i *issuer) source(t *testing.T) token.Source {
	s, err := token.Parse(i.URL+"/keys", i.Client())
	require.NoError(t, err)
	return s
}

// settled waits until the keys have been read so often, and what was read is in use.
func (f *fixture) settled(times int64) {
	f.t.Helper()
	require.Eventually(f.t, func() bool {
		reads := f.metric("millrace_auth_key_reads_total")
		return int64(reads["ok"]+reads["failed"]) == times
	}, time.Minute, time.Millisecond)
}

// Keys that the issuer adds are found at once, but the address is not asked more often than
// every 30 s; keys that it takes away are not good after ten minutes, remembered or not.
func TestRotation(t *testing.T) {
	ring := keys()
	a, b := ring.EC, ring.Ed
	i := newIssuer(t, a)
	f := newFixture(t, i.source(t))
	now := f.clock.Now()
	ofA := f.good("a", a.Token(now, nil)).Name
	require.Equal(t, "user:ann", ofA)
	require.Equal(t, int64(1), i.asked.Load())
	i.publish(a, b)
	f.refused("b, a moment after the keys were read", bearer(b.Token(now, nil)))
	f.clock.advance(29 * time.Second)
	f.refused("b, a little later", bearer(b.Token(now, nil)))
	require.Equal(t, int64(1), i.asked.Load())
	f.clock.advance(time.Second)
	f.good("b, after 30 s", b.Token(now, nil))
	require.Equal(t, int64(2), i.asked.Load())
	f.good("a, still", a.Token(now, nil))
	for n := range 100 { // of strangers
		f.refused("a stranger", bearer(ring.Stranger.Named(fmt.Sprint(n), "RS256").Token(now, nil)))
	}
	require.Equal(t, int64(2), i.asked.Load())
	// a goes; that is seen when the keys are ten minutes old.
	i.publish(b)
	f.clock.advance(10*time.Minute - time.Second)
	f.good("a, before the keys are read again", a.Token(now, nil))
	require.Equal(t, int64(2), i.asked.Load())
	f.clock.advance(time.Second)
	f.good("a, while they are", a.Token(now, nil))
	f.settled(3)
	f.refused("a, remembered, afterwards", bearer(a.Token(now, nil)))
	f.good("b, afterwards", b.Token(now, nil))
	// Another key under b's name is not b.
	i.publish(ring.Gone.Named("ed", "ES256"))
	f.clock.advance(10 * time.Minute)
	f.good("b, while they are read", b.Token(now, nil))
	f.settled(4)
	f.refused("b, whose name another has", bearer(b.Token(now, nil)))
	f.good("the other", ring.Gone.Named("ed", "ES256").Token(f.clock.Now(), nil))
}

// When the address fails, the keys that were there are good for another hour; then nobody
// can be known, which is not the caller's fault; then they come back.
func TestAddressAway(t *testing.T) {
	ring := keys()
	i := newIssuer(t, ring.EC)
	f := newFixture(t, i.source(t))
	i.serve(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	f.clock.advance(70*time.Minute - time.Second)
	f.good("for an hour", ring.EC.Token(f.clock.Now(), nil))
	f.settled(2)
	f.clock.advance(time.Second)
	_, err := f.Authenticate(t.Context(), bearer(ring.EC.Token(f.clock.Now(), nil)))
	require.True(t, errs.Is(err, errs.Unavailable), "%v", err)
	require.Contains(t, f.logs.String(), "502 Bad Gateway")
	f.clock.advance(time.Minute)
	_, err = f.Authenticate(t.Context(), bearer(ring.EC.Token(f.clock.Now(), nil)))
	require.True(t, errs.Is(err, errs.Unavailable), "%v", err)
	require.Equal(t, 1, strings.Count(f.logs.String(), "cannot be read"), "the same failure is told once")
	i.publish(ring.EC)
	f.clock.advance(time.Minute)
	f.good("again", ring.EC.Token(f.clock.Now(), nil))
}

// A server starts while the address of the keys does not answer.
func TestAddressAwayAtStart(t *testing.T) {
	i := newIssuer(t)
	i.serve(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	f := newFixture(t, i.source(t))
	text := keys().EC.Token(f.clock.Now(), nil)
	_, err := f.Authenticate(t.Context(), bearer(text))
	require.True(t, errs.Is(err, errs.Unavailable), "%v", err)
	i.publish(keys().EC)
	f.clock.advance(30 * time.Second)
	f.good("when it is there", text)
}

// What an address answers is bounded and has to be a set of keys; it may not send us
// elsewhere.
func TestBadAnswers(t *testing.T) {
	ring := keys()
	i := newIssuer(t, ring.EC)
	f := newFixture(t, i.source(t))
	other := newIssuer(t, ring.Stranger)
	reads := int64(1)
	for what, answer := range map[string]http.HandlerFunc{
		"no JSON":      func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") },
		"no keys":      func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"keys":[]}`) },
		"no set":       func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{}`) },
		"a redirect":   func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, http.StatusFound) },
		"without end":  func(w http.ResponseWriter, r *http.Request) { endless(w, r) },
		"no content":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
		"a broken one": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"many keys": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"keys":[{}%s]}`, strings.Repeat(",{}", 100))
		},
	} {
		i.serve(answer)
		f.clock.advance(31 * time.Second)
		reads++
		f.refused(what, bearer(ring.Stranger.Token(f.clock.Now(), nil)))
		f.settled(reads)
		f.good(what, ring.EC.Token(f.clock.Now(), nil))
	}
	require.Zero(t, other.asked.Load())
}

// endless answers for as long as somebody reads.
func endless(w http.ResponseWriter, r *http.Request) {
	fmt.Fprint(w, `{"keys":["`)
	piece := []byte(strings.Repeat("x", 64<<10))
	for r.Context().Err() == nil {
		if _, err := w.Write(piece); err != nil {
			return
		}
	}
}

// Callers that come together with a key that is not known ask the address once.
func TestOneQuestion(t *testing.T) {
	ring := keys()
	i := newIssuer(t, ring.EC)
	f := newFixture(t, i.source(t))
	f.clock.advance(time.Minute)
	gate := make(chan struct{})
	both := tokentest.Set(ring.EC, ring.Ed)
	i.serve(func(w http.ResponseWriter, _ *http.Request) {
		<-gate
		_, _ = w.Write(both)
	})
	text := ring.Ed.Token(f.clock.Now(), nil)
	var all sync.WaitGroup
	var taken atomic.Int64
	for range 50 {
		all.Go(func() {
			if _, err := f.Authenticate(t.Context(), bearer(text)); err == nil {
				taken.Add(1)
			}
		})
	}
	require.Eventually(t, func() bool { return i.asked.Load() == 2 }, time.Minute, time.Millisecond)
	f.good("meanwhile", ring.EC.Token(f.clock.Now(), nil))
	close(gate)
	all.Wait()
	require.Equal(t, int64(2), i.asked.Load())
	require.Equal(t, int64(50), taken.Load())
}

// A file is read again when it has changed; a bad one is told of, and the keys that were
// there stay.
func TestFile(t *testing.T) {
	ring := keys()
	path := writeFile(t, tokentest.Set(ring.EC))
	f := newFixture(t, token.File(path))
	replace := func(b []byte) {
		t.Helper()
		next := filepath.Join(filepath.Dir(path), "next")
		require.NoError(t, os.WriteFile(next, b, 0o600))
		require.NoError(t, os.Rename(next, path))
	}
	now := f.clock.Now()
	replace(tokentest.Set(ring.Ed, ring.EC))
	f.clock.advance(2 * time.Second)
	f.good("a key that was added", ring.Ed.Token(now, nil))
	replace([]byte("{"))
	f.clock.advance(2 * time.Second)
	f.refused("a stranger", bearer(ring.Stranger.Token(now, nil)))
	f.good("the old keys", ring.Ed.Token(now, nil))
	require.Contains(t, f.logs.String(), "not JSON")
	replace(tokentest.Set(ring.EC))
	f.clock.advance(2 * time.Second)
	f.refused("a stranger", bearer(ring.Stranger.Token(now, nil)))
	f.refused("a key that went", bearer(ring.Ed.Token(now, nil)))
	f.good("one that stayed", ring.EC.Token(now, nil))
	f.clock.advance(40 * time.Minute) // nobody asks
	f.good("after a while", ring.EC.Token(now, nil))
	require.NoError(t, os.Remove(path))
	f.clock.advance(2 * time.Second)
	f.refused("a stranger", bearer(ring.Stranger.Token(now, nil)))
	f.good("without the file", ring.EC.Token(now, nil))
}

// A file that is not good at the start is said to be so.
func TestBadFileAtStart(t *testing.T) {
	for want, source := range map[string]token.Source{
		"no such file":   token.File(filepath.Join(t.TempDir(), "none")),
		"is not a file":  token.File(t.TempDir()),
		"not JSON":       token.File(writeFile(t, []byte("-----BEGIN"))),
		"no key that":    token.File(writeFile(t, []byte(`{"keys":[{"kty":"oct","kid":"a"}]}`))),
		"publish public": token.File(writeFile(t, []byte(`{"keys":[{"kty":"oct","kid":"a","k":"c2VjcmV0"}]}`))),
	} {
		_, err := token.New(t.Context(), token.Options{Source: source, Clock: newClock(), Logger: quiet, Registerer: newRegistry()})
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "c2VjcmV0")
	}
}

func TestParseSetting(t *testing.T) {
	for _, good := range []string{"keys.json", "/etc/keys.json", "https://id.example/keys", "https://id.example:8443/a?b=c", "http://127.0.0.1:1/x", "http://[::1]/x", "http://localhost:8080/x"} {
		_, err := token.Parse(good, nil)
		require.NoError(t, err, good)
	}
	for bad, want := range map[string]string{
		"http://id.example/keys":         "plain http",
		"http://127.0.0.1.evil.example/": "plain http",
		"http://localhost.evil.example/": "plain http",
		"ftp://id.example/keys":          "neither a file nor",
		"https://":                       "not an address",
		"https://ann:secret@id.example/": "holds a password",
		"https://id.example:port/x":      "not an address",
	} {
		_, err := token.Parse(bad, nil)
		require.True(t, errs.Is(err, errs.InvalidRequest), bad)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "secret")
	}
}
