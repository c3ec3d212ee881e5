package shard

import (
	"cmp"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/kv"
	"github.com/millrace/millrace/storage/segment"
	"github.com/millrace/millrace/storage/wal"
)

// Bounds of a group: what goes into one append to the log.
const (
	maxGroupBytes = 4 << 20
	maxGroupOps   = 8192
	// An entry takes further ops while it is below this.
	joinEntryBytes = 2 << 20
	// A rows payload is cut near this size, between records (never between a -U
	// and its +U), so that stored batches stay small.
	rowsPayloadBytes = 1 << 20
	// What a record takes in a rows payload besides its row, at most.
	recordOverhead = 8
)

// group is what one append to the log holds, from its preparation until it is
// applied or dropped. Only the shard's loop touches it.
type group struct {
	entries []wal.Entry
	parts   []*part
	opens   []*openEntry
	endings []ending
	learned []learned
	trims   []*trimEntry
	byID    map[millrace.BucketID]*part // the part that further ops of a bucket join
	answers []answer
	// rows holds the state after this group, by store key; a nil row is a deleted one.
	rows    map[string][]byte
	writers map[writerRef]*kv.Writer
	bytes   int // of the log
}

type writerRef struct {
	bucket millrace.BucketID
	scope  string
}

// answer is an op waiting for its group.
type answer struct {
	to     *pending
	result Result
}

// part is what a group adds to one bucket: one data entry.
type part struct {
	b     *bucketState
	entry dataEntry
	puts  []put
	// rowsDelta is how many rows of keyed state were added less those removed.
	rowsDelta int64
	bytes     int             // of the entry, about
	next      millrace.Offset // the offset after the last record

	// Rows gathered for the payload that is being filled.
	changes []millrace.ChangeType
	rows    [][]byte
	size    int
}

type put struct {
	storeKey string
	row      []byte // nil: delete
}

func newGroup() *group {
	return &group{
		byID:    map[millrace.BucketID]*part{},
		rows:    map[string][]byte{},
		writers: map[writerRef]*kv.Writer{},
	}
}

func (g *group) empty() bool { return len(g.answers) == 0 }

// full says whether a group takes no more.
func (g *group) full() bool {
	return g.bytes >= maxGroupBytes || len(g.answers) >= maxGroupOps
}

// prepare adds an op to the group, or answers it at once when it is refused; then
// it leaves nothing. An op that repeats an earlier batch, or changes nothing, is
// answered with the group, since what it stands on may still be in flight.
func (s *Shard) prepare(g *group, p *pending) {
	if err := p.op.inLine(); err != nil {
		p.answer(Result{}, err)
		return
	}
	res, err := s.prepareOp(g, p.op)
	if err != nil {
		p.answer(Result{}, cmp.Or(s.lapsed(), err)) // what refuses it may be out of date
		return
	}
	g.answers = append(g.answers, answer{to: p, result: res})
	if p.decided != nil {
		close(p.decided)
	}
}

