package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Rows of a request of the overload.
const overloadRows = 100

// F14: ten times as many requests as the server can do come in whatever it answers, over so many connections, beside
// readers that hardly read. Every request is served, or refused with a hint when to come again, or not answered in time
// at the client; health and metrics are answered; what was acknowledged is there once; memory is bounded; and afterwards
// all is as before by itself, within 10 s. How much is served meanwhile is logged, since the clients take their part of
// the same processors.
//
// E2E_OVERLOAD_SECONDS is how long each part lasts, E2E_OVERLOAD_CONNECTIONS how many connections there are,
// E2E_OVERLOAD_MB what the server may hold.
func TestOverload(t *testing.T) {
	long := time.Duration(setting("E2E_OVERLOAD_SECONDS", 4)) * time.Second
	connections, most := setting("E2E_OVERLOAD_CONNECTIONS", 1000), setting("E2E_OVERLOAD_MB", 1000)
	s := newServer(t)
	tb := create(t, s, newDB(t, s), "t", "id BIGINT, v STRING", "", 8)
	o := newOverload(s, tb)

	peak := o.run(t, 32, 0, long)
	require.Positive(t, peak.ok)
	_, before := s.rssMB(t)
	stop := o.readSlowly(t, 50)
	watched := o.watch(t)
	over := o.run(t, connections, 10*peak.rate(), long)
	answers := watched()
	_, held := s.rssMB(t)
	began := time.Now()
	stop()
	require.Eventually(t, func() bool { return tb.tryWrite(`[{"id":1,"v":"after"}]`) == nil }, patience, time.Millisecond)
	back := time.Since(began)
	// What is left of it may hold up a few requests yet.
	acknowledged, unanswered := int64(1), 0
	var again *served
	for end := time.Now().Add(patience); again == nil || len(again.refused) > 0 && time.Now().Before(end); {
		again = o.run(t, 32, 0, long)
		acknowledged += int64(again.ok) * overloadRows
		unanswered += again.unanswered
	}

	t.Logf("before: %v", peak)
	t.Logf("10×, %d connections, 50 slow readers: %v; %.0f %% of before; memory %d MB, at most %d MB", connections, over, 100*over.rate()/peak.rate(), before, held)
	t.Logf("health and metrics answered meanwhile: %v", answers)
	t.Logf("a write is served %v after it; then: %v", back.Round(time.Millisecond), again)
	require.Empty(t, answers.refused, "health and metrics")
	require.Empty(t, over.unhinted, "refused without a hint")
	require.Empty(t, again.refused, "refused afterwards")
	require.Less(t, held, most)
	rows, err := json.Number(tb.count(t, "")).Int64()
	require.NoError(t, err)
	acknowledged += int64(peak.ok+over.ok) * overloadRows
	require.GreaterOrEqual(t, rows, acknowledged, "lost")
	require.LessOrEqual(t, rows, acknowledged+int64(peak.unanswered+over.unanswered+unanswered)*overloadRows, "doubled")
}

// overload sends one request over and over.
type overload struct {
	address string
	request []byte
	scan    string
}

func newOverload(s *server, tb table) *overload {
	var body strings.Builder
	for i := range overloadRows {
		fmt.Fprintf(&body, "{\"id\":%d,\"v\":%q}\n", i, strings.Repeat("x", 80))
	}
	host := strings.TrimPrefix(s.base, "http://")
	return &overload{
		address: host,
		request: fmt.Appendf(nil, "POST %s/records HTTP/1.1\r\nHost: %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", tb.path(), host, mediaNDJSON, body.Len(), body.String()),
		scan:    fmt.Sprintf("POST %s/scan HTTP/1.1\r\nHost: %s\r\nAccept: %s\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", tb.path(), host, mediaNDJSON),
	}
}

// served is what became of requests.
type served struct {
	took       time.Duration
	ok         int
	refused    map[string]int // by code
	unhinted   map[string]int // of those, without Retry-After
	unanswered int            // sent, and the connection ended
	late       int            // no connection was free to send it
	times      []time.Duration
}

func (r *served) rate() float64 { return float64(r.ok) / r.took.Seconds() }

func (r *served) String() string {
	slices.Sort(r.times)
	at := func(of float64) time.Duration {
		if len(r.times) == 0 {
			return 0
		}
		return r.times[int(of*float64(len(r.times)-1))].Round(100 * time.Microsecond)
	}
	return fmt.Sprintf("%.0f requests/s served (p50 %v, p99 %v), refused %v, not answered %d, found no connection %d", r.rate(), at(.5), at(.99), r.refused, r.unanswered, r.late)
}

