package router

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/storage/shard"
)

// Mode is the kind of a write.
type Mode string

// The modes.
const (
	Append Mode = "append"
	Upsert Mode = "upsert"
	Delete Mode = "delete"
)

// ParseMode reads a mode; "" is the default of the table's kind. A mode that the
// kind does not take is errs.WrongTableKind.
func ParseMode(s string, t *millrace.Table) (Mode, error) {
	switch Mode(s) {
	case "":
		if t.Keyed() {
			return Upsert, nil
		}
		return Append, nil
	case Append:
		if t.Keyed() {
			return "", errs.New(errs.WrongTableKind, "table %s has a primary key and takes upsert and delete, not append", t.Path)
		}
	case Upsert, Delete:
		if !t.Keyed() {
			return "", errs.New(errs.WrongTableKind, "table %s is a log table and takes append only; for %s create the table with a primary_key", t.Path, s)
		}
	default:
		return "", errs.New(errs.InvalidValue, "mode %q is not one of append, upsert, delete", clip(s))
	}
	return Mode(s), nil
}

// WriteRequest is a batch of rows for a table, decoded and checked against it.
type WriteRequest struct {
	Table *millrace.Table
	Mode  Mode
	// Rows hold all columns of the table (whole rows), some (Partial), or, with
	// Delete, at least the primary key. The router borrows them for the call.
	Rows row.Rows
	// IfAbsent writes rows only where their key is not there.
	IfAbsent bool
	// Partial says that Rows.Columns were named by the client: an update of these
	// columns alone, or with Delete a partial delete.
	Partial bool
	Writer  *WriterSequence
	// Line is the stream that the batch is of; nil when it is of none.
	Line *Line
	// FirstRow is the number of the first row in the client's request, for errors; where
	// Rows have Numbers those count.
	FirstRow int64
}

// rowNumber is the number of row i in the client's request.
func (req *WriteRequest) rowNumber(i int) int64 { return req.Rows.Number(i, req.FirstRow) }

// RefusedRows is an error about some rows of a write, found before anything of it was
// written: the others may be written without them. It unwraps to the errs.Error that
// names them.
type RefusedRows struct {
	Rows []int32 // of the request's Rows, rising
	err  *errs.Error
}

func (e *RefusedRows) Error() string { return e.err.Error() }

// Unwrap is the error as clients see it.
func (e *RefusedRows) Unwrap() error { return e.err }

// refuse makes the error of one row.
func (req *WriteRequest) refuse(i int, code errs.Code, field, format string, args ...any) error {
	return &RefusedRows{Rows: []int32{int32(i)}, err: errs.Row(code, req.rowNumber(i), field, format, args...)}
}

// Range is [Start, End) of a bucket's offsets.
type Range struct {
	Start millrace.Offset `json:"start"`
	End   millrace.Offset `json:"end"`
}

// WriteResult says what became of a batch.
type WriteResult struct {
	Rows int64 // of the request; those of refused buckets are in Rejected
	// Offsets are by bucket key; a bucket where nothing changed has an empty range,
	// a duplicate whose offsets are forgotten has none.
	Offsets map[string]Range
	// Replayed is how many of the rows had been taken before, under the same number.
	Replayed int64
	// Outcomes are by bucket key when a part was refused or its fate is unknown:
	// accepted, rejected, unknown. Nil when all went well.
	Outcomes map[string]string
	Rejected int64 // rows of rejected and unknown parts
}

// Write makes a batch durable. When some buckets took their part and others did
// not, both a result and an error are given.
func (r *Router) Write(ctx context.Context, req *WriteRequest) (*WriteResult, error) {
	w, err := r.StartWrite(ctx, req)
	if err != nil {
		return nil, err
	}
	return w.Wait(ctx)
}

// PendingWrite is a batch under way.
type PendingWrite struct {
	r     *Router
	rows  int64
	parts []pendingPart
}

type pendingPart struct {
	key  string
	rows int64
	opWrite
}

