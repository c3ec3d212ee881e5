package segment

import (
	"fmt"
	"io"
	"sync"
	"syscall"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

var testID = FileID{Cluster: [16]byte{1, 2, 3, 15: 9}, Bucket: testBucket, Base: 1000}

// testBatch is a batch and its rows' first column, by which it is recognised.
type testBatch struct {
	h       BatchHeader
	payload []byte
}

// testBatches makes batches of both encodings that follow each other.
func testBatches(t testing.TB, n int) []testBatch {
	s := makeSchema(1, "BIGINT", "STRING")
	rng := newRand(uint64(n))
	out := make([]testBatch, n)
	next, micros := testID.Base, int64(1e15)
	for i := range out {
		rows := 1 + rng.IntN(50)
		rec := randomRecord(rng, s, rows, 2)
		b := rowPayload(s, rec, randomChanges(rng, rows))
		if i%2 == 0 {
			b = encoded(t, s, rec, randomChanges(rng, rows), codecs[i/2%3])
		}
		rec.Release()
		p, err := OpenBytes(b)
		require.NoError(t, err)
		out[i] = testBatch{StampPayload(p, testBucket, next, TimeRun{rows, micros}), b}
		next, micros = next+millrace.Offset(rows), micros+1000
	}
	return out
}

// readAll reads everything that a file holds and returns the payloads.
func readAll(f *File) ([][]byte, error) {
	schemas := only(makeSchema(1, "BIGINT", "STRING"))
	var out [][]byte
	for _, ref := range f.Batches() {
		p, h, err := f.Payload(ref)
		if err != nil {
			return nil, err
		}
		if h.Rows != p.Rows() {
			return nil, fmt.Errorf("%d rows, not %d", p.Rows(), h.Rows)
		}
		if _, err := p.Changes(); err != nil {
			return nil, err
		}
		rec, err := p.Record(memory.DefaultAllocator, schemas, schemas(1).Columns)
		if err != nil {
			return nil, err
		}
		rec.Release()
		b := make([]byte, p.Size())
		if err := p.readAt(b, 0); err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}

func writeFile(t testing.TB, fs vfs.FS, batches []testBatch, seal bool) int64 {
	w, err := Create(fs, "dir", testID)
	require.NoError(t, err)
	for i := range batches {
		_, err := w.Append(&batches[i].h, batches[i].payload)
		require.NoError(t, err)
	}
	n, err := w.Sync()
	require.NoError(t, err)
	if seal {
		require.NoError(t, w.Seal())
	}
	require.NoError(t, w.Close())
	require.NoError(t, w.File().Close())
	return n
}

func requireBatches(t testing.TB, f *File, batches []testBatch) {
	t.Helper()
	got, err := readAll(f)
	require.NoError(t, err)
	require.Len(t, got, len(batches))
	for i, ref := range f.Batches() {
		require.Equal(t, batches[i].payload, got[i])
		require.Equal(t, []any{batches[i].h.Base, batches[i].h.Rows, batches[i].h.MaxTime()}, []any{ref.Base, ref.Rows, ref.MaxTime})
		require.Zero(t, ref.Position%64)
	}
}

// Shows that batches written are read back: while they are written, after closing
// (walking the headers), and after sealing (by the index); for files of no batch,
// few and many.
func TestFileRoundTrip(t *testing.T) {
	for _, n := range []int{0, 1, 9, 400} {
		batches := testBatches(t, n)
		fs := vfs.NewMem()
		require.NoError(t, fs.MkdirAll("dir", 0o755))
		w, err := Create(fs, "dir", testID)
		require.NoError(t, err)
		for i := range batches {
			ref, err := w.Append(&batches[i].h, batches[i].payload)
			require.NoError(t, err)
			require.Equal(t, ref, w.File().Batches()[i])
		}
		requireBatches(t, w.File(), batches)
		length, err := w.Sync()
		require.NoError(t, err)
		require.Equal(t, length, w.File().Size())

		f, err := OpenUnsealed(fs, "dir", testID, length)
		require.NoError(t, err)
		requireBatches(t, f, batches)
		require.False(t, f.Sealed())
		unsealed := f

		require.NoError(t, w.Seal())
		require.True(t, w.File().Sealed())
		requireBatches(t, w.File(), batches)
		require.NoError(t, w.File().Close())

		f, err = OpenSealed(fs, "dir", testID)
		require.NoError(t, err)
		requireBatches(t, f, batches)
		require.True(t, f.Sealed())
		require.ElementsMatch(t, unsealed.Batches(), f.Batches())
		require.Equal(t, unsealed.End(), f.End())
		for i, ref := range f.Batches() {
			require.Equal(t, i, f.Find(ref.Base))
			require.Equal(t, i, f.Find(ref.End()-1))
			require.Equal(t, i, f.FindTime(ref.MaxTime))
			require.Equal(t, i, f.FindTime(ref.MaxTime-1))
		}
		require.Equal(t, 0, f.Find(0))
		require.Equal(t, n, f.Find(f.End()))
		require.Equal(t, n, f.FindTime(1<<62))
		f.Retain()
		require.NoError(t, f.Close())
		requireBatches(t, f, batches)
		require.NoError(t, f.Close())
		require.NoError(t, unsealed.Close())
	}
}

// Shows that opening a batch of a file is one read, and reading its columns one more.
func TestFileReads(t *testing.T) {
	mem := vfs.NewMem()
	require.NoError(t, mem.MkdirAll("dir", 0o755))
	s := makeSchema(1, "BIGINT", "STRING")
	rec := randomRecord(newRand(1), s, 5000, 0)
	defer rec.Release()
	p, err := OpenBytes(encoded(t, s, rec, nil, LZ4))
	require.NoError(t, err)
	writeFile(t, mem, []testBatch{{StampPayload(p, testBucket, 1000, TimeRun{5000, 5}), p.whole}}, true)
	reads := 0
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileReadAt {
			reads++
		}
		return nil
	}))
	f, err := OpenSealed(fs, "dir", testID)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	reads = 0
	p, _, err = f.Payload(f.Batches()[0])
	require.NoError(t, err)
	require.Equal(t, 1, reads)
	_, err = p.Message(only(s), s.Columns, nil, Stored)
	require.NoError(t, err)
	require.Equal(t, 2, reads)
}

