package storage_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/shard"
	"github.com/millrace/millrace/storage/storagetest"
)

// numbered makes a numbered write of one row to bucket 0.
func numbered(w *storagetest.World, m *storagetest.Modelled, writer string, epoch, seq uint64) (shard.Result, error) {
	wr := &storagetest.Write{
		Rows:   []storagetest.Row{{int64(seq), writer, nil, nil, nil}},
		Writer: &storagetest.Sequence{Writer: writer, Epoch: epoch, Seq: seq},
	}
	return w.Shard(m.Table, 0).Write(context.Background(), m.Op(wr, 0))
}

// Shows that a newer instance of a writer fences the older one with the first batch
// it sends, also when that is one that the older one sent before, and that this
// survives a crash.
func TestResendFences(t *testing.T) {
	w := small(t)
	w.MustOpen()
	m := w.Add(storagetest.NewTable(1, 1, 1, 0, storagetest.LogColumns...))
	for seq := range uint64(3) {
		_, err := numbered(w, m, "w", 1, seq+1)
		require.NoError(t, err)
	}
	for range 3 {
		res, err := numbered(w, m, "w", 2, 3)
		require.NoError(t, err)
		require.Equal(t, shard.Result{Start: 2, End: 3, Duplicate: true}, res)
		_, err = numbered(w, m, "w", 1, 4)
		require.True(t, errs.Is(err, errs.WriterFenced), "%v", err)
		w.Crash(0)
	}
	_, err := numbered(w, m, "w", 1, 4)
	require.True(t, errs.Is(err, errs.WriterFenced), "%v", err)
	res, err := numbered(w, m, "w", 2, 4)
	require.NoError(t, err)
	require.Equal(t, shard.Result{Start: 3, End: 4}, res)
	w.Close()
}

// Shows that a writer of which a bucket took nothing for seven days is forgotten at a
// checkpoint, however many there are, the others not; and that a crash changes nothing
// about what the writer did since, whether or not it brings back what was forgotten.
func TestIdleWritersAreForgotten(t *testing.T) {
	for _, percent := range []int{0, 50, 100} {
		w := small(t)
		w.MustOpen()
		m := w.Add(storagetest.NewTable(1, 3, 1, 0, storagetest.LogColumns...))
		const writers = 2000 // more than one sweep looks at
		name := func(i int) string { return fmt.Sprintf("writer-%05d", i) }
		var under []*shard.Pending
		for i := range writers {
			for _, seq := range []uint64{7, 9} {
				op := m.Op(&storagetest.Write{
					Rows:   []storagetest.Row{{int64(i), nil, nil, nil, nil}},
					Writer: &storagetest.Sequence{Writer: name(i), Epoch: 3, Seq: seq},
				}, 0)
				p, err := w.Shard(m.Table, 0).Start(context.Background(), op)
				require.NoError(t, err)
				under = append(under, p)
			}
		}
		for _, p := range under {
			_, err := p.Wait(context.Background())
			require.NoError(t, err)
		}
		checkpoint(t, w)
		w.Clock.Add(4 * 24 * time.Hour)
		_, err := numbered(w, m, name(1), 3, 10)
		require.NoError(t, err)
		w.Clock.Add(4 * 24 * time.Hour)
		// A writer that begins again with number 1: refused while it is remembered.
		begins := func(i int) bool {
			_, err := numbered(w, m, name(i), 0, 1)
			if err != nil {
				require.True(t, errs.Is(err, errs.WriterFenced), "%v", err)
			}
			return err == nil
		}
		for n := 0; !begins(0) || !begins(writers-1); n++ {
			require.Less(t, n, 100, "writers are not forgotten")
			_, err := numbered(w, m, "busy", 0, uint64(n+1)) // or there is nothing to checkpoint
			require.NoError(t, err)
			checkpoint(t, w)
		}
		require.False(t, begins(1), "seen four days ago")
		w.Crash(percent)
		for _, i := range []int{0, writers - 1} {
			res, err := numbered(w, m, name(i), 0, 1)
			require.NoError(t, err)
			require.True(t, res.Duplicate, "what it did since is remembered")
			_, err = numbered(w, m, name(i), 0, 2)
			require.NoError(t, err)
			_, err = numbered(w, m, name(i), 0, 1)
			require.NoError(t, err)
		}
		res, err := numbered(w, m, name(1), 3, 7)
		require.NoError(t, err)
		require.Equal(t, shard.Result{Start: 2, End: 3, Duplicate: true}, res)
		w.Close()
	}
}
