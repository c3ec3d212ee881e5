package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The torture test is worth what its checkers find: each kind of fault, made up, is found, and what is right is not.
func TestTortureCheckersFindFaults(t *testing.T) {
	rows := func(w int, batches ...int) (out []appended) {
		for _, b := range batches {
			for i := range appendRows {
				out = append(out, appended{w, b*appendRows + i})
			}
		}
		return out
	}
	writer := func(fates ...fate) []*logWriter { return []*logWriter{{batches: fates}} }
	swapped := rows(0, 0)
	swapped[3], swapped[4] = swapped[4], swapped[3]
	for name, c := range map[string]struct {
		rows    []appended
		writers []*logWriter
		sum     tally
		halves  int
	}{
		"right":                       {rows(0, 0, 1), writer(done, done), tally{acknowledged: 2 * appendRows}, 0},
		"unknown and there":           {rows(0, 0), writer(unknown), tally{}, 0},
		"unknown and not there":       {nil, writer(unknown), tally{}, 0},
		"lost batch":                  {rows(0, 1), writer(done, done), tally{acknowledged: 2 * appendRows, lost: appendRows}, 0},
		"lost row":                    {rows(0, 0)[1:], writer(done), tally{acknowledged: appendRows, lost: 1}, 0},
		"batch twice":                 {rows(0, 0, 0), writer(done), tally{acknowledged: appendRows, doubled: appendRows}, 0},
		"rows in another order":       {swapped, writer(done), tally{acknowledged: appendRows, disordered: 1}, 0},
		"refused and there":           {rows(0, 0), writer(rejected), tally{uninvited: appendRows}, 0},
		"never sent":                  {rows(0, 0, 1), writer(done), tally{acknowledged: appendRows, uninvited: appendRows}, 0},
		"half of an unanswered batch": {rows(0, 0)[:5], writer(unknown), tally{}, 1},
	} {
		sum, problems := judge(c.rows, c.writers)
		require.Equal(t, c.sum, sum, name)
		require.Len(t, problems, c.halves, name)
	}

	type op struct {
		kind       byte
		value      int64
		o          fate
		begin, end int64
	}
	for name, c := range map[string]struct {
		ops   []op
		found bool
	}{
		"right":                      {[]op{{'w', 1, done, 0, 1}, {'r', 1, done, 2, 3}, {'d', 0, done, 4, 5}, {'r', 0, done, 6, 7}}, false},
		"unknown, seen":              {[]op{{'w', 1, unknown, 0, 1}, {'r', 1, done, 2, 3}}, false},
		"unknown, not seen":          {[]op{{'w', 1, unknown, 0, 1}, {'r', 0, done, 2, 3}}, false},
		"a write that is lost":       {[]op{{'w', 1, done, 0, 1}, {'r', 0, done, 2, 3}}, true},
		"a stale read":               {[]op{{'w', 1, done, 0, 1}, {'w', 2, done, 2, 3}, {'r', 1, done, 4, 5}}, true},
		"a refused write that shows": {[]op{{'w', 1, rejected, 0, 1}, {'r', 1, done, 2, 3}}, true},
		"a delete that comes back":   {[]op{{'w', 1, done, 0, 1}, {'d', 0, done, 2, 3}, {'r', 1, done, 4, 5}}, true},
		"a read that goes back":      {[]op{{'w', 1, done, 0, 1}, {'w', 2, unknown, 2, 3}, {'r', 2, done, 4, 5}, {'r', 1, done, 6, 7}}, true},
	} {
		h := newHistory()
		for i, o := range c.ops {
			before := len(h.ops)
			h.add(i, registerOp{key: 1, kind: o.kind, value: o.value}, o.begin*int64(time.Second), o.o, "")
			if len(h.ops) > before && o.o == done {
				h.ops[before].Return = o.end * int64(time.Second)
			}
		}
		require.Equal(t, c.found, len(h.violations()) > 0, name)
	}
}
