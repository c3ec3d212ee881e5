package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"
)

// load is clients of all kinds at a cluster's fronts, none of which tries a request again: what each of them asked for
// and was told, and what must hold of the answers.
type load struct {
	f     *fleet
	db    string
	keyed table // upserted, looked up, followed by an event stream
	log   table // appended to, followed by a Flight tail
	still table // a log table that is only read
	fixed table // a keyed table that is only read

	mu     sync.Mutex
	failed []string
	count  map[string]int
	gaps   map[string]*gaps
	state  fold          // what keyed must be
	sent   map[int]int   // rows that each writer of log appended
	gone   int           // scans that ended with snapshot_gone
	stop   chan struct{} // no more requests
	wait   sync.WaitGroup
	follow sync.WaitGroup
}

const stillRows = 3000

func newLoad(t *testing.T, f *fleet) *load {
	t.Helper()
	l := &load{f: f, count: map[string]int{}, gaps: map[string]*gaps{}, state: fold{}, sent: map[int]int{}, stop: make(chan struct{})}
	l.db = newDB(t, f.fronts[0])
	l.keyed = create(t, f.fronts[0], l.db, "keyed", "id BIGINT, v BIGINT", "id", 12)
	l.log = create(t, f.fronts[0], l.db, "log", "w BIGINT, n BIGINT", "", 12, obj{"bucket_key": []string{"w"}})
	l.still = create(t, f.fronts[0], l.db, "still", "id BIGINT, v BIGINT", "", 12, obj{"bucket_key": []string{"id"}})
	l.fixed = create(t, f.fronts[0], l.db, "fixed", "id BIGINT, v BIGINT", "id", 12)
	var rows strings.Builder
	for i := range stillRows {
		fmt.Fprintf(&rows, ",{\"id\":%d,\"v\":%d}", i, i)
	}
	l.still.write(t, "["+rows.String()[1:]+"]")
	l.fixed.write(t, "["+rows.String()[1:]+"]")
	return l
}

// did notes a request that ended, or why it failed.
func (l *load) did(kind string, client int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.failed = append(l.failed, fmt.Sprintf("%s %s %d: %v", time.Now().Format("15:04:05.000"), kind, client, err))
		return
	}
	l.count[kind]++
	if l.gaps[kind] == nil {
		l.gaps[kind] = &gaps{}
	}
	l.gaps[kind].passed(client)
}

func (l *load) stopped() bool {
	select {
	case <-l.stop:
		return true
	default:
		return false
	}
}

