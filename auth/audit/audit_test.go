package audit_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/auth/audit"
)

type clock struct{}

func (clock) Now() time.Time { return time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC) }

func open(t *testing.T, o audit.Options) (*audit.Log, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewRegistry()
	o.Clock, o.Logger, o.Registerer = clock{}, slog.New(slog.DiscardHandler), reg
	l, err := audit.Open(o)
	require.NoError(t, err)
	return l, reg
}

func lines(t *testing.T, path string) (events []audit.Event) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		var e audit.Event
		require.NoError(t, json.Unmarshal(s.Bytes(), &e), s.Text())
		events = append(events, e)
	}
	return events
}

func count(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	all, err := reg.Gather()
	require.NoError(t, err)
	for _, m := range all {
		if m.GetName() == name {
			sum := 0.0
			for _, of := range m.GetMetric() {
				sum += of.GetCounter().GetValue() + of.GetGauge().GetValue()
			}
			return sum
		}
	}
	t.Fatalf("there is no %s", name)
	return 0
}

// eventually waits for a metric to be n.
func eventually(t *testing.T, reg *prometheus.Registry, name string, n float64) {
	t.Helper()
	require.Eventually(t, func() bool { return count(t, reg, name) == n }, time.Minute, time.Millisecond, "%s is not %v", name, n)
}

// What was asked for is written, each thing once a call, with what was decided and how the
// call ended; the file is its owner's.
func TestEvents(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l, reg := open(t, audit.Options{Path: path})
	r := l.Begin("id1", "10.0.0.1:5", "http", "scan")
	ctx := audit.With(t.Context(), r)
	r.Caller("user:ann")
	r.Object("d.x") // what the path says
	audit.Of(ctx).Ask("describe", "d.t", true)
	audit.Of(ctx).Ask("read", "d.t", true)
	audit.Of(ctx).Ask("read", "d.t", true)
	audit.Of(ctx).Ask("describe", "e", true)
	audit.Of(ctx).Ask("write", "d.t", false)
	audit.Of(ctx).Ask("write", "d.t", true)
	r.End("permission_denied")
	r.End("ok")
	l.Begin("id2", "a", "flight", "DoGet").End("unauthenticated")
	l.Begin("id3", "a", "http", "docs").End(audit.OK)
	r = l.Begin("id4", "a", "http", "get_table")
	r.Object("d.nix")
	r.Operation("other")
	r.End("table_not_found")
	r = l.Begin("id5", "a", "http", "get_table")
	r.Ask("describe", "d.t", false)
	r.End("table_not_found")
	require.NoError(t, l.Close())
	at := clock{}.Now()
	require.Equal(t, []audit.Event{
		{at, "id1", "user:ann", "10.0.0.1:5", "http", "scan", "read", "d.t", "allowed", "permission_denied"},
		{at, "id1", "user:ann", "10.0.0.1:5", "http", "scan", "describe", "e", "allowed", "permission_denied"},
		{at, "id1", "user:ann", "10.0.0.1:5", "http", "scan", "write", "d.t", "denied", "permission_denied"},
		{at, "id2", "", "a", "flight", "DoGet", "", "", "", "unauthenticated"},
		{at, "id4", "", "a", "http", "other", "", "d.nix", "", "table_not_found"},
		{at, "id5", "", "a", "http", "get_table", "describe", "d.t", "denied", "table_not_found"},
	}, lines(t, path))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.EqualValues(t, 6, count(t, reg, "millrace_audit_events_total"))
}

// A call that takes long is written while it goes on, and again when it ends.
func TestLongCalls(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l, reg := open(t, audit.Options{Path: path, Long: time.Millisecond})
	r := l.Begin("1", "a", "flight", "DoGet")
	r.Ask("read", "d.t", true)
	eventually(t, reg, "millrace_audit_events_total", 1)
	r.Ask("read", "d.t", false)
	r.End("permission_denied")
	require.NoError(t, l.Close())
	var got []string
	for _, e := range lines(t, path) {
		got = append(got, e.Verb+" "+e.Decision+" "+e.Outcome)
	}
	require.Equal(t, []string{"read allowed begun", "read denied permission_denied"}, got)
}

