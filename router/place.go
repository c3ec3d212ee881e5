package router

import (
	"cmp"
	"context"
	"iter"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/filter"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/row/jsonrow"
)

// maxPinnedKeys bounds the combinations of key values that are turned into buckets.
const maxPinnedKeys = 1024

// pinnedBuckets are the buckets that the filter leaves; nil when it leaves all.
func (p *Plan) pinnedBuckets() []uint16 {
	if p.filter == nil || len(p.Table.BucketKey) == 0 {
		return nil
	}
	cols := p.Table.Columns(p.Table.BucketKey)
	rec := pinnedKeys(p.filter, cols)
	if rec == nil {
		return nil
	}
	defer rec.Release()
	out := row.NewBucketer(cols, p.Table.Buckets).Buckets(rec, indexes(len(cols)), nil)
	slices.Sort(out)
	return append([]uint16{}, slices.Compact(out)...)
}

func indexes(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// pinnedKeys is every combination of values that the columns can have under the
// filter; nil when they are not all pinned, or to too many.
func pinnedKeys(f *filter.Filter, cols []millrace.Column) arrow.RecordBatch {
	vals := make([][]filter.Literal, len(cols))
	n := 1
	for i, c := range cols {
		v, ok := f.Pinned(c.Name)
		if !ok || n*len(v) > maxPinnedKeys {
			return nil
		}
		vals[i] = v
		n *= len(v)
	}
	builders := row.NewBuilders(memory.DefaultAllocator, cols)
	arrs := make([]arrow.Array, len(cols))
	each := n
	for i := range cols {
		if len(vals[i]) > 0 {
			each /= len(vals[i])
		}
		if !appendCombinations(builders[i], vals[i], n, each) {
			for _, b := range builders {
				b.Release()
			}
			return nil
		}
	}
	for i, b := range builders {
		arrs[i] = b.NewArray()
		b.Release()
	}
	rec := array.NewRecordBatch(row.ArrowSchema(cols), arrs, int64(n))
	for _, a := range arrs {
		a.Release()
	}
	return rec
}

// appendCombinations appends n values of a column, each value of it `each` times
// in a row, round and round.
func appendCombinations(b array.Builder, vals []filter.Literal, n, each int) bool {
	for i := range n {
		if vals[i/each%len(vals)].AppendTo(b) != nil {
			return false
		}
	}
	return true
}

// keyPrefix is what the primary keys of all rows under the filter begin with.
func (p *Plan) keyPrefix() []byte {
	if p.filter == nil || !p.Table.Keyed() {
		return nil
	}
	var prefix []byte
	for _, c := range p.Table.Columns(p.Table.PrimaryKey) {
		rec := pinnedKeys(p.filter, []millrace.Column{c})
		if rec == nil {
			break
		}
		one := rec.NumRows() == 1
		if one {
			prefix = row.AppendKey(prefix, rec, []int{0}, 0)
		}
		rec.Release()
		if !one {
			break
		}
	}
	return prefix
}

// place makes the plan's parts: where each bucket is read from and to.
func (r *Router) place(ctx context.Context, p *Plan, req *ReadRequest, o PlanOptions) error {
	from, until := o.From, o.Until
	if req.From != nil {
		from = *req.From
	} else if p.View == RowsView && from.Kind == Earliest {
		from = Position{Kind: Full}
	}
	if req.Until != nil {
		until = *req.Until
	}
	if p.Tier == LakeTier && (req.From != nil && from.Kind != Full || req.Until != nil && until.Kind != Latest) {
		return errs.New(errs.InvalidValue, "the lake of table %s is read as its newest snapshot is: from \"full\", until \"latest\"; places are in the log, which tier hot reads", p.Table.Path)
	}
	if p.Table.Keyed() && p.View == RowsView {
		if req.From != nil && from.Kind != Full || req.Until != nil && until.Kind != Latest {
			return errs.New(errs.InvalidValue, "the rows of keyed table %s are read as they are now: from \"full\", until \"latest\"; for a place in its log read the changelog", p.Table.Path)
		}
		until = Position{Kind: Latest}
	}
	switch {
	case from.Kind == Never || until.Kind == Full:
		return errs.New(errs.InvalidValue, "from cannot be \"never\", until cannot be \"full\"")
	case until.Kind == Never && o.Bounded:
		return errs.New(errs.InvalidValue, "this operation answers with an end: until cannot be \"never\"; follow a table with /changelog, a stream of events or a Flight tail")
	}
	p.Follow = until.Kind == Never
	p.merged, p.keyOrder = p.Follow || o.Merged, o.KeyOrder
	if from.Kind == AtCursor {
		return r.placeAtCursor(ctx, p, from.Cursor, until)
	}
	for _, pos := range []*Position{&from, &until} {
		if err := p.checkOffsets(pos); err != nil {
			return err
		}
	}
	if err := r.placeAll(ctx, p, from, until); err != nil {
		return err
	}
	return p.outOfRange(ctx, r)
}

// placeLive places the buckets of partitions that the workers have, at positions.
func (r *Router) placeLive(ctx context.Context, p *Plan, ps []*millrace.Partition, from, until Position) error {
	state := p.Table.Keyed() && (p.View == RowsView || from.Kind == Full)
	var prefix []byte
	if state && p.View == RowsView {
		prefix = p.keyPrefix()
	}
	parts := slices.Collect(p.partsOf(ps))
	if err := r.lookFor(ctx, p, refs(parts, nil), state, from, until); err != nil {
		return err
	}
	for i := range parts {
		part := &parts[i]
		if state {
			part.State, part.Prefix, part.Snapshot = true, prefix, p.snaps[part.Shard].id
			part.Start, part.End = part.look.Next, part.look.Next
		}
		if err := r.placeInLog(p, part, from, until, state); err != nil {
			return err
		}
	}
	p.Parts = append(p.Parts, parts...)
	return nil
}

// lookFor looks at parts that are placed at positions: with state at their snapshots, too.
func (r *Router) lookFor(ctx context.Context, p *Plan, parts []*Part, state bool, from, until Position) error {
	q := Question{Snapshot: state}
	if from.Kind == AtTime || until.Kind == AtTime {
		now := r.o.Clock.Now()
		for _, pos := range []Position{from, until} {
			if pos.Kind == AtTime && pos.Time.After(now.Add(maxFuture)) {
				return errs.New(errs.TimestampInFuture, "%s is more than %s ahead of the server's clock, which says %s", pos, millrace.FormatDuration(maxFuture), now.UTC().Format("2006-01-02T15:04:05.000Z"))
			}
			micros := int64(math.MaxInt64) // what is ahead of the clock, a little, is the end
			if !pos.Time.After(now) {
				micros = pos.Time.UnixMicro()
			}
			q.Times = append(q.Times, micros)
		}
	}
	return r.look(ctx, p, q, parts)
}

// partsOf are the buckets of partitions in the plan's scope, not placed yet.
func (p *Plan) partsOf(ps []*millrace.Partition) iter.Seq[Part] {
	return func(yield func(Part) bool) {
		for _, q := range ps {
			for _, n := range p.scope.buckets {
				if !yield(newPart(p.Table, q, n)) {
					return
				}
			}
		}
	}
}

// newPart is bucket n of a partition; of the table when that is nil.
func newPart(t *millrace.Table, q *millrace.Partition, n uint16) Part {
	part, shards := Part{Bucket: t.BucketID(n), Files: -1}, t.Shards
	if q != nil {
		part.Bucket, part.Partition, shards = q.BucketID(n), q.Name, q.Shards
	}
	if n == NoBucket {
		part.Lake, part.LakeOnly = true, true
		return part
	}
	part.Key, part.Shard = millrace.BucketKey(part.Partition, n), shards[n]
	return part
}

// fits says whether a plan can cover so many buckets.
func (p *Plan) fits(n int) error {
	if p.merged && n > MaxMergedBuckets {
		return tooManyBuckets(n)
	}
	if n > maxPlanBuckets {
		return errs.New(errs.TooManyBuckets, "a read covers at most %d buckets, this one would %d: name some with buckets or partitions, or leave some out with a filter", maxPlanBuckets, n)
	}
	return nil
}

func tooManyBuckets(n int) error {
	return errs.New(errs.TooManyBuckets, "one stream covers at most %d buckets, this one would %d: name some with buckets or partitions, or read one bucket a stream", MaxMergedBuckets, n)
}

// placeInLog sets where the part's log read begins (unless the state says it) and ends.
// REQUIRES: it was looked at.
func (r *Router) placeInLog(p *Plan, part *Part, from, until Position, state bool) error {
	if !state {
		part.Start = part.offsetOf(from, 0)
		_, part.named = from.Offsets[part.Key]
		if from.Kind == Full {
			p.placeAfterLake(part)
		}
	}
	if p.View == RowsView && state {
		return nil
	}
	part.End = millrace.NoOffset
	if !p.Follow {
		part.End = part.offsetOf(until, 1)
		if part.joins && part.End < part.Start && until.Kind != Latest {
			return errs.New(errs.InvalidValue, "until lies before offset %d of bucket %s, where its log goes on after what is in the lake; rows there have no offsets, so read them all, or the log alone (tier hot)", part.Start, part.Key)
		}
		part.End = max(part.End, part.Start)
	}
	return nil
}

// offsetOf resolves a position in a bucket that was looked at; which says at which of the
// times that was asked for a time is.
func (p *Part) offsetOf(pos Position, which int) millrace.Offset {
	switch pos.Kind {
	case Latest:
		return p.look.End
	case AtOffsets:
		if o, ok := pos.Offsets[p.Key]; ok {
			return o
		}
		return p.look.Start
	case AtTime:
		return p.look.At[which]
	default: // earliest; full of a log table
		return p.look.Start
	}
}

// checkOffsets refuses offsets of buckets that the table does not have, and spells the
// others as our bucket keys. A partition may have ended since a client was told of it;
// then it has nothing to read, wherever the client stands.
func (p *Plan) checkOffsets(pos *Position) error {
	if pos.Kind != AtOffsets {
		return nil
	}
	offsets := make(map[string]millrace.Offset, len(pos.Offsets))
	for key, o := range pos.Offsets {
		name, n, err := millrace.ParseBucketKey(key)
		if err != nil {
			return errs.New(errs.InvalidValue, "%v", err)
		}
		if (name != "") != p.Table.Partitioned() || int(n) >= p.Table.Buckets {
			return errs.New(errs.InvalidValue, "table %s has no bucket %q", p.Table.Path, clip(key))
		}
		if name != "" {
			values, err := jsonrow.PartitionOfName(p.Table, name)
			if err != nil {
				return err
			}
			name = millrace.PartitionName(p.Table.Names(p.Table.PartitionBy), values)
		}
		key = millrace.BucketKey(name, n)
		if _, twice := offsets[key]; twice {
			return errs.New(errs.DuplicateField, "the offsets name bucket %q twice", key)
		}
		offsets[key] = o
	}
	pos.Offsets = offsets
	return nil
}

// placeAtCursor goes on where a cursor stands. Buckets it does not name are read
// from their earliest; those that it names and are no more are left out.
func (r *Router) placeAtCursor(ctx context.Context, p *Plan, text string, until Position) error {
	c, err := parseCursor(text)
	if err != nil {
		return err
	}
	if c.table != p.Table.ID {
		return errs.New(errs.TableRecreated, "the cursor is of table %d, and %s is table %d now: it was dropped and created again", c.table, p.Table.Path, p.Table.ID)
	}
	if c.state != nil && !p.View.ofLog() {
		return errs.New(errs.InvalidValue, "the cursor stands in a changelog read, not in a read of rows")
	}
	at := make(map[millrace.BucketID]int, len(c.places))
	for i, pl := range c.places {
		at[millrace.BucketID{Table: c.table, Partition: pl.partition, Bucket: pl.bucket}] = i
	}
	place := func(p Part) int {
		if i, named := at[p.Bucket]; named {
			return i
		}
		return len(c.places)
	}
	parts, err := r.partsAtCursor(ctx, p, c, place)
	if err != nil {
		return err
	}
	// State is read in the order of the parts, which is therefore the cursor's.
	slices.SortStableFunc(parts, func(a, b Part) int { return cmp.Compare(place(a), place(b)) })
	if err := r.lookFor(ctx, p, refs(parts, hasLog), false, Position{}, until); err != nil {
		return err
	}
	for _, part := range parts {
		i := place(part)
		if part.Lake = c.inLake(i); part.LakeOnly && !part.Lake {
			continue // it was read to its end
		}
		from := Position{Kind: Earliest}
		if i < len(c.places) {
			from = Position{Kind: AtOffsets, Offsets: map[string]millrace.Offset{part.Key: c.places[i].offset}}
			c.enter(&part, i)
		}
		if part.LakeOnly {
			part.Start, part.End = c.places[i].offset, c.places[i].offset
		} else if err := r.placeInLog(p, &part, from, until, false); err != nil {
			return err
		}
		p.Parts = append(p.Parts, part)
	}
	return p.outOfRange(ctx, r)
}

// partsAtCursor are the buckets that a read goes on with from a cursor.
func (r *Router) partsAtCursor(ctx context.Context, p *Plan, c *cursor, place func(Part) int) ([]Part, error) {
	lake := c.state != nil && c.state.lake != 0
	if lake {
		snap, err := r.snapshotOf(ctx, p.Table, c.state.lake)
		if err == nil {
			err = r.readsHistory(ctx, p, snap)
		}
		if err != nil {
			return nil, err
		}
	}
	ps := []*millrace.Partition{nil}
	if p.Table.Partitioned() {
		var err error
		if ps, err = r.partitions(ctx, p, r.inLake(p.Table)); err != nil {
			return nil, err
		}
	}
	known := map[millrace.PartitionID]bool{}
	for _, pl := range c.places {
		known[pl.partition] = true
	}
	ps = slices.DeleteFunc(slices.Clone(ps), func(q *millrace.Partition) bool { return q != nil && q.LakeOnly() && !known[q.ID] })
	if err := p.fits(len(ps) * len(p.scope.buckets)); err != nil {
		return nil, err
	}
	var parts []Part
	for _, q := range ps {
		if lake { // files of no one bucket
			parts = append(parts, newPart(p.Table, q, NoBucket))
		}
		for _, n := range p.scope.buckets {
			part := newPart(p.Table, q, n)
			// What a partition that ended had in its log is read there, for a while.
			part.LakeOnly = q != nil && q.LakeOnly() && (q.Gone || place(part) == len(c.places))
			parts = append(parts, part)
		}
	}
	return parts, nil
}
