package sim_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/storage/shard"
	"github.com/millrace/millrace/storage/storagetest"
)

// op is a write that was sent.
type op struct {
	w     *storagetest.Write
	found int64 // where it was seen in the log; -1 when it was not
	start int64 // where it was acknowledged; -1 when it was not
	end   int64
}

// claim is what a read saw, until the changelog shows whether that ever was so.
type claim struct {
	what string
	from int64 // the records that it had to see
	at   int64 // the records that it says it saw; -1 when it does not say
	key  string
	row  storagetest.Row            // of a lookup
	rows map[string]storagetest.Row // of a scan
}

// bucket is what the client knows of a bucket.
type bucket struct {
	*storagetest.Table
	n      uint16
	model  *storagetest.Bucket // as far as the changelog was read
	acked  map[int64]*op       // by their start
	maybe  []*op
	least  int64 // a read sees so many records at least
	claims []claim
	seq    uint64
}

func (b *bucket) id() millrace.BucketID   { return b.BucketID(b.n) }
func (b *bucket) shard() millrace.ShardID { return b.Shards[b.n] }

func (b *bucket) String() string { return "bucket " + b.id().String() }

// newWrite draws a write of rows that no other write has.
func (w *world) newWrite(b *bucket) *storagetest.Write {
	out := &storagetest.Write{Bucket: b.n}
	for range 1 + w.rng.IntN(3) {
		w.next++
		if !b.Keyed {
			out.Rows = append(out.Rows, storagetest.Row{w.next, fmt.Sprint("s", w.next), nil, nil, nil})
			continue
		}
		out.Rows = append(out.Rows, storagetest.Row{int64(w.rng.IntN(6)), "k", int32(w.next), nil, float64(w.next)})
		out.Deletes = append(out.Deletes, w.rng.IntN(5) == 0)
	}
	return out
}

// settle notes what became of a write.
func (w *world) settle(b *bucket, o *op, res shard.Result, err error) error {
	switch code := errs.CodeOf(err); code {
	case "":
		w.count("acknowledged")
		o.start, o.end = int64(res.Start), int64(res.End)
		if i := slices.Index(b.maybe, o); i >= 0 {
			b.maybe = slices.Delete(b.maybe, i, i+1)
		}
		if o.found >= 0 && o.found != o.start {
			return fmt.Errorf("%s: a write that was seen at %d is acknowledged at %d", b, o.found, o.start)
		}
		if o.end > o.start && o.found < 0 {
			if o.start < int64(len(b.model.Log)) {
				return fmt.Errorf("%s: a write is acknowledged at %d, where another one was seen", b, o.start)
			}
			if other := b.acked[o.start]; other != nil {
				return fmt.Errorf("%s: two writes are acknowledged at %d", b, o.start)
			}
			b.acked[o.start] = o
		}
		b.least = max(b.least, o.end)
	case errs.UnknownOutcome:
		w.count("unknown")
		if o.found < 0 && !slices.Contains(b.maybe, o) {
			b.maybe = append(b.maybe, o)
		}
	case errs.NotOwner, errs.Unavailable, errs.Overloaded, errs.Draining:
		w.count("refused")
	default:
		return fmt.Errorf("%s: a write is answered with %w", b, err)
	}
	return nil
}

// write sends some writes to one process at once, takes the answers, and sends those
// again that have numbers and no answer.
func (w *world) write(b *bucket) error {
	sh := w.answering(b.shard())
	if sh == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+w.rng.IntN(6))*time.Second)
	defer cancel()
	var sent []*op
	var pending []*shard.Pending
	for range 1 + w.rng.IntN(4) {
		o := &op{w: w.newWrite(b), found: -1, start: -1}
		if w.rng.IntN(2) == 0 {
			b.seq++
			o.w.Writer = &storagetest.Sequence{Writer: "w", Seq: b.seq}
		}
		p, err := sh.Start(ctx, b.Op(o.w, 0))
		if err != nil {
			if err := w.settle(b, o, shard.Result{}, err); err != nil {
				return err
			}
			continue
		}
		sent, pending = append(sent, o), append(pending, p)
	}
	var again []*op
	for i, p := range pending {
		res, err := p.Wait(ctx)
		if errs.Is(err, errs.UnknownOutcome) && sent[i].w.Writer != nil {
			again = append(again, sent[i])
		}
		if err := w.settle(b, sent[i], res, err); err != nil {
			return err
		}
	}
	// A number below one that was taken is out of order, so the last one alone.
	if len(again) > 0 && again[len(again)-1].w.Writer.Seq == b.seq {
		return w.again(b, again[len(again)-1])
	}
	return nil
}

// again sends a write again until there is an answer, for a while.
func (w *world) again(b *bucket, o *op) error {
	for range 10 {
		time.Sleep(time.Duration(w.rng.IntN(3000)) * time.Millisecond)
		sh := w.answering(b.shard())
		if sh == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		res, err := sh.Write(ctx, b.Op(o.w, 0))
		cancel()
		if err != nil && passing(err) {
			continue // it is still what may be there
		}
		w.count("sent again")
		return w.settle(b, o, res, err)
	}
	return nil
}