// StartWrite checks and encodes a batch and hands it to the shards, in order after
// what was started before on the same buckets. It returns when the rows are no
// longer needed; Wait gives the outcome.
func (r *Router) StartWrite(ctx context.Context, req *WriteRequest) (*PendingWrite, error) {
	r.foreground.add()
	if _, err := r.Writes(ctx, req.Table); err != nil {
		return nil, err
	}
	if err := checkWrite(req); err != nil {
		return nil, err
	}
	w := &PendingWrite{r: r, rows: int64(req.Rows.Len())}
	if w.rows == 0 {
		return w, nil
	}
	if err := checkNumber(req); err != nil {
		return nil, err
	}
	split, err := r.split(ctx, req)
	if err != nil {
		return nil, err
	}
	ops := make([]*shard.Op, len(split)) // encoding may refuse a row: nothing is started before
	for i, s := range split {
		op, err := encodeOp(req, s)
		if err != nil {
			return nil, err
		}
		ops[i] = op
	}
	if err := r.chargeWrite(ctx, split, ops); err != nil {
		return nil, err
	}
	if err := r.number(ctx, req, split, ops); err != nil {
		return nil, err
	}
	if err := r.makePartitions(ctx, req, split); err != nil {
		return nil, err
	}
	if req.Table.Partitioned() {
		if err := r.tell(ctx, req.Table); err != nil {
			return nil, err
		}
	}
	r.spreadRows(req, split)
	for i := range split {
		ops[i].Bucket = split[i].id(req.Table)
	}
	w.parts = make([]pendingPart, len(split))
	for i, s := range split {
		part := &w.parts[i]
		part.key, part.rows = millrace.BucketKey(s.target.name(), s.bucket), int64(len(s.rows))
		part.opWrite = opWrite{r: r, op: ops[i], id: s.shard(req.Table)}
		part.sh, _ = r.o.Owners.Owner(part.id)
	}
	if err := req.Line.next(ctx, req.Writer != nil, w.parts); err != nil {
		return nil, err
	}
	r.start(ctx, w.parts)
	req.Line.started(w.parts)
	return w, nil
}

// Wait is the outcome of the batch, when all buckets have answered or ctx ends.
func (w *PendingWrite) Wait(ctx context.Context) (*WriteResult, error) {
	res := &WriteResult{Rows: w.rows, Offsets: map[string]Range{}}
	var first error
	replayed := 0
	outcomes := map[string]string{}
	for i := range w.parts {
		part := &w.parts[i]
		got, err := part.wait(ctx)
		if err != nil {
			outcomes[part.key] = outcomeOf(err)
			res.Rejected += part.rows
			w.r.metrics.writesRefused.Inc()
			if first == nil || weight(err) > weight(first) {
				first = err
			}
			continue
		}
		outcomes[part.key] = "accepted"
		if got.Duplicate {
			res.Replayed += part.rows
			replayed++
		}
		if got.Start != millrace.NoOffset {
			res.Offsets[part.key] = Range{Start: got.Start, End: got.End}
		}
	}
	w.r.metrics.rowsWritten.Add(float64(res.Rows - res.Rejected))
	if replayed > 0 && replayed == len(w.parts) {
		res.Replayed = res.Rows // with those that change nothing, such as -U
	}
	if first == nil {
		return res, nil
	}
	res.Outcomes = outcomes
	return res, first
}

// weight says which of several parts' errors tells most: what is not known weighs more
// than what is refused, and another body under a key more than what else is.
func weight(err error) int {
	switch errs.CodeOf(err) {
	case errs.UnknownOutcome:
		return 2
	case errs.IdempotencyKeyReused:
		return 1
	default:
		return 0
	}
}

func outcomeOf(err error) string {
	if errs.Is(err, errs.UnknownOutcome) {
		return "unknown"
	}
	return "rejected"
}

// checkWrite refuses what the table does not take, whatever the rows hold.
func checkWrite(req *WriteRequest) error {
	t := req.Table
	if _, err := ParseMode(string(req.Mode), t); err != nil {
		return err
	}
	if err := req.Writer.check(); err != nil {
		return err
	}
	if req.Partial && !t.Keyed() {
		return errs.New(errs.WrongTableKind, "table %s is a log table: its rows are whole, columns cannot be named", t.Path)
	}
	if !t.Keyed() {
		return nil
	}
	for _, id := range t.PrimaryKey {
		if !slices.ContainsFunc(req.Rows.Columns, func(c millrace.Column) bool { return c.ID == id }) {
			return errs.New(errs.MissingKey, "the write does not name primary key column %q of table %s", t.Schema.Columns[t.Schema.IndexID(id)].Name, t.Path)
		}
	}
	if req.Partial {
		return checkPartial(req)
	}
	return nil
}