// clients has n of them make requests until the load ends; each says what became of one.
func (l *load) clients(kind string, n int, one func(c *http.Client, client, round int) error) {
	for client := range n {
		l.wait.Go(func() {
			c := &http.Client{Timeout: time.Minute}
			defer c.CloseIdleConnections()
			for round := 0; !l.stopped(); round++ {
				l.did(kind, client, one(c, client, round))
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
}

// want makes a request through a front and reads the answer, which must be 2xx.
func (l *load) want(c *http.Client, front int, method, path string, body, into any, headers ...string) error {
	a, err := ask(c, method, l.f.doors[front%len(l.f.doors)]+path, body, headers...)
	if err != nil {
		return err
	}
	if a.status/100 != 2 {
		return &statusError{a.status, string(a.body)}
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(a.body, into)
}

// begin starts everybody.
func (l *load) begin(t *testing.T) {
	t.Helper()
	l.clients("upsert and lookup", 4, func(c *http.Client, client, round int) error {
		id, v := int64(client*1000+round%150), int64(round+1)
		if err := l.want(c, round, "PUT", fmt.Sprintf("%s/rows/%d", l.keyed.path(), id), fmt.Sprintf(`{"v":%d}`, v), nil); err != nil {
			return err
		}
		l.mu.Lock()
		l.state[id] = v
		l.mu.Unlock()
		var got struct {
			Rows []*struct{ ID, V int64 }
		}
		if err := l.want(c, round+1, "POST", l.keyed.path()+"/lookup", fmt.Sprintf(`{"keys":[{"id":%d}]}`, id), &got); err != nil {
			return err
		}
		if len(got.Rows) != 1 || got.Rows[0] == nil || got.Rows[0].V != v {
			return fmt.Errorf("a row just written as %d is %+v", v, got.Rows)
		}
		return nil
	})
	l.clients("append", 3, func(c *http.Client, client, round int) error {
		body := (&logWriter{n: client}).body(round)
		if err := l.want(c, round, "POST", l.log.path()+"/records", body, nil, "Content-Type", mediaNDJSON); err != nil {
			return err
		}
		l.mu.Lock()
		l.sent[client] += appendRows
		l.mu.Unlock()
		return nil
	})
	l.clients("pages of a log", 1, func(c *http.Client, _, round int) error { return l.pages(c, round, l.still) })
	l.clients("pages of state", 1, func(c *http.Client, _, round int) error {
		err := l.pages(c, round, l.fixed)
		if err != nil && strings.Contains(err.Error(), `"snapshot_gone"`) {
			// The snapshot that pages share is the owner's, and so ends with it: the one thing that asks for a new start.
			l.mu.Lock()
			l.gone++
			l.mu.Unlock()
			return nil
		}
		return err
	})
	l.clients("scan in one", 1, func(c *http.Client, _, round int) error {
		var page struct{ Rows []struct{ ID int64 } }
		if err := l.want(c, round, "POST", l.fixed.path()+"/scan", obj{"page_size": stillRows, "columns": []string{"id"}}, &page, "Accept", mediaJSON); err != nil {
			return err
		}
		return wholeOf(page.Rows)
	})
	l.clients("sql", 1, func(c *http.Client, _, round int) error {
		var got struct{ Rows [][]int64 }
		if err := l.want(c, round, "POST", "/v1/sql", obj{"sql": "SELECT COUNT(*) AS n FROM " + l.fixed.full()}, &got, "Accept", mediaJSON); err != nil {
			return err
		}
		if len(got.Rows) != 1 || len(got.Rows[0]) != 1 || got.Rows[0][0] != stillRows {
			return fmt.Errorf("a count of %d rows is %+v", stillRows, got.Rows)
		}
		return nil
	})
	l.clients("ddl", 1, func(c *http.Client, _, round int) error {
		name := fmt.Sprintf("t%d", round)
		path := "/v1/databases/" + l.db + "/tables"
		if err := l.want(c, round, "POST", path, obj{"name": name, "columns": columnList("id BIGINT, v BIGINT"), "primary_key": []string{"id"}, "buckets": 6}, nil); err != nil {
			return fmt.Errorf("create: %w", err)
		}
		if err := l.want(c, round+1, "POST", path+"/"+name+"/records", recordsBody(`[{"id":1,"v":1},{"id":2,"v":1}]`), nil); err != nil {
			return fmt.Errorf("write to what was created through the other front: %w", err)
		}
		if err := l.want(c, round, "DELETE", path+"/"+name, nil, nil); err != nil {
			return fmt.Errorf("drop: %w", err)
		}
		a, err := ask(c, "POST", l.f.doors[(round+1)%2]+path+"/"+name+"/lookup", `{"keys":[{"id":1}]}`)
		if err == nil && a.status != http.StatusNotFound {
			err = fmt.Errorf("a lookup after a drop through the other front: %d %s", a.status, a.body)
		}
		return err
	})
	l.put(t)
	l.watch(t)
	l.tail(t)
}

// pages reads a table page by page, each through the other front than the one before.
func (l *load) pages(c *http.Client, round int, tb table) error {
	request := obj{"page_size": 400, "columns": []string{"id"}}
	var rows []struct{ ID int64 }
	for i := 0; ; i++ {
		var page struct {
			Rows          []struct{ ID int64 }
			NextPageToken string `json:"next_page_token"`
		}
		if err := l.want(c, round+i, "POST", tb.path()+"/scan", request, &page, "Accept", mediaJSON); err != nil {
			return fmt.Errorf("page %d: %w", i, err)
		}
		if rows = append(rows, page.Rows...); page.NextPageToken == "" {
			return wholeOf(rows)
		}
		request["page_token"] = page.NextPageToken
		time.Sleep(100 * time.Millisecond) // pages are asked for over a second
	}
}

func wholeOf(rows []struct{ ID int64 }) error {
	seen := map[int64]bool{}
	for _, r := range rows {
		seen[r.ID] = true
	}
	if len(rows) != stillRows || len(seen) != stillRows {
		return fmt.Errorf("%d rows of %d ids were read of %d", len(rows), len(seen), stillRows)
	}
	return nil
}

// put is a writer that sends batches through one DoPut, and waits for the acknowledgement of each.
func (l *load) put(t *testing.T) {
	t.Helper()
	const writer = 10
	cmd := obj{"op": "put", "table": l.log.full(), "acks": "stream"}
	p, err := l.f.fronts[1].dial(t).put(t.Context(), command(t, cmd), schemaOf("w long, n long"))
	require.NoError(t, err)
	l.wait.Go(func() {
		sent := 0
		for !l.stopped() {
			err := p.send(longs("w,n", appendRows, func(r, col int) int64 { return []int64{writer, int64(sent + r)}[col] }), "")
			sent += appendRows
			for acked := int64(0); err == nil && acked < int64(sent); {
				var a ack
				a, err = p.ack()
				acked = max(a.AckRows, a.Rows)
			}
			if l.did("batch of a Flight stream", 0, err); err != nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		_, err := p.finish()
		l.did("end of a Flight stream", 0, err)
		l.mu.Lock()
		l.sent[writer] = sent
		l.mu.Unlock()
	})
}

// watch follows keyed by one event stream, and ends when that has shown exactly what was written.
func (l *load) watch(t *testing.T) {
	t.Helper()
	sub, err := table{l.f.fronts[1], l.keyed.db, l.keyed.name}.subscribe(within(t, 20*time.Minute), url.Values{"from": {"earliest"}}, "")
	require.NoError(t, err)
	l.follow.Go(func() {
		defer sub.close()
		seen := fold{}
		for !l.stopped() || !l.is(seen) {
			ev, err := sub.next()
			if err == nil && ev.name == "problem" {
				err = &statusError{0, ev.data}
			}
			if err != nil {
				l.did("event", 0, err)
				return
			}
			if ev.data == "" {
				continue
			}
			var row struct {
				Type  string `json:"_change_type"`
				ID, V int64
			}
			if err = json.Unmarshal([]byte(ev.data), &row); err == nil {
				err = seen.apply(row.Type, row.ID, row.V)
			}
			l.did("event", 0, err)
		}
	})
}

func (l *load) is(seen fold) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return same(seen, l.state)
}

// tail follows log by one Flight stream, and ends when that has shown each row once and in order.
func (l *load) tail(t *testing.T) {
	t.Helper()
	c, ctx := l.f.fronts[0].dial(t), within(t, 20*time.Minute)
	info, err := c.GetFlightInfo(ctx, command(t, scanCommand(l.log, obj{"from": "earliest", "until": "never", "heartbeat_ms": 200})))
	require.NoError(t, err)
	require.Len(t, info.Endpoint, 1)
	b, err := c.get(ctx, info.Endpoint[0].Ticket.Ticket)
	require.NoError(t, err)
	l.follow.Go(func() {
		defer b.cancel()
		seen, next := map[int]int{}, map[int]int64{}
		for !l.stopped() || !l.all(seen) {
			ch, err := b.next()
			if err == nil {
				err = follows(ch, seen, next)
			}
			if errors.Is(err, io.EOF) {
				err = fmt.Errorf("the tail ended")
			}
			if err != nil || ch.rec.NumRows() > 0 {
				l.did("batch of a tail", 0, err)
			}
			if err != nil {
				return
			}
		}
	})
}

// follows checks that a batch joins the one before it in its bucket, and that its rows are the next of their writers.
func follows(ch chunk, seen map[int]int, next map[int]int64) error {
	if ch.meta.Bucket == nil || ch.meta.Next == nil {
		return fmt.Errorf("a batch of no bucket or without an end: %s", ch.raw)
	}
	if at, ok := next[*ch.meta.Bucket]; ok && ch.meta.Base != nil && ch.rec.NumRows() > 0 && at != *ch.meta.Base {
		return fmt.Errorf("a batch begins at %d where %d was next", *ch.meta.Base, at)
	}
	next[*ch.meta.Bucket] = *ch.meta.Next
	column := func(name string) *array.Int64 {
		return ch.rec.Column(ch.rec.Schema().FieldIndices(name)[0]).(*array.Int64)
	}
	ws, ns := column("w"), column("n")
	for i := range int(ch.rec.NumRows()) {
		w, n := int(ws.Value(i)), int(ns.Value(i))
		if n != seen[w] {
			return fmt.Errorf("row %d of writer %d where %d was next", n, w, seen[w])
		}
		seen[w]++
	}
	return nil
}

func (l *load) all(seen map[int]int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for w, n := range l.sent {
		if seen[w] != n {
			return false
		}
	}
	return true
}

// end stops everybody, and says what was seen. No request may have failed.
func (l *load) end(t *testing.T) {
	t.Helper()
	l.halt()
	seen := make(chan struct{})
	go func() { l.follow.Wait(); close(seen) }()
	select {
	case <-seen:
	case <-time.After(patience):
		t.Errorf("a stream did not show within %v what was written", patience)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for kind, n := range l.count {
		t.Logf("%7d × %s, longest gap %v, until %s", n, kind, l.gaps[kind].longest.Round(time.Millisecond), l.gaps[kind].at.Format("15:04:05.000"))
	}
	t.Logf("%7d scans of pages began anew since their snapshot was gone", l.gone)
	for _, failed := range l.failed[:min(len(l.failed), 20)] {
		t.Error(failed)
	}
	require.Zero(t, len(l.failed), "requests that failed")
}

// halt stops the requests; streams go on.
func (l *load) halt() {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.wait.Wait()
}