// Verbs that are not wanted are left out while they are allowed, those that change tables
// and grants never (D5); nothing is kept where there is no log.
func TestVerbs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l, _ := open(t, audit.Options{Path: path, Verbs: []string{"write"}})
	for _, outcome := range []string{audit.OK, "row_not_found", "column_denied"} {
		r := l.Begin("1", "a", "http", "x")
		r.Ask("describe", "d.t", true)
		r.Ask("read", "d.t", true)
		r.Ask("write", "d.u", true)
		r.Ask("alter", "d.t", true)
		r.End(outcome)
	}
	r := l.Begin("1", "a", "http", "x")
	r.Ask("read", "d.t", false)
	r.End("table_not_found")
	require.NoError(t, l.Close())
	var got []string
	for _, e := range lines(t, path) {
		got = append(got, e.Verb+" "+e.Outcome)
	}
	require.Equal(t, []string{
		"write ok", "alter ok", "write row_not_found", "alter row_not_found",
		"read column_denied", "write column_denied", "alter column_denied", "read table_not_found",
	}, got)

	var none *audit.Log
	r = none.Begin("1", "a", "http", "x")
	r.Ask("read", "d.t", true)
	r.Caller("user:x")
	r.Object("x")
	r.End(audit.OK)
	require.Nil(t, audit.Of(audit.With(t.Context(), r)))
}

// D1: what a caller sends as a name has an end.
func TestLongNames(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l, _ := open(t, audit.Options{Path: path, Long: time.Hour}) // or it is written as begun, too
	r := l.Begin(strings.Repeat("i", 1<<20), "a", "http", strings.Repeat("n", 1<<20))
	r.Caller(strings.Repeat("u", 1<<20))
	for i := range 1000 {
		r.Ask("read", fmt.Sprint(i, strings.Repeat("o", 1<<16)), true)
	}
	r.End("x")
	require.NoError(t, l.Close())
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Less(t, info.Size(), int64(200_000))
	require.Len(t, lines(t, path), 65)
}

// D1: of a call that asks for very many things, some are told together, and how many; what
// was denied comes first, and verbs that are not wanted stay out.
func TestManyThings(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l, _ := open(t, audit.Options{Path: path, Verbs: []string{"write"}})
	r := l.Begin("1", "a", "http", "x")
	for i := range 100 {
		r.Ask("write", fmt.Sprint("d.w", i), true)
		r.Ask("read", fmt.Sprint("d.r", i), true)
	}
	for i := range 1000 {
		r.Ask("drop", fmt.Sprint("d.t", i), false)
	}
	r.Ask("write", "d.w0", false)
	r.End(audit.OK)
	require.NoError(t, l.Close())
	got := map[string]int{}
	for _, e := range lines(t, path) {
		if !strings.HasPrefix(e.Object, "(") {
			e.Object = ""
		}
		got[e.Verb+" "+e.Decision+" "+e.Object]++
	}
	require.Equal(t, map[string]int{
		"write allowed ": 31, "write denied ": 1, "write allowed (68 more)": 1, "drop denied ": 960, "drop denied (40 more)": 1,
	}, got)
}

func write(l *audit.Log) { l.Begin("1", "a", "http", "x").End("x") }

// D2: a full queue holds calls up, for a while; what finds no room is counted, and all
// others are written.
func TestFullQueue(t *testing.T) {
	gate := make(chan struct{})
	l, reg := open(t, audit.Options{Table: true, Queue: 1, Patience: 10 * time.Millisecond})
	var mu sync.Mutex
	taken := 0
	stop := l.Feed(func(_ context.Context, _ uint64, events []audit.Event) error {
		<-gate
		mu.Lock()
		defer mu.Unlock()
		taken += len(events)
		return nil
	})
	write(l)
	eventually(t, reg, "millrace_audit_queue_events", 0)
	require.Eventually(t, func() bool { // the first is being written, or waits for a second
		write(l)
		return count(t, reg, "millrace_audit_lost_total") > 0
	}, time.Minute, time.Millisecond)
	lost := count(t, reg, "millrace_audit_lost_total")
	close(gate)
	stop()
	require.NoError(t, l.Close())
	require.EqualValues(t, taken, count(t, reg, "millrace_audit_events_total"))
	write(l) // after Close: nowhere to go
	require.Equal(t, lost+1, count(t, reg, "millrace_audit_lost_total"))
}

