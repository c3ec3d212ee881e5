package storage_test

import (
	"context"
	"syscall"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/storage/segment"
	"github.com/millrace/millrace/storage/shard"
	"github.com/millrace/millrace/storage/storagetest"
)

// altered is the table with the columns given, by their ids, as a later version.
func altered(t *storagetest.Table, cols ...millrace.Column) *storagetest.Table {
	d := *t.Table
	d.Version++
	d.Schema = &millrace.Schema{ID: d.Schema.ID + 1, Columns: cols}
	out := *t
	out.Table = &d
	return &out
}

func col(id millrace.ColumnID, name, typ string, nullable bool) millrace.Column {
	dt, err := millrace.ParseType(typ)
	if err != nil {
		panic(err)
	}
	return millrace.Column{ID: id, Name: name, Type: dt, Nullable: nullable}
}

// aligned reads a bucket's log in the columns of the table, with the schemas that
// the shard knows.
func aligned(t testing.TB, w *storagetest.World, tab *storagetest.Table, bucket uint16) []storagetest.Change {
	t.Helper()
	sh := w.Shard(tab, bucket)
	lg, v, err := sh.Log(tab.BucketID(bucket))
	require.NoError(t, err)
	var out []storagetest.Change
	for off := v.Start; off < v.End; {
		b, err := lg.At(v, off)
		require.NoError(t, err)
		rec, err := b.Payload.Record(memory.DefaultAllocator, sh.Schemas(tab.ID), tab.Schema.Columns)
		require.NoError(t, err)
		changes, err := b.Payload.Changes()
		require.NoError(t, err)
		for i, r := range storagetest.Rows(rec) {
			c := storagetest.Change{Row: r}
			if changes != nil {
				c.Type = changes[i]
			}
			out = append(out, c)
		}
		rec.Release()
		off = b.Header.End()
		require.NoError(t, b.Release())
	}
	return out
}

// lookedUp is the row with a key in the columns of the table.
func lookedUp(t testing.TB, w *storagetest.World, tab *storagetest.Table, key storagetest.Row) storagetest.Row {
	t.Helper()
	sh := w.Shard(tab, 0)
	got, err := sh.Lookup(context.Background(), tab.BucketID(0), [][]byte{tab.StateKey(key)})
	require.NoError(t, err)
	if got[0] == nil {
		return nil
	}
	rd := row.NewReader(memory.DefaultAllocator, sh.Schemas(tab.ID), tab.Schema.Columns)
	require.NoError(t, rd.Append(got[0]))
	rec := rd.Record()
	defer rec.Release()
	return storagetest.Rows(rec)[0]
}

