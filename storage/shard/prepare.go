package shard

import (
	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/storage/kv"
	"github.com/millrace/millrace/storage/segment"
	"github.com/millrace/millrace/storage/wal"
)

// Bounds of a group: what goes into one append to the log.
const (
	maxGroupBytes = 4 << 20
	maxGroupOps   = 8192
	// A rows payload is cut near this size, between records (never between a -U
	// and its +U), so that stored batches stay small.
	rowsPayloadBytes = 1 << 20
)

// group is what one append to the log holds, from its preparation until it is
// applied or dropped. Only the shard's loop touches it.
type group struct {
	entries []wal.Entry
	parts   []*part
	opens   []*openEntry
	drops   []millrace.TableID
	byID    map[millrace.BucketID]*part // the part that further ops of a bucket join
	answers []answer
	// rows holds the state after this group, by store key; a nil row is a deleted one.
	rows    map[string][]byte
	writers map[writerRef]*kv.Writer
	bytes   int64
	err     error // set when the append failed
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
	lastTime  int64

	// Rows gathered for the payload that is being filled.
	changes []millrace.ChangeType
	rows    [][]byte
	size    int
	next    millrace.Offset // the offset after the last gathered record
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

// prepare adds an op to the group, or answers it at once when it is refused. An
// op that repeats an earlier batch, or changes nothing, is answered with the group, since what it
// stands on may still be in flight.
func (s *Shard) prepare(g *group, p *pending) {
	res, err := s.prepareOp(g, p.op)
	if err != nil {
		p.answer(Result{}, err)
		return
	}
	g.answers = append(g.answers, answer{to: p, result: res})
	g.bytes += p.op.bytes()
}

func (s *Shard) prepareOp(g *group, op *Op) (Result, error) {
	if op.Table.Keyed() != (op.Keys != nil) {
		return Result{}, errs.New(errs.Internal, "shard: an op of table %s does not fit its kind", op.Table.Path)
	}
	b, err := s.bucketFor(g, op)
	if err != nil {
		return Result{}, err
	}
	var w *kv.Writer
	if op.Writer != nil {
		if w, err = s.writer(g, op.Bucket, op.Writer.Scope); err != nil {
			return Result{}, err
		}
		if dup, err := admit(w, op.Writer); err != nil || dup != nil {
			if err != nil {
				return Result{}, err
			}
			return *dup, nil
		}
	}
	pt := s.partFor(g, b)
	res := Result{Start: pt.next}
	if op.Keys == nil {
		pt.addLog(op)
	} else if err := s.addKeyed(g, pt, op); err != nil {
		return Result{}, err
	}
	res.End = pt.next
	b.prep.Next = pt.next
	if op.Writer != nil {
		pt.entry.writers = append(pt.entry.writers, entryWriter{
			scope: op.Writer.Scope, epoch: op.Writer.Epoch, seq: op.Writer.Seq,
			first: uint32(res.Start - pt.entry.base), records: uint32(res.End - res.Start),
		})
		g.writers[writerRef{op.Bucket, op.Writer.Scope}] = taken(w, op.Writer, res.Start, res.End, pt.entry.time)
	}
	return res, nil
}

// partFor is the part of the group that takes the bucket's next records.
func (s *Shard) partFor(g *group, b *bucketState) *part {
	if pt := g.byID[b.id]; pt != nil && pt.entryBytes() < maxGroupBytes/2 {
		return pt
	}
	b.prep.TimeMicros = max(s.o.Clock.Now().UnixMicro(), b.prep.TimeMicros)
	pt := &part{b: b, next: b.prep.Next}
	pt.entry = dataEntry{bucket: b.id, base: b.prep.Next, time: b.prep.TimeMicros}
	g.byID[b.id] = pt
	g.parts = append(g.parts, pt)
	return pt
}

func (pt *part) entryBytes() int {
	n := pt.size
	for _, p := range pt.entry.payloads {
		n += len(p.bytes)
	}
	return n
}

// addLog appends the op's records as they are.
func (pt *part) addLog(op *Op) {
	for _, c := range op.Columns {
		pt.cut()
		pt.entry.payloads = append(pt.entry.payloads, entryPayload{records: uint32(c.Records), bytes: c.Payload})
		pt.next += millrace.Offset(c.Records)
	}
	for _, r := range op.Rows {
		pt.add(millrace.Insert, r)
		pt.cutIfFull()
	}
}

// add gathers one changelog record.
func (pt *part) add(c millrace.ChangeType, row []byte) {
	pt.changes = append(pt.changes, c)
	pt.rows = append(pt.rows, row)
	pt.size += len(row) + 8
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

// addKeyed merges the op's rows into the state and adds what changed. It changes
// nothing when it fails: the reads that can fail come first.
func (s *Shard) addKeyed(g *group, pt *part, op *Op) error {
	b := pt.b
	keys := make([]string, len(op.Keys))
	olds := make([][]byte, len(op.Keys))
	for i, k := range op.Keys {
		s.scratch = kv.AppendRowKey(s.scratch[:0], b.id, k)
		keys[i] = string(s.scratch)
		var err error
		if olds[i], err = s.rowBefore(g, keys[i], s.scratch); err != nil {
			return err
		}
		if olds[i] != nil && row.SchemaIDOf(olds[i]) != b.table.Schema.ID {
			return errs.New(errs.CorruptData, "shard: a row of bucket %s is of schema %d, which was never written", b.id, row.SchemaIDOf(olds[i]))
		}
	}
	onlyKey := op.Set != nil && b.onlyKeySet(op.Set)
	for i, k := range keys {
		old := olds[i]
		if r, again := g.rows[k]; again { // an earlier row of this op has the same key
			old = r
		}
		next := s.merge(b, op, i, old, onlyKey)
		switch {
		case old == nil && next == nil, old != nil && len(next) > 0 && &old[0] == &next[0]:
			continue // nothing changed
		case old == nil:
			pt.add(millrace.Insert, next)
			b.prep.Rows++
			pt.rowsDelta++
		case next == nil:
			pt.add(millrace.Delete, old)
			b.prep.Rows--
			pt.rowsDelta--
		default:
			pt.add(millrace.UpdateBefore, old)
			pt.add(millrace.UpdateAfter, next)
		}
		g.rows[k] = next
		pt.puts = append(pt.puts, put{storeKey: k, row: next})
		pt.cutIfFull()
	}
	return nil
}

// merge is the row after row i of the op: nil when there is none, old itself when
// nothing changes.
func (s *Shard) merge(b *bucketState, op *Op, i int, old []byte, onlyKey bool) []byte {
	switch {
	case op.kind(i) == Delete && op.Set == nil:
		return nil
	case op.kind(i) == Delete:
		if old == nil {
			return nil
		}
		next := b.codec.AppendMerged(nil, old, b.nulls, b.withoutKey(op.Set))
		if b.allNull(next) {
			return nil
		}
		return next
	case op.Set == nil:
		return op.Rows[i]
	case old != nil && onlyKey:
		return old
	}
	return b.codec.AppendMerged(nil, old, op.Rows[i], op.Set)
}

// rowBefore is the row at a store key as of what was prepared before: this group,
// the one in flight, the store.
func (s *Shard) rowBefore(g *group, key string, raw []byte) ([]byte, error) {
	if r, ok := g.rows[key]; ok {
		return r, nil
	}
	if s.inFlight != nil {
		if r, ok := s.inFlight.rows[key]; ok {
			return r, nil
		}
	}
	return s.kv.RowByStoreKey(raw)
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
	return s.kv.Writer(b, scope)
}

// finish turns the parts into entries of the log.
func (g *group) finish() {
	for _, o := range g.opens {
		g.entries = append(g.entries, wal.Entry{Kind: wal.BucketOpen, Data: encodeJSON(o)})
	}
	kept := g.parts[:0]
	for _, pt := range g.parts {
		pt.cut()
		if len(pt.entry.payloads) == 0 && len(pt.entry.writers) == 0 {
			continue
		}
		g.entries = append(g.entries, wal.Entry{Kind: wal.Data, Data: pt.entry.encode()})
		kept = append(kept, pt)
	}
	g.parts = kept
	for _, t := range g.drops {
		g.entries = append(g.entries, wal.Entry{Kind: wal.BucketDrop, Data: encodeJSON(dropEntry{Table: t})})
	}
}