// D2: a call is held up once, not for each of its events in each queue.
func TestHeldUpOnce(t *testing.T) {
	l, reg := open(t, audit.Options{Path: "/dev/full", Table: true, Queue: 1, Patience: time.Second, Pause: time.Hour})
	stop := l.Feed(func(context.Context, uint64, []audit.Event) error { return errors.New("no room") })
	write(l)
	require.Eventually(t, func() bool { return count(t, reg, "millrace_audit_failures_total") == 2 }, time.Minute, time.Millisecond)
	write(l) // fills both
	r := l.Begin("1", "a", "http", "x")
	for i := range 60 {
		r.Ask("drop", fmt.Sprint("d.t", i), true)
	}
	begin := time.Now()
	r.End(audit.OK)
	took := time.Since(begin)
	require.GreaterOrEqual(t, took, time.Second)
	require.Less(t, took, time.Minute) // two minutes if each was waited for
	require.EqualValues(t, 120, count(t, reg, "millrace_audit_lost_total"))
	stop()
	require.Error(t, l.Close())
}

// A call that is held up goes on as soon as there is room.
func TestHeldUp(t *testing.T) {
	gate := make(chan struct{})
	l, reg := open(t, audit.Options{Table: true, Queue: 1, Patience: time.Hour})
	l.Feed(func(context.Context, uint64, []audit.Event) error { <-gate; return nil })
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() { write(l) })
	}
	close(gate)
	wg.Wait()
	require.NoError(t, l.Close())
	require.EqualValues(t, 50, count(t, reg, "millrace_audit_events_total"))
	require.Zero(t, count(t, reg, "millrace_audit_lost_total"))
}

// D3: a file that was moved away is made anew, and no line is lost by that.
func TestRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l, reg := open(t, audit.Options{Path: path})
	write(l)
	eventually(t, reg, "millrace_audit_events_total", 1)
	require.NoError(t, os.Rename(path, path+".1"))
	write(l)
	eventually(t, reg, "millrace_audit_events_total", 2)
	require.Len(t, lines(t, path+".1"), 1)
	require.Len(t, lines(t, path), 1)
	require.NoError(t, l.Close())
}

// D4: what cannot be written is told, waits, and is written when it can be: the file, whose
// place something else has taken, beside a table that goes on.
func TestFailures(t *testing.T) {
	_, err := audit.Open(audit.Options{Path: filepath.Join(t.TempDir(), "no", "audit.jsonl"), Registerer: prometheus.NewRegistry()})
	require.ErrorContains(t, err, "no such file")

	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l, reg := open(t, audit.Options{Path: path, Table: true, Pause: time.Millisecond})
	var table []audit.Event
	stop := l.Feed(func(_ context.Context, _ uint64, events []audit.Event) error {
		table = append(table, events...)
		return nil
	})
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Mkdir(path, 0o700))
	for range 10 {
		write(l)
	}
	require.Eventually(t, func() bool { return l.Err() != nil }, time.Minute, time.Millisecond)
	require.ErrorContains(t, l.Err(), "the file of the audit log")
	eventually(t, reg, "millrace_audit_events_total", 10)
	require.NoError(t, os.Remove(path))
	eventually(t, reg, "millrace_audit_events_total", 20)
	require.Eventually(t, func() bool { return l.Err() == nil }, time.Minute, time.Millisecond)
	require.Positive(t, count(t, reg, "millrace_audit_failures_total"))
	require.Zero(t, count(t, reg, "millrace_audit_lost_total"))
	stop()
	require.NoError(t, l.Close())
	require.Len(t, lines(t, path), 10)
	require.Len(t, table, 10)
}