// Shows by hand what a keyed table's rows become when a column is dropped, one added,
// one widened and renamed: rows that nothing touches read aligned, rows that a write
// meets are rewritten, so that its changelog records are of one schema; a writer that
// knows the old schema goes on; and all that stays so through a crash, a replay and
// a checkpoint.
func TestKeyedTableIsAltered(t *testing.T) {
	for _, end := range []string{"crash", "checkpoint"} {
		t.Run(end, func(t *testing.T) {
			w := storagetest.NewWorld(t, 1)
			w.Opts.Shards = 1
			w.MustOpen()
			v1 := storagetest.NewTable(1, 1, 1, 1, "k BIGINT NOT NULL", "gone STRING", "n INT", "s STRING")
			v1.Version = 1
			v2 := altered(v1, col(1, "k", "BIGINT", false), col(5, "new", "DOUBLE", true), col(3, "m", "BIGINT", true), col(4, "s", "STRING", true))
			sh := w.Shard(v1, 0)
			write := func(tab *storagetest.Table, wr *storagetest.Write) shard.Result {
				t.Helper()
				res, err := sh.Write(context.Background(), tab.Op(wr, 0))
				require.NoError(t, err)
				return res
			}
			type rows = []storagetest.Row
			write(v1, &storagetest.Write{Rows: rows{{int64(1), "a", int32(10), "x"}, {int64(2), "b", int32(-20), "y"}, {int64(3), "c", nil, nil}}})
			write(v2, &storagetest.Write{Rows: rows{{int64(4), 0.5, int64(1) << 40, "z"}}})
			write(v2, &storagetest.Write{Rows: rows{{int64(2), 1.5, nil, nil}}, Set: []bool{true, true, false, false}})
			// The old writer's whole row has no `new`; its partial one does not touch it.
			write(v1, &storagetest.Write{Rows: rows{{int64(4), "lost", int32(7), "w"}}})
			write(v1, &storagetest.Write{Rows: rows{{int64(2), nil, int32(8), nil}}, Set: []bool{true, false, true, false}})
			res := write(v1, &storagetest.Write{Rows: rows{{int64(2), "lost", nil, nil}}, Set: []bool{true, true, false, false}})
			require.Equal(t, res.Start, res.End, "only what was dropped is named: nothing changes")
			write(v2, &storagetest.Write{Rows: rows{{int64(3), nil, nil, nil}}, Deletes: []bool{true}})

			if end == "crash" {
				w.Crash(0)
			} else {
				require.NoError(t, sh.Checkpoint(context.Background()))
				w.Close()
				w.MustOpen()
			}
			sh = w.Shard(v1, 0)
			type change = storagetest.Change
			got := aligned(t, w, v2, 0)
			require.Empty(t, storagetest.DiffLogs([]change{
				{Type: millrace.Insert, Row: storagetest.Row{int64(1), nil, int64(10), "x"}},
				{Type: millrace.Insert, Row: storagetest.Row{int64(2), nil, int64(-20), "y"}},
				{Type: millrace.Insert, Row: storagetest.Row{int64(3), nil, nil, nil}},
				{Type: millrace.Insert, Row: storagetest.Row{int64(4), 0.5, int64(1) << 40, "z"}},
				{Type: millrace.UpdateBefore, Row: storagetest.Row{int64(2), nil, int64(-20), "y"}},
				{Type: millrace.UpdateAfter, Row: storagetest.Row{int64(2), 1.5, int64(-20), "y"}},
				{Type: millrace.UpdateBefore, Row: storagetest.Row{int64(4), 0.5, int64(1) << 40, "z"}},
				{Type: millrace.UpdateAfter, Row: storagetest.Row{int64(4), nil, int64(7), "w"}},
				{Type: millrace.UpdateBefore, Row: storagetest.Row{int64(2), 1.5, int64(-20), "y"}},
				{Type: millrace.UpdateAfter, Row: storagetest.Row{int64(2), 1.5, int64(8), "y"}},
				{Type: millrace.Delete, Row: storagetest.Row{int64(3), nil, nil, nil}},
			}, got))
			require.Equal(t, storagetest.Row{int64(1), nil, int64(10), "x"}, lookedUp(t, w, v2, storagetest.Row{int64(1)}))
			require.Equal(t, storagetest.Row{int64(2), 1.5, int64(8), "y"}, lookedUp(t, w, v2, storagetest.Row{int64(2)}))
			require.Nil(t, lookedUp(t, w, v2, storagetest.Row{int64(3)}))
			// What the shard knows of the table is there again: it rewrites the old row.
			write(v1, &storagetest.Write{Rows: rows{{int64(1), "lost", int32(11), "x"}}})
			require.Equal(t, storagetest.Row{int64(1), nil, int64(11), "x"}, lookedUp(t, w, v2, storagetest.Row{int64(1)}))
			w.Close()
		})
	}
}

// Shows that a group that does not become durable leaves nothing of a schema that it
// taught: rows of the old one are taken as they are, the next write teaches the new
// one again, and replay knows it.
func TestFailedGroupUnlearns(t *testing.T) {
	f := newFaulty(t)
	v1 := storagetest.NewTable(1, 1, 1, 1, "k BIGINT NOT NULL", "n INT")
	v1.Version = 1
	v2 := altered(v1, col(1, "k", "BIGINT", false), col(3, "new", "STRING", true), col(2, "n", "BIGINT", true))
	sh := f.Shard(v1, 0)
	write := func(tab *storagetest.Table, r storagetest.Row) error {
		_, err := sh.Write(context.Background(), tab.Op(&storagetest.Write{Rows: []storagetest.Row{r}}, 0))
		return err
	}
	require.NoError(t, write(v1, storagetest.Row{int64(1), int32(1)}))
	f.when(-1, syscall.ENOSPC, writes(inLog))
	require.True(t, errs.Is(write(v2, storagetest.Row{int64(1), "lost", int64(2)}), errs.StorageFull))
	f.clear()
	require.Nil(t, sh.Schemas(1)(2))
	require.NoError(t, write(v1, storagetest.Row{int64(1), int32(3)}))
	require.NoError(t, write(v2, storagetest.Row{int64(1), "kept", int64(4)}))
	f.crashed(0)
	require.Equal(t, storagetest.Row{int64(1), "kept", int64(4)}, lookedUp(t, f.World, v2, storagetest.Row{int64(1)}))
	require.Len(t, aligned(t, f.World, v2, 0), 5)
	f.Close()
}