func (s *Shard) prepareOp(g *group, op *Op) (Result, error) {
	if w := op.Writer; op.Table.Keyed() != (op.Keys != nil) || w != nil && isKey(w.Scope) != (w.Hash != 0) {
		return Result{}, errs.New(errs.Internal, "shard: an op of table %s does not fit its kind or writer", op.Table.Path)
	}
	b, open, err := s.bucketFor(g, op)
	if err != nil {
		return Result{}, err
	}
	s.expiry.tell(op.Table)
	if op, err = b.adopt(op); err != nil {
		return Result{}, err
	}
	var w *kv.Writer
	if op.Writer != nil {
		if w, err = s.writer(g, op.Bucket, op.Writer.Scope); err != nil {
			return Result{}, err
		}
		dup, err := admit(w, op.Writer)
		if err != nil {
			return Result{}, err
		}
		if dup != nil {
			if op.Writer.Epoch > w.Epoch {
				s.raiseEpoch(g, b, op.Writer, w)
			}
			return *dup, nil
		}
	}
	// Only now: a batch that was taken before the seal is answered as ever.
	if err := s.sealedError(g, op); err != nil {
		return Result{}, err
	}
	var changes []change
	if op.Keys != nil {
		if changes, err = s.changes(g, b, op); err != nil {
			return Result{}, err
		}
	} else if err := checkLogOp(op); err != nil {
		return Result{}, err
	}
	// From here on nothing fails.
	if open != nil {
		s.unborn[b.id] = b
		g.opens = append(g.opens, open)
	}
	pt := s.partFor(g, b)
	before := pt.bytes
	res := Result{Start: pt.next}
	if op.Keys != nil {
		pt.addKeyed(changes)
	} else {
		pt.addLog(op)
	}
	res.End = pt.next
	b.prep.Next = pt.next
	if op.Writer != nil {
		flags := byte(0)
		if w == nil {
			flags = writerFresh
		}
		pt.addWriter(op.Writer, flags, res.Start, res.End)
		g.writers[writerRef{op.Bucket, op.Writer.Scope}] = taken(w, op.Writer, res.Start, res.End, pt.entry.time)
	}
	g.bytes += pt.bytes - before
	return res, nil
}

// raiseEpoch fences the older instances of a writer of which nothing new was taken.
func (s *Shard) raiseEpoch(g *group, b *bucketState, seq *Sequence, w *kv.Writer) {
	pt := s.partFor(g, b)
	before := pt.bytes
	pt.addWriter(seq, writerRaised, pt.next, pt.next)
	g.writers[writerRef{b.id, seq.Scope}] = raised(w, seq.Epoch, pt.entry.time)
	g.bytes += pt.bytes - before
}

// partFor is the part of the group that takes the bucket's next records.
func (s *Shard) partFor(g *group, b *bucketState) *part {
	if pt := g.byID[b.id]; pt != nil && pt.bytes < joinEntryBytes {
		return pt
	}
	b.prep.TimeMicros = max(s.o.Clock.Now().UnixMicro(), b.prep.TimeMicros)
	pt := &part{b: b, next: b.prep.Next}
	pt.entry = dataEntry{bucket: b.id, base: b.prep.Next, time: b.prep.TimeMicros}
	g.byID[b.id] = pt
	g.parts = append(g.parts, pt)
	return pt
}

func (pt *part) addWriter(s *Sequence, flags byte, start, end millrace.Offset) {
	if s.Hash != 0 {
		flags |= writerHashed
	}
	w := entryWriter{
		scope: s.Scope, flags: flags, epoch: s.Epoch, seq: s.Seq,
		first: uint32(start - pt.entry.base), records: uint32(end - start), hash: s.Hash,
	}
	pt.entry.writers = append(pt.entry.writers, w)
	pt.bytes += w.bytes()
}

// checkLogOp refuses what does not fit into an entry.
func checkLogOp(op *Op) error {
	bytes := 0
	for _, c := range op.Columns {
		bytes += len(c.Payload) + recordOverhead
	}
	for _, r := range op.Rows {
		if err := checkRow(r); err != nil {
			return err
		}
		bytes += len(r) + recordOverhead
	}
	return checkOp(op, bytes)
}

func checkRow(r []byte) error {
	if len(r) > MaxRowBytes {
		return errs.New(errs.TooLarge, "a row would have %d bytes; at most %d are allowed", len(r), MaxRowBytes)
	}
	return nil
}

func checkOp(op *Op, bytes int) error {
	if bytes > MaxOpBytes {
		return errs.New(errs.TooLarge, "the batch adds more than %d bytes to bucket %d of table %s, rows before and after an update included: send fewer rows at once", MaxOpBytes, op.Bucket.Bucket, op.Table.Path)
	}
	return nil
}

