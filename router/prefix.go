package router

import (
	"context"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/storage/shard"
	"github.com/millrace/millrace/trace"
)

// prefixLayout is how a prefix of given columns finds its rows: all of them are in
// one bucket of one partition, next to each other.
//
// A prefix has the partition columns and the first of the other columns of the primary
// key, in its order, as many as cover the bucket key at least. Within a partition the
// partition columns of all keys are the same, so wherever they stand in the key it
// begins with the same bytes.
type prefixLayout struct {
	key    []int // columns of the prefix that keys begin with, in the order of the key
	hashed []int // those of the bucket key
	parted []int // those of the partition
}

// layoutPrefix checks that the given columns are a prefix that stands for rows of one
// bucket.
func layoutPrefix(t *millrace.Table, given []millrace.Column) (*prefixLayout, error) {
	if err := CheckLookup(t); err != nil {
		return nil, err
	}
	has := func(id millrace.ColumnID) bool {
		return slices.ContainsFunc(given, func(c millrace.Column) bool { return c.ID == id })
	}
	for _, c := range given {
		if !slices.Contains(t.PrimaryKey, c.ID) {
			return nil, errs.New(errs.UnknownColumn, "a prefix has columns of the primary key (%s) and no others, not %q", strings.Join(t.Names(t.PrimaryKey), ", "), clip(c.Name))
		}
	}
	if missing := missingOfPrefix(t, has); len(missing) > 0 {
		return nil, errs.New(errs.PrefixTooShort, "the prefix lacks %s: it begins with %s, which say in which bucket all its rows are, and may go on with the next columns of the primary key (%s)",
			strings.Join(t.Names(missing), ", "), strings.Join(t.Names(neededOfPrefix(t)), ", "), strings.Join(t.Names(t.PrimaryKey), ", "))
	}
	l := &prefixLayout{hashed: columnIndexes(given, t.BucketKey), parted: columnIndexes(given, t.PartitionBy)}
	for _, id := range t.PrimaryKey {
		if !has(id) {
			break // what is given of the rest are partition columns
		}
		l.key = append(l.key, columnIndexes(given, []millrace.ColumnID{id})...)
	}
	return l, nil
}

// neededOfPrefix are the columns that every prefix has: those of the partition, and
// the first others of the primary key up to the last one of the bucket key.
func neededOfPrefix(t *millrace.Table) []millrace.ColumnID {
	rest := keyWithinPartition(t)
	n := 0
	for i, id := range rest {
		if slices.Contains(t.BucketKey, id) {
			n = i + 1
		}
	}
	return append(slices.Clone(t.PartitionBy), rest[:n]...)
}

// missingOfPrefix are the columns that a prefix needs and does not have: those that
// all need, and those before one that it has.
func missingOfPrefix(t *millrace.Table, has func(millrace.ColumnID) bool) []millrace.ColumnID {
	rest := keyWithinPartition(t)
	last := -1
	for i, id := range rest {
		if has(id) {
			last = i
		}
	}
	needed := neededOfPrefix(t)
	var missing []millrace.ColumnID
	for _, id := range t.PrimaryKey {
		if !has(id) && (slices.Contains(needed, id) || slices.Contains(rest[:last+1], id)) {
			missing = append(missing, id)
		}
	}
	return missing
}

// keyWithinPartition is the primary key less the partition columns.
func keyWithinPartition(t *millrace.Table) []millrace.ColumnID {
	return slices.DeleteFunc(slices.Clone(t.PrimaryKey), func(id millrace.ColumnID) bool { return slices.Contains(t.PartitionBy, id) })
}

