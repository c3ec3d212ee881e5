package shard

import (
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/storage/kv"
)

// maxKeptScratch is the largest buffer for keys that is kept for the next op.
const maxKeptScratch = 1 << 20

// change is what a row of an op does to the row with its key: there was none when
// old is nil, there is none any more when next is.
type change struct {
	key       string // of the store
	old, next []byte
	// mine says that old stood in the group before, where it goes back when the op
	// is refused.
	mine bool
}

// changes merges the rows of an op into the state as of what was prepared before,
// and makes the group's rows what they are after it. When it fails, they are what
// they were.
func (s *Shard) changes(g *group, b *bucketState, op *Op) (_ []change, err error) {
	out := make([]change, 0, len(op.Keys))
	defer func() {
		if err != nil {
			undo(g, out)
		}
		if cap(s.scratch) > maxKeptScratch {
			s.scratch = nil
		}
	}()
	keys := s.storeKeys(b, op.Keys)
	onlyKey := op.Set != nil && b.onlyKeySet(op.Set)
	bytes, from := 0, 0
	for i, k := range op.Keys {
		to := from + kv.RowPrefixLen + len(k)
		c := change{key: keys[from:to]}
		if c.old, c.mine, err = s.rowBefore(g, c.key, s.scratch[from:to]); err != nil {
			return out, err
		}
		from = to
		if c.old != nil && row.SchemaIDOf(c.old) != b.table.Schema.ID {
			return out, errs.New(errs.CorruptData, "shard: a row of bucket %s is of schema %d, which was never written", b.id, row.SchemaIDOf(c.old))
		}
		var changed bool
		if c.next, changed = b.merge(op, i, c.old, onlyKey); !changed {
			continue
		}
		if err := checkRow(c.next); err != nil {
			return out, err
		}
		bytes += len(c.old) + len(c.next) + 2*recordOverhead
		if err := checkOp(op, bytes); err != nil {
			return out, err
		}
		out = append(out, c)
		g.rows[c.key] = c.next
	}
	return out, nil
}

// undo takes changes out of the group's rows, the last first.
func undo(g *group, changes []change) {
	for i := len(changes) - 1; i >= 0; i-- {
		if c := &changes[i]; c.mine {
			g.rows[c.key] = c.old
		} else {
			delete(g.rows, c.key)
		}
	}
}

// storeKeys are the store's keys of rows, one after the other: as one string, and
// in s.scratch.
func (s *Shard) storeKeys(b *bucketState, keys [][]byte) string {
	s.scratch = s.scratch[:0]
	for _, k := range keys {
		s.scratch = kv.AppendRowKey(s.scratch, b.id, k)
	}
	return string(s.scratch)
}

// merge is the row after row i of the op, nil when there is none, and whether
// anything changes. A row that is written again as it is counts as a change.
func (b *bucketState) merge(op *Op, i int, old []byte, onlyKey bool) (next []byte, changed bool) {
	switch {
	case op.kind(i) == Delete && old == nil:
		return nil, false
	case op.kind(i) == Delete && op.Set == nil:
		return nil, true
	case op.kind(i) == Delete:
		next := b.codec.AppendMerged(nil, old, b.nulls, b.withoutKey(op.Set))
		if b.allNull(next) {
			return nil, true
		}
		return next, !onlyKey
	case op.Set == nil:
		return op.Rows[i], true
	case old != nil && onlyKey:
		return old, false
	}
	return b.codec.AppendMerged(nil, old, op.Rows[i], op.Set), true
}

// rowBefore is the row at a store key as of what was prepared before: this group
// (then mine is set), the one in flight, the store.
func (s *Shard) rowBefore(g *group, key string, raw []byte) (_ []byte, mine bool, err error) {
	if r, ok := g.rows[key]; ok {
		return r, true, nil
	}
	if s.inFlight != nil {
		if r, ok := s.inFlight.rows[key]; ok {
			return r, false, nil
		}
	}
	r, err := s.kv.RowByStoreKey(raw)
	return r, false, err
}
