package segment

import (
	"errors"
	"io"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/errs"
)

// object is a file in memory that lies: flip is a byte that ReadAt gives wrong, which
// ReadAgain gives right unless bad.
type object struct {
	bytes []byte
	flip  int64
	bad   bool
	away  error

	mu     sync.Mutex
	again  int
	closed int
}

func (o *object) ReadAt(p []byte, off int64) (int, error) {
	if o.away != nil {
		return 0, o.away
	}
	if off >= int64(len(o.bytes)) {
		return 0, io.EOF
	}
	n := copy(p, o.bytes[off:])
	if o.flip >= off && o.flip < off+int64(n) {
		p[o.flip-off] ^= 0x10
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (o *object) Close() error {
	o.closed++
	return nil
}

// healing is an object whose ReadAgain reads right.
type healing struct{ *object }

func (o healing) ReadAgain(p []byte, off int64) (int, error) {
	o.mu.Lock()
	o.again++
	o.mu.Unlock()
	if o.bad {
		return o.ReadAt(p, off)
	}
	return copy(p, o.bytes[off:]), nil
}

func stored(t testing.TB, batches []testBatch) (*vfs.MemFS, []byte, Outline) {
	fs := vfs.NewMem()
	require.NoError(t, fs.MkdirAll("dir", 0o755))
	writeFile(t, fs, batches, true)
	f, err := OpenSealed(fs, "dir", testID)
	require.NoError(t, err)
	o := f.Outline()
	b := make([]byte, o.Bytes)
	require.NoError(t, f.readAt(b, 0))
	require.NoError(t, f.Close())
	return fs, b, o
}

// Shows that whatever byte of an object a cache holds wrong, what was stored is read,
// from where the bytes come from; and that it is corrupt_data when that is wrong too.
func TestReadsAgainWhatDoesNotCheck(t *testing.T) {
	batches := testBatches(t, 6)
	_, b, outline := stored(t, batches)
	needed := 0
	for at := range b {
		for _, bad := range []bool{false, true} {
			o := healing{&object{bytes: b, flip: int64(at), bad: bad}}
			f := OpenLater(o, "s3://b/k", testID, outline)
			require.Equal(t, outline, f.Outline())
			err := f.Load()
			var got [][]byte
			if err == nil {
				require.Equal(t, outline, f.Outline())
				got, err = readAll(f)
			}
			switch {
			case o.again == 0: // padding
				require.NoError(t, err)
			case bad:
				require.True(t, errs.Is(err, errs.CorruptData), "byte %d: %v", at, err)
				require.ErrorContains(t, err, "s3://b/k")
			default:
				require.NoError(t, err, "byte %d", at)
				require.Len(t, got, len(batches))
				needed++
			}
			require.NoError(t, f.Close())
			require.Equal(t, 1, o.closed)
		}
	}
	require.Greater(t, needed, len(b)/2)
}

// Shows that a damaged local file is read from its second copy, that it is known as
// damaged then, and what is said when that copy cannot be read either.
func TestSecondCopy(t *testing.T) {
	batches := testBatches(t, 6)
	fs, b, _ := stored(t, batches)
	damaged := append([]byte(nil), b...)
	damaged[fileHeader+300] ^= 1
	h, err := fs.Create("dir/"+FileName(testID.Base), vfs.WriteCategoryUnspecified)
	require.NoError(t, err)
	_, err = h.Write(damaged)
	require.NoError(t, err)
	require.NoError(t, h.Close())

	for i, second := range []*object{nil, {bytes: b, flip: -1}, {bytes: damaged, flip: -1}, {away: errs.New(errs.Unavailable, "the store is away")}, {away: errors.New("gone")}} {
		f, err := OpenSealed(fs, "dir", testID)
		require.NoError(t, err)
		require.True(t, f.Local())
		if second != nil {
			require.NoError(t, f.SetSecond(second))
			extra := &object{}
			require.NoError(t, f.SetSecond(extra))
			require.Equal(t, 1, extra.closed)
		}
		_, err = readAll(f)
		switch {
		case second == nil || second.bytes != nil && second.bytes[fileHeader+300] != b[fileHeader+300]:
			require.True(t, errs.Is(err, errs.CorruptData), "%v", err)
		case second.away != nil:
			require.Error(t, err)
			require.ErrorContains(t, err, second.away.Error())
			require.ErrorContains(t, err, "checksum")
			require.Equal(t, i != 3, errs.Is(err, errs.CorruptData), "%v", err)
			require.Equal(t, i == 3, errs.Is(err, errs.Unavailable), "%v", err)
		default:
			require.NoError(t, err)
			require.True(t, f.Damaged())
		}
		require.NoError(t, f.Close())
	}
}
