package router

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"golang.org/x/sync/errgroup"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/storage/shard"
)

// Bounds of the rows that one lookup holds: 1,000 keys may all have the longest
// row there is.
const (
	maxLookupBytes = 64 << 20
	lookupChunk    = 64
	// maxLookupFetches is how many buckets a lookup reads at a time.
	maxLookupFetches = 64
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
	if err == nil {
		_, err = r.readsByKey(ctx, t, cols)
	}
	if err != nil {
		return nil, err
	}
	rows, err := k.read(ctx, keys)
	if err == nil {
		err = r.chargeFound(ctx, rows)
	}
	if err != nil {
		return nil, err
	}
	return r.found(t, rows, cols)
}

// LookupOrInsert reads the current rows of keys, after it has inserted a row for each
// key that had none; w makes that safe to be asked for again.
func (r *Router) LookupOrInsert(ctx context.Context, t *millrace.Table, keys arrow.RecordBatch, cols []millrace.Column, w *WriterSequence) (*LookupResult, error) {
	k, err := r.newKeyReader(t)
	if err == nil {
		err = checkInsert(t)
	}
	if err == nil {
		_, err = r.readsByKey(ctx, t, cols)
	}
	if err == nil {
		_, err = r.Writes(ctx, t)
	}
	if err != nil {
		return nil, err
	}
	rows, err := k.read(ctx, keys)
	if err == nil {
		err = k.insertAbsent(ctx, keys, rows, w)
	}
	if err == nil {
		err = r.chargeFound(ctx, rows)
	}
	if err != nil {
		return nil, err
	}
	return r.found(t, rows, cols)
}

// found decodes the rows that there are.
func (r *Router) found(t *millrace.Table, rows [][]byte, cols []millrace.Column) (*LookupResult, error) {
	rd := r.rowsOf(t, cols)
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
	rd   *guardedRows
	most int
	// inserts says that keys without a row get one.
	inserts bool
	passes  [2]Pass // to read, and to insert
}

// rowsOf reads compact rows of a table.
func (r *Router) rowsOf(t *millrace.Table, cols []millrace.Column) *guardedRows {
	find, guard := r.schemasOf(t), newColumnGuard(t, cols)
	return &guardedRows{Reader: row.NewReader(memory.DefaultAllocator, find, cols), guard: &guard, find: find}
}

// OpenLookups prepares lookups of some columns; with insert, keys without a row get
// one. An answer of more than about most bytes is refused with errs.TooLarge.
func (r *Router) OpenLookups(ctx context.Context, t *millrace.Table, cols []millrace.Column, most int, insert bool) (*Lookups, error) {
	k, err := r.newKeyReader(t)
	if err != nil {
		return nil, err
	}
	l := &Lookups{keys: k, most: most, inserts: insert}
	if insert {
		err = checkInsert(t)
	}
	if err == nil {
		l.passes[0], err = r.readsByKey(ctx, t, cols)
	}
	if err == nil && insert {
		l.passes[1], err = r.Writes(ctx, t)
	}
	if err != nil {
		return nil, err
	}
	l.rd = r.rowsOf(t, nullableColumns(cols))
	return l, nil
}

// Still says whether the caller may go on.
func (l *Lookups) Still() error {
	if err := still(l.passes[0]); err != nil {
		return err
	}
	return still(l.passes[1])
}

func nullableColumns(cols []millrace.Column) []millrace.Column {
	out := slices.Clone(cols)
	for i := range out {
		out[i].Nullable = true
	}
	return out
}

// Next is the answer for a batch of keys: as Lookup's, but with a row for each key,
// of NULLs where there is none. When one of the columns was dropped it is
// errs.SchemaChanged.
func (l *Lookups) Next(ctx context.Context, keys arrow.RecordBatch) (*LookupResult, error) {
	if err := l.Still(); err != nil {
		return nil, err
	}
	if err := l.rd.current(ctx, l.keys.r, l.keys.t.ID); err != nil {
		return nil, err
	}
	rows, err := l.keys.read(ctx, keys)
	if err == nil && l.inserts {
		err = l.keys.insertAbsent(ctx, keys, rows, nil)
	}
	if err == nil {
		err = l.keys.r.chargeFound(ctx, rows)
	}
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
	parted  []int // those that are of the partition
	buckets *row.Bucketer

	numbers []uint16 // the bucket of each key
	arena   []byte   // the keys' bytes
	ends    []int    // of each bucket's keys, in sorted and at
	runs    []keyRun // the buckets that there are keys of
	sorted  [][]byte // the keys, by bucket
	at      []int32  // which key of the batch each of sorted is
}