// checkPartial sees that the table takes such updates, and that the columns that get
// no value may be without one.
func checkPartial(req *WriteRequest) error {
	t := req.Table
	engine := t.Options.MergeEngine
	whole := req.Mode != Delete && !req.IfAbsent && (engine == millrace.FirstRow || engine == millrace.Versioned)
	for _, c := range t.Schema.Columns {
		named := slices.ContainsFunc(req.Rows.Columns, func(n millrace.Column) bool { return n.ID == c.ID })
		inKey := slices.Contains(t.PrimaryKey, c.ID)
		switch {
		case req.Mode == Delete && named && c.AutoIncrement:
			return errs.New(errs.NullNotAllowed, "a partial delete would make column %q NULL, which the server numbers", c.Name)
		case req.Mode == Delete && named && !inKey && !c.Nullable:
			return errs.New(errs.NullNotAllowed, "a partial delete would make column %q NULL, and it is NOT NULL", c.Name)
		case req.IfAbsent && !named && !c.Nullable && !c.AutoIncrement:
			return errs.New(errs.MissingColumn, "rows of their key alone cannot be inserted into table %s: column %q is NOT NULL", t.Path, c.Name)
		case whole && !named && !c.AutoIncrement:
			return errs.New(errs.PartialUpdateNotAllowed, "table %s has the merge engine %s, which takes whole rows: name column %q, too", t.Path, engine, c.Name)
		case req.Mode != Delete && !named && !c.Nullable && !c.AutoIncrement:
			return errs.New(errs.MissingColumn, "a partial update may leave out nullable columns only, and %q is NOT NULL", c.Name)
		}
	}
	return nil
}

// bucketRows is the rows of a batch that go to one bucket.
type bucketRows struct {
	target *target // nil on a table without partitions
	bucket uint16
	rows   []int32
}

// id is the bucket. REQUIRES: its partition was made.
func (b *bucketRows) id(t *millrace.Table) millrace.BucketID {
	if b.target == nil {
		return t.BucketID(b.bucket)
	}
	return b.target.p.BucketID(b.bucket)
}

func (b *bucketRows) shard(t *millrace.Table) millrace.ShardID {
	if b.target == nil {
		return t.Shards[b.bucket]
	}
	return b.target.p.Shards[b.bucket]
}

// split gives each row its partition and bucket (R4). Rows whose change type is -U are
// left out. Rows without a bucket key get their buckets from spreadRows.
func (r *Router) split(ctx context.Context, req *WriteRequest) ([]bucketRows, error) {
	t := req.Table
	n := req.Rows.Len()
	all := make([]int32, 0, n)
	for i := range n {
		if req.Rows.Changes == nil || req.Rows.Changes[i] != millrace.UpdateBefore {
			all = append(all, int32(i))
		}
	}
	var gs groups
	var targets []target
	if t.Partitioned() {
		var err error
		if all, gs, targets, err = r.placeRows(ctx, req, all); err != nil {
			return nil, err
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	var buckets []uint16
	if len(t.BucketKey) > 0 && t.Buckets > 1 {
		cols := columnIndexes(req.Rows.Columns, t.BucketKey)
		buckets = row.NewBucketer(t.Columns(t.BucketKey), t.Buckets).Buckets(req.Rows.Record, cols, nil)
	}
	rows, runs := arrange(all, gs.of, len(targets), buckets, t.Buckets)
	out := make([]bucketRows, len(runs))
	for i, run := range runs {
		out[i] = bucketRows{bucket: run.bucket, rows: rows[run.from:run.to]}
		if targets != nil {
			out[i].target = &targets[run.group]
		}
	}
	return out, nil
}

// spreadRows gives the rows of tables without a bucket key their buckets, those of
// each partition by themselves.
func (r *Router) spreadRows(req *WriteRequest, parts []bucketRows) {
	if len(req.Table.BucketKey) > 0 {
		return
	}
	for i := range parts {
		of := partitionKey{table: req.Table.ID}
		if t := parts[i].target; t != nil {
			of.partition = t.p.ID
		}
		parts[i].bucket = r.spread.bucket(req, of)
	}
}

// columnIndexes are the positions of columns in a list of them.
func columnIndexes(cols []millrace.Column, ids []millrace.ColumnID) []int {
	out := make([]int, len(ids))
	for i, id := range ids {
		out[i] = slices.IndexFunc(cols, func(c millrace.Column) bool { return c.ID == id })
	}
	return out
}

// spreader gives the batches of tables without a bucket key their buckets in turn.
type spreader struct {
	next sync.Map // partitionKey → *atomic.Uint32
}

// partitionKey is a partition of a table, 0 where it has none.
type partitionKey struct {
	table     millrace.TableID
	partition millrace.PartitionID
}

func (s *spreader) bucket(req *WriteRequest, of partitionKey) uint16 {
	if req.Writer != nil { // a retry meets its first copy
		return row.SpreadBucket(req.Writer.scope(), req.Writer.Seq, req.Table.Buckets)
	}
	c, ok := s.next.Load(of)
	if !ok {
		c, _ = s.next.LoadOrStore(of, &atomic.Uint32{})
	}
	return uint16((c.(*atomic.Uint32).Add(1) - 1) % uint32(req.Table.Buckets))
}
