package objstore_test

import (
	"bytes"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/objstore"
	"github.com/millrace/millrace/objstore/faultproxy"
	"github.com/millrace/millrace/objstore/objstoretest"
)

// behindProxy gives a proxy before a server, and options that go through it.
func behindProxy(t *testing.T, server *objstoretest.Server) (*faultproxy.Proxy, objstore.Options) {
	t.Helper()
	proxy, err := faultproxy.Start(t.Context(), server.Endpoint)
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	o := s3Options(server)
	o.S3.Endpoint = proxy.Endpoint
	o.S3.Timeout, o.S3.Backoff = time.Second, 2*time.Millisecond
	return proxy, o
}

// everything is what goes wrong when all does.
var everything = faultproxy.Rates{
	faultproxy.Delay: 20, faultproxy.SlowDown: 20, faultproxy.InternalError: 10, faultproxy.Reset: 20, faultproxy.Truncate: 20,
	faultproxy.LoseAnswer: 20, faultproxy.LoseAnswerSoftly: 10, faultproxy.Hang: 2, faultproxy.Twice: 20,
}

// The contract holds through a network and a server that do all that they can: a call
// that succeeds has, and a Create that lost its answer knows who won.
func TestContractThroughFaults(t *testing.T) {
	t.Parallel()
	server := objstoretest.StartGateway(t)
	proxy, o := behindProxy(t, server)
	o.S3.Attempts, o.S3.Timeout = 12, 3*time.Second
	proxy.Set(faultproxy.Seeded(20, everything), 20*time.Millisecond)
	objstoretest.Run(t, opener(server.URI("p"), o), 11<<20)
	for f := range everything {
		require.NotZero(t, proxy.Met()[f], "fault %d", f)
	}
}

func method(names ...string) func(*http.Request) bool {
	return func(r *http.Request) bool { return slices.Contains(names, r.Method) }
}

// first is a fault of the first request that counts.
func first(which func(*http.Request) bool, f faultproxy.Fault) faultproxy.Schedule {
	var seen atomic.Bool
	return func(_ int, r *http.Request) faultproxy.Fault {
		if !which(r) || seen.Swap(true) {
			return faultproxy.None
		}
		return f
	}
}

// O3: whatever way the answer of a Create gets lost, the next try finds that the object
// is its own; an object of somebody else's is not, even of equal bytes.
func TestCreateLosesItsAnswer(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for _, server := range []*objstoretest.Server{objstoretest.StartFake(t), objstoretest.StartGateway(t)} {
		proxy, o := behindProxy(t, server)
		s := opener(server.URI("p"), o)(t)
		for _, f := range []faultproxy.Fault{faultproxy.LoseAnswer, faultproxy.LoseAnswerSoftly, faultproxy.Truncate, faultproxy.Hang, faultproxy.Twice} {
			proxy.Set(first(method("PUT"), f), 0)
			require.NoError(t, s.Create(ctx, "a", []byte("x")), "fault %d", f)
			require.ErrorIs(t, s.Create(ctx, "a", []byte("x")), objstore.ErrExists)
			proxy.Set(first(method("PUT"), f), 0)
			require.ErrorIs(t, s.Create(ctx, "a", []byte("x")), objstore.ErrExists, "fault %d", f)
			// The question whose object it is may go wrong as well.
			proxy.Set(first(method("HEAD"), faultproxy.Reset), 0)
			require.ErrorIs(t, s.Create(ctx, "a", []byte("y")), objstore.ErrExists, "fault %d", f)
			proxy.Set(nil, 0)
			require.NoError(t, s.Remove(ctx, "a"))
		}
	}
}