// keyRun is the keys of one bucket, in sorted.
type keyRun struct {
	id       millrace.BucketID
	shard    millrace.ShardID
	from, to int
}

func (r *Router) newKeyReader(t *millrace.Table) (*keyReader, error) {
	if err := CheckLookup(t); err != nil {
		return nil, err
	}
	pk := t.Columns(t.PrimaryKey)
	return &keyReader{
		r: r, t: t, pk: indexes(len(pk)), hashed: columnIndexes(pk, t.BucketKey), parted: columnIndexes(pk, t.PartitionBy),
		buckets: row.NewBucketer(t.Columns(t.BucketKey), t.Buckets), ends: make([]int, t.Buckets),
	}, nil
}

// read gives the current row of each key, nil where there is none.
func (k *keyReader) read(ctx context.Context, keys arrow.RecordBatch) ([][]byte, error) {
	n := int(keys.NumRows())
	if err := k.sort(ctx, keys); err != nil {
		return nil, err
	}
	k.r.foreground.add()
	k.r.metrics.lookupKeys.Add(float64(n))
	k.r.metrics.lookupBuckets.Add(float64(len(k.runs)))
	f := &lookupFetch{k: k, rows: make([][]byte, n)}
	away, err := f.here(ctx)
	if err == nil && len(away) > 0 {
		err = f.away(ctx, away)
	}
	if err != nil {
		return nil, err
	}
	return f.rows, nil
}

// lookupFetch fetches the rows of a batch of keys.
type lookupFetch struct {
	k    *keyReader
	rows [][]byte
	size atomic.Int64 // of the rows

	mu   sync.Mutex
	left []keyRun // of shards that are elsewhere
}

// here reads the buckets of shards that are here, and gives the others.
func (f *lookupFetch) here(ctx context.Context) ([]keyRun, error) {
	// Small lookups are done before a goroutine would be started.
	alone := len(f.k.runs) == 1 || len(f.rows) <= 256
	var eg errgroup.Group
	eg.SetLimit(maxLookupFetches)
	for _, run := range f.k.runs {
		sh, _ := f.k.r.o.Owners.Owner(run.shard)
		switch {
		case sh == nil:
			f.leave(run)
		case alone:
			if err := f.try(ctx, sh, run); err != nil {
				return nil, err
			}
		default:
			eg.Go(func() error { return f.try(ctx, sh, run) })
		}
	}
	err := eg.Wait()
	return f.left, err
}

// try reads the keys of a bucket, or leaves them when the shard has just moved.
func (f *lookupFetch) try(ctx context.Context, sh *shard.Shard, run keyRun) error {
	err := f.fetch(ctx, sh, run)
	if errs.Is(err, errs.NotOwner) {
		f.leave(run)
		return nil
	}
	return err
}

func (f *lookupFetch) leave(run keyRun) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left = append(f.left, run)
}

// fetch reads the keys of a bucket in a shard that is here.
func (f *lookupFetch) fetch(ctx context.Context, sh *shard.Shard, run keyRun) error {
	for lo := run.from; lo < run.to; lo += lookupChunk {
		hi := min(lo+lookupChunk, run.to)
		got, err := sh.Lookup(ctx, run.id, f.k.sorted[lo:hi])
		if err != nil {
			return err
		}
		if err := f.take(lo, got); err != nil {
			return err
		}
	}
	return nil
}

// take puts rows, which are those of the keys from a place of sorted on, where they
// belong.
func (f *lookupFetch) take(from int, rows [][]byte) error {
	for j, row := range rows {
		f.rows[f.k.at[from+j]] = row
		f.size.Add(int64(len(row)))
	}
	if f.size.Load() > maxLookupBytes {
		return errs.New(errs.TooLarge, "the rows of %d keys have more than %d bytes; ask for fewer keys at once", len(f.rows), maxLookupBytes)
	}
	return nil
}