// lookup notes what a process says of a key.
func (w *world) lookup(b *bucket) error {
	sh := w.answering(b.shard())
	if sh == nil || !b.Keyed {
		return nil
	}
	from := b.least
	r := storagetest.Row{int64(w.rng.IntN(6)), "k", nil, nil, nil}
	got, err := sh.Lookup(context.Background(), b.id(), [][]byte{b.StateKey(r)})
	if err != nil {
		return unless(passing(err), err)
	}
	w.count("lookups")
	c := claim{what: "lookup", from: from, at: -1, key: b.Key(r)}
	if got[0] != nil {
		rd := row.NewReader(memory.DefaultAllocator, func(millrace.SchemaID) *millrace.Schema { return b.Schema }, b.Schema.Columns)
		if err := rd.Append(got[0]); err != nil {
			return err
		}
		rec := rd.Record()
		c.row = storagetest.Rows(rec)[0]
		rec.Release()
	}
	b.claims = append(b.claims, c)
	return nil
}

// scan notes what a process says of all rows.
func (w *world) scan(b *bucket) error {
	sh := w.answering(b.shard())
	if sh == nil || !b.Keyed {
		return nil
	}
	from := b.least
	sn, err := sh.Snapshot()
	if err != nil {
		return unless(passing(err), err)
	}
	defer sn.Release()
	meta, err := sn.Meta(b.id())
	if err != nil {
		return unless(passing(err), err)
	}
	rows, err := storagetest.ReadState(sn, b.Table, b.n)
	if err != nil {
		return unless(passing(err), err)
	}
	w.count("scans")
	b.claims = append(b.claims, claim{what: "scan", from: from, at: int64(meta.Next), rows: rows})
	return nil
}

func unless(ok bool, err error) error {
	if ok {
		return nil
	}
	return err
}

// read reads the changelog and checks everything against it; whether there was an answer.
func (w *world) read(b *bucket) (bool, error) {
	sh := w.answering(b.shard())
	if sh == nil {
		return false, nil
	}
	log, _, err := storagetest.ReadLog(sh, b.Table, b.n)
	if err != nil {
		return false, unless(passing(err) || sh.Err() != nil, err)
	}
	w.count("reads")
	if len(log) < int(b.least) {
		return false, fmt.Errorf("%s: the changelog has %d records, where %d were acknowledged or seen", b, len(log), b.least)
	}
	if diff := storagetest.DiffLogs(b.model.Log, log[:len(b.model.Log)]); diff != "" {
		return false, fmt.Errorf("%s: the changelog changed: %s", b, diff)
	}
	states := b.states(log)
	for pos := len(b.model.Log); pos < len(log); pos = len(b.model.Log) {
		if err := w.explain(b, log); err != nil {
			return false, err
		}
	}
	b.least = max(b.least, int64(len(log)))
	for _, c := range b.claims {
		if err := c.check(states); err != nil {
			return false, fmt.Errorf("%s: %w", b, err)
		}
	}
	b.claims = nil
	return true, nil
}

// explain finds the write whose outcome comes next in the changelog.
func (w *world) explain(b *bucket, log []storagetest.Change) error {
	pos := int64(len(b.model.Log))
	try := func(o *op) bool {
		next := b.model.Clone()
		plain := *o.w
		plain.Writer = nil
		out := next.Write(b.Table, &plain)
		if out.Code != "" || out.End == out.Start || int(out.End) > len(log) ||
			storagetest.DiffLogs(next.Log[out.Start:], log[out.Start:out.End]) != "" {
			return false
		}
		b.model, o.found = next, pos
		return true
	}
	if o := b.acked[pos]; o != nil {
		if !try(o) || int64(len(b.model.Log)) != o.end {
			return fmt.Errorf("%s: the changelog has %s at %d, where %v was acknowledged up to %d", b, log[pos], pos, o.w.Rows, o.end)
		}
		delete(b.acked, pos)
		return nil
	}
	for i, o := range b.maybe {
		if try(o) {
			w.count("landed")
			b.maybe = slices.Delete(b.maybe, i, i+1)
			return nil
		}
	}
	return fmt.Errorf("%s: the changelog has %s at %d, which is of no write that may be there", b, log[pos], pos)
}

// states are the states that the changelog goes through.
func (b *bucket) states(log []storagetest.Change) []map[string]storagetest.Row {
	states := []map[string]storagetest.Row{{}}
	if !b.Keyed {
		return states
	}
	for _, c := range log {
		next := maps.Clone(states[len(states)-1])
		switch c.Type {
		case millrace.Insert, millrace.UpdateAfter:
			next[b.Key(c.Row)] = c.Row
		case millrace.Delete:
			delete(next, b.Key(c.Row))
		case millrace.UpdateBefore:
		}
		states = append(states, next)
	}
	return states
}

func (c *claim) check(states []map[string]storagetest.Row) error {
	if c.rows != nil {
		if c.at < c.from || c.at >= int64(len(states)) {
			return fmt.Errorf("a scan saw %d records of at least %d", c.at, c.from)
		}
		if diff := storagetest.DiffStates(states[c.at], c.rows); diff != "" {
			return fmt.Errorf("a scan at %d: %s", c.at, diff)
		}
		return nil
	}
	for at := c.from; at < int64(len(states)); at++ {
		is, ok := states[at][c.key]
		if ok == (c.row != nil) && (!ok || is.Equal(c.row)) {
			return nil
		}
	}
	return fmt.Errorf("a lookup saw %s, which the key %q has been at no time from record %d to %d", c.row, c.key, c.from, len(states)-1)
}
