package storagetest

import (
	"slices"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// apply does what the rows of a write do, one after the other, up to one that is
// refused.
func (b *Bucket) apply(t *Table, w *Write) errs.Code {
	b.undo = b.undo[:0]
	if !t.Keyed {
		for _, r := range w.Rows {
			b.Log = append(b.Log, Change{millrace.Insert, r})
		}
		return ""
	}
	if code := t.refuses(w); code != "" {
		return code
	}
	for i, r := range w.Rows {
		var code errs.Code
		old, present := b.State[t.Key(r)]
		switch {
		case w.Deletes != nil && w.Deletes[i]:
			b.delete(t, r, w.Set)
		case !present:
			b.insert(t, t.numbered(w, i), w.Set)
		case w.Absent != nil && w.Absent[i]:
		default:
			code = b.upsert(t, old, r, w.Set)
		}
		if code != "" {
			return code
		}
	}
	return ""
}

// refuses is the code of a write that the table does not take, whatever its rows meet.
func (t *Table) refuses(w *Write) errs.Code {
	upserts := false
	for i := range w.Rows {
		del := w.Deletes != nil && w.Deletes[i]
		if del && t.Options.Deletes == millrace.DisableDeletes {
			return errs.DeleteDisabled
		}
		upserts = upserts || !del && (w.Absent == nil || !w.Absent[i])
	}
	for i, named := range w.Set {
		if !named && i != t.Schema.AutoIncrement() && upserts && t.wholeRows() {
			return errs.PartialUpdateNotAllowed
		}
	}
	return ""
}

// wholeRows says whether the merge engine chooses between rows: then there are neither
// partial updates nor deletes.
func (t *Table) wholeRows() bool {
	return t.Options.MergeEngine == millrace.FirstRow || t.Options.MergeEngine == millrace.Versioned
}

// numbered is a row of a write with the number that is meant for it.
func (t *Table) numbered(w *Write, i int) Row {
	n := t.Schema.AutoIncrement()
	if n < 0 {
		return w.Rows[i]
	}
	r := slices.Clone(w.Rows[i])
	if r[n] = w.IDs[i]; t.Schema.Columns[n].Type.Kind == millrace.Int {
		r[n] = int32(w.IDs[i])
	}
	return r
}

// fixed says that no write changes a column of a row that is there.
func (t *Table) fixed(col int) bool { return t.inKey(col) || col == t.Schema.AutoIncrement() }

// insert adds a row that is not there.
func (b *Bucket) insert(t *Table, r Row, set []bool) {
	next := slices.Clone(r)
	for i := range next {
		if set != nil && !set[i] && i != t.Schema.AutoIncrement() {
			next[i] = nil
		}
	}
	b.put(t.Key(r), next)
	b.Log = append(b.Log, Change{millrace.Insert, next})
}

// upsert writes a row over one that is there.
func (b *Bucket) upsert(t *Table, old, r Row, set []bool) errs.Code {
	named := set == nil
	for i := range set {
		named = named || set[i] && !t.fixed(i)
	}
	if !named {
		return ""
	}
	next := slices.Clone(old)
	switch t.Options.MergeEngine {
	case millrace.FirstRow:
		return ""
	case millrace.Versioned:
		v := t.Schema.IndexID(t.Options.VersionColumn)
		if old[v] != nil && (r[v] == nil || order(r[v], old[v]) < 0) {
			return ""
		}
	default:
	}
	for i := range next {
		if set != nil && !set[i] || t.fixed(i) {
			continue
		}
		next[i] = r[i]
		if t.Options.MergeEngine == millrace.Aggregation {
			var code errs.Code
			if next[i], code = aggregate(t, i, old[i], r[i]); code != "" {
				return code
			}
		}
	}
	b.update(t, old, next)
	return ""
}

// delete removes a row, or makes some of its columns NULL.
func (b *Bucket) delete(t *Table, r Row, set []bool) {
	old, present := b.State[t.Key(r)]
	if !present || t.Options.Deletes == millrace.IgnoreDeletes || t.wholeRows() {
		return
	}
	next := slices.Clone(old)
	named, left := set == nil, false
	for i := range next {
		if t.inKey(i) {
			continue
		}
		if set == nil || set[i] && !t.fixed(i) {
			next[i], named = nil, true
		}
		left = left || next[i] != nil
	}
	switch {
	case !left || set == nil:
		b.put(t.Key(r), nil)
		b.Log = append(b.Log, Change{millrace.Delete, old})
	case named:
		b.update(t, old, next)
	}
}

func (b *Bucket) update(t *Table, old, next Row) {
	if t.Options.SkipUnchanged && next.Equal(old) {
		return
	}
	b.put(t.Key(next), next)
	if t.Options.Image != millrace.WALImage {
		b.Log = append(b.Log, Change{millrace.UpdateBefore, old})
	}
	b.Log = append(b.Log, Change{millrace.UpdateAfter, next})
}

// put makes a row what stands under its key; nil removes it.
func (b *Bucket) put(key string, r Row) {
	b.undo = append(b.undo, entry{key, b.State[key]})
	b.set(key, r)
}

func (b *Bucket) set(key string, r Row) {
	if r == nil {
		delete(b.State, key)
		return
	}
	b.State[key] = r
}

// revert takes the changes of the write at hand back.
func (b *Bucket) revert() {
	for _, e := range slices.Backward(b.undo) {
		b.set(e.key, e.row)
	}
	b.undo = b.undo[:0]
}
