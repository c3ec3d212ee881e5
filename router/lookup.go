package router

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"golang.org/x/sync/errgroup"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row"
)

// Bounds of the rows that one lookup holds: 1,000 keys may all have the longest
// row there is.
const (
	maxLookupBytes = 64 << 20
	lookupChunk    = 64
)

// LookupResult is the rows of a lookup, in the order of its keys.
type LookupResult struct {
	Found []bool // by key
	// Record has one row for each key that was found, in key order; of Lookups one
	// for each key.
	Record arrow.RecordBatch
}

// CheckLookup says whether a table can be looked up.
func CheckLookup(t *millrace.Table) error {
	if !t.Keyed() {
		return errs.New(errs.WrongTableKind, "table %s is a log table and has no key to look up; keep the dimension in a table with a primary_key, or scan with a filter", t.Path)
	}
	return nil
}

// LookupColumns are the columns a lookup of these names answers.
func LookupColumns(t *millrace.Table, names []string) ([]millrace.Column, error) {
	cols, err := askedColumns(t, RowsView, names)
	if err != nil {
		return nil, err
	}
	for _, c := range cols {
		if isSystem(c) {
			return nil, errs.New(errs.UnknownColumn, "a lookup gives columns of the table only, not %q", c.Name)
		}
	}
	return cols, nil
}

// Lookup reads the current rows of keys: records of the primary key columns, in
// the order of the primary key. The caller releases the record.
func (r *Router) Lookup(ctx context.Context, t *millrace.Table, keys arrow.RecordBatch, cols []millrace.Column) (*LookupResult, error) {
	k, err := r.newKeyReader(t)
	if err != nil {
		return nil, err
	}
	rows, err := k.read(ctx, keys)
	if err != nil {
		return nil, err
	}
	rd := row.NewReader(memory.DefaultAllocator, (&Plan{Table: t}).schemas(r), cols)
	res := &LookupResult{Found: make([]bool, len(rows))}
	for i, enc := range rows {
		if enc == nil {
			continue
		}
		res.Found[i] = true
		if err := rd.Append(enc); err != nil {
			return nil, err
		}
	}
	res.Record = rd.Record()
	return res, nil
}

// Lookups looks up batch after batch of keys of one table. It belongs to one
// goroutine.
type Lookups struct {
	keys *keyReader
	rd   *row.Reader
	most int
}

// OpenLookups prepares lookups of some columns. An answer of more than about most
// bytes is refused with errs.TooLarge.
func (r *Router) OpenLookups(t *millrace.Table, cols []millrace.Column, most int) (*Lookups, error) {
	k, err := r.newKeyReader(t)
	if err != nil {
		return nil, err
	}
	nullable := slices.Clone(cols)
	for i := range nullable {
		nullable[i].Nullable = true
	}
	return &Lookups{keys: k, rd: row.NewReader(memory.DefaultAllocator, (&Plan{Table: t}).schemas(r), nullable), most: most}, nil
}

// Next is the answer for a batch of keys: as Lookup's, but with a row for each key,
// of NULLs where there is none.
func (l *Lookups) Next(ctx context.Context, keys arrow.RecordBatch) (*LookupResult, error) {
	rows, err := l.keys.read(ctx, keys)
	if err != nil {
		return nil, err
	}
	res := &LookupResult{Found: make([]bool, len(rows))}
	for i, enc := range rows {
		res.Found[i] = enc != nil
		if enc == nil {
			l.rd.AppendNull()
		} else if err := l.rd.Append(enc); err != nil {
			return nil, err
		}
		if l.rd.Bytes() > l.most {
			l.rd.Close()
			return nil, errs.New(errs.TooLarge, "the rows of %d keys take more than %d bytes; ask for fewer keys at once, or for fewer columns", len(rows), l.most)
		}
	}
	res.Record = l.rd.Record()
	return res, nil
}

// keyReader reads rows by key. What it needs for a batch it keeps for the next.
type keyReader struct {
	r       *Router
	t       *millrace.Table
	pk      []int // the columns of a record of keys
	hashed  []int // those of them that are of the bucket key
	buckets *row.Bucketer

	numbers []uint16 // the bucket of each key
	arena   []byte   // the keys' bytes
	ends    []int    // of each bucket's keys, in sorted and at
	sorted  [][]byte // the keys, by bucket
	at      []int32  // which key of the batch each of sorted is
}

func (r *Router) newKeyReader(t *millrace.Table) (*keyReader, error) {
	if err := CheckLookup(t); err != nil {
		return nil, err
	}
	pk := t.Columns(t.PrimaryKey)
	return &keyReader{
		r: r, t: t, pk: indexes(len(pk)), hashed: columnIndexes(pk, t.BucketKey),
		buckets: row.NewBucketer(t.Columns(t.BucketKey), t.Buckets), ends: make([]int, t.Buckets),
	}, nil
}

// read gives the current row of each key, nil where there is none.
func (k *keyReader) read(ctx context.Context, keys arrow.RecordBatch) ([][]byte, error) {
	n := int(keys.NumRows())
	touched := k.sort(keys)
	k.r.metrics.lookupKeys.Add(float64(n))
	k.r.metrics.lookupBuckets.Add(float64(touched))
	rows := make([][]byte, n)
	var size atomic.Int64
	fetch := func(b uint16, from, to int) error {
		for lo := from; lo < to; lo += lookupChunk {
			hi := min(lo+lookupChunk, to)
			got, err := k.r.shard(k.t.Shards[b]).Lookup(ctx, k.t.BucketID(b), k.sorted[lo:hi])
			if err != nil {
				return err
			}
			for j, row := range got {
				rows[k.at[lo+j]] = row
				size.Add(int64(len(row)))
			}
			if size.Load() > maxLookupBytes {
				return errs.New(errs.TooLarge, "the rows of %d keys have more than %d bytes; ask for fewer keys at once", n, maxLookupBytes)
			}
		}
		return nil
	}
	// Small lookups are done before a goroutine would be started.
	eg := errgroup.Group{}
	from := 0
	for b, to := range k.ends {
		lo := from
		from = to
		switch {
		case lo == to:
		case touched == 1 || n <= 256:
			if err := fetch(uint16(b), lo, to); err != nil {
				return nil, err
			}
		default:
			eg.Go(func() error { return fetch(uint16(b), lo, to) })
		}
	}
	return rows, eg.Wait()
}

// sort puts the keys of a batch in the order of their buckets, of which it says how
// many there are.
func (k *keyReader) sort(keys arrow.RecordBatch) (touched int) {
	n := int(keys.NumRows())
	k.numbers = k.buckets.Buckets(keys, k.hashed, k.numbers[:0])
	clear(k.ends)
	for _, b := range k.numbers {
		if k.ends[b] == 0 {
			touched++
		}
		k.ends[b]++
	}
	sum := 0
	for b, count := range k.ends { // where each bucket begins, for now
		k.ends[b] = sum
		sum += count
	}
	k.sorted, k.at, k.arena = slices.Grow(k.sorted[:0], n)[:n], slices.Grow(k.at[:0], n)[:n], k.arena[:0]
	for i, b := range k.numbers {
		from := len(k.arena)
		k.arena = row.AppendKey(k.arena, keys, k.pk, i)
		k.sorted[k.ends[b]], k.at[k.ends[b]] = k.arena[from:], int32(i)
		k.ends[b]++
	}
	return touched
}
