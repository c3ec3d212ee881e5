package bucket_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/bucket"
)

// stored are the batches as they are stored now, found by reading: where each ends
// and the time of its last record.
func stored(t *testing.T, l *bucket.Log) (ends []millrace.Offset, last []int64) {
	v := l.View()
	for off := v.Start; off < v.End; {
		b, err := l.At(v, off)
		require.NoError(t, err)
		ends, last = append(ends, b.Header.End()), append(last, b.Header.MaxTime())
		off = b.Header.End()
		require.NoError(t, b.Release())
	}
	return ends, last
}

// Shows, against a plain list of the stored batches, that a log expires whole batches
// and exactly those whose last record is older than a time and that are within a limit,
// wherever they are kept;
// that what the start passed is read until it is released; and that the two places,
// files and tail go on after a restart. Batches of a log are of their offset's time.
func TestTrimAndRelease(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			fs := newFS(t)
			l := bucket.New(id, 0, options(fs))
			var start, kept, passed millrace.Offset
			var passedAt, now int64
			for step := range 120 {
				now += int64(rng.IntN(50))
				switch rng.IntN(7) {
				case 0, 1, 2:
					add(t, l, 1+rng.IntN(40), "some text", rng.IntN(2) == 0)
				case 3:
					_, err := flush(l)
					require.NoError(t, err)
				case 4:
					before := int64(start) + int64(rng.IntN(120)) - 20
					limit := bucket.NoLimit
					if rng.IntN(3) == 0 {
						limit = start + millrace.Offset(rng.IntN(60))
					}
					ends, last := stored(t, l)
					want, oldest := l.View().End, int64(math.MaxInt64)
					at := start
					for i, end := range ends {
						if last[i] >= before || end > limit {
							want, oldest = at, last[i]
							break
						}
						at = end
					}
					got, gotOldest := l.View().Expired(before, limit)
					require.Equal(t, want, got, "step %d", step)
					require.Equal(t, oldest, gotOldest)
					require.EqualValues(t, want-start, l.Trim(got, now))
					if want > start && passed <= kept {
						passed, passedAt = want, now
					}
					start = want
				case 5:
					r, err := l.Release(now-60, now)
					require.NoError(t, err)
					if passed > kept && passedAt <= now-60 {
						kept = passed
						if start > kept {
							passed, passedAt = start, now
						}
					}
					for _, f := range r.Files {
						require.LessOrEqual(t, f.End(), kept)
						require.NoError(t, fs.Remove(f.Path()))
						require.NoError(t, f.Close())
					}
				case 6:
					st, err := l.Sync()
					require.NoError(t, err)
					require.NoError(t, l.Close(nil))
					l, err = bucket.Restore(id, st, options(fs))
					require.NoError(t, err)
				}
				v := l.View()
				require.Equal(t, [2]millrace.Offset{start, kept}, [2]millrace.Offset{v.Start, v.Kept}, "step %d", step)
				require.NoError(t, read(l, v))
				below := *v
				below.Start = kept
				require.NoError(t, read(l, &below))
				if kept > 0 {
					_, err := l.At(v, kept-1)
					require.True(t, errs.Is(err, errs.OffsetOutOfRange))
				}
				at, err := l.OffsetAt(v, int64(start)-5)
				require.NoError(t, err)
				require.Equal(t, start, at, "a time before the start is the start")
			}
			// In the end everything goes, also the file being written.
			end := l.View().End
			l.Trim(end, now)
			for range 3 {
				now += 100
				_, err := l.Release(now-60, now)
				require.NoError(t, err)
			}
			st, err := l.Sync()
			require.NoError(t, err)
			require.Equal(t, bucket.State{Start: end, Kept: end, End: end, Tail: st.Tail}, st)
			require.Empty(t, st.Tail)
			require.Zero(t, l.View().Bytes())
			require.NoError(t, l.Close(nil))
		})
	}
}

