package shardrpc

import (
	"context"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/storage/shard"
)

func someTable() *millrace.Table {
	return &millrace.Table{ID: 7, Version: 3, Schema: &millrace.Schema{ID: 1, Columns: []millrace.Column{{ID: 1, Name: "k"}, {ID: 2, Name: "v"}}}, Shards: []millrace.ShardID{0, 0}, Buckets: 2}
}

func someOps() []*shard.Op {
	t := someTable()
	return []*shard.Op{
		{Bucket: t.BucketID(1), Table: t, Columns: []shard.Encoded{{Payload: []byte("abc"), Records: 3}, {Payload: []byte{}, Records: 0}}},
		{
			Bucket: millrace.BucketID{Table: 7, Partition: 1 << 31, Bucket: 4095}, Table: t, Rows: [][]byte{nil, {1}, {}}, Keys: [][]byte{{1}, {2, 3}, {}},
			Kinds: []shard.OpKind{shard.Upsert, shard.Delete, shard.InsertIfAbsent}, Set: []bool{true, false}, IDs: []int64{-1, 1 << 62, 0},
			Writer: &shard.Sequence{Scope: "0:w", Epoch: 1, Seq: 1 << 63, Hash: 1<<64 - 1},
		},
	}
}

// What is written to a shard arrives as it was.
func TestOpsRoundTrip(t *testing.T) {
	for _, descriptor := range [][]byte{nil, []byte(`{"id":7,"version":3,"schema":{"id":1,"columns":[{"id":1},{"id":2}]}}`)} {
		ops := someOps()
		d := &decoder{b: appendWrite(nil, ops, descriptor)}
		id, version, told := d.writeHead()
		require.EqualValues(t, 7, id)
		require.EqualValues(t, 3, version)
		require.Equal(t, descriptor != nil, told != nil)
		got := d.ops(ops[0].Table)
		require.NoError(t, d.end())
		require.Equal(t, ops, got)
		require.LessOrEqual(t, len(appendWrite(nil, ops, nil)), sizeOf(ops))
	}
	outs := []router.Written{{Result: shard.Result{Start: 5, End: 9}}, {Err: errs.New(errs.OutOfOrderSequence, "x")}, {Result: shard.Result{Start: millrace.NoOffset, End: millrace.NoOffset, Duplicate: true}}}
	d := &decoder{b: appendWritten(nil, outs)}
	got := d.written()
	require.NoError(t, d.end())
	require.Equal(t, outs[0], got[0])
	require.True(t, errs.Is(got[1].Err, errs.OutOfOrderSequence))
	require.Equal(t, outs[2], got[2])
}

// Questions and answers arrive as they were.
func TestLooksRoundTrip(t *testing.T) {
	q := &router.Question{
		Table: 9, Snapshot: true, Promised: true, Times: []int64{-5, 1 << 62}, Written: []millrace.Offset{3, millrace.NoOffset},
		Buckets: []millrace.BucketID{{Table: 9, Partition: 1, Bucket: 2}, {Table: 9, Bucket: 4095}},
	}
	d := &decoder{b: appendQuestion(nil, q)}
	require.Equal(t, q, d.question())
	require.NoError(t, d.end())
	l := &router.Looks{Snapshot: "id", Buckets: []router.Look{
		{LogRange: router.LogRange{Start: 1, Kept: 2, End: 3}, There: true, Bytes: 4, Next: 5, Rows: 6, Promised: millrace.NoOffset, At: [2]millrace.Offset{7, 8}, Micros: 9}, {},
	}}
	d = &decoder{b: appendLooks(nil, l)}
	require.Equal(t, l, d.looks())
	require.NoError(t, d.end())
}

// No bytes make who reads them panic, or take more memory than a multiple of their length
// (P3).
func FuzzDecode(f *testing.F) {
	head := func(k kind, body []byte) []byte { return append(appendHead(nil, k, time.Second), body...) }
	f.Add(head(kindWrite, appendWrite(nil, someOps(), nil)))
	f.Add(head(kindLook, appendQuestion(nil, &router.Question{Table: 1, Buckets: []millrace.BucketID{{Table: 1}}, Written: []millrace.Offset{1}})))
	f.Add(head(kindLookup, appendKeys(nil, []router.BucketKeys{{Keys: [][]byte{{1}}}}, 5)))
	f.Add(head(kindPrefixes, appendPrefixes(nil, []router.BucketPrefix{{Prefix: []byte{1}}}, -1, 5)))
	f.Add(head(kindTiered, appendOffsets(nil, map[millrace.BucketID]millrace.Offset{{}: 4})))
	f.Add(appendFailure([]byte{statusError}, errs.Row(errs.InvalidValue, 1, "f", "x").With("a", 1)))
	f.Add(appendLooks([]byte{statusOK}, &router.Looks{Buckets: make([]router.Look, 2)}))
	f.Add(appendStatus([]byte{statusOK}, &shard.Status{ID: 3, Err: errs.New(errs.CorruptData, "x")}))
	damaged := shard.Damaged(0, errs.New(errs.CorruptData, "damaged"), slog.New(slog.DiscardHandler))
	s := NewServer(ServerOptions{Owners: router.Local{damaged}, Logger: slog.New(slog.DiscardHandler), Table: func(context.Context, millrace.TableID) (*millrace.Table, error) { return someTable(), nil }})
	f.Fuzz(func(t *testing.T, b []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		s.Answer(t.Context(), 0, append([]byte{}, b...))
		if d, err := open(b); err == nil {
			for _, read := range []func(*decoder){
				func(d *decoder) { d.looks() }, func(d *decoder) { d.rows() }, func(d *decoder) { d.rowLists() },
				func(d *decoder) { d.written() }, func(d *decoder) { d.status() },
			} {
				part := *d
				read(&part)
			}
		}
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 2<<20+uint64(len(b))*2000 {
			t.Fatalf("%d bytes took %d", len(b), took)
		}
	})
}
