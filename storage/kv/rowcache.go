package kv

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/batchrepr"
)

// rowCache holds rows that were read or written lately, so that a hot key costs
// neither a seek nor a block. It never gives an older row than one that anybody was
// given before:
//
//   - What a commit writes is put into the cache after Pebble has it. While that is
//     under way (committing), nothing that was read from Pebble comes in.
//   - What was read from Pebble for a key that was missed comes in, and is given,
//     only when the cache holds nothing for the key by then, and it comes in only
//     when the cache has forgotten nothing since the key was missed: an answer may
//     be older than what was put and forgotten meanwhile.
type rowCache struct {
	seed       maphash.Seed
	stripes    []cacheStripe // a power of two
	committing atomic.Int64  // commits under way
}

// maxCacheStripes bounds how many locks the readers of a store spread over.
const maxCacheStripes = 16

// newRowCache makes a cache of about as many bytes; nil when they are too few.
func newRowCache(bytes int64) *rowCache {
	chunks := bytes / (cacheChunkBytes + cacheChunkBytes/cacheIndexShare)
	if chunks < 2 {
		return nil
	}
	n := int64(1)
	for n < maxCacheStripes && chunks/(2*n) >= 8 {
		n *= 2
	}
	c := &rowCache{seed: maphash.MakeSeed(), stripes: make([]cacheStripe, n)}
	for i := range c.stripes {
		c.stripes[i].init(int(chunks / n))
	}
	return c
}

func (c *rowCache) stripe(hash uint64) *cacheStripe {
	return &c.stripes[hash>>32&uint64(len(c.stripes)-1)]
}

// missedKey is a key that a cache did not hold.
type missedKey struct {
	index   int // in what was asked for
	hash    uint64
	version uint64 // of the stripe, then
}

// rows gives the rows that are held, and which keys are not.
func (c *rowCache) rows(keys, out [][]byte, copies *slab) []missedKey {
	var missed []missedKey
	for i, k := range keys {
		hash := maphash.Bytes(c.seed, k)
		row, version, ok := c.stripe(hash).get(hash, k, copies)
		out[i] = row
		if !ok {
			missed = append(missed, missedKey{i, hash, version})
		}
	}
	return missed
}

// settle takes in the row that Pebble had for a key that was missed, and gives the
// one that the reader shall have.
func (c *rowCache) settle(m missedKey, key, row []byte, copies *slab) []byte {
	return c.stripe(m.hash).settle(m, key, row, copies, &c.committing)
}

// begin says that a commit is under way.
func (c *rowCache) begin() { c.committing.Add(1) }

// end puts the rows of a committed batch into the cache; it forgets everything when the
// batch dropped buckets. After an error the cache takes in nothing more.
func (c *rowCache) end(batch []byte) error {
	reader := batchrepr.Read(batch)
	for kind, key, value, ok, err := reader.Next(); ok || err != nil; kind, key, value, ok, err = reader.Next() {
		if err != nil {
			return err
		}
		switch {
		case kind == pebble.InternalKeyKindRangeDelete:
			for i := range c.stripes {
				c.stripes[i].clear()
			}
		case len(key) < RowPrefixLen || key[prefixLen] != kindRow:
		case kind == pebble.InternalKeyKindDelete:
			c.put(key, nil)
		default:
			c.put(key, value)
		}
	}
	c.committing.Add(-1)
	return nil
}

func (c *rowCache) put(key, row []byte) {
	hash := maphash.Bytes(c.seed, key)
	c.stripe(hash).put(hash, key, row)
}