// away reads buckets of shards that are elsewhere: each shard is asked once.
func (f *lookupFetch) away(ctx context.Context, runs []keyRun) error {
	byShard := map[millrace.ShardID][]keyRun{}
	var ids []millrace.ShardID
	for _, run := range runs {
		if byShard[run.shard] == nil {
			ids = append(ids, run.shard)
		}
		byShard[run.shard] = append(byShard[run.shard], run)
	}
	return f.k.r.onEach(ids, func(i int) error {
		of := byShard[ids[i]]
		return f.k.r.on(ctx, ids[i], func(sh *shard.Shard) error {
			for _, run := range of {
				if err := f.fetch(ctx, sh, run); err != nil {
					return err
				}
			}
			return nil
		}, func(rem Remote) error { return f.ask(ctx, rem, of) })
	})
}

// ask reads buckets of one shard that is elsewhere.
func (f *lookupFetch) ask(ctx context.Context, rem Remote, runs []keyRun) error {
	keys := make([]BucketKeys, len(runs))
	n := 0
	for i, run := range runs {
		keys[i] = BucketKeys{Bucket: run.id, Keys: f.k.sorted[run.from:run.to]}
		n += run.to - run.from
	}
	rows, err := rem.Lookup(ctx, keys, maxLookupBytes)
	if err != nil {
		return err
	}
	if len(rows) != n {
		return errs.New(errs.Internal, "a shard was asked for %d keys and answers for %d", n, len(rows))
	}
	for _, run := range runs {
		if err := f.take(run.from, rows[:run.to-run.from]); err != nil {
			return err
		}
		rows = rows[run.to-run.from:]
	}
	return nil
}

// sort puts the keys of a batch in the order of their buckets. Keys of partitions that
// do not exist are in none.
func (k *keyReader) sort(ctx context.Context, keys arrow.RecordBatch) error {
	n := int(keys.NumRows())
	k.numbers = k.buckets.Buckets(keys, k.hashed, k.numbers[:0])
	k.sorted, k.at, k.arena, k.runs = slices.Grow(k.sorted[:0], n)[:n], slices.Grow(k.at[:0], n)[:n], k.arena[:0], k.runs[:0]
	if k.t.Partitioned() {
		return k.sortPartitions(ctx, keys)
	}
	clear(k.ends)
	for _, b := range k.numbers {
		k.ends[b]++
	}
	sum := 0
	for b, count := range k.ends { // where each bucket begins, for now
		k.ends[b] = sum
		sum += count
	}
	for i, b := range k.numbers {
		k.put(k.ends[b], keys, int32(i))
		k.ends[b]++
	}
	from := 0
	for b, to := range k.ends {
		if from < to {
			k.runs = append(k.runs, keyRun{id: k.t.BucketID(uint16(b)), shard: k.t.Shards[b], from: from, to: to})
		}
		from = to
	}
	return nil
}

// put puts key i of a batch at a place of sorted.
func (k *keyReader) put(place int, keys arrow.RecordBatch, i int32) {
	from := len(k.arena)
	k.arena = row.AppendKey(k.arena, keys, k.pk, int(i))
	k.sorted[place], k.at[place] = k.arena[from:], i
}

func (k *keyReader) sortPartitions(ctx context.Context, keys arrow.RecordBatch) error {
	gs := groupRows(keys, k.parted)
	targets, err := k.r.targets(ctx, k.t, keys, k.parted, gs.first)
	if err != nil {
		return err
	}
	if err := inShards(k.t, targets); err != nil {
		return err
	}
	rows := make([]int32, 0, len(gs.of))
	for i, g := range gs.of {
		if p := targets[g].p; p != nil && p.State != millrace.PartitionExpired {
			rows = append(rows, int32(i))
		}
	}
	rows, runs := arrange(rows, gs.of, len(targets), k.numbers, k.t.Buckets)
	for at, i := range rows {
		k.put(at, keys, i)
	}
	for _, run := range runs {
		p := targets[run.group].p
		k.runs = append(k.runs, keyRun{id: p.BucketID(run.bucket), shard: p.Shards[run.bucket], from: run.from, to: run.to})
	}
	return nil
}
