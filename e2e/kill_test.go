package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// ledger is what one writer knows of its batches, of five rows each, by number: which were sent, and which acknowledged.
type ledger struct{ acked []bool }

const perBatch = 5

// next is the batch that a writer sends: a numbered one goes on with the lowest that has no answer, another never sends
// a batch again.
func (l *ledger) next(numbered bool) int {
	if numbered {
		if i := slices.Index(l.acked, false); i >= 0 {
			return i
		}
	}
	return len(l.acked)
}

func (l *ledger) send(batch int) {
	if batch == len(l.acked) {
		l.acked = append(l.acked, false)
	}
}

// killRounds is how often the loop kills: 10 in CI, more on demand.
func killRounds() int { return setting("E2E_KILLS", 10) }

// killLoop runs work in several writers, kills the server at a random moment, starts it again and checks, again and
// again. work runs until the server is gone; a writer is run by one goroutine at a time.
func killLoop(t *testing.T, s *server, writers int, work func(writer int), check func()) {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	for round := range killRounds() {
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() { work(w) })
		}
		time.Sleep(time.Duration(20+random.IntN(400)) * time.Millisecond)
		s.kill()
		wg.Wait()
		start := time.Now()
		s.restart(t)
		t.Logf("round %d: back after %v", round, time.Since(start).Round(time.Millisecond))
		check()
		require.False(t, t.Failed())
	}
}

func rowsJSON(writer, from int) string {
	b := []byte("[")
	for i := from; i < from+perBatch; i++ {
		b = fmt.Appendf(b, `{"w":%d,"n":%d},`, writer, i)
	}
	b[len(b)-1] = ']'
	return string(b)
}

// A log table that is written through REST and DoPut, with and without writer sequences, while the server is killed
// again and again: every acknowledged row is there once and in order; what was under way is there at most once.
func TestKillLogTable(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	tb := create(t, s, newDB(t, s), "t", "w BIGINT, n BIGINT", "", 4, obj{"bucket_key": []string{"w"}})
	const writers = 6
	var books [writers]ledger
	work := func(w int) {
		switch {
		case w < 4:
			postUntilGone(t, tb, w, &books[w], w%2 == 0)
		default:
			putUntilGone(t, tb, w, &books[w])
		}
	}
	check := func() {
		seen := make([]map[int]int, writers)
		last := make([]int, writers)
		for w := range writers {
			seen[w], last[w] = map[int]int{}, -1
		}
		changes := tb.allChanges(t, "earliest")
		for _, c := range changes {
			var r struct{ W, N int }
			require.NoError(t, json.Unmarshal([]byte(c.Row), &r))
			seen[r.W][r.N]++
			require.Less(t, last[r.W], r.N, "writer %d's rows, all in one bucket, are in order and none is doubled", r.W)
			require.Less(t, r.N, len(books[r.W].acked)*perBatch, "a row that was never sent")
			last[r.W] = r.N
		}
		for w := range books {
			for batch, acked := range books[w].acked {
				got := 0
				for n := batch * perBatch; n < (batch+1)*perBatch; n++ {
					got += seen[w][n]
				}
				require.True(t, got == perBatch || got == 0 && !acked, "writer %d, batch %d, acknowledged %v: %d of its rows are there", w, batch, acked, got)
			}
		}
		require.Equal(t, fmt.Sprint(len(changes)), tb.count(t, ""))
	}
	killLoop(t, s, writers, work, check)
	for w := range books {
		require.Contains(t, books[w].acked, true, "writer %d wrote", w)
	}
}

// postUntilGone posts batches; a numbered one that had no answer is sent again unchanged.
func postUntilGone(t *testing.T, tb table, w int, book *ledger, numbered bool) {
	for {
		batch := book.next(numbered)
		book.send(batch)
		var headers []string
		if numbered {
			headers = []string{"X-Writer-Id", fmt.Sprint("w", w), "X-Writer-Seq", fmt.Sprint(batch + 1)}
		}
		a, err := tb.s.send("POST", tb.path()+"/records", recordsBody(rowsJSON(w, batch*perBatch)), headers...)
		if err != nil {
			return
		}
		if a.status != http.StatusOK {
			t.Errorf("writer %d: %d %s", w, a.status, a.body)
			return
		}
		book.acked[batch] = true
	}
}

