package storagetest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// Row is the values of a row, by column: nil, a bool, a number of Go or of Arrow for
// its type, or a string.
type Row []any

// Equal says whether two rows hold the same values, bit for bit, a NaN being a NaN.
func (r Row) Equal(o Row) bool { return slices.EqualFunc(r, o, same) }

// String is the row as text.
func (r Row) String() string {
	var b strings.Builder
	for i, v := range r {
		if i > 0 {
			b.WriteByte('|')
		}
		if s, ok := v.(string); ok && len(s) > 40 {
			fmt.Fprintf(&b, "%q…%d", s[:20], len(s))
			continue
		}
		fmt.Fprintf(&b, "%v", v)
	}
	return b.String()
}

// Change is a record of a changelog.
type Change struct {
	Type millrace.ChangeType
	Row  Row
}

// String is the change as text.
func (c Change) String() string { return c.Type.String() + " " + c.Row.String() }

// Equal says whether two changes are the same.
func (c Change) Equal(o Change) bool { return c.Type == o.Type && c.Row.Equal(o.Row) }

// Sequence numbers a write of a writer. Keys, whose names begin with k, have hashes.
type Sequence struct {
	Writer string
	Epoch  uint64
	Seq    uint64
	Hash   uint64
}

// Write is a batch of rows for one bucket.
type Write struct {
	Bucket uint16
	// Rows hold all columns; of a row that is deleted only the key counts.
	Rows []Row
	// Deletes says which rows are deletes, Absent which are written only when their key
	// is not there; nil when none is.
	Deletes, Absent []bool
	// IDs are what the column that is numbered gets in rows that are new.
	IDs []int64
	// Set says which columns a partial write names; nil for a whole one.
	Set    []bool
	Writer *Sequence
}

// Outcome is what a write must be answered with.
type Outcome struct {
	Start, End int64
	Duplicate  bool
	Code       errs.Code // when it is refused
}

// Bucket is the model of a bucket.
type Bucket struct {
	Log     []Change
	State   map[string]Row // of a keyed table, by Key
	writers map[string]*writer
	undo    []entry // what the write at hand changed in State
}

// entry is what stood in State; a nil row was not there.
type entry struct {
	key string
	row Row
}

type writer struct {
	epoch uint64
	taken []taken // the last 64, rising
}

type taken struct {
	seq        uint64
	start, end int64
	hash       uint64
}

// NewBucket is a bucket that was never written to.
func NewBucket() *Bucket {
	return &Bucket{State: map[string]Row{}, writers: map[string]*writer{}}
}

// Clone is a copy that goes its own way.
func (b *Bucket) Clone() *Bucket {
	c := &Bucket{Log: slices.Clip(b.Log), State: make(map[string]Row, len(b.State)), writers: map[string]*writer{}}
	maps.Copy(c.State, b.State)
	for k, w := range b.writers {
		c.writers[k] = &writer{epoch: w.epoch, taken: slices.Clone(w.taken)}
	}
	return c
}

// Write does what a write does, and says what it must be answered with.
func (b *Bucket) Write(t *Table, w *Write) Outcome {
	if w.Writer != nil {
		if out, done := b.known(w.Writer); done {
			return out
		}
	}
	out := Outcome{Start: int64(len(b.Log))}
	if out.Code = b.apply(t, w); out.Code != "" {
		b.Log = b.Log[:out.Start]
		b.revert()
		return Outcome{Code: out.Code}
	}
	out.End = int64(len(b.Log))
	if s := w.Writer; s != nil {
		wr := b.writers[s.Writer]
		if wr == nil {
			wr = &writer{}
			b.writers[s.Writer] = wr
		}
		wr.epoch = s.Epoch
		wr.taken = append(wr.taken, taken{s.Seq, out.Start, out.End, s.Hash})
		if len(wr.taken) > 64 {
			wr.taken = wr.taken[1:]
		}
	}
	return out
}

// refuse is what a bucket that takes no more answers: a batch that it has taken
// before is still known.
func (b *Bucket) refuse(w *Write, code errs.Code) Outcome {
	if w.Writer != nil {
		if out, done := b.known(w.Writer); done {
			return out
		}
	}
	return Outcome{Code: code}
}

// known decides about a number that is not the next one of its writer.
func (b *Bucket) known(s *Sequence) (Outcome, bool) {
	w := b.writers[s.Writer]
	switch {
	case w == nil:
		return Outcome{}, false
	case s.Epoch < w.epoch:
		return Outcome{Code: errs.WriterFenced}, true
	case s.Seq > w.taken[len(w.taken)-1].seq:
		return Outcome{}, false
	}
	for _, k := range w.taken {
		if k.seq == s.Seq && k.hash != s.Hash {
			return Outcome{Code: errs.IdempotencyKeyReused}, true
		}
		if k.seq == s.Seq {
			w.epoch = s.Epoch
			return Outcome{Start: k.start, End: k.end, Duplicate: true}, true
		}
	}
	if len(w.taken) == 64 && s.Seq < w.taken[0].seq {
		w.epoch = s.Epoch
		return Outcome{Start: -1, End: -1, Duplicate: true}, true
	}
	return Outcome{Code: errs.OutOfOrderSequence}, true
}

// Forget drops what is known of a writer.
func (b *Bucket) Forget(writer string) { delete(b.writers, writer) }

// LastSeq is the highest number taken from a writer, 0 at first.
func (b *Bucket) LastSeq(writer string) uint64 {
	if w := b.writers[writer]; w != nil {
		return w.taken[len(w.taken)-1].seq
	}
	return 0
}

// Fold is the state that the first n records of a changelog make.
func Fold(t *Table, log []Change) map[string]Row {
	state := map[string]Row{}
	for _, c := range log {
		switch c.Type {
		case millrace.Insert, millrace.UpdateAfter:
			state[t.Key(c.Row)] = c.Row
		case millrace.Delete:
			delete(state, t.Key(c.Row))
		case millrace.UpdateBefore:
		}
	}
	return state
}
