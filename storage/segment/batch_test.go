package segment

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

var testBucket = millrace.BucketID{Table: 7, Partition: 1<<32 - 1, Bucket: 4095}

// Shows that headers come back as they were, neighbouring runs of one time joined,
// and that times of rows are those of a list of all times.
func TestBatchHeader(t *testing.T) {
	rng := newRand(1)
	for range 300 {
		h := BatchHeader{Bucket: testBucket, Base: millrace.Offset(rng.Int64N(1 << 62)), PayloadLen: 40 + rng.Int64N(1000), PayloadCRC: rng.Uint32()}
		micros := rng.Int64() >> rng.IntN(40) * int64(1-2*rng.IntN(2))
		var all []int64
		for range 1 + rng.IntN(5) {
			n := 1 + rng.IntN(3)
			h.Times = append(h.Times, TimeRun{n, micros})
			h.Rows += n
			for range n {
				all = append(all, micros)
			}
			micros += rng.Int64N(3) * rng.Int64N(1e15)
		}
		b := AppendBatchHeader([]byte("x"), &h)[1:]
		got, n, err := ParseBatchHeader(append(b, "behind"...))
		require.NoError(t, err)
		require.Equal(t, len(b), n)
		require.Equal(t, b, AppendBatchHeader(nil, &got))
		require.Equal(t, []any{h.Bucket, h.Base, h.Rows, h.PayloadLen, h.PayloadCRC}, []any{got.Bucket, got.Base, got.Rows, got.PayloadLen, got.PayloadCRC})
		require.Equal(t, h.Base+millrace.Offset(h.Rows), got.End())
		require.Equal(t, all[len(all)-1], got.MaxTime())
		for i, m := range all {
			require.Equal(t, m, got.TimeAt(i))
			for _, ask := range []int64{m - 1, m, m + 1} {
				first := 0
				for first < len(all) && all[first] < ask {
					first++
				}
				require.Equal(t, first, got.FirstRowAtOrAfter(ask))
			}
		}
		for i := 1; i < len(got.Times); i++ {
			require.Less(t, got.Times[i-1].Micros, got.Times[i].Micros)
		}
	}
}

// Shows that a header of one time stays small.
func TestBatchHeaderIsSmall(t *testing.T) {
	h := BatchHeader{Bucket: testBucket, Rows: 5000, Times: []TimeRun{{5000, 1.8e15}}, PayloadLen: 40}
	require.LessOrEqual(t, len(AppendBatchHeader(nil, &h)), batchFixed+3)
}

// Shows that every single flipped bit and every truncation of a header is found,
// and that a header of a later format is named as such.
func TestDamagedBatchHeader(t *testing.T) {
	h := BatchHeader{Bucket: testBucket, Base: 5, Rows: 3, Times: []TimeRun{{1, 100}, {2, math.MaxInt32}}, PayloadLen: 400, PayloadCRC: 1}
	b := AppendBatchHeader(nil, &h)
	for bit := range len(b) * 8 {
		b[bit/8] ^= 1 << (bit % 8)
		_, _, err := ParseBatchHeader(b)
		require.True(t, errs.Is(err, errs.CorruptData), "bit %d: %v", bit, err)
		b[bit/8] ^= 1 << (bit % 8)
	}
	for n := range b {
		_, _, err := ParseBatchHeader(b[:n])
		require.True(t, errs.Is(err, errs.CorruptData), "%d bytes: %v", n, err)
	}
	b[8] = 2
	le.PutUint32(b[4:], crcOf(b[8:]))
	_, _, err := ParseBatchHeader(b)
	require.True(t, errs.Is(err, errs.NotImplemented), "%v", err)
}

// Shows that a payload under another's header is found.
func TestHeaderOwnsItsPayload(t *testing.T) {
	a, err := OpenBytes(AppendRows(nil, 1, nil, [][]byte{[]byte("a")}))
	require.NoError(t, err)
	b, err := OpenBytes(AppendRows(nil, 1, nil, [][]byte{[]byte("b")}))
	require.NoError(t, err)
	h := StampPayload(a, testBucket, 0, TimeRun{1, 1})
	require.NoError(t, h.Owns(a))
	require.True(t, errs.Is(h.Owns(b), errs.CorruptData))
}
