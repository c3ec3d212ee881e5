package client

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/errs"
)

var abort = func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// What is safe to send again is sent again: reads after a broken connection and after "try again"; writes, which have a key then, the same each time (C1).
func TestRetries(t *testing.T) {
	busy := problem(503, "unavailable", "moving", nil)
	for name, try := range map[string]struct {
		answers []http.HandlerFunc
		call    func(*Table) error
		want    int
	}{
		"a read, twice refused": {[]http.HandlerFunc{busy, problem(429, "overloaded", "x", nil), answer(200, `{"count":1}`)}, count, 3},
		"a read, cut off":       {[]http.HandlerFunc{abort, answer(200, `{"count":1}`)}, count, 2},
		"a read, proxy fails":   {[]http.HandlerFunc{answer(502, ""), answer(200, `{"count":1}`)}, count, 2},
		"a scan, cut off":       {[]http.HandlerFunc{abort, answer(200, `{"table_id":1,"rows":[]}`)}, scan, 2},
		"a write, refused":      {[]http.HandlerFunc{busy, answer(200, writeAnswer)}, write, 2},
		"a write, cut off":      {[]http.HandlerFunc{abort, answer(200, writeAnswer)}, write, 2},
		"a write, unknown":      {[]http.HandlerFunc{problem(504, "unknown_outcome", "x", nil), answer(200, writeAnswer)}, write, 2},
		"a write, proxy fails":  {[]http.HandlerFunc{answer(502, ""), answer(503, ""), answer(200, writeAnswer)}, write, 3},
		"a write, partly taken": {[]http.HandlerFunc{problem(503, "draining", "x", map[string]any{"accepted": 1}), answer(200, writeAnswer)}, write, 2},
		"a write, still going":  {[]http.HandlerFunc{problem(409, "idempotency_in_progress", "x", nil), answer(200, writeAnswer)}, write, 2},
		"a numbered write":      {[]http.HandlerFunc{abort, problem(504, "unknown_outcome", "x", nil), answer(200, writeAnswer)}, writeNumbered, 3},
		"a row":                 {[]http.HandlerFunc{abort, answer(200, writeAnswer)}, writeRow, 2},
		"a stream made again":   {[]http.HandlerFunc{problem(504, "unknown_outcome", "x", map[string]any{"accepted": 1}), answer(200, writeAnswer)}, writeStreamAgain, 2},
	} {
		f, c := newFake(t, try.answers...)
		require.NoError(t, try.call(table(t, c, "a.b")), name)
		require.Len(t, f.all(), try.want, name)
		for _, r := range f.all() {
			require.Equal(t, f.all()[0].body, r.body, name)
			require.Equal(t, f.all()[0].header.Get("Idempotency-Key"), r.header.Get("Idempotency-Key"), name)
		}
		if strings.HasPrefix(name, "a write") {
			require.NotEmpty(t, f.all()[0].header.Get("Idempotency-Key"), name)
		}
	}
}

// What is not safe, or does not help, is sent once, and the error says what is known (C1).
func TestNoRetry(t *testing.T) {
	for name, try := range map[string]struct {
		answer http.HandlerFunc
		call   func(*Table) error
		want   errs.Code
	}{
		"a stream, cut off":           {abort, writeStream, errs.UnknownOutcome},
		"a stream, proxy fails":       {answer(502, ""), writeStream, errs.Unavailable},
		"a stream, partly accepted":   {problem(503, "draining", "x", map[string]any{"accepted": 1}), writeStream, errs.Draining},
		"a stream, refused":           {problem(503, "unavailable", "x", nil), writeStream, errs.Unavailable},
		"a stream, outcome unknown":   {problem(504, "unknown_outcome", "x", nil), writeStream, errs.UnknownOutcome},
		"a key used for another":      {problem(422, "idempotency_key_reused", "x", nil), write, errs.IdempotencyKeyReused},
		"a number too late":           {problem(409, "out_of_order_sequence", "x", nil), writeNumbered, errs.OutOfOrderSequence},
		"a refusal that stays one":    {problem(422, "invalid_filter", "x", nil), count, errs.InvalidFilter},
		"a 429 that does not recover": {problem(429, "too_large", "x", nil), count, errs.TooLarge},
	} {
		f, c := newFake(t, try.answer)
		require.Equal(t, try.want, errs.CodeOf(try.call(table(t, c, "a.b"))), name)
		require.Len(t, f.all(), 1, name)
	}
}

// Retries are bounded in number, can be turned off, and keep the server's last word.
func TestRetriesAreBounded(t *testing.T) {
	f, _ := newFake(t, problem(503, "storage_full", "disk", nil))
	for retries, want := range map[int]int{2: 3, -1: 1} {
		f.requests = nil
		transport := &http.Transport{}
		c, err := New(Options{Server: f.URL, Retries: retries, HTTPClient: &http.Client{Transport: transport}})
		require.NoError(t, err)
		require.True(t, errs.Is(count(table(t, c, "a.b")), errs.StorageFull))
		require.Len(t, f.all(), want)
		f.requests = nil
		require.True(t, errs.Is(write(table(t, c, "a.b")), errs.StorageFull))
		require.Len(t, f.all(), want)
		require.Equal(t, want > 1, f.all()[0].header.Get("Idempotency-Key") != "", "a key is of use to who sends again")
		transport.CloseIdleConnections()
	}
}

// Retry-After is waited for, but not past the caller's patience, which is also what the server is told.
func TestRetryAfterAndDeadline(t *testing.T) {
	f, c := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "20")
		problem(429, "overloaded", "x", nil)(w, r)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	begin := time.Now()
	_, err := table(t, c, "a.b").Count(ctx, ReadRequest{})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(begin), 15*time.Second)
	require.Regexp(t, `^timeout=(1\d\d\d|2000)ms$`, f.only(t).query)
}

// A server that is not there is unavailable, for writes too: nothing was sent.
func TestNothingListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	c, err := New(Options{Server: addr, Retries: 1})
	require.NoError(t, err)
	err = write(table(t, c, "a.b"))
	require.True(t, errs.Is(err, errs.Unavailable), "%v", err)
	require.Contains(t, err.Error(), "cannot reach http://"+addr)
	require.Contains(t, err.Error(), "refused")
}

func count(t *Table) error {
	_, err := t.Count(context.Background(), ReadRequest{})
	return err
}

func scan(t *Table) error {
	_, err := t.ScanPage(context.Background(), ReadRequest{Limit: 3})
	return err
}

func write(t *Table) error {
	_, err := t.Write(context.Background(), []any{map[string]any{"id": 1}}, WriteOptions{})
	return err
}

func writeNumbered(t *Table) error {
	_, err := t.Write(context.Background(), []any{map[string]any{"id": 1}}, WriteOptions{WriterID: "w", WriterSeq: 3})
	return err
}

func writeRow(t *Table) error {
	_, err := t.Patch(context.Background(), Key{"id": 1}, map[string]any{"v": 1})
	return err
}

// body is one that cannot be read again.
func body() io.Reader { return io.MultiReader(strings.NewReader("{}\n")) }

func writeStream(t *Table) error {
	_, err := t.WriteNDJSON(context.Background(), body(), WriteOptions{})
	return err
}

func writeStreamAgain(t *Table) error {
	_, err := t.WriteNDJSON(context.Background(), body(), WriteOptions{Again: func() (io.ReadCloser, error) { return io.NopCloser(body()), nil }})
	return err
}