// Shows that readers and a writer can share a file: each reader sees a prefix of
// what is appended, whole. (Run with -race.)
func TestReadWhileWriting(t *testing.T) {
	batches := testBatches(t, 200)
	fs := vfs.NewMem()
	require.NoError(t, fs.MkdirAll("dir", 0o755))
	w, err := Create(fs, "dir", testID)
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 3 {
		w.File().Retain()
		wg.Go(func() {
			for seen := 0; seen < len(batches); {
				got, err := readAll(w.File())
				if err != nil || len(got) < seen {
					t.Errorf("%d batches after %d: %v", len(got), seen, err)
					break
				}
				seen = len(got)
			}
			if err := w.File().Close(); err != nil {
				t.Error(err)
			}
		})
	}
	for i := range batches {
		_, err := w.Append(&batches[i].h, batches[i].payload)
		require.NoError(t, err)
	}
	wg.Wait()
	require.NoError(t, w.Seal())
	require.NoError(t, w.File().Close())
}

// Shows that another bucket's, cluster's or base's file is not taken, that an
// unsealed file is not taken for a sealed one, and that names are read back.
func TestWrongFile(t *testing.T) {
	fs := vfs.NewMem()
	require.NoError(t, fs.MkdirAll("dir", 0o755))
	writeFile(t, fs, testBatches(t, 2), false)
	_, err := OpenSealed(fs, "dir", testID)
	require.True(t, errs.Is(err, errs.CorruptData), "%v", err)
	_, err = OpenSealed(fs, "dir", FileID{Base: 5})
	require.True(t, errs.Is(err, errs.Internal), "%v", err)
	for _, change := range []func(*FileID){
		func(id *FileID) { id.Cluster[3]++ },
		func(id *FileID) { id.Bucket.Bucket-- },
		func(id *FileID) { id.Bucket.Partition-- },
	} {
		id := testID
		change(&id)
		_, err := OpenUnsealed(fs, "dir", id, fileHeader)
		require.True(t, errs.Is(err, errs.CorruptData), "%v", err)
	}
	require.Equal(t, "00000000000000001000.seg", FileName(1000))
	base, ok := ParseFileName(FileName(1 << 60))
	require.True(t, ok)
	require.Equal(t, millrace.Offset(1<<60), base)
	for _, name := range []string{"1000.seg", "00000000000000001000.sst", "-0000000000000001000.seg", "00000000000000001000.seg.tmp"} {
		_, ok := ParseFileName(name)
		require.False(t, ok, name)
	}
}

