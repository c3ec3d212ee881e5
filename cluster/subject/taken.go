package subject

import (
	"encoding/binary"
	"sync"
)

const (
	// maxCallers bounds the callers whose calls an owner remembers in a term.
	maxCallers = 256
	// maxTaken bounds the calls that it remembers of each.
	maxTaken = 2048
	// maxKept is the longest answer that is kept: as long as those to writes are.
	maxKept = 256
)

// fate is what became of a call, as its owner tells. The values are what goes over the
// wire.
type fate byte

const (
	fateUnknown  fate = iota // too long ago to remember, or the answer was too long to keep
	fateUnderWay             // it will be answered
	fateAnswered
	fateNever // it did not come, and will not be done if it comes
)

// caller is who sends calls: a process, for as long as it goes by one term.
type caller uint64

// headLength is how long caller and number of a call are.
const headLength = 16

func appendHead(b []byte, from caller, n uint64) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b, uint64(from)), n)
}

// splitHead reads the head of a call, or of a question about one.
func splitHead(b []byte) (from caller, n uint64, rest []byte, ok bool) {
	if len(b) < headLength {
		return 0, 0, nil, false
	}
	return caller(binary.LittleEndian.Uint64(b)), binary.LittleEndian.Uint64(b[8:]), b[headLength:], true
}

// taken is which calls came in a term, so that a caller who hears nothing can ask. It
// goes by the callers' numbers and by no clock, so that it never says of a call that came
// that it did not: what it has forgotten it does not know.
type taken struct {
	mu     sync.Mutex
	turn   uint64
	of     map[caller]*callsOf
	forgot bool // that there were callers
}

// callsOf are the calls of one caller.
type callsOf struct {
	used  uint64 // the turn of the newest
	calls map[uint64]*takenCall
	order []uint64 // as they came
	below uint64   // those up to here are forgotten, but for those that are still there
}

type takenCall struct {
	fate   fate
	answer []byte
}

// begin notes that a call has come. False says that it must not be done: its caller was
// told so, or it has come before.
func (t *taken) begin(from caller, n uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.calls(from)
	if c.calls[n] != nil || n <= c.below {
		return false
	}
	c.add(n, fateUnderWay)
	return true
}

// end notes the answer to a call.
func (t *taken) end(from caller, n uint64, answer []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.of[from]
	if c == nil || c.calls[n] == nil {
		return
	}
	if len(answer) > maxKept {
		c.calls[n].fate = fateUnknown
		return
	}
	*c.calls[n] = takenCall{fateAnswered, answer}
}

// ask says what became of a call. From then on one that has not come will not be done.
func (t *taken) ask(from caller, n uint64) (fate, []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of[from] == nil && t.forgot {
		return fateUnknown, nil
	}
	c := t.calls(from)
	if call := c.calls[n]; call != nil {
		return call.fate, call.answer
	}
	if n <= c.below {
		return fateUnknown, nil
	}
	c.add(n, fateNever)
	return fateNever, nil
}

// calls are those of a caller; who has sent nothing for longest makes room.
// REQUIRES: t.mu is held.
func (t *taken) calls(from caller) *callsOf {
	t.turn++
	c := t.of[from]
	if c == nil {
		if len(t.of) >= maxCallers {
			oldest := from
			for other, o := range t.of {
				if oldest == from || o.used < t.of[oldest].used {
					oldest = other
				}
			}
			delete(t.of, oldest)
			t.forgot = true
		}
		if t.of == nil {
			t.of = map[caller]*callsOf{}
		}
		c = &callsOf{calls: map[uint64]*takenCall{}}
		t.of[from] = c
	}
	c.used = t.turn
	return c
}

func (c *callsOf) add(n uint64, is fate) {
	if len(c.order) >= maxTaken {
		c.below = max(c.below, c.order[0])
		delete(c.calls, c.order[0])
		c.order = c.order[1:]
	}
	c.calls[n] = &takenCall{fate: is}
	c.order = append(c.order, n)
}