// Shows that what one trim passed is not released before its time, though an earlier
// trim is due, and that it is then.
func TestReleaseWaitsForEach(t *testing.T) {
	l := bucket.New(id, 0, options(newFS(t)))
	for range 3 {
		add(t, l, 10, "x", true)
	}
	l.Trim(10, 1000)
	l.Trim(20, 1059)
	require.EqualValues(t, 1000, l.View().Passing())
	release := func(now int64) millrace.Offset {
		_, err := l.Release(now-60, now)
		require.NoError(t, err)
		return l.View().Kept
	}
	require.EqualValues(t, 0, release(1059))
	require.EqualValues(t, 10, release(1060))
	require.EqualValues(t, 10, release(1119), "the start was at 20 at 1059, but only 60 since")
	require.EqualValues(t, 20, release(1120))
	require.Zero(t, l.View().Passing())
	require.EqualValues(t, 20, release(9999))
	require.NoError(t, l.Close(nil))
}

// Shows that a file that readers no longer see the beginning of is ended by the next
// flush, so that its bytes go when the rest of it has expired.
func TestExpiringFileIsRolled(t *testing.T) {
	fs := newFS(t)
	o := options(fs)
	o.SealBytes = 64 << 20
	l := bucket.New(id, 0, o)
	flushed := func(n int) []bucket.FileState {
		add(t, l, n, "x", true)
		_, err := flush(l)
		require.NoError(t, err)
		st, err := l.Sync()
		require.NoError(t, err)
		return st.Files
	}
	flushed(10)
	require.Len(t, flushed(10), 1)
	l.Trim(10, 1)
	files := flushed(10)
	require.Len(t, files, 2)
	require.True(t, files[0].Sealed)
	require.EqualValues(t, 20, files[1].Base)
	require.Len(t, flushed(10), 2, "the new one goes on")
	l.Trim(20, 2)
	for now := range int64(3) {
		_, err := l.Release(100*now, 100*now)
		require.NoError(t, err)
	}
	st, err := l.Sync()
	require.NoError(t, err)
	require.Equal(t, []millrace.Offset{20}, []millrace.Offset{st.Files[0].Base})
	require.NoError(t, l.Close(nil))
}

// Shows that a reader that has a batch of a released file open reads it on.
func TestReleasedFileIsReadOn(t *testing.T) {
	fs := newFS(t)
	l := bucket.New(id, 0, options(fs))
	add(t, l, 10, "x", true)
	_, err := flush(l)
	require.NoError(t, err)
	old := l.View()
	b, err := l.At(old, 0)
	require.NoError(t, err)
	l.Trim(10, 1)
	r, err := l.Release(1, 1)
	require.NoError(t, err)
	require.Len(t, r.Files, 1)
	require.NoError(t, fs.Remove(r.Files[0].Path()))
	require.NoError(t, r.Files[0].Close())
	rows, err := b.Payload.Record(memory.DefaultAllocator, schemas, schema.Columns)
	require.NoError(t, err)
	require.EqualValues(t, 10, rows.NumRows())
	rows.Release()
	require.NoError(t, b.Release())
	_, err = l.At(old, 0)
	require.True(t, errs.Is(err, errs.OffsetOutOfRange), "%v", err)
	require.NoError(t, l.Close(nil))
}

// Shows that a file in which nothing could be written is not let go of by the name that the
// file after it has.
func TestReleaseAfterAWriteThatFailed(t *testing.T) {
	mem := newFS(t)
	writes := 0 // to segments, until one fails
	l := bucket.New(id, 0, options(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileWrite && strings.HasSuffix(op.Path, ".seg") {
			if writes--; writes == 0 {
				return errorfs.ErrInjected
			}
		}
		return nil
	}))))
	add(t, l, 10, "some text", false)
	_, err := flush(l)
	require.NoError(t, err)
	end := l.View().End
	add(t, l, 10, "some text", false)
	for _, n := range []int{1, 2} { // of the batch to the file there is; of the batch to a new one, whose header it took
		writes = n
		_, err = flush(l)
		require.ErrorIs(t, err, errorfs.ErrInjected)
	}
	_, err = flush(l)
	require.NoError(t, err)
	l.Trim(end, 1)
	r, err := l.Release(2, 2)
	require.NoError(t, err)
	require.NotEmpty(t, r.Files)
	for _, f := range r.Files {
		require.NoError(t, mem.Remove(f.Path()))
		require.NoError(t, f.Close())
	}
	st, err := l.Sync()
	require.NoError(t, err)
	require.NotEmpty(t, st.Files)
	require.NoError(t, l.Close(nil))
	l, err = bucket.Restore(id, st, options(mem))
	require.NoError(t, err)
	require.NoError(t, read(l, l.View()))
	require.NoError(t, l.Close(nil))
}