// partitions finds the partition of each of some prefixes: nil when there is none of
// which rows are left. It gives nil on a table without partitions.
func (l *prefixLayout) partitions(ctx context.Context, r *Router, t *millrace.Table, prefixes arrow.RecordBatch) ([]*millrace.Partition, error) {
	if !t.Partitioned() || prefixes.NumRows() == 0 {
		return nil, nil
	}
	gs := groupRows(prefixes, l.parted)
	targets, err := r.targets(ctx, t, prefixes, l.parted, gs.first)
	if err != nil {
		return nil, err
	}
	if err := inShards(t, targets); err != nil {
		return nil, err
	}
	out := make([]*millrace.Partition, len(gs.of))
	for i, g := range gs.of {
		if p := targets[g].p; p != nil && p.State != millrace.PartitionExpired {
			out[i] = p
		}
	}
	return out, nil
}

// PrefixRequest asks for the rows whose key begins with a prefix.
type PrefixRequest struct {
	// Prefix is one row of the columns that the prefix has.
	Prefix    row.Rows
	Columns   []string // asked for; none: all
	PageSize  int
	PageToken string
}

// PrefixPage plans a page of the rows whose keys begin with a prefix, in the order of
// their keys. All pages see one snapshot.
func (r *Router) PrefixPage(ctx context.Context, t *millrace.Table, req *PrefixRequest) (*Plan, error) {
	l, err := layoutPrefix(t, req.Prefix.Columns)
	if err != nil {
		return nil, err
	}
	cols, err := LookupColumns(t, req.Columns)
	if err != nil {
		return nil, err
	}
	if req.PageSize < 1 || req.PageSize > MaxPageSize {
		return nil, errs.New(errs.InvalidValue, "limit is between 1 and %d", MaxPageSize)
	}
	pass, err := r.begins(ctx, t, cols, req.Prefix.Columns)
	if err != nil {
		return nil, err
	}
	parts, err := l.parts(ctx, r, t, req.Prefix.Record)
	if err != nil {
		return nil, err
	}
	if req.PageToken != "" {
		return r.nextPrefixPage(ctx, t, req, cols, parts)
	}
	r.metrics.prefixLookups.Inc()
	p := &Plan{
		asked: trace.Carry(ctx),
		Table: t, View: RowsView, Columns: cols, Data: cols, Schema: outputSchema(t, cols), PageSize: req.PageSize,
		Limit: int64(req.PageSize), limitAll: -1, now: r.o.Clock.Now(), snaps: map[millrace.ShardID]pinned{}, pass: pass, r: r,
	}
	if err := r.look(ctx, p, Question{Snapshot: true}, refs(parts, nil)); err != nil {
		p.Close()
		return nil, err
	}
	for _, part := range parts {
		part.Start, part.End, part.Snapshot = part.look.Next, part.look.Next, p.snaps[part.Shard].id
		p.Parts = append(p.Parts, part)
	}
	return p, nil
}

// parts is the part of a plan that has a prefix's rows; none when its partition does
// not exist.
func (l *prefixLayout) parts(ctx context.Context, r *Router, t *millrace.Table, prefix arrow.RecordBatch) ([]Part, error) {
	number := row.NewBucketer(t.Columns(t.BucketKey), t.Buckets).Buckets(prefix, l.hashed, nil)[0]
	ps, err := l.partitions(ctx, r, t, prefix)
	if err != nil {
		return nil, err
	}
	var q *millrace.Partition
	if t.Partitioned() {
		if q = ps[0]; q == nil {
			return nil, nil
		}
	}
	part := newPart(t, q, number)
	part.State, part.Prefix = true, row.AppendKey(nil, prefix, l.key, 0)
	return []Part{part}, nil
}

// nextPrefixPage is the page that a token names, of the same prefix and columns.
func (r *Router) nextPrefixPage(ctx context.Context, t *millrace.Table, req *PrefixRequest, cols []millrace.Column, parts []Part) (*Plan, error) {
	p, err := r.unseal(ctx, req.PageToken, true)
	switch {
	case err != nil:
		return nil, err
	case p.Table.ID != t.ID:
		err = errs.New(errs.TableRecreated, "the page token is of another table than %s is now", t.Path)
	case p.View != RowsView || p.filter != nil || len(parts) != 1 || len(p.Parts) != 1 || !p.Parts[0].State || p.Parts[0].Bucket != parts[0].Bucket || string(p.Parts[0].Prefix) != string(parts[0].Prefix):
		err = errs.New(errs.InvalidValue, "the page token is of another prefix or read")
	case !slices.EqualFunc(p.Columns, cols, func(a, b millrace.Column) bool { return a.ID == b.ID }) && len(req.Columns) > 0:
		err = errs.New(errs.InvalidValue, "the page token is of other columns")
	}
	if err != nil {
		return nil, err
	}
	p.limitAll, p.later = -1, true
	p.PageSize, p.Limit = req.PageSize, int64(req.PageSize)
	return p, nil
}

