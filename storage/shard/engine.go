package shard

import (
	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row"
)

// engine is what the merge engine and the options of a keyed table make of a write.
// It is chosen once a version of the table and belongs to the loop.
type engine struct {
	table *millrace.Table
	codec *row.Codec
	inKey []bool // by column
	nulls []byte // a row of NULLs
	// update is what an upsert makes of the row that stands under its key.
	update updateFunc
	// wholeRows refuses partial updates.
	wholeRows bool
	// number is the auto-increment column, -1 when there is none. It is out of reach of
	// writes: given to a row that is new, and kept.
	number    int
	deletes   millrace.DeleteBehavior
	unchanged bool  // a row that comes out as it was is a change, too
	broken    error // why the table takes nothing
}

// updateFunc merges patch, a whole row when set is nil, else one of the columns in
// set, into the row with its key. It says whether anything changes: a row that is
// written again as it is counts as a change.
type updateFunc func(old, patch []byte, set []bool) (next []byte, changed bool, err error)

func newEngine(t *millrace.Table, codec *row.Codec) *engine {
	e := &engine{
		table: t, codec: codec, inKey: make([]bool, len(t.Schema.Columns)), nulls: codec.AppendPartial(nil, nil, nil, 0),
		deletes: t.Options.Deletes, unchanged: !t.Options.SkipUnchanged, number: t.Schema.AutoIncrement(),
	}
	for _, i := range t.KeyIndexes(t.PrimaryKey) {
		e.inKey[i] = true
	}
	e.choose()
	return e
}

// choose sets what the table's merge engine says.
func (e *engine) choose() {
	e.update = e.lastRow
	o := &e.table.Options
	switch o.MergeEngine {
	case millrace.LastRow:
	case millrace.FirstRow:
		e.update = firstRow
		e.onlyWhole()
	case millrace.Versioned:
		version := e.table.Schema.IndexID(o.VersionColumn)
		if version < 0 {
			e.broken = errs.New(errs.Internal, "table %s has no version column", e.table.Path)
			return
		}
		e.update = e.versioned(version)
		e.onlyWhole()
	case millrace.Aggregation:
		agg, err := row.NewAggregator(e.codec, e.inKey, o.Aggregates)
		e.broken = err
		e.update = aggregation(agg)
	default:
		e.broken = errs.New(errs.Internal, "table %s has the merge engine %q, which this release does not know", e.table.Path, o.MergeEngine)
	}
}

// onlyWhole makes an engine one that decides between whole rows: it takes neither
// partial updates nor deletes.
func (e *engine) onlyWhole() {
	e.wholeRows = true
	if e.deletes != millrace.DisableDeletes {
		e.deletes = millrace.IgnoreDeletes
	}
}

// keyedWrite is an op on its way through the engine.
type keyedWrite struct {
	*engine
	op      *Op
	set     []bool // the columns that the rows carry; nil: all
	onlyKey bool   // set names key columns alone
	cleared []bool // the columns that a delete makes NULL; nil: it removes the row
}

// begin takes an op up, unless the table does not take such ops.
func (e *engine) begin(op *Op) (keyedWrite, error) {
	w := keyedWrite{engine: e, op: op, set: op.Set}
	switch {
	case e.broken != nil:
		return w, e.broken
	case op.Kinds != nil && e.deletes == millrace.DisableDeletes && op.has(Delete):
		return w, errs.New(errs.DeleteDisabled, "table %s takes no deletes: its property table.delete.behavior is DISABLE", e.table.Path)
	case op.Set != nil && e.wholeRows && !e.whole(op.Set) && op.has(Upsert):
		return w, errs.New(errs.PartialUpdateNotAllowed, "table %s has the merge engine %s, which takes whole rows: name all columns", e.table.Path, e.table.Options.MergeEngine)
	}
	if e.number >= 0 {
		w.set = e.withoutNumber(op.Set)
	}
	if op.Set == nil {
		return w, nil
	}
	w.onlyKey = true
	w.cleared = make([]bool, len(w.set))
	for i, on := range w.set {
		w.cleared[i] = on && !e.inKey[i]
		w.onlyKey = w.onlyKey && !w.cleared[i]
	}
	return w, nil
}

// whole says whether all columns are named that a row can carry.
func (e *engine) whole(set []bool) bool {
	for i, on := range set {
		if !on && i != e.number {
			return false
		}
	}
	return true
}

// withoutNumber is the columns of an op but for the one that the server numbers.
func (e *engine) withoutNumber(set []bool) []bool {
	out := make([]bool, len(e.inKey))
	for i := range out {
		out[i] = i != e.number && (set == nil || set[i])
	}
	return out
}

// merge is the row after row i of the op, nil when there is none, and whether
// anything changes.
func (w *keyedWrite) merge(i int, old []byte) (next []byte, changed bool, err error) {
	switch kind := w.op.kind(i); {
	case kind == Delete:
		next, changed = w.remove(old)
	case old == nil:
		next, err = w.insert(i)
		return next, true, err
	case kind == InsertIfAbsent, w.onlyKey:
		return old, false, nil
	default:
		next, changed, err = w.update(old, w.op.Rows[i], w.set)
	}
	if changed && !w.unchanged && next != nil && row.Equal(old, next) {
		changed = false
	}
	return next, changed, err
}

// insert is the row of a key that was not there. What a partial row holds in columns
// that it does not name is not taken.
func (w *keyedWrite) insert(i int) ([]byte, error) {
	if w.set == nil {
		return w.op.Rows[i], nil
	}
	next := w.codec.AppendMerged(nil, nil, w.op.Rows[i], w.set)
	if w.number >= 0 {
		if i >= len(w.op.IDs) {
			return nil, errs.New(errs.Internal, "a row of table %s came without a number for its column %q", w.table.Path, w.table.Schema.Columns[w.number].Name)
		}
		w.codec.SetInt(next, w.number, w.op.IDs[i])
	}
	return next, nil
}

// remove is what a delete leaves of a row.
func (w *keyedWrite) remove(old []byte) (next []byte, changed bool) {
	switch {
	case old == nil:
		return nil, false
	case w.deletes == millrace.IgnoreDeletes:
		return old, false
	case w.cleared == nil:
		return nil, true
	}
	next = w.codec.AppendMerged(nil, old, w.nulls, w.cleared)
	if w.allNull(next) {
		return nil, true
	}
	return next, !w.onlyKey
}

// allNull says whether every column outside the key is NULL.
func (e *engine) allNull(r []byte) bool {
	for i, k := range e.inKey {
		if !k && !e.codec.IsNull(r, i) {
			return false
		}
	}
	return true
}
