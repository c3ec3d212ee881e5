package faultproxy_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/millrace/millrace/objstore/faultproxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type world struct {
	proxy  *faultproxy.Proxy
	seen   atomic.Int64 // requests that the server saw
	client *http.Client
}

const content = "twenty bytes of body"

func start(t *testing.T) *world {
	t.Helper()
	w := &world{client: &http.Client{Transport: &http.Transport{}}}
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.seen.Add(1)
		out.Header().Set("X-Saw", r.Method+" "+r.Host+" "+r.RequestURI+" "+string(body))
		_, _ = io.WriteString(out, content)
	}))
	t.Cleanup(server.Close)
	var err error
	w.proxy, err = faultproxy.Start(t.Context(), server.URL)
	require.NoError(t, err)
	t.Cleanup(w.proxy.Close)
	t.Cleanup(w.client.CloseIdleConnections)
	return w
}

// ask gives the status and body of an answer, and whether it came whole.
func (w *world) ask(t *testing.T, timeout time.Duration) (status int, body string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, w.proxy.Endpoint+"/bucket/a%2Fb?x=1", strings.NewReader("sent"))
	require.NoError(t, err)
	resp, err := w.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		require.Equal(t, "PUT "+strings.TrimPrefix(w.proxy.Endpoint, "http://")+" /bucket/a%2Fb?x=1 sent", resp.Header.Get("X-Saw"))
	}
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

// X1, X2: each fault does what it says, and the server sees what it says.
func TestFaults(t *testing.T) {
	changed := content[:10] + string(content[10]^1) + content[11:]
	for fault, want := range map[faultproxy.Fault]struct {
		seen   int64
		status int
		body   string
		broken bool
	}{
		faultproxy.None:             {1, 200, content, false},
		faultproxy.Delay:            {1, 200, content, false},
		faultproxy.SlowDown:         {0, 503, "SlowDown", false},
		faultproxy.InternalError:    {0, 500, "InternalError", false},
		faultproxy.Reset:            {0, 0, "", true},
		faultproxy.Truncate:         {1, 200, content[:10], true},
		faultproxy.Corrupt:          {1, 200, changed, false},
		faultproxy.LoseAnswer:       {1, 0, "", true},
		faultproxy.LoseAnswerSoftly: {1, 500, "InternalError", false},
		faultproxy.Hang:             {1, 0, "", true},
		faultproxy.Twice:            {2, 200, content, false},
	} {
		w := start(t)
		timeout, delay := time.Minute, time.Hour // which the others do not wait for
		switch fault {
		case faultproxy.Hang:
			timeout = time.Second
		case faultproxy.Delay:
			delay = 30 * time.Millisecond
		default:
		}
		w.proxy.Set(faultproxy.Always(fault), delay)
		began := time.Now()
		status, body, err := w.ask(t, timeout)
		require.Equal(t, want.broken, err != nil, "fault %d: %v", fault, err)
		require.Equal(t, want.status, status, "fault %d", fault)
		require.Contains(t, body, want.body, "fault %d", fault)
		require.Equal(t, want.seen, w.seen.Load(), "fault %d", fault)
		if fault == faultproxy.Delay || fault == faultproxy.Hang {
			require.GreaterOrEqual(t, time.Since(began), min(delay, timeout), "fault %d", fault)
		}
		require.Equal(t, 1, w.proxy.Met()[fault])

		w.proxy.Set(nil, 0)
		_, body, err = w.ask(t, time.Minute)
		require.NoError(t, err)
		require.Equal(t, content, body)
	}
}

// X3: a seed says what the n-th request meets, as often as the rates say.
func TestSeeded(t *testing.T) {
	rates := faultproxy.Rates{faultproxy.Reset: 100, faultproxy.Twice: 50}
	count := func(seed uint64) (out []faultproxy.Fault, met map[faultproxy.Fault]int) {
		s, met := faultproxy.Seeded(seed, rates), map[faultproxy.Fault]int{}
		for n := range 10_000 {
			f := s(n, nil)
			out = append(out, f)
			met[f]++
		}
		return out, met
	}
	a, met := count(1)
	again, _ := count(1)
	other, _ := count(2)
	require.Equal(t, a, again)
	require.NotEqual(t, a, other)
	require.InDelta(t, 1000, met[faultproxy.Reset], 100)
	require.InDelta(t, 500, met[faultproxy.Twice], 75)
	require.Len(t, met, 3)
	some := faultproxy.Only(func(r *http.Request) bool { return r.Method == http.MethodPut }, faultproxy.Always(faultproxy.Reset))
	require.Equal(t, faultproxy.Reset, some(0, &http.Request{Method: http.MethodPut}))
	require.Equal(t, faultproxy.None, some(0, &http.Request{Method: http.MethodGet}))
}

// A request that hangs ends with the proxy.
func TestCloseEndsAll(t *testing.T) {
	w := start(t)
	w.proxy.Set(faultproxy.Always(faultproxy.Hang), 0)
	ended := make(chan error)
	go func() {
		_, _, err := w.ask(t, time.Minute)
		ended <- err
	}()
	require.Eventually(t, func() bool { return w.seen.Load() == 1 }, time.Minute, time.Millisecond)
	w.proxy.Close()
	require.Error(t, <-ended)
}
