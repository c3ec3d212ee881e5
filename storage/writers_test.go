package storage_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/kv"
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

// keyed makes a write of a chunk's rows under an idempotency key to bucket 0.
func keyed(w *storagetest.World, m *storagetest.Modelled, key string, chunk, hash uint64) (shard.Result, error) {
	wr := &storagetest.Write{
		Rows:   []storagetest.Row{{int64(chunk), key, nil, nil, nil}},
		Writer: &storagetest.Sequence{Writer: "k" + key, Seq: chunk, Hash: hash},
	}
	return w.Shard(m.Table, 0).Write(context.Background(), m.Op(wr, 0))
}

// Shows that a body of more chunks than a writer's window is not written again, that
// another body under its key is found in the first chunk as in the last and writes
// nothing, and that crashes change none of it.
func TestKeysWriteOnce(t *testing.T) {
	for _, percent := range []int{0, 50, 100} {
		w := small(t)
		w.MustOpen()
		m := w.Add(storagetest.NewTable(1, 1, 1, 0, storagetest.LogColumns...))
		const chunks = 70
		for n := range uint64(chunks) {
			res, err := keyed(w, m, "load", n+1, 100+n)
			require.NoError(t, err)
			require.Equal(t, shard.Result{Start: millrace.Offset(n), End: millrace.Offset(n + 1)}, res)
		}
		for range 2 {
			for n := range uint64(chunks) {
				res, err := keyed(w, m, "load", n+1, 100+n)
				require.NoError(t, err)
				want := shard.Result{Start: millrace.Offset(n), End: millrace.Offset(n + 1), Duplicate: true}
				require.Equal(t, want, res)
			}
			for _, n := range []uint64{1, chunks} {
				_, err := keyed(w, m, "load", n, 1)
				require.True(t, errs.Is(err, errs.IdempotencyKeyReused), "%v", err)
			}
			_, err := keyed(w, m, "load", kv.KeyChunks+1, 1)
			require.True(t, errs.Is(err, errs.TooLarge), "%v", err)
			w.Crash(percent)
		}
		res, err := keyed(w, m, "load", chunks+1, 7)
		require.NoError(t, err)
		require.EqualValues(t, chunks, res.Start, "nothing was written since")
		w.Close()
	}
}

// Shows that a chunk that was left out, since a bucket refused it, is not written
// when its body comes again.
func TestKeysKeepRefusals(t *testing.T) {
	w := small(t)
	w.MustOpen()
	m := w.Add(storagetest.NewTable(1, 1, 1, 0, storagetest.LogColumns...))
	for _, chunk := range []uint64{1, 3} {
		_, err := keyed(w, m, "load", chunk, chunk)
		require.NoError(t, err)
	}
	w.Crash(50)
	_, err := keyed(w, m, "load", 2, 2)
	require.True(t, errs.Is(err, errs.OutOfOrderSequence), "%v", err)
	res, err := keyed(w, m, "load", 4, 4)
	require.NoError(t, err)
	require.EqualValues(t, 2, res.Start)
	w.Close()
}

// Shows that a key is remembered for 24 hours after what was taken under it last, and
// then is free for another body, whether or not a sweep has come by; and that what was
// done with it then survives a crash.
func TestKeysAreForgottenAfterADay(t *testing.T) {
	for _, percent := range []int{0, 100} {
		w := small(t)
		w.MustOpen()
		m := w.Add(storagetest.NewTable(1, 1, 1, 0, storagetest.LogColumns...))
		_, err := keyed(w, m, "daily", 1, 5)
		require.NoError(t, err)
		_, err = numbered(w, m, "w", 0, 1)
		require.NoError(t, err)
		w.Clock.Add(24 * time.Hour)
		res, err := keyed(w, m, "daily", 1, 5)
		require.NoError(t, err)
		require.True(t, res.Duplicate)
		_, err = keyed(w, m, "daily", 1, 6)
		require.True(t, errs.Is(err, errs.IdempotencyKeyReused), "%v", err)
		w.Clock.Add(time.Millisecond)
		res, err = keyed(w, m, "daily", 1, 6)
		require.NoError(t, err)
		require.Equal(t, shard.Result{Start: 2, End: 3}, res)
		w.Crash(percent)
		res, err = keyed(w, m, "daily", 1, 6)
		require.NoError(t, err)
		require.Equal(t, shard.Result{Start: 2, End: 3, Duplicate: true}, res)
		res, err = numbered(w, m, "w", 0, 1)
		require.NoError(t, err)
		require.True(t, res.Duplicate, "writers are remembered for longer")
		w.Close()
	}
}

// forgotten is how many writers the worker has forgotten.
func forgotten(t *testing.T, w *storagetest.World) int {
	families, err := w.Registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == "millrace_shard_writers_forgotten_total" {
			return int(f.GetMetric()[0].GetCounter().GetValue())
		}
	}
	t.Fatal("there is no such metric")
	return 0
}

// Shows that the sweep after one checkpoint forgets all the keys there are to forget,
// which may be as many as requests, so that they do not pile up.
func TestOldKeysDoNotPileUp(t *testing.T) {
	w := small(t)
	w.MustOpen()
	m := w.Add(storagetest.NewTable(1, 1, 1, 0, storagetest.LogColumns...))
	var under []*shard.Pending
	const keys = 5000 // several times what one sweep looks at
	for i := range keys {
		op := m.Op(&storagetest.Write{
			Rows:   []storagetest.Row{{int64(i), nil, nil, nil, nil}},
			Writer: &storagetest.Sequence{Writer: fmt.Sprintf("key-%05d", i), Seq: 1, Hash: 1},
		}, 0)
		p, err := w.Shard(m.Table, 0).Start(context.Background(), op)
		require.NoError(t, err)
		under = append(under, p)
	}
	for _, p := range under {
		_, err := p.Wait(context.Background())
		require.NoError(t, err)
	}
	w.Clock.Add(25 * time.Hour)
	_, err := numbered(w, m, "w", 0, 1)
	require.NoError(t, err)
	checkpoint(t, w)
	require.Eventually(t, func() bool {
		return forgotten(t, w) == keys
	}, time.Minute, time.Millisecond)
	w.Close()
}
