package token_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/millrace/millrace/auth"
	"github.com/millrace/millrace/auth/token"
	"github.com/millrace/millrace/auth/token/tokentest"
	"github.com/millrace/millrace/errs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is set by the test.
type clock struct{ nanos atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.nanos.Store(time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC).UnixNano())
	return c
}

func (c *clock) Now() time.Time          { return time.Unix(0, c.nanos.Load()) }
func (c *clock) advance(d time.Duration) { c.nanos.Add(int64(d)) }
func bearer(token string) auth.Shown     { return auth.Shown{Authorization: []string{"Bearer " + token}} }
func newRegistry() *prometheus.Registry  { return prometheus.NewRegistry() }
func writeFile(t testing.TB, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys.json")
	require.NoError(t, os.WriteFile(path, b, 0o600))
	return path
}

var quiet = slog.New(slog.DiscardHandler)

// keys are made once: that takes a while.
var keys = sync.OnceValue(tokentest.NewRing)

// fixture is a verifier of the keys of a ring.
type fixture struct {
	*token.Verifier

	t     testing.TB
	clock *clock
	reg   *prometheus.Registry
	logs  *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newFixture(t testing.TB, source token.Source) *fixture {
	t.Helper()
	f := &fixture{t: t, clock: newClock(), reg: newRegistry(), logs: &lockedBuffer{}}
	var err error
	f.Verifier, err = token.New(t.Context(), token.Options{
		Source: source, Issuer: tokentest.Issuer, Audience: tokentest.Audience, GroupsClaim: "groups",
		Clock: f.clock, Logger: slog.New(slog.NewTextHandler(f.logs, &slog.HandlerOptions{Level: slog.LevelDebug})), Registerer: f.reg,
	})
	require.NoError(t, err)
	t.Cleanup(f.Close)
	return f
}

// metric is a metric's values by the value of its one label.
func (f *fixture) metric(name string) map[string]float64 {
	f.t.Helper()
	families, err := f.reg.Gather()
	require.NoError(f.t, err)
	values := map[string]float64{}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.Metric {
			label := ""
			for _, l := range m.Label {
				label = l.GetValue()
			}
			values[label] = m.Counter.GetValue() + m.Gauge.GetValue()
		}
	}
	require.NotEmpty(f.t, values, name)
	return values
}

func (f *fixture) good(what, text string) *auth.Principal {
	f.t.Helper()
	p, err := f.Authenticate(f.t.Context(), bearer(text))
	require.NoError(f.t, err, what)
	return p
}

func (f *fixture) refused(what string, shown auth.Shown) {
	f.t.Helper()
	p, err := f.Authenticate(f.t.Context(), shown)
	require.Nil(f.t, p, what)
	require.Equal(f.t, error(auth.ErrUnauthenticated), err, what)
}

// Tokens of every algorithm are taken, however the issuer spells what may be spelled in
// several ways.
func TestGoodTokens(t *testing.T) {
	ring := keys()
	ec384 := tokentest.NewKey("ec384", "ES384")
	plain := tokentest.NewKey("plain", "RS256").JWK() // says no algorithm and no use, as Azure's
	delete(plain, "alg")
	delete(plain, "use")
	f := newFixture(t, token.File(writeFile(t, tokentest.Set(ring.RSA, ring.PSS, ring.EC, ec384, ring.Ed, plain))))
	now := f.clock.Now()
	for _, k := range []*tokentest.Key{ring.RSA, ring.PSS, ring.EC, ec384, ring.Ed} {
		for range 3 { // the second time it is remembered
			p := f.good(k.Alg, k.Token(now, tokentest.Obj{"groups": []string{"b", "a"}}))
			require.Equal(t, auth.NewPrincipal("ann", []string{"a", "b"}, now.Add(time.Hour)).Name, p.Name)
			require.Equal(t, []string{"group:a", "group:b"}, p.Groups)
			require.True(t, p.Expires.Equal(now.Add(time.Hour)))
			require.False(t, p.MayAll())
		}
	}
	// Groups that no grant can name are nobody's; the token is good.
	p := f.good("odd groups", ring.RSA.Token(now, tokentest.Obj{"groups": []string{"b", "a\u00a0b", "\ue000", "a", "a\nb", strings.Repeat("a", 251)}}))
	require.Equal(t, []string{"group:a", "group:b"}, p.Groups)
	for what, change := range map[string]tokentest.Obj{
		"one group":                   {"groups": "a"},
		"no groups":                   {"groups": []string{}},
		"several audiences":           {"aud": []string{"other", tokentest.Audience}},
		"a fraction of a second":      {"exp": float64(now.Unix()) + 60.5, "iat": float64(now.Unix()) + .25},
		"the longest life":            {"exp": now.Add(24 * time.Hour).Unix()},
		"an issuer's clock before us": {"iat": now.Add(time.Minute).Unix(), "nbf": now.Add(time.Minute).Unix()},
		"no iat":                      {"iat": nil},
		"a system's subject":          {"sub": "system"},
		"other scripts":               {"sub": "Ψηφίο 数字"},
		"further claims":              {"azp": "x", "scope": "a b", "nested": tokentest.Obj{"a": []int{1}}},
	} {
		p := f.good(what, ring.RSA.Token(now, change))
		require.False(t, p.MayAll(), what)
	}
	for _, h := range []tokentest.Obj{
		{"typ": nil},
		{"typ": "jwt"},
		{"typ": "at+jwt"},
		{"typ": "application/AT+JWT"},
		{"x5t": "abc"},
		{"unknown": 1},
		// Where a header says keys are nobody looks, so what it says does no harm.
		{"jku": "https://evil.example"},
		{"jwk": ring.Stranger.JWK()},
	} {
		f.good("header", ring.RSA.Sign(string(tokentest.Marshal(ring.RSA.Header(h))), string(tokentest.Marshal(tokentest.Claims(now, nil)))))
	}
	text := ring.RSA.Token(now, nil)
	for _, spelled := range []string{"Bearer ", "bearer ", "BEARER ", "Bearer    "} {
		_, err := f.Authenticate(t.Context(), auth.Shown{Authorization: []string{spelled + text + "  "}})
		require.NoError(t, err)
	}
}

