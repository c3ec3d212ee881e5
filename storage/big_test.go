package storage_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/shard"
	"github.com/millrace/millrace/storage/storagetest"
)

// wideRows are keyed rows with n bytes of text that does not compress away.
func wideRows(from, to, n int, tag string) []storagetest.Row {
	out := keyedRows(from, to, "")
	for i := range out {
		out[i][3] = tag + strings.Repeat(string(rune('a'+i%26)), n)
	}
	return out
}

// Shows that an update whose rows before and after take more than a message may
// works, and is there after a crash; and that one that takes more than an entry of
// the log may is refused and leaves nothing, however small it is itself.
func TestBigUpdate(t *testing.T) {
	w := small(t)
	w.Opts.BucketTailBytes = 0
	w.MustOpen()
	m := w.Add(storagetest.NewTable(1, 1, 1, 2, storagetest.KeyedColumns...))
	const rows, width = 120, 1_000_000
	for at := 0; at < rows; at += 60 {
		write(t, w, m, &storagetest.Write{Rows: wideRows(at, at+60, width, "a")})
	}
	// 60 rows before and 60 after: 120 MB in one entry.
	write(t, w, m, &storagetest.Write{Rows: wideRows(0, 60, width, "b")})
	w.Crash(0)

	// 120 before and 120 after, though the update itself is small.
	partial := &storagetest.Write{Rows: keyedRows(0, rows, "n"), Set: []bool{true, true, true, false, false}}
	_, err := w.Worker.Shards()[0].Write(context.Background(), m.Op(partial, 0))
	require.True(t, errs.Is(err, errs.TooLarge), "%v", err)
	partial.Rows = partial.Rows[:50]
	write(t, w, m, partial)
	w.Crash(0)
	w.Check()
	w.Close()
}

// Shows that a partial update that would make one row too large is refused whole: the
// rows before it in the batch are as they were, also for the writes after it.
func TestRefusedHalfWay(t *testing.T) {
	w := small(t)
	w.MustOpen()
	defer w.Close()
	m := w.Add(storagetest.NewTable(1, 2, 1, 2, "k1 BIGINT NOT NULL", "k2 STRING NOT NULL", "a STRING", "b STRING"))
	wide := strings.Repeat("x", shard.MaxRowBytes*6/10)
	row := func(k int64, a, b any) storagetest.Row { return storagetest.Row{k, "k", a, b} }
	write(t, w, m, &storagetest.Write{Rows: []storagetest.Row{row(1, "one", nil), row(2, wide, nil)}})
	sh := w.Worker.Shards()[0]
	bad := m.Op(&storagetest.Write{
		Rows:   []storagetest.Row{row(1, nil, "x"), row(3, nil, "x"), row(1, nil, "y"), row(2, nil, wide)},
		Set:    []bool{true, true, false, true},
		Writer: &storagetest.Sequence{Writer: "w", Seq: 1},
	}, 0)
	good := &storagetest.Write{Rows: []storagetest.Row{row(1, nil, "z"), row(3, nil, "z")}, Set: []bool{true, true, false, true}}
	for range 20 { // in one group and in several
		p, err := sh.Start(context.Background(), bad)
		require.NoError(t, err)
		want := m.Buckets[0].Write(m.Table, good)
		q, err := sh.Start(context.Background(), m.Op(good, 0))
		require.NoError(t, err)
		_, err = p.Wait(context.Background())
		require.True(t, errs.Is(err, errs.TooLarge), "%v", err)
		res, err := q.Wait(context.Background())
		require.NoError(t, err)
		require.EqualValues(t, want.Start, res.Start)
		require.EqualValues(t, want.End, res.End)
	}
	// The first op of a bucket, refused, does not open it.
	bad.Bucket.Bucket = 1
	bad.Rows[1] = make([]byte, shard.MaxRowBytes*2)
	bad.Set = nil
	_, err := sh.Write(context.Background(), bad)
	require.True(t, errs.Is(err, errs.TooLarge), "%v", err)
	lg, _, err := sh.Log(bad.Bucket)
	require.NoError(t, err)
	require.Nil(t, lg)
	w.Check()
	w.Crash(0)
	w.Check()
}
