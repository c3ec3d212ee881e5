package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
)

// history is what clients asked of registers, one a key, and were told: absent is 0, each write writes another number.
type history struct {
	began time.Time
	value atomic.Int64

	mu    sync.Mutex
	ops   []porcupine.Operation
	keys  map[int64]bool
	read  map[int64]bool // numbers that somebody saw
	gaps  gaps
	wrong []string
	count map[fate]int
}

// registerOp is an operation on a register, and the number that was written or read.
type registerOp struct {
	key   int64
	kind  byte // 'r', 'w', 'd'
	value int64
	done  bool
}

func newHistory() *history {
	return &history{began: time.Now(), keys: map[int64]bool{}, read: map[int64]bool{}, count: map[fate]int{}}
}

var registers = porcupine.Model{
	Init: func() any { return int64(0) },
	Step: func(state, input, _ any) (bool, any) {
		op := input.(registerOp)
		switch op.kind {
		case 'w':
			return true, op.value
		case 'd':
			return true, int64(0)
		default:
			return state.(int64) == op.value, state
		}
	},
	DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%+v", input) },
}

// add notes an operation. What was refused must have no effect, so it is left out: a read of its number is wrong then.
func (h *history) add(client int, op registerOp, call int64, o fate, why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.count[o]++
	h.keys[op.key] = true
	ret := int64(time.Since(h.began))
	switch o {
	case done:
		if client < islander {
			h.gaps.passed(client)
		}
		if op.kind == 'r' && op.value != 0 {
			h.read[op.value] = true
		}
	case unknown:
		if op.kind == 'r' {
			return
		}
		ret = math.MaxInt64
	case rejected:
		return
	case wrong:
		h.wrong = append(h.wrong, why)
		return
	}
	op.done = o == done
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: op, Call: call, Return: ret})
}

// check has porcupine say whether, key by key, all of it could have happened one after the other.
func (h *history) check(t testing.TB) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	require.Empty(t, h.wrong, "answers that no fault explains")
	for _, v := range h.violations() {
		t.Error(v)
	}
}

// violations are the histories of keys that cannot have happened.
// REQUIRES: h.mu is held.
func (h *history) violations() []string {
	byKey := map[int64][]porcupine.Operation{}
	for _, o := range h.ops {
		op := o.Input.(registerOp)
		// What nobody ever saw may be thought to happen after everything else.
		if op.kind == 'w' && !op.done && !h.read[op.value] {
			continue
		}
		byKey[op.key] = append(byKey[op.key], o)
	}
	var out []string
	for key, ops := range byKey {
		switch porcupine.CheckOperationsTimeout(registers, ops, time.Minute) {
		case porcupine.Ok:
		case porcupine.Illegal:
			var all strings.Builder
			for _, o := range ops {
				fmt.Fprintf(&all, "%8.3f–%8.3f client %d %+v\n", float64(o.Call)/1e9, float64(o.Return)/1e9, o.ClientId, o.Input)
			}
			out = append(out, fmt.Sprintf("key %d is not linearizable:\n%s", key, all.String()))
		case porcupine.Unknown:
			out = append(out, fmt.Sprintf("key %d: porcupine came to no end with %d operations", key, len(ops)))
		}
	}
	return out
}

// client upserts, deletes and looks up keys through any front until the context ends. The keys change every 20 s, so
// that no history gets long; those before are looked up at the end.
func (h *history) client(ctx context.Context, n int, doors []string, path string, random *rand.Rand) {
	c := &http.Client{Timeout: 45 * time.Second, Transport: &http.Transport{DisableCompression: true}}
	defer c.CloseIdleConnections()
	h.mu.Lock()
	h.gaps.passed(n)
	h.mu.Unlock()
	for ctx.Err() == nil {
		base := doors[random.IntN(len(doors))] + path
		key := int64(time.Since(h.began)/(20*time.Second))*100 + int64(random.IntN(24))
		call := int64(time.Since(h.began))
		switch r := random.IntN(100); {
		case r < 45:
			op := registerOp{key: key, kind: 'w', value: h.value.Add(1)}
			a, err := ask(c, "PUT", fmt.Sprintf("%s/rows/%d", base, key), fmt.Sprintf(`{"v":%d}`, op.value))
			o, why := fateOf(a, err)
			h.add(n, op, call, o, why)
		case r < 50:
			a, err := ask(c, "DELETE", fmt.Sprintf("%s/rows/%d", base, key), nil)
			o, why := fateOf(a, err)
			h.add(n, registerOp{key: key, kind: 'd'}, call, o, why)
		default:
			h.lookup(c, n, base, []int64{key})
		}
		time.Sleep(time.Duration(random.IntN(30)) * time.Millisecond)
	}
}

// lookup asks for keys, all of them at once.
func (h *history) lookup(c *http.Client, client int, base string, keys []int64) fate {
	call := int64(time.Since(h.began))
	var body []string
	for _, k := range keys {
		body = append(body, fmt.Sprintf(`{"id":%d}`, k))
	}
	a, err := ask(c, "POST", base+"/lookup", `{"keys":[`+strings.Join(body, ",")+`]}`)
	o, why := fateOf(a, err)
	var got struct {
		Rows []*struct{ ID, V int64 }
	}
	if o == done {
		if err := json.Unmarshal(a.body, &got); err != nil || len(got.Rows) != len(keys) {
			o, why = wrong, string(a.body)
		}
	}
	for i, k := range keys {
		op := registerOp{key: k, kind: 'r'}
		if o == done && got.Rows[i] != nil {
			op.value = got.Rows[i].V
		}
		h.add(client, op, call, o, why)
	}
	return o
}

// readAll looks up every key that was ever used, when all is well again.
func (h *history) readAll(t testing.TB, door, path string) {
	t.Helper()
	h.mu.Lock()
	var keys []int64
	for k := range h.keys {
		keys = append(keys, k)
	}
	h.mu.Unlock()
	c := &http.Client{Timeout: 45 * time.Second}
	for len(keys) > 0 {
		n := min(len(keys), 50)
		require.Equal(t, done, h.lookup(c, -1, door+path, keys[:n]), "a lookup when all is well")
		keys = keys[n:]
	}
}

// gaps are the longest times in which clients got nothing done.
type gaps struct {
	last    map[int]time.Time
	longest time.Duration
	at      time.Time // when the longest ended
}

func (g *gaps) passed(client int) {
	now := time.Now()
	if last, ok := g.last[client]; ok {
		if d := now.Sub(last); d > g.longest {
			g.longest, g.at = d, now
		}
	} else if g.last == nil {
		g.last = map[int]time.Time{}
	}
	g.last[client] = now
}
