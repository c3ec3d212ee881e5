package e2e

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// key is the header of a request that may be sent again.
func key(k string) []string { return []string{"Idempotency-Key", k} }

// A batch with a key is written once, however often it is sent, and what is said is what was said the first time, marked
// as such; also after kill -9. Another body under the key is refused and writes nothing.
func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	db := newDB(t, s)
	for name, pk := range map[string]string{"log": "", "keyed": "id"} {
		tb := create(t, s, db, name, "id BIGINT, v BIGINT", pk, 3)
		post := func(v int, k string) answer {
			return s.do(t, "POST", tb.path()+"/records", recordsBody(fmt.Sprintf(`[{"id":1,"v":%d},{"id":2,"v":%d}]`, v, v)), key(k)...)
		}
		first := post(1, "a")
		require.Equal(t, 200, first.status, "%s", first.body)
		require.Empty(t, first.header.Get("Idempotent-Replayed"))
		require.NotContains(t, first.object(t), "replayed")
		for range 2 {
			again := post(1, "a")
			require.Equal(t, 200, again.status, "%s", again.body)
			require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
			o, want := again.object(t), first.object(t)
			require.Equal(t, "2", fmt.Sprint(o["replayed"]))
			delete(o, "replayed")
			require.Equal(t, want, o)
			post(2, "a").problem(t, 422, "idempotency_key_reused")
			s.kill()
			s.restart(t)
		}
		require.Len(t, tb.allChanges(t, "earliest"), 2)
		require.Equal(t, 200, post(1, "b").status, "another key is another write")
		require.Len(t, tb.allChanges(t, "earliest"), map[string]int{"log": 4, "keyed": 6}[name])
	}
}

// What is to be done with rows is part of a body; how it was packed, or how its errors are met, is not.
func TestIdempotencyKeyIsOfTheBody(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	tb := create(t, s, newDB(t, s), "t", "id BIGINT, v BIGINT", "id", 1)
	post := func(query, body string, more ...string) answer {
		return s.do(t, "POST", tb.path()+"/records"+query, body, append(key("k"), more...)...)
	}
	require.Equal(t, 200, post("", recordsBody(`[{"id":1,"v":2}]`)).status)
	require.Equal(t, "true", post("?on_error=continue", recordsBody(`[{"id":1,"v":2}]`)).header.Get("Idempotent-Replayed"))
	require.Equal(t, "true", post("", "{\"id\":1,\"v\":2}\n", "Content-Type", mediaNDJSON).header.Get("Idempotent-Replayed"))
	post("?mode=delete", recordsBody(`[{"id":1,"v":2}]`)).problem(t, 422, "idempotency_key_reused")
	post("?columns=id,v", recordsBody(`[{"id":1,"v":2}]`)).problem(t, 422, "idempotency_key_reused")
	post("", recordsBody(`[{"v":2,"id":1}]`)).problem(t, 422, "idempotency_key_reused")
	require.Len(t, tb.allChanges(t, "earliest"), 1)
}

// Rows are put, patched and deleted once under a key.
func TestIdempotencyKeyOfARow(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	tb := create(t, s, newDB(t, s), "t", "id BIGINT, v BIGINT, w BIGINT", "id", 2)
	for _, path := range []string{"/rows/1", "/rows?pk.id=1"} {
		changes := len(tb.allChanges(t, "earliest"))
		k := strings.NewReplacer("/", "-", "?", "-").Replace(path)
		put := func() answer { return s.do(t, "PUT", tb.path()+path, `{"v":1}`, key("put"+k)...) }
		patch := func(v int) answer {
			return s.do(t, "PATCH", tb.path()+path, fmt.Sprintf(`{"v":%d}`, v), key("patch"+k)...)
		}
		remove := func() answer { return s.do(t, "DELETE", tb.path()+path, "", key("delete"+k)...) }
		require.Equal(t, 200, put().status)
		require.Equal(t, 200, patch(2).status)
		require.Equal(t, "true", put().header.Get("Idempotent-Replayed"))
		require.Equal(t, 200, remove().status)
		for range 2 {
			require.Equal(t, "true", put().header.Get("Idempotent-Replayed"))
			require.Equal(t, "true", patch(2).header.Get("Idempotent-Replayed"))
			require.Equal(t, "true", remove().header.Get("Idempotent-Replayed"))
			patch(3).problem(t, 422, "idempotency_key_reused")
			s.do(t, "PUT", tb.path()+path, `{"v":1}`, key("delete"+k)...).problem(t, 422, "idempotency_key_reused")
			s.kill()
			s.restart(t)
		}
		require.Len(t, tb.allChanges(t, "earliest"), changes+4)
		require.Equal(t, "0", tb.count(t, ""))
	}
}