// run sends over connections for a while, a request after the other, or so many a second whatever is answered.
func (o *overload) run(t *testing.T, connections int, rate float64, long time.Duration) *served {
	t.Helper()
	r := &served{refused: map[string]int{}, unhinted: map[string]int{}}
	ctx, stop := context.WithTimeout(t.Context(), long)
	defer stop()
	var mu sync.Mutex
	arrivals := make(chan struct{})
	var wg sync.WaitGroup
	began := time.Now()
	for range connections {
		wg.Go(func() {
			c := &overloadClient{o: o, served: served{refused: map[string]int{}, unhinted: map[string]int{}}}
			c.work(ctx, arrivals, rate == 0)
			mu.Lock()
			defer mu.Unlock()
			r.ok += c.ok
			r.unanswered += c.unanswered
			r.times = append(r.times, c.times...)
			for code, n := range c.refused {
				r.refused[code] += n
			}
			maps.Copy(r.unhinted, c.unhinted)
		})
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for sent := 0.0; rate > 0 && ctx.Err() == nil; <-tick.C {
		for ; sent < rate*time.Since(began).Seconds(); sent++ {
			select {
			case arrivals <- struct{}{}:
			default:
				r.late++
			}
		}
	}
	wg.Wait()
	r.took = time.Since(began)
	return r
}

// overloadClient has one connection.
type overloadClient struct {
	served

	o    *overload
	conn net.Conn
	in   *bufio.Reader
}

func (c *overloadClient) work(ctx context.Context, arrivals <-chan struct{}, closed bool) {
	defer func() {
		if c.conn != nil {
			c.conn.Close()
		}
	}()
	for ctx.Err() == nil {
		if !closed {
			select {
			case <-arrivals:
			case <-ctx.Done():
				return
			}
		}
		if c.conn == nil {
			conn, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "tcp", c.o.address)
			if err != nil {
				continue
			}
			c.conn, c.in = conn, bufio.NewReader(conn)
		}
		if !c.ask() {
			c.conn.Close()
			c.conn = nil
		}
	}
}

// ask sends the request and says whether the connection goes on.
func (c *overloadClient) ask() bool {
	began := time.Now()
	_ = c.conn.SetDeadline(began.Add(time.Minute)) // of a real connection
	if _, err := c.conn.Write(c.o.request); err != nil {
		c.unanswered++
		return false
	}
	a, err := http.ReadResponse(c.in, nil)
	if err != nil {
		c.unanswered++
		return false
	}
	body, err := io.ReadAll(a.Body)
	a.Body.Close()
	if a.StatusCode == http.StatusOK {
		c.ok++
		c.times = append(c.times, time.Since(began))
		return err == nil && !a.Close
	}
	var p struct{ Code string }
	_ = json.Unmarshal(body, &p) // a code of "" says that it is none of ours
	code := fmt.Sprintf("%d %s", a.StatusCode, p.Code)
	c.refused[code]++
	if a.StatusCode != http.StatusTooManyRequests && a.StatusCode != http.StatusServiceUnavailable || a.Header.Get("Retry-After") == "" {
		c.unhinted[code]++
	}
	return err == nil && !a.Close
}

// watch asks for health and metrics over and over, on connections of their own, until it is told to stop: once at least.
func (o *overload) watch(t *testing.T) (stop func() *served) {
	t.Helper()
	r := &served{refused: map[string]int{}}
	done := make(chan struct{})
	ended := make(chan struct{})
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	began := time.Now()
	go func() {
		defer close(ended)
		for {
			for _, path := range []string{"/healthz", "/metrics"} {
				asked := time.Now()
				a, err := client.Get("http://" + o.address + path)
				if err == nil {
					_, err = io.Copy(io.Discard, a.Body)
					a.Body.Close()
				}
				switch {
				case err != nil:
					r.refused[path+" "+err.Error()]++
				case a.StatusCode != http.StatusOK:
					r.refused[path+" "+a.Status]++
				default:
					r.ok++
					r.times = append(r.times, time.Since(asked))
				}
			}
			select {
			case <-done:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	return func() *served {
		close(done)
		<-ended
		r.took = time.Since(began)
		return r
	}
}

// readSlowly opens reads of the whole table that take a KiB a second.
func (o *overload) readSlowly(t *testing.T, n int) (stop func()) {
	t.Helper()
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range n {
		conn, err := net.Dial("tcp", o.address)
		require.NoError(t, err)
		_, err = io.WriteString(conn, o.scan)
		require.NoError(t, err)
		wg.Go(func() {
			defer conn.Close()
			for {
				select {
				case <-done:
					return
				case <-time.After(time.Second):
				}
				_ = conn.SetReadDeadline(time.Now().Add(time.Second)) // of a real connection
				_, _ = io.CopyN(io.Discard, conn, 1<<10)              // it may be dropped
			}
		})
	}
	return func() {
		close(done)
		wg.Wait()
	}
}
