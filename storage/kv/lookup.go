package kv

import (
	"bytes"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

const (
	// From so many keys on, one iterator that is moved from key to key reads cheaper
	// than a Get each, which makes an iterator of its own.
	sharedIterFrom = 4
	// Rows are copied into buffers of this size, or of their own when they are larger.
	slabBytes = 8 << 10
)

// Rows reads the current rows at keys made by AppendRowKey, in any order: out[i] is
// the row at keys[i], nil when there is none. The rows belong to the caller.
func (s *Store) Rows(keys, out [][]byte) error {
	copies := newSlab(len(keys))
	if s.cache == nil {
		return s.seek(keys, out, &copies)
	}
	missed := s.cache.rows(keys, out, &copies)
	if s.o.Counted != nil {
		s.o.Counted(len(keys)-len(missed), len(missed))
	}
	if len(missed) == 0 {
		return nil
	}
	buf := make([][]byte, 2*len(missed))
	keysLeft, rows := buf[:len(missed)], buf[len(missed):]
	for i, m := range missed {
		keysLeft[i] = keys[m.index]
	}
	if err := s.seek(keysLeft, rows, &copies); err != nil {
		return err
	}
	for i, m := range missed {
		out[m.index] = s.cache.settle(m, keysLeft[i], rows[i], &copies)
	}
	return nil
}

// seek is Rows without the cache.
func (s *Store) seek(keys, out [][]byte, copies *slab) error {
	if len(keys) < sharedIterFrom {
		for i, k := range keys {
			var err error
			if out[i], err = get(s, s.db, k); err != nil {
				return err
			}
		}
		return nil
	}
	// The prefix of a key is all of it, so a seek asks the filters, and finds the key or
	// nothing. Those of the last level spare the read of a block for a key that is new.
	it, err := s.db.NewIter(&pebble.IterOptions{UseL6Filters: true})
	if err != nil {
		return s.readError("kv.Rows", err)
	}
	for _, i := range rising(keys) {
		out[i] = nil
		if !it.SeekPrefixGE(keys[i]) {
			if it.Error() != nil {
				break // Close tells of it.
			}
			continue
		}
		v, err := it.ValueAndErr()
		if err != nil {
			_ = it.Close() // the first error is what matters
			return s.readError("kv.Rows", err)
		}
		out[i] = copies.copy(v)
	}
	return s.readError("kv.Rows", it.Close())
}

// slab copies rows into few buffers.
type slab struct {
	buf  []byte
	next int // bytes of the next buffer
}

func newSlab(rows int) slab { return slab{next: min(rows*128, slabBytes)} }

func (s *slab) copy(v []byte) []byte {
	if s.buf == nil || len(v) > cap(s.buf)-len(s.buf) {
		s.buf = make([]byte, 0, max(s.next, len(v)))
		s.next = slabBytes
	}
	at := len(s.buf)
	s.buf = append(s.buf, v...)
	return s.buf[at:len(s.buf):len(s.buf)]
}

// rising is the order of keys: out of order, each seek would begin anew.
func rising(keys [][]byte) []int {
	order := make([]int, len(keys))
	for i := range order {
		order[i] = i
	}
	if !slices.IsSortedFunc(keys, bytes.Compare) {
		slices.SortFunc(order, func(a, b int) int { return bytes.Compare(keys[a], keys[b]) })
	}
	return order
}