// addLog appends the op's records as they are.
func (pt *part) addLog(op *Op) {
	for _, c := range op.Columns {
		pt.cut()
		pt.entry.payloads = append(pt.entry.payloads, entryPayload{records: uint32(c.Records), bytes: c.Payload})
		pt.next += millrace.Offset(c.Records)
		pt.bytes += len(c.Payload) + recordOverhead
	}
	for _, r := range op.Rows {
		pt.add(millrace.Insert, r)
		pt.cutIfFull()
	}
}

// addKeyed appends the changelog records of an op.
func (pt *part) addKeyed(changes []change) {
	for _, c := range changes {
		switch {
		case c.old == nil:
			pt.add(millrace.Insert, c.next)
			pt.rowsDelta++
		case c.next == nil:
			pt.add(millrace.Delete, c.old)
			pt.rowsDelta--
		default:
			if pt.b.table.Options.Image != millrace.WALImage {
				pt.add(millrace.UpdateBefore, c.old)
			}
			pt.add(millrace.UpdateAfter, c.next)
		}
		pt.puts = append(pt.puts, put{storeKey: c.key, row: c.next})
		pt.cutIfFull()
	}
}

// add gathers one changelog record.
func (pt *part) add(c millrace.ChangeType, row []byte) {
	pt.changes = append(pt.changes, c)
	pt.rows = append(pt.rows, row)
	pt.size += len(row) + recordOverhead
	pt.bytes += len(row) + recordOverhead
	pt.next++
}

func (pt *part) cutIfFull() {
	if pt.size >= rowsPayloadBytes {
		pt.cut()
	}
}

// cut makes a payload of the gathered records.
func (pt *part) cut() {
	if len(pt.rows) == 0 {
		return
	}
	changes := pt.changes
	if !pt.b.table.Keyed() {
		changes = nil // all +I
	}
	pt.entry.payloads = append(pt.entry.payloads, entryPayload{
		records: uint32(len(pt.rows)),
		bytes:   segment.AppendRows(nil, pt.b.table.Schema.ID, changes, pt.rows),
	})
	clear(pt.rows)
	pt.changes, pt.rows, pt.size = pt.changes[:0], pt.rows[:0], 0
}

// writer is what the bucket knows of a writer as of what was prepared before.
func (s *Shard) writer(g *group, b millrace.BucketID, scope string) (*kv.Writer, error) {
	ref := writerRef{b, scope}
	if w, ok := g.writers[ref]; ok {
		return w, nil
	}
	if s.inFlight != nil {
		if w, ok := s.inFlight.writers[ref]; ok {
			return w, nil
		}
	}
	w, err := s.kv.Writer(b, scope)
	// Keys are forgotten to the minute, so that they can be used for something else; a
	// writer that still is remembered goes on where it was.
	if w != nil && isKey(scope) && forgotten(scope, w.SeenMicros, s.o.Clock.Now()) {
		return nil, nil
	}
	return w, err
}

// finish turns the parts into entries of the log.
func (g *group) finish() {
	for _, o := range g.opens {
		g.entries = append(g.entries, wal.Entry{Kind: wal.BucketOpen, Data: encodeJSON(o)})
	}
	for _, l := range g.learned {
		g.entries = append(g.entries, wal.Entry{Kind: wal.BucketOpen, Data: l.entry})
	}
	kept := g.parts[:0]
	for _, pt := range g.parts {
		pt.cut()
		if len(pt.entry.payloads) == 0 && len(pt.entry.writers) == 0 {
			continue
		}
		g.entries = append(g.entries, pt.entry.logEntry())
		kept = append(kept, pt)
	}
	g.parts = kept
	for _, t := range g.trims {
		g.entries = append(g.entries, wal.Entry{Kind: wal.BucketTrim, Ignorable: true, Data: t.encode()})
	}
	for _, e := range g.endings {
		kind := wal.BucketDrop
		if e.seal {
			kind = wal.BucketSeal
		}
		g.entries = append(g.entries, wal.Entry{Kind: kind, Data: encodeJSON(endEntry{Table: e.of.table, Partition: e.of.partition})})
	}
}
