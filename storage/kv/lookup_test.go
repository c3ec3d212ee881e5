package kv_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/kv"
)

// Shows that rows are found wherever they lie (memory, tables of several levels), as
// they were written last, whatever the number and order of keys, some of them twice;
// and none that never were, were deleted, or whose bucket was dropped.
func TestRows(t *testing.T) {
	for _, cacheBytes := range []int64{0, 1 << 20, 64 << 20} {
		t.Run(fmt.Sprint(cacheBytes), func(t *testing.T) { testRows(t, cacheBytes) })
	}
}

func testRows(t *testing.T, cacheBytes int64) {
	s := openCached(t, vfs.NewMem(), cacheBytes)
	rnd := newRand()
	buckets := []millrace.BucketID{one, two}
	want := map[string]string{}
	random := func() string {
		k := fmt.Sprint(rnd.IntN(3000))
		return string(kv.AppendRowKey(nil, buckets[rnd.IntN(2)], []byte(k)))
	}
	lsn := millrace.LSN(0)
	for round := range 60 {
		lsn++
		b := s.NewBatch()
		if round == 30 {
			require.NoError(t, b.DropBuckets(two.Table, two.Partition))
			two := string(kv.AppendRowKey(nil, two, nil))
			for k := range want {
				if strings.HasPrefix(k, two) {
					delete(want, k)
				}
			}
		}
		for range 200 {
			k := random()
			if rnd.IntN(4) == 0 {
				require.NoError(t, b.DeleteRow(k))
				delete(want, k)
				continue
			}
			want[k] = strings.Repeat(fmt.Sprint(lsn, ","), rnd.IntN(200))
			if rnd.IntN(50) == 0 {
				want[k] = strings.Repeat("large", 5000)
			}
			require.NoError(t, b.PutRow(k, []byte(want[k])))
		}
		require.NoError(t, b.Commit(lsn))
		if round%5 == 4 {
			require.NoError(t, s.Flush(context.Background()))
		}
		for _, n := range []int{0, 1, 3, 4, 50, 1000} {
			keys, out := make([][]byte, n), make([][]byte, n)
			for i := range keys {
				keys[i], out[i] = []byte(random()), []byte("what was there")
			}
			require.NoError(t, s.Rows(keys, out))
			for i, k := range keys {
				row, ok := want[string(k)]
				if ok != (out[i] != nil) || row != string(out[i]) {
					require.Equal(t, row, string(out[i]), "%d: %q: %v, %v", round, k, ok, out[i] != nil)
				}
			}
		}
	}
	require.NoError(t, s.Close())
}

// Shows that no reader is given an older row than one that somebody was given before,
// or that was committed before, while rows come into a small cache and are forgotten
// (K5). Rows are versions; some are too long for the cache.
func TestRowsNeverGoBack(t *testing.T) {
	const keys, commits = 4000, 3000
	s := openCached(t, vfs.NewMem(), 200<<10)
	key := func(i int) []byte { return kv.AppendRowKey(nil, one, fmt.Append(nil, i)) }
	var known [keys]atomic.Uint64 // the newest version that somebody knows
	raise := func(i int, v uint64) {
		for old := known[i].Load(); old < v && !known[i].CompareAndSwap(old, v); old = known[i].Load() {
		}
	}
	hot := func(rnd *rand.Rand) int { return int(math.Abs(rnd.NormFloat64())*300) % keys }
	var done atomic.Bool
	var wg sync.WaitGroup
	for r := range 4 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(3, uint64(r)))
			for n := 1; !done.Load(); n = n%30 + 1 {
				want, ids, ks, out := make([]uint64, n), make([]int, n), make([][]byte, n), make([][]byte, n)
				for i := range ids {
					ids[i] = hot(rnd)
					ks[i], want[i] = key(ids[i]), known[ids[i]].Load()
				}
				if !assert.NoError(t, s.Rows(ks, out)) {
					return
				}
				for i, row := range out {
					var got uint64
					if row != nil {
						got = binary.LittleEndian.Uint64(row)
					}
					if !assert.GreaterOrEqual(t, got, want[i]) {
						return
					}
					raise(ids[i], got)
				}
			}
		})
	}
	rnd := newRand()
	for v := uint64(1); v <= commits && !t.Failed(); v++ {
		b := s.NewBatch()
		var ids []int
		for range rnd.IntN(20) {
			ids = append(ids, hot(rnd))
			row := binary.LittleEndian.AppendUint64(nil, v)
			if rnd.IntN(10) == 0 {
				row = append(row, make([]byte, rnd.IntN(40_000))...)
			}
			require.NoError(t, b.PutRow(string(key(ids[len(ids)-1])), row))
		}
		require.NoError(t, b.Commit(millrace.LSN(v)))
		for _, i := range ids {
			raise(i, v)
		}
	}
	done.Store(true)
	wg.Wait()
	require.NoError(t, s.Close())
}

// Shows that a block that cannot be read, or does not check, is an error and not the
// absence of a row.
func TestRowsUnreadable(t *testing.T) {
	for _, c := range []struct {
		code errs.Code
		read func(errorfs.Op) error
	}{
		{errs.Unavailable, func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileReadAt {
				return syscall.EIO
			}
			return nil
		}},
		{errs.CorruptData, nil},
	} {
		mem := vfs.NewMem()
		var fail atomic.Pointer[func(errorfs.Op) error]
		s := open(t, faulty(mem, &fail), nil)
		keys := make([][]byte, 20)
		b := s.NewBatch()
		for i := range keys {
			keys[i] = kv.AppendRowKey(nil, one, []byte(fmt.Sprint(i)))
			require.NoError(t, b.PutRow(string(keys[i]), []byte(strings.Repeat("r", 1000))))
		}
		require.NoError(t, b.Commit(1))
		require.NoError(t, s.Flush(context.Background()))
		require.NoError(t, s.Close())
		if c.read == nil {
			damageTable(t, mem)
		}
		s = open(t, faulty(mem, &fail), nil)
		if c.read != nil {
			fail.Store(&c.read)
		}
		for _, n := range []int{1, len(keys)} {
			err := s.Rows(keys[:n], make([][]byte, n))
			require.True(t, errs.Is(err, c.code), "%v", err)
		}
		require.NoError(t, s.Close())
	}
}

// damageTable changes a byte of the first block of each table.
func damageTable(t *testing.T, fs vfs.FS) {
	names, err := fs.List("state")
	require.NoError(t, err)
	tables := 0
	for _, name := range names {
		if !strings.HasSuffix(name, ".sst") {
			continue
		}
		tables++
		f, err := fs.OpenReadWrite("state/"+name, vfs.WriteCategoryUnspecified)
		require.NoError(t, err)
		var b [1]byte
		_, err = f.ReadAt(b[:], 100)
		require.NoError(t, err)
		b[0] ^= 0xff
		_, err = f.WriteAt(b[:], 100)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	require.NotZero(t, tables)
}