// A batch that failed comes again as it was, under its number, so that a table can tell; at
// the end it is tried once more, and counted.
func TestTriedAgain(t *testing.T) {
	l, reg := open(t, audit.Options{Table: true, Pause: time.Millisecond})
	var mu sync.Mutex
	var tries []string
	stop := l.Feed(func(_ context.Context, number uint64, events []audit.Event) error {
		mu.Lock()
		defer mu.Unlock()
		tries = append(tries, fmt.Sprint(number, len(events)))
		if number == 1 && len(tries) > 3 {
			return nil
		}
		return errors.New("no room")
	})
	write(l)
	eventually(t, reg, "millrace_audit_events_total", 1)
	write(l)
	require.Eventually(t, func() bool { return l.Err() != nil }, time.Minute, time.Millisecond)
	stop()
	write(l)
	require.ErrorContains(t, l.Close(), "no room")
	require.Equal(t, []string{"1 1", "1 1", "1 1", "1 1", "2 1"}, tries[:5])
	require.EqualValues(t, 2, count(t, reg, "millrace_audit_lost_total"))
}

// A disk without room holds nothing back but the events.
func TestFullDisk(t *testing.T) {
	l, reg := open(t, audit.Options{Path: "/dev/full", Pause: time.Millisecond, Queue: 1, Patience: time.Millisecond})
	for range 5 {
		write(l)
	}
	require.Eventually(t, func() bool { return l.Err() != nil }, time.Minute, time.Millisecond)
	require.ErrorContains(t, l.Err(), "no space left on device")
	require.Positive(t, count(t, reg, "millrace_audit_lost_total"))
	require.Error(t, l.Close())
	require.EqualValues(t, 5, count(t, reg, "millrace_audit_lost_total"))
}

// A stop waits for one try, from its beginning, and ends what is tried then, whatever waits.
func TestStopEndsWrites(t *testing.T) {
	l, reg := open(t, audit.Options{Table: true, Try: time.Second, Pause: time.Hour})
	begun := make(chan struct{}, 10)
	var ends []error
	stop := l.Feed(func(ctx context.Context, _ uint64, _ []audit.Event) error {
		begun <- struct{}{}
		<-ctx.Done() // it takes nothing
		ends = append(ends, ctx.Err())
		return ctx.Err()
	})
	l.Begin("i", "a", "http", "n").End("x")
	<-begun
	l.Begin("i", "a", "http", "n").End("x")
	stop()
	require.Len(t, ends, 2)
	require.Equal(t, context.Canceled, ends[1], "it had no second of its own")
	require.EqualValues(t, 2, count(t, reg, "millrace_audit_lost_total"))
}

// A pipe that nobody reads is refused at the start; one that is not read any more is told,
// does not keep Close, and loses nothing when it is read again (D3, D4).
func TestPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	_, err := audit.Open(audit.Options{Path: path, Registerer: prometheus.NewRegistry()})
	require.ErrorContains(t, err, "nobody reads the pipe")

	fill := func(l *audit.Log) { // more than a pipe takes
		for range 500 {
			l.Begin(strings.Repeat("i", 512), "a", "http", strings.Repeat("n", 512)).End("x")
		}
	}
	reader, err := os.OpenFile(path, os.O_RDWR, 0) // which waits for nobody
	require.NoError(t, err)
	defer reader.Close()
	l, reg := open(t, audit.Options{Path: path, Try: 10 * time.Millisecond, Pause: time.Millisecond})
	fill(l)
	require.Eventually(t, func() bool { return l.Err() != nil }, time.Minute, time.Millisecond)
	require.ErrorContains(t, l.Err(), "takes nothing")
	in := bufio.NewScanner(reader)
	for range 500 {
		require.True(t, in.Scan())
		var e audit.Event
		require.NoError(t, json.Unmarshal(in.Bytes(), &e), in.Text())
	}
	eventually(t, reg, "millrace_audit_events_total", 500)
	require.Eventually(t, func() bool { return l.Err() == nil }, time.Minute, time.Millisecond)

	fill(l)
	require.Eventually(t, func() bool { return l.Err() != nil }, time.Minute, time.Millisecond)
	closed := make(chan error, 1)
	go func() { closed <- l.Close() }()
	select {
	case err := <-closed:
		require.ErrorContains(t, err, "takes nothing")
	case <-time.After(time.Minute):
		t.Fatal("Close waits for a pipe that nobody reads")
	}
	require.EqualValues(t, 1000, count(t, reg, "millrace_audit_events_total")+count(t, reg, "millrace_audit_lost_total"))
}
