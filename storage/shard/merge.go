package shard

import (
	"github.com/millrace/millrace/storage/kv"
)

const (
	// maxKeptScratch is the largest buffer for keys that is kept for the next op.
	maxKeptScratch = 1 << 20
	// mergeRows is how many rows are read from the store at once.
	mergeRows = 256
)

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
func (s *Shard) changes(g *group, b *bucketState, op *Op) ([]change, error) {
	w, err := b.engine.begin(op)
	if err != nil {
		return nil, err
	}
	m := merging{s: s, g: g, b: b, op: op, write: w, out: make([]change, 0, len(op.Keys)), keys: s.storeKeys(b, op.Keys)}
	err = m.run()
	if err != nil {
		undo(g, m.out)
	}
	if cap(s.scratch) > maxKeptScratch {
		s.scratch = nil
	}
	clear(s.reading.rows)
	clear(s.reading.got)
	return m.out, err
}

// merging is the merge of one op on its way.
type merging struct {
	s     *Shard
	g     *group
	b     *bucketState
	op    *Op
	write keyedWrite
	keys  string // of the store, one after the other, as in s.scratch
	from  int    // in keys, of the next row's
	bytes int    // of the log, so far
	out   []change
}

// run merges some rows at a time, so that an op that is too large is found before all
// the rows that it meets are in memory.
func (m *merging) run() error {
	for at := 0; at < len(m.op.Keys); at += mergeRows {
		some := m.op.Keys[at:min(at+mergeRows, len(m.op.Keys))]
		stored, err := m.stored(some)
		if err != nil {
			return err
		}
		for i, k := range some {
			if err := m.row(at+i, len(k), stored[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// row merges row i, whose primary key has some bytes; stored is the row in the store.
func (m *merging) row(i, keyLen int, stored []byte) error {
	c := change{key: m.keys[m.from : m.from+kv.RowPrefixLen+keyLen]}
	m.from += len(c.key)
	var prepared bool
	if c.old, c.mine, prepared = m.s.preparedRow(m.g, c.key); !prepared {
		c.old = stored
	}
	if c.old != nil {
		var err error
		if c.old, err = m.b.rewrite(c.old); err != nil {
			return err
		}
	}
	var changed bool
	var err error
	if c.next, changed, err = m.write.merge(i, c.old); err != nil || !changed {
		return err
	}
	if err := checkRow(c.next); err != nil {
		return err
	}
	m.bytes += len(c.old) + len(c.next) + 2*recordOverhead
	if err := checkOp(m.op, m.bytes); err != nil {
		return err
	}
	m.out = append(m.out, c)
	m.g.rows[c.key] = c.next
	return nil
}

// stored reads the rows with the next primary keys from the store, but for those that
// were touched by what was prepared before.
func (m *merging) stored(next [][]byte) ([][]byte, error) {
	t := &m.s.reading
	t.rows = append(t.rows[:0], make([][]byte, len(next))...)
	t.need, t.at = t.need[:0], t.at[:0]
	from := m.from
	for i, k := range next {
		to := from + kv.RowPrefixLen + len(k)
		if _, _, ok := m.s.preparedRow(m.g, m.keys[from:to]); !ok {
			t.need, t.at = append(t.need, m.s.scratch[from:to]), append(t.at, i)
		}
		from = to
	}
	t.got = append(t.got[:0], make([][]byte, len(t.need))...)
	if err := m.s.kv.Rows(t.need, t.got); err != nil {
		return nil, err
	}
	for j, i := range t.at {
		t.rows[i] = t.got[j]
	}
	return t.rows, nil
}

// gathering is what reading the rows of an op needs, kept for the next.
type gathering struct {
	need, got, rows [][]byte
	at              []int
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

// preparedRow is the row at a store key after what was prepared before: in this group
// (then mine is set), or in the one in flight; ok is not set when neither touches it.
func (s *Shard) preparedRow(g *group, key string) (_ []byte, mine, ok bool) {
	if r, ok := g.rows[key]; ok {
		return r, true, true
	}
	if s.inFlight != nil {
		if r, ok := s.inFlight.rows[key]; ok {
			return r, false, true
		}
	}
	return nil, false, false
}