// putUntilGone streams numbered batches through DoPut and keeps at most eight of them unacknowledged.
func putUntilGone(t *testing.T, tb table, w int, book *ledger) {
	c := tb.s.dial(t)
	defer c.close()
	p, err := c.put(t.Context(), command(t, obj{"op": "put", "table": tb.full(), "writer_id": fmt.Sprint("w", w), "acks": "stream"}), schemaOf("w long, n long"))
	if err != nil {
		return
	}
	var mu sync.Mutex
	next := book.next(true)
	acked, gone := next, false // batches below acked are acknowledged
	moved := sync.NewCond(&mu)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			a, err := p.ack()
			mu.Lock()
			acked, gone = max(acked, int(a.AckSeq)), err != nil
			moved.Broadcast()
			mu.Unlock()
			if err != nil {
				return
			}
		}
	})
	for ; ; next++ {
		mu.Lock()
		for next-acked >= 8 && !gone {
			moved.Wait()
		}
		stop := gone
		mu.Unlock()
		if stop {
			break
		}
		book.send(next)
		rec := longs("w,n", perBatch, func(i, col int) int64 { return []int64{int64(w), int64(next*perBatch + i)}[col] })
		if p.send(rec, fmt.Sprintf(`{"seq":%d}`, next+1)) != nil {
			break // the stream is gone
		}
	}
	p.cancel()
	wg.Wait()
	for batch := range acked {
		book.acked[batch] = true
	}
}

// A keyed table under the same treatment: each key's writer raises its value by one a write. What was acknowledged is
// what lookups say, the changelog folds to the state without a gap, and a value never goes back.
func TestKillKeyedTable(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	tb := create(t, s, newDB(t, s), "t", "id BIGINT, v BIGINT", "id", 4)
	const writers = 6
	var books [writers]struct{ sent, acked int }
	work := func(w int) {
		for {
			v := books[w].acked + 1
			books[w].sent = v
			var err error
			headers := []string{"X-Writer-Id", fmt.Sprint("k", w), "X-Writer-Seq", fmt.Sprint(v)}
			if w%2 == 0 {
				// Several keys of one writer go to several buckets in one batch.
				rows := fmt.Sprintf(`[{"id":%d,"v":%d},{"id":%d,"v":%d},{"id":%d,"v":%d}]`, w, v, w+100, v, w+200, v)
				var a answer
				if a, err = s.send("POST", tb.path()+"/records", recordsBody(rows), headers...); err == nil && a.status != 200 {
					t.Errorf("writer %d: %d %s", w, a.status, a.body)
					return
				}
			} else {
				var a answer
				if a, err = s.send("PUT", fmt.Sprintf("%s/rows/%d", tb.path(), w), fmt.Sprintf(`{"v":%d}`, v), headers...); err == nil && a.status != 200 {
					t.Errorf("writer %d: %d %s", w, a.status, a.body)
					return
				}
			}
			if err != nil {
				return
			}
			books[w].acked = v
		}
	}
	check := func() {
		f := fold{}
		for _, c := range tb.allChanges(t, "earliest") {
			var r struct{ ID, V int64 }
			require.NoError(t, json.Unmarshal([]byte(c.Row), &r))
			if c.Type == "+U" || c.Type == "+I" {
				if b := books[r.ID%100]; r.V > int64(b.sent) {
					t.Fatalf("key %d has %d, which was never sent", r.ID, r.V)
				}
			}
			if c.Type == "-U" {
				require.Equal(t, f[r.ID], r.V)
			}
			require.NoError(t, f.apply(c.Type, r.ID, r.V))
		}
		require.True(t, same(f, stateOf(t, tb)), "the changelog folds to the state")
		for w, b := range books {
			for id := int64(w); id <= int64(w+200); id += 100 {
				if w%2 == 1 && id != int64(w) {
					continue
				}
				require.GreaterOrEqual(t, f[id], int64(b.acked), "key %d", id)
				require.LessOrEqual(t, f[id], int64(b.sent), "key %d", id)
				if f[id] > 0 {
					require.Equal(t, []string{fmt.Sprintf(`{"id":%d,"v":%d}`, id, f[id])}, tb.lookup(t, fmt.Sprintf(`[{"id":%d}]`, id)))
				}
			}
		}
	}
	killLoop(t, s, writers, work, check)
}
