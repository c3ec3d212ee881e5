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
			return m.GetMetric()[0].GetCounter().GetValue() + m.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no %s", name)
	return 0
}

// What was asked for is written, each thing once a call, with how the call ended; the file
// is its owner's.
func TestEvents(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l, reg := open(t, audit.Options{Path: path})
	r := l.Begin("id1", "10.0.0.1:5", "http", "scan")
	ctx := audit.With(t.Context(), r)
	r.Caller("user:ann")
	audit.Of(ctx).Ask("describe", "d.t")
	audit.Of(ctx).Ask("read", "d.t")
	audit.Of(ctx).Ask("read", "d.t")
	r.Write(ctx, audit.Begun)
	r.Write(ctx, "permission_denied")
	l.Begin("id2", "a", "flight", "DoGet").Write(ctx, "unauthenticated")
	l.Begin("id3", "a", "http", "docs").Write(ctx, audit.OK)
	require.NoError(t, l.Close())
	at := clock{}.Now()
	require.Equal(t, []audit.Event{
		{at, "id1", "user:ann", "10.0.0.1:5", "http", "scan", "describe", "d.t", "begun"},
		{at, "id1", "user:ann", "10.0.0.1:5", "http", "scan", "read", "d.t", "begun"},
		{at, "id1", "user:ann", "10.0.0.1:5", "http", "scan", "describe", "d.t", "permission_denied"},
		{at, "id1", "user:ann", "10.0.0.1:5", "http", "scan", "read", "d.t", "permission_denied"},
		{at, "id2", "", "a", "flight", "DoGet", "", "", "unauthenticated"},
	}, lines(t, path))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.EqualValues(t, 5, count(t, reg, "millrace_audit_events_total"))
}

// Verbs that are not wanted are left out while they are allowed; nothing is kept where
// there is no log.
func TestVerbs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l, _ := open(t, audit.Options{Path: path, Verbs: []string{"alter"}})
	r := l.Begin("1", "a", "http", "x")
	r.Ask("read", "d.t")
	r.Ask("alter", "d.t")
	r.Write(t.Context(), audit.OK)
	r.Write(t.Context(), "column_denied")
	require.NoError(t, l.Close())
	var got []string
	for _, e := range lines(t, path) {
		got = append(got, e.Verb+" "+e.Outcome)
	}
	require.Equal(t, []string{"alter ok", "read column_denied", "alter column_denied"}, got)

	var none *audit.Log
	r = none.Begin("1", "a", "http", "x")
	r.Ask("read", "d.t")
	r.Caller("user:x")
	r.Write(t.Context(), audit.OK)
	require.Nil(t, audit.Of(t.Context()))
}

// D1: what a caller sends as a name has an end.
func TestLongNames(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l, _ := open(t, audit.Options{Path: path})
	r := l.Begin(strings.Repeat("i", 1<<20), "a", "http", "x")
	r.Caller(strings.Repeat("u", 1<<20))
	for i := range 1000 {
		r.Ask("read", fmt.Sprint(i, strings.Repeat("o", 1<<20)))
	}
	r.Write(t.Context(), "x")
	require.NoError(t, l.Close())
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Less(t, info.Size(), int64(200_000))
	require.Len(t, lines(t, path), 64)
}

// D2 and D4: a full queue holds calls up; one that ends meanwhile is counted, and the
// others are written, whatever the order of Close.
func TestFullQueue(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	gate := make(chan struct{})
	l, reg := open(t, audit.Options{Path: path, Queue: 1, Sink: func(context.Context, []audit.Event) error { <-gate; return nil }})
	write := func(ctx context.Context) { l.Begin("1", "a", "http", "x").Write(ctx, "x") }
	write(t.Context())
	require.Eventually(t, func() bool { return count(t, reg, "millrace_audit_queue_events") == 0 }, 10*time.Second, time.Millisecond)
	write(t.Context())
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	write(gone)
	require.EqualValues(t, 1, count(t, reg, "millrace_audit_lost_total"))
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { write(t.Context()) })
	}
	close(gate)
	wg.Wait()
	require.NoError(t, l.Close())
	require.Len(t, lines(t, path), 22)
	write(t.Context()) // after Close: nowhere to go
	require.EqualValues(t, 2, count(t, reg, "millrace_audit_lost_total"))
}

// D3: a file that was moved away is made anew, and no line is lost by that.
func TestRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l, reg := open(t, audit.Options{Path: path})
	write := func() { l.Begin("1", "a", "http", "x").Write(t.Context(), "x") }
	written := func(n float64) {
		require.Eventually(t, func() bool { return count(t, reg, "millrace_audit_events_total") == n }, 10*time.Second, time.Millisecond)
	}
	write()
	written(1)
	require.NoError(t, os.Rename(path, path+".1"))
	write()
	written(2)
	require.Len(t, lines(t, path+".1"), 1)
	require.Len(t, lines(t, path), 1)
	require.NoError(t, l.Close())
}

// What cannot be written is told and counted, until it can.
func TestFailures(t *testing.T) {
	_, err := audit.Open(audit.Options{Path: filepath.Join(t.TempDir(), "no", "audit.jsonl"), Registerer: prometheus.NewRegistry()})
	require.ErrorContains(t, err, "audit log")

	fail := make(chan error, 10)
	l, reg := open(t, audit.Options{Sink: func(context.Context, []audit.Event) error { return <-fail }})
	fail <- errors.New("no room")
	l.Begin("1", "a", "http", "x").Write(t.Context(), "x")
	require.Eventually(t, func() bool { return l.Err() != nil }, 10*time.Second, time.Millisecond)
	require.ErrorContains(t, l.Err(), "no room")
	require.EqualValues(t, 1, count(t, reg, "millrace_audit_lost_total"))
	fail <- nil
	l.Begin("1", "a", "http", "x").Write(t.Context(), "x")
	require.Eventually(t, func() bool { return l.Err() == nil }, 10*time.Second, time.Millisecond)
	require.NoError(t, l.Close())
	require.EqualValues(t, 1, count(t, reg, "millrace_audit_failures_total"))
}