// Every way to break a token gets the same answer, and the log says which it was without
// showing the token.
func TestBrokenTokens(t *testing.T) {
	ring := keys()
	f := newFixture(t, token.File(writeFile(t, ring.Set())))
	f.good("control", ring.RSA.Token(f.clock.Now(), nil))
	broken := ring.Broken(f.clock.Now())
	require.Greater(t, len(broken), 150)
	for _, b := range broken {
		f.refused(b.Name, auth.Shown{Authorization: b.Authorization})
	}
	total := 0.0
	for reason, n := range f.metric("millrace_auth_refused_total") {
		if reason != "certificate" {
			require.NotZero(t, n, "no token was refused for: %s", reason)
		}
		total += n
	}
	require.InDelta(t, len(broken), total, 0)
	require.InDelta(t, 1, f.metric("millrace_auth_remembered_tokens")[""], 0)
	logs := f.logs.String()
	require.Equal(t, len(broken), strings.Count(logs, "a caller is not known"))
	for _, b := range broken {
		for _, h := range b.Authorization {
			if _, shown, ok := strings.Cut(h, " "); ok && len(shown) > 20 {
				require.NotContains(t, logs, shown[len(shown)-20:], b.Name)
			}
		}
	}
}

// A token is good until it expires and no longer, remembered or not.
func TestExpiry(t *testing.T) {
	ring := keys()
	f := newFixture(t, token.File(writeFile(t, ring.Set())))
	text := ring.Ed.Token(f.clock.Now(), nil)
	f.good("at first", text)
	f.clock.advance(time.Hour - time.Millisecond)
	f.good("until its end", text)
	f.clock.advance(time.Millisecond)
	f.refused("after it", bearer(text))
}

// Without issuer and audience in the settings those of a token are its own business.
func TestAnyIssuer(t *testing.T) {
	ring := keys()
	c := newClock()
	v, err := token.New(t.Context(), token.Options{
		Source: token.File(writeFile(t, ring.Set())), GroupsClaim: "https://example.com/roles", Clock: c, Logger: quiet, Registerer: newRegistry(),
	})
	require.NoError(t, err)
	defer v.Close()
	for _, change := range []tokentest.Obj{{"iss": nil, "aud": nil}, {"iss": "x", "aud": "y"}} {
		change["https://example.com/roles"] = []string{"g"}
		change["groups"] = 1 // not the claim that was set
		p, err := v.Authenticate(t.Context(), bearer(ring.EC.Token(c.Now(), change)))
		require.NoError(t, err)
		require.Equal(t, []string{"group:g"}, p.Groups)
	}
}

// No header makes a verifier panic or lets in whom it should not.
func FuzzAuthenticate(f *testing.F) {
	ring := keys()
	fx := newFixture(f, token.File(writeFile(f, ring.Set())))
	now := fx.clock.Now()
	for _, k := range []*tokentest.Key{ring.RSA, ring.PSS, ring.EC, ring.Ed} {
		f.Add("Bearer " + k.Token(now, nil))
	}
	for _, b := range ring.Broken(now) {
		if len(b.Authorization) == 1 {
			f.Add(b.Authorization[0])
		}
	}
	f.Fuzz(func(t *testing.T, header string) {
		p, err := fx.Authenticate(t.Context(), auth.Shown{Authorization: []string{header}})
		if (p == nil) != (err != nil) || err != nil && !errs.Is(err, errs.Unauthenticated) || p != nil && p.Name != "user:ann" {
			t.Fatalf("%v, %v", p, err)
		}
	})
}

// A remembered token costs a hash; the others a signature.
func BenchmarkAuthenticate(b *testing.B) {
	ring := keys()
	f := newFixture(b, token.File(writeFile(b, ring.Set())))
	shown := bearer(ring.RSA.Token(f.clock.Now(), nil))
	bad := bearer(ring.Stranger.Named("rsa", "RS256").Token(f.clock.Now(), nil))
	b.Run("remembered", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := f.Authenticate(b.Context(), shown); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("forged", func(b *testing.B) {
		for b.Loop() {
			if _, err := f.Authenticate(b.Context(), bad); err == nil {
				b.Fatal("taken")
			}
		}
	})
}
