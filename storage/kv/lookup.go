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
// the row at keys[i], nil when there is none.
func (s *Store) Rows(keys, out [][]byte) error {
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
	var slab []byte
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
		if slab == nil || len(v) > cap(slab)-len(slab) {
			slab = make([]byte, 0, max(slabBytes, len(v)))
		}
		at := len(slab)
		slab = append(slab, v...)
		out[i] = slab[at:len(slab):len(slab)]
	}
	return s.readError("kv.Rows", it.Close())
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
