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
	// Record has one row for each key that was found, in key order; of LookupAll one
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
	rows, err := r.lookupRows(ctx, t, keys)
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

// LookupAll is Lookup with a row for each key: one of NULLs where there is none.
// All columns of the record are nullable. It refuses, with errs.TooLarge, when
// there would be more than about most bytes.
func (r *Router) LookupAll(ctx context.Context, t *millrace.Table, keys arrow.RecordBatch, cols []millrace.Column, most int) (*LookupResult, error) {
	rows, err := r.lookupRows(ctx, t, keys)
	if err != nil {
		return nil, err
	}
	nullable := slices.Clone(cols)
	for i := range nullable {
		nullable[i].Nullable = true
	}
	rd := row.NewReader(memory.DefaultAllocator, (&Plan{Table: t}).schemas(r), nullable)
	res := &LookupResult{Found: make([]bool, len(rows))}
	for i, enc := range rows {
		res.Found[i] = enc != nil
		if enc == nil {
			rd.AppendNull()
		} else if err := rd.Append(enc); err != nil {
			return nil, err
		}
		if rd.Bytes() > most {
			rd.Close()
			return nil, errs.New(errs.TooLarge, "the rows of %d keys take more than %d bytes; ask for fewer keys at once, or for fewer columns", len(rows), most)
		}
	}
	res.Record = rd.Record()
	return res, nil
}

// lookupRows reads the current rows of keys, nil where there is none.
func (r *Router) lookupRows(ctx context.Context, t *millrace.Table, keys arrow.RecordBatch) ([][]byte, error) {
	if err := CheckLookup(t); err != nil {
		return nil, err
	}
	n := int(keys.NumRows())
	pk := t.Columns(t.PrimaryKey)
	buckets := row.NewBucketer(t.Columns(t.BucketKey), t.Buckets).Buckets(keys, columnIndexes(pk, t.BucketKey), nil)
	type group struct {
		keys [][]byte
		at   []int
	}
	groups := map[uint16]*group{}
	all := indexes(len(pk))
	for i := range n {
		g := groups[buckets[i]]
		if g == nil {
			g = &group{}
			groups[buckets[i]] = g
		}
		g.keys = append(g.keys, row.AppendKey(nil, keys, all, i))
		g.at = append(g.at, i)
	}
	r.metrics.lookupKeys.Add(float64(n))
	r.metrics.lookupBuckets.Add(float64(len(groups)))

	rows := make([][]byte, n)
	var size atomic.Int64
	fetch := func(b uint16, g *group) error {
		at := g.at
		for keys := range slices.Chunk(g.keys, lookupChunk) {
			got, err := r.shard(t.Shards[b]).Lookup(ctx, t.BucketID(b), keys)
			if err != nil {
				return err
			}
			for j, row := range got {
				rows[at[j]] = row
				size.Add(int64(len(row)))
			}
			if size.Load() > maxLookupBytes {
				return errs.New(errs.TooLarge, "the rows of %d keys have more than %d bytes; ask for fewer keys at once", n, maxLookupBytes)
			}
			at = at[len(keys):]
		}
		return nil
	}
	// Small lookups are done before a goroutine would be started.
	eg := errgroup.Group{}
	for b, g := range groups {
		if len(groups) == 1 || n <= 256 {
			if err := fetch(b, g); err != nil {
				return nil, err
			}
			continue
		}
		eg.Go(func() error { return fetch(b, g) })
	}
	return rows, eg.Wait()
}
