package e2e

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// appender writes numbered orders without pause until it is stopped.
type appender struct {
	acked atomic.Int64 // orders below this are acknowledged
	stop  func()
}

func (tb table) appendWithoutPause(t *testing.T) *appender {
	t.Helper()
	a := &appender{}
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := int64(0); ; n += 20 {
			select {
			case <-quit:
				return
			default:
			}
			var rows []string
			for i := n; i < n+20; i++ {
				rows = append(rows, fmt.Sprintf(`{"order_id":%d,"cust_id":%d,"amount":%d}`, i, i%50, i*10))
			}
			ans, err := tb.s.send("POST", tb.path()+"/records", recordsBody("["+strings.Join(rows, ",")+"]"))
			if err != nil || ans.status != 200 {
				t.Errorf("append: %v %s", err, ans.body)
				return
			}
			a.acked.Store(n + 20)
		}
	})
	a.stop = sync.OnceFunc(func() { close(quit); wg.Wait() })
	t.Cleanup(a.stop)
	return a
}

func (a *appender) waitFor(t *testing.T, n int64) {
	t.Helper()
	require.Eventually(t, func() bool { return a.acked.Load() >= n }, patience, time.Millisecond)
}

func orderID(t testing.TB, c change) int64 {
	t.Helper()
	var row struct {
		ID int64 `json:"order_id"`
	}
	require.NoError(t, json.Unmarshal([]byte(c.Row), &row))
	return row.ID
}

// inOrder checks that every bucket's offsets rise by one and returns how often each order was seen.
func inOrder(t testing.TB, cs []change) map[int64]int {
	t.Helper()
	next := map[int]int64{}
	seen := map[int64]int{}
	for _, c := range cs {
		if at, ok := next[c.Bucket]; ok {
			require.Equal(t, at, c.Offset, "bucket %d", c.Bucket)
		}
		next[c.Bucket] = c.Offset + 1
		seen[orderID(t, c)]++
	}
	return seen
}

const orderColumns = "order_id BIGINT, cust_id BIGINT, amount BIGINT"

// X8 through event streams: while a writer appends without pause, a reader from earliest sees every row once and in
// order, one from latest only what came after it asked, one from a time the first row at or after it.
func TestX8REST(t *testing.T) {
	t.Parallel()
	s := shared(t)
	tb := create(t, s, newDB(t, s), "orders_log", orderColumns, "", 4)
	w := tb.appendWithoutPause(t)
	w.waitFor(t, 200)
	ctx := within(t, 2*time.Minute)

	latest, err := tb.subscribe(ctx, url.Values{"from": {"latest"}}, "")
	require.NoError(t, err)
	defer latest.close()
	first, err := latest.next()
	require.NoError(t, err)
	require.NotEmpty(t, first.id, "the first block says where the stream stands")
	require.Empty(t, first.data)
	after := w.acked.Load() // everything acknowledged later than this came after the reader
	w.waitFor(t, after+400)
	middle := time.Now()
	w.waitFor(t, w.acked.Load()+400)
	w.stop()
	total := int(w.acked.Load())

	earliest, err := tb.subscribe(ctx, url.Values{"from": {"earliest"}}, "")
	require.NoError(t, err)
	defer earliest.close()
	all := earliest.take(t, total)
	seen := inOrder(t, all)
	require.Len(t, seen, total)
	for id, times := range seen {
		require.Equal(t, 1, times, "order %d", id)
	}
	tb.write(t, `[{"order_id":-1,"cust_id":0,"amount":0}]`)
	require.EqualValues(t, -1, orderID(t, earliest.take(t, 1)[0]), "and then on, live")

	var fromLatest []change
	for {
		c, err := latest.change(t)
		require.NoError(t, err)
		if orderID(t, c) == -1 {
			break
		}
		fromLatest = append(fromLatest, c)
	}
	lateSeen := inOrder(t, fromLatest)
	for id := after + 20; id < int64(total); id++ { // +20: one batch may have been in flight
		require.Equal(t, 1, lateSeen[id], "order %d", id)
	}
	require.Zero(t, lateSeen[0], "what was there before is not sent")

	starts := map[int]int64{} // per bucket, the first offset at or after the middle
	for _, c := range all {
		at, err := time.Parse(time.RFC3339Nano, c.Time)
		require.NoError(t, err)
		if _, ok := starts[c.Bucket]; !ok && !at.Before(middle.Truncate(time.Millisecond)) {
			starts[c.Bucket] = c.Offset
		}
	}
	timed := tb.allChanges(t, middle.UTC().Truncate(time.Millisecond).Format(time.RFC3339Nano))
	got := map[int]int64{}
	for _, c := range timed {
		if _, ok := got[c.Bucket]; !ok && orderID(t, c) != -1 {
			got[c.Bucket] = c.Offset
		}
	}
	require.Equal(t, starts, got)
	inOrder(t, timed)
}