// Shows that a writer with an older schema than all rows here is taken: its compact
// rows are rewritten, and leave nothing of the old schema; its columns are stored as
// they are, and read by the schema that the log then names.
func TestOlderWriterComesFirst(t *testing.T) {
	w := storagetest.NewWorld(t, 4)
	w.Opts.Shards = 1
	w.MustOpen()
	for id, keyed := range map[millrace.TableID]int{1: 1, 2: 0} {
		v1 := storagetest.NewTable(id, 1, 1, keyed, "k BIGINT NOT NULL", "n INT")
		v1.Version = 1
		v2 := altered(v1, col(3, "new", "STRING", true), col(2, "n", "BIGINT", true), col(1, "k", "BIGINT", false))
		sh := w.Shard(v1, 0)
		for _, op := range []*shard.Op{
			v2.Op(&storagetest.Write{Rows: []storagetest.Row{{"x", int64(1), int64(7)}}}, 1000),
			v1.Op(&storagetest.Write{Rows: []storagetest.Row{{int64(8), int32(2)}}}, 0),
		} {
			_, err := sh.Write(context.Background(), op)
			require.NoError(t, err)
		}
		require.Nil(t, sh.Schemas(id)(1))
		_, err := sh.Write(context.Background(), v1.Op(&storagetest.Write{Rows: []storagetest.Row{{int64(9), int32(3)}}}, 1000))
		require.NoError(t, err)
		require.Equal(t, keyed == 0, sh.Schemas(id)(1) != nil)
		w.Crash(0)
		require.Empty(t, storagetest.DiffLogs([]storagetest.Change{
			{Row: storagetest.Row{"x", int64(1), int64(7)}}, {Row: storagetest.Row{nil, int64(2), int64(8)}}, {Row: storagetest.Row{nil, int64(3), int64(9)}},
		}, aligned(t, w, v2, 0)))
	}
	w.Close()
}

// Shows that writes of old and new writers that are under way together come out in
// the order sent, each payload of one schema and never an older one than that before,
// and that options go by the descriptor of the highest version, whoever writes.
func TestSchemasInOneGroup(t *testing.T) {
	w := storagetest.NewWorld(t, 3)
	w.Opts.Shards, w.Opts.TailBytes, w.Opts.BucketTailBytes = 1, 0, 0
	w.MustOpen()
	v1 := storagetest.NewTable(1, 1, 1, 1, "k BIGINT NOT NULL", "n INT")
	v1.Version = 1
	v2 := altered(v1, col(1, "k", "BIGINT", false), col(2, "n", "BIGINT", true), col(3, "new", "STRING", true))
	sh := w.Shard(v1, 0)
	var under []*shard.Pending
	for i := range 200 {
		op := v1.Op(&storagetest.Write{Rows: []storagetest.Row{{int64(i % 7), int32(i)}}}, 0)
		if i == 100 || i > 100 && i%3 == 0 {
			op = v2.Op(&storagetest.Write{Rows: []storagetest.Row{{int64(i % 7), int64(i), "new"}}}, 0)
		}
		p, err := sh.Start(context.Background(), op)
		require.NoError(t, err)
		under = append(under, p)
	}
	for _, p := range under {
		_, err := p.Wait(context.Background())
		require.NoError(t, err)
	}
	_, v, err := sh.Log(v1.BucketID(0))
	require.NoError(t, err)
	newest := millrace.SchemaID(1)
	for _, b := range v.Tail() {
		p, err := segment.OpenBytes(b.Payload)
		require.NoError(t, err)
		rows, err := p.CompactRows()
		require.NoError(t, err)
		for _, r := range rows {
			require.Equal(t, p.SchemaID(), row.SchemaIDOf(r))
		}
		require.GreaterOrEqual(t, p.SchemaID(), newest)
		newest = p.SchemaID()
	}
	require.EqualValues(t, 2, newest)
	n := int64(0)
	for _, c := range aligned(t, w, v2, 0) {
		if c.Type != millrace.UpdateBefore {
			require.Equal(t, n, c.Row[1])
			n++
		}
	}
	require.EqualValues(t, 200, n)

	// The same schema, with another property: it holds for the old writer, too.
	v3 := *v2
	d := *v2.Table
	d.Version, d.Options.Deletes = 3, millrace.DisableDeletes
	v3.Table = &d
	remove := &storagetest.Write{Rows: []storagetest.Row{{int64(1), nil}}, Deletes: []bool{true}}
	_, err = sh.Write(context.Background(), v1.Op(remove, 0))
	require.NoError(t, err)
	_, err = sh.Write(context.Background(), v3.Op(&storagetest.Write{Rows: []storagetest.Row{{int64(1), int64(1), nil}}}, 0))
	require.NoError(t, err)
	w.Crash(0)
	_, err = w.Shard(v1, 0).Write(context.Background(), v1.Op(remove, 0))
	require.True(t, errs.Is(err, errs.DeleteDisabled), "%v", err)
	w.Close()
}