// O2 and O3: of many that create one key at once, each with lost answers, one is told
// that it did, and it is right.
func TestCreateRaceLosesAnswers(t *testing.T) {
	t.Parallel()
	server := objstoretest.StartGateway(t)
	proxy, o := behindProxy(t, server)
	o.S3.Attempts = 20
	s := opener(server.URI("p"), o)(t)
	for round := range uint64(8) {
		proxy.Set(faultproxy.Seeded(round, faultproxy.Rates{faultproxy.LoseAnswer: 300, faultproxy.Twice: 200, faultproxy.LoseAnswerSoftly: 100}), 0)
		var won atomic.Int64
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				err := s.Create(t.Context(), "a", []byte("the same of all"))
				if err == nil {
					won.Add(1)
				} else if !errs.Is(err, errs.Unavailable) && !bytes.Contains([]byte(err.Error()), []byte("exists")) {
					t.Errorf("create %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		require.Equal(t, int64(1), won.Load(), "round %d", round)
		proxy.Set(nil, 0)
		require.NoError(t, s.Remove(t.Context(), "a"))
	}
}

// An object in parts whose last answer was lost is there, and its writer knows.
func TestWriterLosesItsAnswer(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	body := bytes.Repeat([]byte("0123456789abcdef"), 6<<16)
	for _, server := range []*objstoretest.Server{objstoretest.StartFake(t), objstoretest.StartGateway(t)} {
		proxy, o := behindProxy(t, server)
		o.S3.Timeout = 5 * time.Second
		s := opener(server.URI("p"), o)(t)
		for _, f := range []faultproxy.Fault{faultproxy.LoseAnswer, faultproxy.Twice, faultproxy.SlowDown, faultproxy.LoseAnswerSoftly} {
			for name, which := range map[string]func(*http.Request) bool{
				"begin": func(r *http.Request) bool { return r.Method == "POST" && r.URL.Query().Has("uploads") },
				"part":  func(r *http.Request) bool { return r.Method == "PUT" && r.URL.Query().Get("partNumber") == "2" },
				"end":   func(r *http.Request) bool { return r.Method == "POST" && r.URL.Query().Has("uploadId") },
			} {
				proxy.Set(first(which, f), 0)
				w, err := s.Writer(ctx, "a")
				require.NoError(t, err)
				_, err = w.Write(body)
				require.NoError(t, err)
				require.NoError(t, w.Close(), "fault %d at %s", f, name)
				got, err := s.Get(ctx, "a")
				require.NoError(t, err)
				require.True(t, bytes.Equal(body, got), "fault %d at %s", f, name)
				require.NoError(t, s.Remove(ctx, "a"))
			}
		}
	}
}

// A writer whose parts do not get through fails in bounded time, at Write or Close, and
// its object does not appear.
func TestWriterThatFails(t *testing.T) {
	server := objstoretest.StartFake(t)
	proxy, o := behindProxy(t, server)
	o.S3.Attempts = 2
	s := opener(server.URI("p"), o)(t)
	proxy.Set(faultproxy.Only(func(r *http.Request) bool { return r.URL.Query().Has("partNumber") }, faultproxy.Always(faultproxy.SlowDown)), 0)
	w, err := s.Writer(t.Context(), "a")
	require.NoError(t, err)
	for range 100 {
		if _, err = w.Write(make([]byte, 1<<20)); err != nil {
			break
		}
	}
	require.True(t, errs.Is(err, errs.Unavailable), "%v", err)
	require.ErrorContains(t, err, "tried 2 times, in the end: it answers 503 SlowDown")
	require.True(t, errs.Is(w.Close(), errs.Unavailable))
	proxy.Set(nil, 0)
	_, err = s.Get(t.Context(), "a")
	require.ErrorIs(t, err, objstore.ErrNotExist)
}

// That an object is missing is known once the answer has come whole.
func TestMissingThroughFaults(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for _, server := range []*objstoretest.Server{objstoretest.StartFake(t), objstoretest.StartGateway(t)} {
		proxy, o := behindProxy(t, server)
		o.S3.Timeout = 300 * time.Millisecond
		s := opener(server.URI("p"), o)(t)
		for f := range everything {
			proxy.Set(first(method("GET", "HEAD"), f), 0)
			_, err := s.Get(ctx, "a")
			require.ErrorIs(t, err, objstore.ErrNotExist, "fault %d", f)
			proxy.Set(first(method("GET", "HEAD"), f), 0)
			require.ErrorIs(t, s.ReadAt(ctx, "a", make([]byte, 1), 0), objstore.ErrNotExist, "fault %d", f)
			proxy.Set(first(method("HEAD"), f), 0)
			_, err = s.Stat(ctx, "a")
			require.ErrorIs(t, err, objstore.ErrNotExist, "fault %d", f)
			proxy.Set(first(method("GET"), f), 0)
			_, err = s.Stat(ctx, "a")
			require.ErrorIs(t, err, objstore.ErrNotExist, "fault %d", f)
		}
	}
}

// O5: an answer that is cut off or changed on its way is asked for again; when none gets
// through whole, that is an error, and not that the object is short.
func TestReadsThroughFaults(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := objstoretest.StartGateway(t)
	proxy, o := behindProxy(t, server)
	o.S3.Attempts, o.S3.Timeout = 3, 400*time.Millisecond
	reg := prometheus.NewRegistry()
	o.Registerer = reg
	s := opener(server.URI("p"), o)(t)
	body := bytes.Repeat([]byte("0123456789"), 10_000)
	require.NoError(t, s.Put(ctx, "a", body))
	get := func() error {
		got, err := s.Get(ctx, "a")
		if err == nil && !bytes.Equal(got, body) {
			t.Error("other bytes")
		}
		return err
	}
	p := make([]byte, 1000)
	readAt := func() error {
		err := s.ReadAt(ctx, "a", p, 500)
		if err == nil && !bytes.Equal(p, body[500:1500]) {
			t.Error("other bytes")
		}
		return err
	}
	for _, f := range []faultproxy.Fault{faultproxy.Truncate, faultproxy.Corrupt, faultproxy.Reset, faultproxy.SlowDown, faultproxy.Hang} {
		reads := []func() error{get, readAt}
		if f == faultproxy.Corrupt {
			reads = reads[:1] // a range has no checksum
		}
		for _, read := range reads {
			proxy.Set(first(method("GET"), f), 0)
			require.NoError(t, read(), "fault %d", f)
			proxy.Set(faultproxy.Always(f), 0)
			err := read()
			require.True(t, errs.Is(err, errs.Unavailable), "fault %d: %v", f, err)
			require.ErrorContains(t, err, "tried 3 times")
			require.NotErrorIs(t, err, objstore.ErrNotExist)
			require.NotContains(t, err.Error(), "exceeded maximum")
		}
	}
	require.Equal(t, []string{
		"millrace_objstore_call_duration_seconds",
		"millrace_objstore_failures_total",
		"millrace_objstore_inflight_calls",
		"millrace_objstore_read_bytes_total",
		"millrace_objstore_requests_total",
		"millrace_objstore_retries_total",
		"millrace_objstore_written_bytes_total",
	}, documented(t, reg))
	counts := counted(t, reg)
	// One less when a broken idle connection has the transport try by itself.
	require.InDelta(t, 5+2*5, counts["retries_total get"], 1)
	require.InDelta(t, 5*2+5*3, counts["requests_total get"], 1)
	require.InDelta(t, 4+2*4, counts["retries_total read_at"], 1)
	require.Equal(t, 5., counts["failures_total get"])
	require.Equal(t, 1., counts["requests_total put"])
}