// X8 through Flight: a tail from earliest and a tail from latest, live, with offsets in each batch's metadata.
func TestX8Flight(t *testing.T) {
	t.Parallel()
	s := shared(t)
	tb := create(t, s, newDB(t, s), "orders_log", orderColumns, "", 4)
	tb.write(t, `[{"order_id":1,"cust_id":1,"amount":1}]`)
	c := s.dial(t)
	open := func(from string) *batches {
		info, err := c.GetFlightInfo(within(t, patience), command(t, scanCommand(tb, obj{"view": "rows", "from": from, "until": "never", "heartbeat_ms": 200, "columns": []string{"order_id"}})))
		require.NoError(t, err)
		require.Len(t, info.Endpoint, 1, "a tail has one endpoint")
		b, err := c.get(within(t, patience), info.Endpoint[0].Ticket.Ticket)
		require.NoError(t, err)
		t.Cleanup(b.cancel)
		return b
	}
	early, late := open("earliest"), open("latest")
	ready := map[int]bool{}
	for len(ready) < 4 {
		ch, err := late.next()
		require.NoError(t, err)
		require.Zero(t, ch.rec.NumRows(), "one empty batch a bucket comes first")
		require.NotNil(t, ch.meta.Bucket, ch.raw)
		require.NotNil(t, ch.meta.Next, ch.raw)
		ready[*ch.meta.Bucket] = true
	}
	w := tb.appendWithoutPause(t)
	w.waitFor(t, 1000)
	w.stop()
	total := int(w.acked.Load())
	for b, want := range map[*batches]int{early: total + 1, late: total} {
		seen := 0
		next := map[int]int64{}
		for seen < want {
			ch, err := b.next()
			require.NoError(t, err)
			n := ch.rec.NumRows()
			seen += int(n)
			if n == 0 {
				continue
			}
			require.NotNil(t, ch.meta.Base, ch.raw)
			if at, ok := next[*ch.meta.Bucket]; ok {
				require.Equal(t, at, *ch.meta.Base, ch.raw)
			}
			require.Equal(t, n, ch.meta.Rows, ch.raw)
			require.Equal(t, *ch.meta.Base+n, *ch.meta.Next, ch.raw)
			next[*ch.meta.Bucket] = *ch.meta.Next
		}
		require.Equal(t, want, seen)
		beat, err := b.next()
		require.NoError(t, err, "a quiet tail keeps sending heartbeats")
		require.Zero(t, beat.rec.NumRows())
	}
}

// X8 through the command line: a bounded tail from earliest prints every row once, one from a time what came after it.
func TestX8CLI(t *testing.T) {
	t.Parallel()
	s := shared(t)
	tb := create(t, s, newDB(t, s), "orders_log", orderColumns, "", 2)
	tb.write(t, `[{"order_id":1,"cust_id":1,"amount":1},{"order_id":2,"cust_id":1,"amount":1}]`)
	time.Sleep(20 * time.Millisecond)
	middle := time.Now().UTC().Format("2006-01-02T15:04:05.000Z07:00")
	time.Sleep(20 * time.Millisecond)
	tb.write(t, `[{"order_id":3,"cust_id":1,"amount":1}]`)
	tail := func(from string) []string {
		return s.cliOK(t, "tail", tb.full(), "--from", from, "--until", "latest", "--format", "ndjson", "--columns", "order_id")
	}
	require.Len(t, tail("earliest"), 3)
	require.Empty(t, tail("latest"))
	late := tail(middle)
	require.Len(t, late, 1)
	require.Contains(t, late[0], `"order_id":3`)
}