// A streamed body that kill -9 cuts off is sent again unchanged, and every line is there once, in order; so it is when it
// has more chunks than a bucket remembers.
func TestIdempotencyKeyOfALongBody(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	tb := create(t, s, newDB(t, s), "t", "id BIGINT", "", 1)
	const lines = 695_000
	var b strings.Builder
	for i := range lines {
		fmt.Fprintf(&b, "{\"id\":%d}\n", i)
	}
	body := b.String()
	headers := append(key("load"), "Content-Type", mediaNDJSON)
	r, w := io.Pipe()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		a, err := s.send("POST", tb.path()+"/records", io.Reader(r), headers...)
		if err == nil {
			t.Errorf("a body without an end was answered: %d %s", a.status, a.body)
		}
	}()
	_, err := io.WriteString(w, body[:len(body)*98/100])
	require.NoError(t, err)
	require.Eventually(t, func() bool { return tb.count(t, "") == "680000" }, patience, 10*time.Millisecond)
	s.do(t, "POST", tb.path()+"/records", body[:100], headers...).problem(t, 409, "idempotency_in_progress")
	s.kill()
	w.CloseWithError(io.ErrUnexpectedEOF)
	<-sent
	s.restart(t)
	for i := range 2 {
		a := s.do(t, "POST", tb.path()+"/records", body, headers...)
		require.Equal(t, 200, a.status, "%s", a.body)
		o := a.object(t)
		require.Equal(t, fmt.Sprint(lines), fmt.Sprint(o["accepted"]))
		require.Equal(t, []string{"680000", fmt.Sprint(lines)}[i], fmt.Sprint(o["replayed"]))
		require.Equal(t, []string{"", "true"}[i], a.header.Get("Idempotent-Replayed"))
	}
	require.Equal(t, fmt.Sprint(lines), tb.count(t, ""))
	require.Equal(t, "10000", tb.count(t, "id >= 250000 AND id < 260000"))
}

// A body that stopped at a bad chunk stops there again, and goes on from there when the row is mended, under the same key.
func TestIdempotencyKeyAfterABadChunk(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	tb := create(t, s, newDB(t, s), "t", "id BIGINT, v INT", "id", 4)
	lines := func(bad string) string {
		var b strings.Builder
		for i := range 25_000 {
			v := fmt.Sprint(i)
			if i == 15_000 {
				v = bad
			}
			fmt.Fprintf(&b, "{\"id\":%d,\"v\":%s}\n", i, v)
		}
		return b.String()
	}
	headers := append(key("load"), "Content-Type", mediaNDJSON)
	for i := range 2 {
		p := s.do(t, "POST", tb.path()+"/records", lines(`"x"`), headers...).problem(t, 422, "invalid_value")
		require.Equal(t, "10000", fmt.Sprint(*p.Accepted))
		require.EqualValues(t, []int64{0, 10000}[i], p.Replayed)
		require.Equal(t, "10000", tb.count(t, ""))
	}
	o := s.ok(t, "POST", tb.path()+"/records", lines("1"), headers...)
	require.Equal(t, "25000", fmt.Sprint(o["accepted"]))
	require.Equal(t, "10000", fmt.Sprint(o["replayed"]))
	require.Len(t, tb.allChanges(t, "earliest"), 25_000)
	s.do(t, "POST", tb.path()+"/records", lines("2"), headers...).problem(t, 422, "idempotency_key_reused")
}

// A key has 1 to 255 visible ASCII characters, and does not go with a writer's number; nothing is written then.
func TestBadIdempotencyKeys(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	tb := create(t, s, newDB(t, s), "t", "id BIGINT", "id", 1)
	for _, k := range []string{"", "a b", "a\tb", "naïve", strings.Repeat("x", 256)} {
		for _, r := range [][]string{{"POST", "/records", recordsBody(`[{"id":1}]`)}, {"PUT", "/rows/1", `{}`}, {"DELETE", "/rows/1", ""}} {
			s.do(t, r[0], tb.path()+r[1], r[2], key(k)...).problem(t, 422, "invalid_value")
		}
	}
	for _, h := range []string{"X-Writer-Id", "X-Writer-Seq", "X-Writer-Epoch"} {
		s.do(t, "POST", tb.path()+"/records", recordsBody(`[{"id":1}]`), append(key("k"), h, "1")...).problem(t, 400, "invalid_request")
	}
	require.Equal(t, "0", tb.count(t, ""))
	s.ok(t, "POST", tb.path()+"/records", recordsBody(`[{"id":1}]`), key(strings.Repeat("~", 255))...)
	require.Equal(t, "1", tb.count(t, ""))
}
