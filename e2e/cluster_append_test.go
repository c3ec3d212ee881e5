package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// appendRows is how many rows a batch of a writer has.
const appendRows = 20

// logWriter is one writer of a log table, whose rows are all in one bucket, and what it knows of its batches.
type logWriter struct {
	n        int
	kind     string // "sequence", "key" or "plain"
	batches  []fate // a plain one's; of the others, all that are not the last are done
	resent   int
	mu       sync.Mutex
	gaps     gaps
	problems []string
}

func (a *logWriter) body(batch int) string {
	var b strings.Builder
	for i := range appendRows {
		fmt.Fprintf(&b, "{\"w\":%d,\"n\":%d}\n", a.n, batch*appendRows+i)
	}
	return b.String()
}

// run appends until the context ends. A writer that numbers its batches, or gives them keys, sends one again through
// any front until it is acknowledged; a plain one never does.
func (a *logWriter) run(ctx context.Context, doors []string, path string, random *rand.Rand) {
	c := &http.Client{Timeout: 45 * time.Second}
	defer c.CloseIdleConnections()
	a.passed()
	for ctx.Err() == nil {
		batch := len(a.batches)
		headers := []string{"Content-Type", mediaNDJSON}
		switch a.kind {
		case "sequence":
			headers = append(headers, "X-Writer-Id", fmt.Sprint("w", a.n), "X-Writer-Seq", fmt.Sprint(batch+1))
		case "key":
			headers = append(headers, "Idempotency-Key", fmt.Sprintf("w%d-%d", a.n, batch))
		}
		o := unknown
		for tries := 0; ctx.Err() == nil; tries++ {
			answer, err := ask(c, "POST", doors[random.IntN(len(doors))]+path+"/records", a.body(batch), headers...)
			var why string
			o, why = fateOf(answer, err)
			if o == wrong && a.kind == "key" && strings.Contains(why, `"idempotency_in_progress"`) {
				o = unknown // the one before it is still under way at another front
			}
			if o == wrong {
				a.problems = append(a.problems, why)
			}
			if o == done || a.kind == "plain" || o == wrong {
				break
			}
			a.resent++
			time.Sleep(50 * time.Millisecond)
		}
		a.batches = append(a.batches, o)
		if o == done {
			a.passed()
		}
		if o == wrong || o != done && a.kind != "plain" {
			return
		}
		time.Sleep(time.Duration(random.IntN(40)) * time.Millisecond)
	}
}

func (a *logWriter) passed() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gaps.passed(a.n)
}

// tally is what was found of the rows that were sent.
type tally struct{ acknowledged, lost, doubled, disordered, uninvited int }

// appended is a row of a log that logWriters wrote.
type appended struct{ W, N int }

// checkAppended compares what appenders know with what is there.
func checkAppended(t testing.TB, door, path string, appenders []*logWriter) tally {
	t.Helper()
	sum, problems := judge(readAppended(t, door, path), appenders)
	for _, p := range problems {
		t.Error(p)
	}
	return sum
}

// readAppended is the whole log, in the order of each bucket.
func readAppended(t testing.TB, door, path string) []appended {
	t.Helper()
	var rows []appended
	c := &http.Client{Timeout: time.Minute}
	for from := "earliest"; ; {
		a, err := ask(c, "GET", door+path+"/changelog?until=latest&limit=10000&from="+url.QueryEscape(from), nil, "Accept", mediaJSON)
		require.NoError(t, err)
		require.Equal(t, 200, a.status, "%s", a.body)
		var page struct{ Rows []appended }
		require.NoError(t, json.Unmarshal(a.body, &page))
		if len(page.Rows) == 0 {
			return rows
		}
		rows = append(rows, page.Rows...)
		from = fmt.Sprint(a.object(t)["next"])
	}
}

// judge says what of the rows is not as their writers were told.
func judge(rows []appended, writers []*logWriter) (sum tally, problems []string) {
	seen, last := make([]map[int]int, len(writers)), make([]int, len(writers))
	for w := range writers {
		seen[w], last[w] = map[int]int{}, -1
	}
	for _, r := range rows {
		seen[r.W][r.N]++
		switch {
		case seen[r.W][r.N] > 1:
			sum.doubled++
		case r.N <= last[r.W]:
			sum.disordered++
		}
		last[r.W] = max(last[r.W], r.N)
	}
	for w, a := range writers {
		for _, p := range a.problems {
			problems = append(problems, fmt.Sprintf("writer %d: an answer that no fault explains: %s", w, p))
		}
		for batch, o := range a.batches {
			there := 0
			for i := range appendRows {
				there += min(seen[w][batch*appendRows+i], 1)
				delete(seen[w], batch*appendRows+i)
			}
			switch o {
			case done:
				sum.acknowledged += appendRows
				sum.lost += appendRows - there
			case rejected, wrong:
				sum.uninvited += there
			case unknown:
				if there != 0 && there != appendRows {
					problems = append(problems, fmt.Sprintf("writer %d: %d rows of batch %d are there", w, there, batch))
				}
			}
		}
		sum.uninvited += len(seen[w])
	}
	return sum, problems
}