// Shows that rows of an older schema are aggregated and compared as those of the newer
// one: sums go on in the wider type, columns that were added begin at NULL, whether old
// rows or old writers bring them; and that a later descriptor's options count from then on.
func TestEnginesAcrossSchemas(t *testing.T) {
	w := small(t)
	w.MustOpen()
	sum := storagetest.NewTable(1, 1, 1, 1, "k BIGINT NOT NULL", "n INT", "s STRING")
	sum.Options = millrace.TableOptions{MergeEngine: millrace.Aggregation, Aggregates: map[millrace.ColumnID]millrace.Aggregate{2: {Function: millrace.AggSum}, 4: {Function: millrace.AggMax}}}
	put := func(tab *storagetest.Table, wr wr) error {
		_, err := w.Shard(tab, 0).Write(context.Background(), tab.Op(wr, 0))
		return err
	}
	require.NoError(t, put(sum, upsert(1, 1<<31-1, "a")))
	require.True(t, errs.Is(put(sum, upsert(1, 1, "b")), errs.IntegerOverflow))
	wide := altered(sum, col(1, "k", "BIGINT", false), col(4, "m", "DOUBLE", true), col(2, "n", "BIGINT", true))
	wide.Options.Image = millrace.WALImage
	require.NoError(t, put(wide, &storagetest.Write{Rows: []storagetest.Row{{int64(1), 1.5, int64(1)}}}))
	require.NoError(t, put(sum, upsert(1, 2, "c"))) // an older writer
	want := []string{"+I 1|<nil>|2147483647", "+U 1|1.5|2147483648", "+U 1|1.5|2147483650"}
	check := func(tab *storagetest.Table) {
		t.Helper()
		var got []string
		for _, c := range aligned(t, w, tab, 0) {
			got = append(got, c.String())
		}
		require.Equal(t, want, got)
	}
	check(wide)
	w.Crash(0)
	check(wide)
	require.Equal(t, storagetest.Row{int64(1), 1.5, int64(2147483650)}, lookedUp(t, w, wide, storagetest.Row{int64(1), nil, nil}))

	ver := storagetest.NewTable(2, 1, 1, 1, "k BIGINT NOT NULL", "n INT", "s STRING")
	ver.Options = engine(millrace.Versioned)
	require.NoError(t, put(ver, upsert(1, 5, "a")))
	later := altered(ver, col(1, "k", "BIGINT", false), col(3, "s", "STRING", true), col(2, "n", "BIGINT", true))
	require.NoError(t, put(later, &storagetest.Write{Rows: []storagetest.Row{{int64(1), "b", int64(4)}, {int64(1), "c", int64(1 << 40)}}}))
	require.NoError(t, put(ver, upsert(1, 1<<31-1, "d")))
	want = []string{"+I 1|a|5", "-U 1|a|5", "+U 1|c|1099511627776"}
	check(later)
	w.Close()
}
