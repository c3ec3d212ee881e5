package router

import (
	"slices"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/segment"
)

// Rows of a shard elsewhere come as frames: its owner reads the parts of a plan that are
// of this shard, as it reads those of a ticket, and says with each frame where the part
// stands after it. What a frame holds is an Arrow message as the owner would send it to a
// client, and of each row what its reader may need: where it stands, when it was written,
// what it did, its key.

// Frame is rows of one part on their way to another process, or a part's place without.
type Frame struct {
	Part  int // among those that were asked for
	Place Place
	Stats Stats // of the whole read until now
	End   bool  // it is the last; More says whether there may be rows beyond its limit
	More  bool
	Idle  bool // there is nothing more at the moment, of a plan that follows its table

	// Of a frame with rows. Base to Micros are as in Chunk.
	Kind    FrameKind
	Rows    int
	Base    millrace.Offset
	Next    millrace.Offset
	High    millrace.Offset
	Micros  int64
	Message *segment.Message
	At      []Run                 // offsets in the log, or positions in the file of the lake
	Times   []Run                 // when each was written (µs), without steps
	Changes []millrace.ChangeType // nil: all are +I
	Keys    []byte                // of rows of state, one behind the other
	Ends    []int                 // where each of them ends
}

// Run is rows one after the other: First is of the first, each further one is one more;
// of times they are all the same.
type Run struct {
	First int64
	Rows  int
}

// FrameKind says what the rows of a frame are of.
type FrameKind uint8

// The kinds of frames.
const (
	NoRows FrameKind = iota
	LogRows
	StateRows
	LakeRows
	TailRows // what the log has on top of the lake
)

// Place is where a part stands.
type Place struct {
	Lake, Overlay, State bool // are to be read yet
	File                 int
	Row                  int64
	Tail                 millrace.Offset
	After                []byte
	Start                millrace.Offset
}

// placeOf is where a part stands.
func placeOf(pr *partReader) Place {
	return Place{Lake: pr.lake, Overlay: pr.Overlay, State: pr.state, File: pr.File, Row: pr.Row, Tail: pr.Tail, After: pr.After, Start: pr.Start}
}

func (p *Place) equal(q *Place) bool {
	return p.Lake == q.Lake && p.Overlay == q.Overlay && p.State == q.State && p.File == q.File && p.Row == q.Row &&
		p.Tail == q.Tail && p.Start == q.Start && string(p.After) == string(q.After)
}

// enter puts a part where a place says.
func (p *Part) enter(at *Place) {
	p.Lake, p.Overlay, p.State, p.File, p.Row = at.Lake, at.Overlay, at.State, at.File, at.Row
	p.Tail, p.After, p.Start = at.Tail, at.After, at.Start
}

// enter puts a reader's part there.
func (pr *partReader) enter(at *Place) {
	pr.lake, pr.Overlay, pr.state, pr.File, pr.Row = at.Lake, at.Overlay, at.State, at.File, at.Row
	pr.Tail, pr.After, pr.Start = at.Tail, at.After, at.Start
}

// Frames are what a Remote reads. They belong to one goroutine.
type Frames interface {
	// Next is the next frame; errs.NotOwner when the connection broke or the owner is no
	// owner any more: then the read can be asked for again, from where its parts stand.
	Next() (*Frame, error)
	Close() error
}

// check refuses a frame that does not fit itself, so that nothing of it leads astray.
func (f *Frame) check(parts int) error {
	bad := f.Part < 0 || f.Part >= parts || f.Rows < 0 || f.Kind > TailRows || (f.Kind != NoRows) != (f.Rows > 0) || (f.Rows > 0) != (f.Message != nil)
	if !bad && f.Rows > 0 {
		bad = f.Changes != nil && len(f.Changes) != f.Rows || f.Kind == StateRows && len(f.Ends) != f.Rows || f.Message.Rows != f.Rows
		if f.Kind == LogRows || f.Kind == TailRows || f.Kind == LakeRows {
			bad = bad || runRows(f.At) != f.Rows
		}
		if f.Kind == LogRows || f.Kind == TailRows {
			bad = bad || runRows(f.Times) != f.Rows
		}
		last := 0
		for _, e := range f.Ends {
			bad = bad || e < last || e > len(f.Keys)
			last = e
		}
	}
	if bad {
		return errs.New(errs.Internal, "a frame of another process does not fit itself")
	}
	return nil
}

func runRows(runs []Run) int {
	n := 0
	for _, r := range runs {
		if r.Rows <= 0 || n > 1<<32 {
			return -1
		}
		n += r.Rows
	}
	return n
}

// runAt is the value of row i; step is 1 of places, 0 of times.
func runAt(runs []Run, i int, step int64) int64 {
	for _, r := range runs {
		if i < r.Rows {
			return r.First + step*int64(i)
		}
		i -= r.Rows
	}
	return 0
}

// runsOf are n values as runs.
func runsOf(n int, step int64, value func(i int) int64) []Run {
	var out []Run
	for i := range n {
		v := value(i)
		if k := len(out) - 1; k >= 0 && v == out[k].First+step*int64(out[k].Rows) {
			out[k].Rows++
			continue
		}
		out = append(out, Run{First: v, Rows: 1})
	}
	return out
}

// cut leaves the first n rows of a frame: its part stands behind them. The message stays
// whole.
func (f *Frame) cut(n int) {
	f.Rows = n
	switch last := n - 1; f.Kind {
	case NoRows:
	case LogRows:
		f.Next = millrace.Offset(runAt(f.At, last, 1)) + 1
		f.Place.Start = f.Next
		f.Micros = runAt(f.Times, last, 0)
	case TailRows:
		f.Place.Overlay, f.Place.Tail = true, millrace.Offset(runAt(f.At, last, 1))+1
	case LakeRows:
		f.Place.Lake, f.Place.Row = true, runAt(f.At, last, 1)+1
	case StateRows:
		f.Place.State, f.Place.After = true, slices.Clone(f.key(last))
	}
}

// key is the key of a row of state.
func (f *Frame) key(i int) []byte {
	from := 0
	if i > 0 {
		from = f.Ends[i-1]
	}
	return f.Keys[from:f.Ends[i]]
}
