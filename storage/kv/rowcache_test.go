package kv

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
)

func cacheKey(i int) []byte {
	return AppendRowKey(nil, millrace.BucketID{Table: 1}, fmt.Append(nil, i))
}

// written is a batch that sets rows, or deletes those that are nil.
func written(t *testing.T, rows map[int][]byte) []byte {
	db, err := pebble.Open("", &pebble.Options{FS: vfs.NewMem()})
	require.NoError(t, err)
	b := db.NewBatch()
	for i, row := range rows {
		if row == nil {
			require.NoError(t, b.Delete(cacheKey(i), nil))
		} else {
			require.NoError(t, b.Set(cacheKey(i), row, nil))
		}
	}
	repr := bytes.Clone(b.Repr())
	require.NoError(t, b.Close())
	require.NoError(t, db.Close())
	return repr
}

// held is what the cache has for a key.
func (c *rowCache) held(i int) (row string, ok bool) {
	var copies slab
	out := make([][]byte, 1)
	missed := c.rows([][]byte{cacheKey(i)}, out, &copies)
	return string(out[0]), len(missed) == 0
}

// Shows each rule that keeps an older row from following a newer one, by the order of
// events that needs it.
func TestRowCacheOrder(t *testing.T) {
	old, next := []byte("old"), []byte("next")
	for name, c := range map[string]struct {
		meanwhile func(t *testing.T, c *rowCache) // between the miss and its settling
		gives     string
		holds     string // "": nothing
	}{
		"nothing happens": {func(*testing.T, *rowCache) {}, "old", "old"},
		"a commit put a newer row": {func(t *testing.T, c *rowCache) {
			c.begin()
			require.NoError(t, c.end(written(t, map[int][]byte{1: next})))
		}, "next", "next"},
		"a commit put a newer row, and it was forgotten": {func(t *testing.T, c *rowCache) {
			c.begin()
			require.NoError(t, c.end(written(t, map[int][]byte{1: next})))
			for i := range 100 {
				c.put(cacheKey(1000+i), make([]byte, 10_000))
			}
		}, "old", ""},
		"a commit put a row that is too long": {func(t *testing.T, c *rowCache) {
			c.begin()
			require.NoError(t, c.end(written(t, map[int][]byte{1: make([]byte, cacheChunkBytes)})))
		}, "old", ""},
		"a commit is under way": {func(_ *testing.T, c *rowCache) { c.begin() }, "old", ""},
		"a commit failed": {func(t *testing.T, c *rowCache) {
			c.begin()
			require.Error(t, c.end([]byte("no batch, and long enough")))
		}, "old", ""},
		"a bucket was dropped": {func(_ *testing.T, c *rowCache) {
			for i := range c.stripes {
				c.stripes[i].clear()
			}
		}, "old", ""},
	} {
		t.Run(name, func(t *testing.T) {
			cache := newRowCache(256 << 10)
			var copies slab
			keys, out := [][]byte{cacheKey(1)}, make([][]byte, 1)
			missed := cache.rows(keys, out, &copies)
			require.Len(t, missed, 1)
			c.meanwhile(t, cache)
			require.Equal(t, c.gives, string(cache.settle(missed[0], keys[0], old, &copies)))
			row, ok := cache.held(1)
			require.Equal(t, c.holds != "", ok)
			require.Equal(t, c.holds, row)
		})
	}
}

// Shows that two keys of one hash are told apart, and that one that displaces the
// other makes the cache forget it.
func TestRowCacheCollision(t *testing.T) {
	var s cacheStripe
	s.init(4)
	var copies slab
	s.put(7, []byte("a"), []byte("row of a"))
	_, _, ok := s.get(7, []byte("b"), &copies)
	require.False(t, ok)
	before := s.version
	s.put(7, []byte("b"), []byte("row of b"))
	require.Greater(t, s.version, before)
	_, _, ok = s.get(7, []byte("a"), &copies)
	require.False(t, ok)
	row, _, ok := s.get(7, []byte("b"), &copies)
	require.True(t, ok)
	require.Equal(t, "row of b", string(row))
}

// Shows against a map that what is held is what was put last, whatever was forgotten,
// that memory stays within the bound, and that rows that are asked for stay when many
// pass by that are not.
func TestRowCacheForgets(t *testing.T) {
	const bytes, hot, all = 1 << 20, 1000, 40_000
	c := newRowCache(bytes)
	rnd := rand.New(rand.NewPCG(1, 1))
	want := map[int]string{}
	for n := range 60_000 {
		i := hot + rnd.IntN(all-hot)
		if n%10 == 0 {
			i = rnd.IntN(hot)
		}
		switch rnd.IntN(20) {
		case 0:
			c.put(cacheKey(i), nil)
			want[i] = ""
		default:
			want[i] = string(make([]byte, rnd.IntN(300))) + fmt.Sprint(n)
			c.put(cacheKey(i), []byte(want[i]))
		}
		asked := rnd.IntN(hot)
		if row, ok := c.held(asked); ok {
			require.Equal(t, want[asked], row)
		}
	}
	kept := 0
	for i := range hot {
		row, ok := c.held(i)
		if ok {
			require.Equal(t, want[i], row)
			kept++
		}
	}
	require.Greater(t, kept, hot*9/10)
	size := 0
	for i := range c.stripes {
		s := &c.stripes[i]
		for _, chunk := range append(s.chunks, s.spare) {
			size += cap(chunk)
		}
		size += len(s.at) * 16
	}
	require.LessOrEqual(t, size, bytes)
	require.Greater(t, size, bytes/2)
}
