package segment

import (
	"io"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/errs"
)

func fileBytes(t testing.TB, fs vfs.FS) []byte {
	f, err := fs.Open(fs.PathJoin("dir", FileName(testID.Base)))
	require.NoError(t, err)
	b, err := io.ReadAll(f)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	return b
}

// withBytes is a file system with the test's file.
func withBytes(t testing.TB, b []byte) vfs.FS {
	fs := vfs.NewMem()
	require.NoError(t, fs.MkdirAll("dir", 0o755))
	f, err := fs.Create(fs.PathJoin("dir", FileName(testID.Base)), vfs.WriteCategoryUnspecified)
	require.NoError(t, err)
	_, err = f.Write(append([]byte(nil), b...))
	require.NoError(t, err)
	require.NoError(t, f.Close())
	return fs
}

// padding marks the bytes of a file that nothing is read from: zeros that fill up
// batch headers and row payloads to 64 bytes.
func padding(f *File, batches []testBatch, size int) []bool {
	out := make([]bool, size)
	for i, ref := range f.Batches() {
		start := ref.Position + int64(ceil(ref.HeaderLen, chunkAlign))
		for at := ref.Position + int64(ref.HeaderLen); at < start; at++ {
			out[at] = true
		}
		for at := start + int64(len(batches[i].payload)); at < ref.Position+ref.Length; at++ {
			out[at] = true
		}
	}
	return out
}

// Shows that flipped bits, thousands of them in every region of sealed and
// unsealed files, are found before a row is returned, and that the error names
// the file and a position.
func TestBitFlipsAreFound(t *testing.T) {
	batches := testBatches(t, 12)
	for _, sealed := range []bool{true, false} {
		fs := vfs.NewMem()
		require.NoError(t, fs.MkdirAll("dir", 0o755))
		length := writeFile(t, fs, batches, sealed)
		openIt := func(fs vfs.FS) (*File, error) {
			if sealed {
				return OpenSealed(fs, "dir", testID)
			}
			return OpenUnsealed(fs, "dir", testID, length)
		}
		f, err := openIt(fs)
		require.NoError(t, err)
		good := fileBytes(t, fs)
		free := padding(f, batches, len(good))
		require.NoError(t, f.Close())

		rng := newRand(6)
		flips := 0
		for at := range good {
			if free[at] {
				continue
			}
			flips++
			bit := byte(1) << rng.IntN(8)
			good[at] ^= bit
			f, err := openIt(withBytes(t, good))
			if err == nil {
				_, err = readAll(f)
				require.NoError(t, f.Close())
			}
			require.True(t, errs.Is(err, errs.CorruptData), "byte %d: %v", at, err)
			require.ErrorContains(t, err, "dir/"+FileName(testID.Base)+", byte ")
			good[at] ^= bit
		}
		require.Greater(t, flips, 5000)
	}
}

// Shows that a file cut off anywhere is found, and that what follows the length
// that is known of an unsealed file does no harm, torn or not.
func TestTruncation(t *testing.T) {
	batches := testBatches(t, 5)
	fs := vfs.NewMem()
	require.NoError(t, fs.MkdirAll("dir", 0o755))
	writeFile(t, fs, batches, true)
	sealed := fileBytes(t, fs)
	for n := range sealed {
		_, err := OpenSealed(withBytes(t, sealed[:n]), "dir", testID)
		require.True(t, errs.Is(err, errs.CorruptData), "%d bytes: %v", n, err)
	}
	length := writeFile(t, fs, batches, false)
	unsealed := fileBytes(t, fs)
	require.Len(t, unsealed, int(length))
	f, err := OpenUnsealed(fs, "dir", testID, length)
	require.NoError(t, err)
	last := f.Batches()[4].Position
	require.NoError(t, f.Close())
	for n := range unsealed {
		_, err := OpenUnsealed(withBytes(t, unsealed[:n]), "dir", testID, length)
		require.True(t, errs.Is(err, errs.CorruptData), "%d bytes: %v", n, err)
		if int64(n) >= last {
			f, err := OpenUnsealed(withBytes(t, unsealed[:n]), "dir", testID, last)
			require.NoError(t, err)
			requireBatches(t, f, batches[:4])
			require.NoError(t, f.Close())
		} else if n < fileHeader || !boundary(t, unsealed, n) {
			_, err := OpenUnsealed(withBytes(t, unsealed[:n]), "dir", testID, int64(n))
			require.True(t, errs.Is(err, errs.CorruptData), "%d bytes: %v", n, err)
		}
	}
}

// boundary says whether a batch begins at byte n.
func boundary(t testing.TB, b []byte, n int) bool {
	f, err := OpenUnsealed(withBytes(t, b), "dir", testID, int64(len(b)))
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	for _, ref := range f.Batches() {
		if ref.Position == int64(n) {
			return true
		}
	}
	return false
}

// Shows that a payload cut off anywhere, in memory or elsewhere, or with bytes
// behind it, is found when it is opened.
func TestTruncatedPayload(t *testing.T) {
	s := makeSchema(1, "BIGINT", "STRING")
	rec := randomRecord(newRand(1), s, 30, 1)
	defer rec.Release()
	for _, b := range [][]byte{encoded(t, s, rec, nil, LZ4), rowPayload(s, rec, nil)} {
		for n := range b {
			_, err := OpenBytes(b[:n])
			require.True(t, errs.Is(err, errs.CorruptData), "%d bytes: %v", n, err)
			_, err = Open(&countingReader{b: b[:n]}, 0, int64(len(b)))
			require.True(t, errs.Is(err, errs.CorruptData), "%d bytes: %v", n, err)
		}
		_, err := OpenBytes(append(slices.Clip(b), 0))
		require.True(t, errs.Is(err, errs.CorruptData))
	}
}

// Shows that a flip in a chunk is found by whatever reads it, and costs those who
// read other columns nothing.
func TestFlipInOneColumn(t *testing.T) {
	s := makeSchema(1, "BIGINT", "STRING", "DOUBLE")
	rec := randomRecord(newRand(1), s, 3000, 1)
	defer rec.Release()
	for _, codec := range codecs {
		b := encoded(t, s, rec, nil, codec)
		p, err := OpenBytes(b)
		require.NoError(t, err)
		e := entryAt(p.meta, 1)
		b[e.pos+e.len/2] ^= 4
		for _, p := range []*Payload{p, must(Open(&countingReader{b: b}, 0, int64(len(b))))} {
			_, err = p.Record(memory.DefaultAllocator, only(s), s.Columns)
			require.True(t, errs.Is(err, errs.CorruptData), "%v", err)
			require.ErrorContains(t, err, "column 2")
			for _, target := range []Codec{Stored, None, ZSTD} {
				_, err = p.Message(only(s), s.Columns[1:], nil, target)
				require.True(t, errs.Is(err, errs.CorruptData), "%v", err)
			}
			rec, err := p.Record(memory.DefaultAllocator, only(s), s.Columns[2:])
			require.NoError(t, err)
			rec.Release()
			_, err = p.Message(only(s), s.Columns[:1], nil, Stored)
			require.NoError(t, err)
		}
	}
}