// PrefixLookups looks up batch after batch of prefixes of one table. It belongs to one
// goroutine.
type PrefixLookups struct {
	r       *Router
	t       *millrace.Table
	layout  *prefixLayout
	buckets *row.Bucketer
	rd      *guardedRows
	limit   int64 // rows of a prefix; -1: no limit
	most    int
	pass    Pass

	numbers []uint16
}

// OpenPrefixLookups prepares lookups of prefixes that have the given columns. Of each
// prefix at most limit rows are given (-1: all); an answer of more than about most
// bytes is refused with errs.TooLarge.
func (r *Router) OpenPrefixLookups(ctx context.Context, t *millrace.Table, given, cols []millrace.Column, limit int64, most int) (*PrefixLookups, error) {
	l, err := layoutPrefix(t, given)
	if err != nil {
		return nil, err
	}
	pass, err := r.begins(ctx, t, cols, given)
	if err != nil {
		return nil, err
	}
	return &PrefixLookups{
		r: r, t: t, layout: l, buckets: row.NewBucketer(t.Columns(t.BucketKey), t.Buckets),
		rd: r.rowsOf(t, nullableColumns(cols)), limit: limit, most: most, pass: pass,
	}, nil
}

// Still says whether the caller may go on.
func (l *PrefixLookups) Still() error { return still(l.pass) }

// PrefixResult is the rows of some prefixes, in the order of the prefixes and within
// each in that of the keys.
type PrefixResult struct {
	Index  []int32 // by row, which prefix it is of
	Record arrow.RecordBatch
}

// Next is the answer for a batch of prefixes, of one instant for each shard. When one
// of the columns was dropped it is errs.SchemaChanged. The caller releases the record.
func (l *PrefixLookups) Next(ctx context.Context, prefixes arrow.RecordBatch) (_ *PrefixResult, err error) {
	if err := l.Still(); err != nil {
		return nil, err
	}
	if err := l.rd.current(ctx, l.r, l.t.ID); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			l.rd.Close()
		}
	}()
	l.numbers = l.buckets.Buckets(prefixes, l.layout.hashed, l.numbers[:0])
	ps, err := l.layout.partitions(ctx, l.r, l.t, prefixes)
	if err != nil {
		return nil, err
	}
	f := prefixFetch{l: l, snaps: map[millrace.ShardID]*shard.Snapshot{}}
	defer f.close()
	for i, n := range l.numbers {
		var q *millrace.Partition
		if ps != nil {
			if q = ps[i]; q == nil {
				continue
			}
		}
		part := newPart(l.t, q, n)
		f.asks = append(f.asks, prefixAsk{
			index: int32(i), shard: part.Shard,
			BucketPrefix: BucketPrefix{Bucket: part.Bucket, Prefix: row.AppendKey(nil, prefixes, l.layout.key, i)},
		})
	}
	if err := f.open(ctx); err != nil {
		return nil, err
	}
	res := &PrefixResult{}
	for i := range f.asks {
		if err := f.read(ctx, res, &f.asks[i]); err != nil {
			return nil, err
		}
	}
	l.r.metrics.prefixLookups.Add(float64(len(l.numbers)))
	if l.r.o.Quotas != nil {
		if _, err := l.r.o.Quotas.Read(ctx, int64(l.rd.Bytes()), 0); err != nil {
			return nil, err
		}
	}
	res.Record = l.rd.Record()
	return res, nil
}
