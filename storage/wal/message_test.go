package wal_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/wal"
	"github.com/millrace/millrace/storage/wal/waltest"
)

// Records by themselves give back what was encoded, chained, with as many entries
// ending in each as are given out; no flipped bit of one is passed.
func TestMessages(t *testing.T) {
	var entries []wal.Entry
	for i, n := range []int{0, 10, 5000, wal.MaxRecordBytes + 1000, 3, 2*wal.MaxRecordBytes - 500, 100_000} {
		e := wal.Entry{Kind: wal.Data, Data: waltest.Pattern(uint64(i), n)}
		if i%2 == 1 {
			e.More = [][]byte{waltest.Pattern(9, 7000), waltest.Pattern(8, 10)}
		}
		entries = append(entries, e)
	}
	cluster, tail := wal.ClusterID{1, 2}, wal.Tail{LogID: 7, LSN: 41, Hash: 12345, Epoch: 3}
	enc := wal.NewEncoder(cluster, 5)
	for range 2 { // buffers are used again
		require.NoError(t, enc.Encode(tail, entries))
		var asm wal.Assembler
		records, size := enc.Size()
		at, got, ends := tail, []wal.Entry(nil), 0
		for end, b := range enc.Records() {
			require.LessOrEqual(t, len(b), wal.MaxRecordBytes)
			records, size = records-1, size-len(b)
			r, err := wal.ParseRecord(b)
			require.NoError(t, err)
			require.Equal(t, cluster, r.Cluster())
			require.EqualValues(t, 5, r.Shard())
			require.Equal(t, at.Hash, r.Prev())
			at.LSN++
			require.Equal(t, at.LSN, r.Tail().LSN)
			require.Equal(t, at.LogID, r.Tail().LogID)
			at = r.Tail()
			require.Equal(t, at, end)
			ends += r.Ends()
			require.NoError(t, asm.Feed(&r, func(lsn millrace.LSN, epoch millrace.Epoch, e wal.Entry) error {
				require.Equal(t, at.LSN, lsn)
				require.Equal(t, tail.Epoch, epoch)
				e.Data = bytes.Clone(e.Data)
				got = append(got, e)
				return nil
			}))
			require.Equal(t, len(got), ends)
		}
		require.Zero(t, asm.Abandoned())
		require.Zero(t, records)
		require.Zero(t, size)
		require.Len(t, got, len(entries))
		for i, e := range entries {
			want := bytes.Join(append([][]byte{e.Data}, e.More...), nil)
			require.True(t, bytes.Equal(want, got[i].Data), i)
		}
		enc.Release()
	}

	require.NoError(t, enc.Encode(tail, []wal.Entry{{Kind: wal.Data, Data: []byte("hello")}}))
	for _, b := range enc.Records() {
		b = bytes.Clone(b)
		for i := range len(b) * 8 {
			b[i/8] ^= 1 << (i % 8)
			_, err := wal.ParseRecord(b)
			require.Equal(t, errs.CorruptData, errs.CodeOf(err), "bit %d", i)
			b[i/8] ^= 1 << (i % 8)
		}
		for n := range b {
			_, err := wal.ParseRecord(b[:n])
			require.Equal(t, errs.CorruptData, errs.CodeOf(err))
		}
		_, err := wal.ParseRecord(append(b, 0))
		require.Equal(t, errs.CorruptData, errs.CodeOf(err))
	}
}