// Shows that after a crash, whatever part of the unsynced data is left, what Sync
// or Seal returned for can be opened and read; and that the k-th failing operation
// of the file system is reported by the operation it hit and stops the Writer.
func TestFaultsAndCrashes(t *testing.T) {
	batches := testBatches(t, 8)
	for _, keep := range []int{0, 50, 100} {
		for k := 0; ; k++ {
			mem := vfs.NewCrashableMem()
			require.NoError(t, mem.MkdirAll("dir", 0o755))
			root, err := mem.OpenDir("")
			require.NoError(t, err)
			require.NoError(t, root.Sync())
			ops, failed := 0, false
			fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
				switch op.Kind {
				case errorfs.OpCreate, errorfs.OpFileWrite, errorfs.OpFileSync, errorfs.OpOpenDir:
					if ops++; ops == k+1 {
						failed = true
						return syscall.ENOSPC
					}
				default: // it needs no space
				}
				return nil
			}))
			acked, length, sealed := 0, int64(0), false
			run := func() error {
				w, err := Create(fs, "dir", testID)
				if err != nil {
					return err
				}
				defer func() {
					require.NoError(t, w.Close())
					require.NoError(t, w.File().Close())
				}()
				for i := range batches {
					if _, err := w.Append(&batches[i].h, batches[i].payload); err != nil {
						requireBatches(t, w.File(), batches[:i])
						_, again := w.Append(&batches[i].h, batches[i].payload)
						require.True(t, errs.Is(again, errs.StorageFull), "%v", again)
						// The disk has room again: what was appended before can be kept.
						n, serr := w.Sync()
						require.NoError(t, serr)
						acked, length = i, n
						return err
					}
					if i%3 == 2 {
						n, err := w.Sync()
						if err != nil {
							return err
						}
						acked, length = i+1, n
					}
				}
				if err := w.Seal(); err != nil {
					return err
				}
				sealed = true
				return nil
			}
			err = run()
			require.Equal(t, failed, err != nil, "operation %d: %v", k, err)
			if failed {
				require.True(t, errs.Is(err, errs.StorageFull), "%v", err)
			}
			crashed := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: keep, RNG: newRand(uint64(k))})
			if sealed {
				f, err := OpenSealed(crashed, "dir", testID)
				require.NoError(t, err)
				requireBatches(t, f, batches)
				require.NoError(t, f.Close())
			}
			if acked > 0 {
				f, err := OpenUnsealed(crashed, "dir", testID, length)
				require.NoError(t, err)
				requireBatches(t, f, batches[:acked])
				require.NoError(t, f.Close())
			}
			if !failed {
				require.True(t, sealed)
				break
			}
		}
	}
}

// Shows that errors of the file system other than a full disk are internal, name
// the file, and keep their cause.
func TestFileErrors(t *testing.T) {
	mem := vfs.NewMem()
	require.NoError(t, mem.MkdirAll("dir", 0o755))
	writeFile(t, mem, testBatches(t, 3), true)
	on := false
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if on && op.Kind == errorfs.OpFileReadAt {
			return io.ErrClosedPipe
		}
		return nil
	}))
	f, err := OpenSealed(fs, "dir", testID)
	require.NoError(t, err)
	on = true
	_, _, err = f.Payload(f.Batches()[0])
	require.ErrorIs(t, err, io.ErrClosedPipe)
	require.True(t, errs.Is(err, errs.Internal))
	require.ErrorContains(t, err, f.Path())
	require.NoError(t, f.Close())
}
