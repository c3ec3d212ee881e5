package flightsvc_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/millrace/millrace/admit"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/flightsvc"
	"github.com/millrace/millrace/router"
)

var int64s, int32s, strs = arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Int32, arrow.BinaryTypes.String

func putCmd(more obj) *flight.FlightDescriptor {
	cmd := obj{"op": "put", "table": "d.t"}
	maps.Copy(cmd, more)
	return commandOf(cmd)
}

// By default there is one result, at the end: how many rows, and where they are.
func TestPutFinalResult(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	f.table("t", false, 3)
	var batches []arrow.RecordBatch
	for i := range 200 {
		batches = append(batches, rows(i*10, i*10+10, "a"))
	}
	res := f.mustWrite(c, pathOf("d", "t"), batches...)
	require.EqualValues(t, 2000, res.Rows)
	sum := int64(0)
	for _, r := range res.Offsets {
		require.Zero(t, r.Start)
		sum += int64(r.End)
	}
	require.EqualValues(t, 2000, sum)
	require.Equal(t, want(0, 2000, "a"), f.sorted(c, pathOf("d.t")))
	res = f.mustWrite(c, putCmd(nil), rows(0, 0, ""))
	require.Zero(t, res.Rows, "no rows are no error")
}

// Columns match by name, in any order, and are cast where nothing is lost; pandas'
// index is ignored.
func TestPutMatchesByName(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	f.table("t", true, 2)
	schema := schemaOf(field("__index_level_0__", int64s), field("n", int64s), field("v", arrow.BinaryTypes.LargeString), field("k", int32s))
	f.mustWrite(c, putCmd(nil), batchOf(t, schema, `[{"__index_level_0__":7,"n":3,"v":"a3","k":3},{"n":4,"v":"a4","k":4}]`))
	require.Equal(t, want(3, 5, "a"), f.sorted(c, pathOf("d.t")))
	dict := schemaOf(field("k", int64s), field("v", &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: strs}))
	f.mustWrite(c, putCmd(obj{"partial": true}), batchOf(t, dict, `[{"k":3,"v":"x"},{"k":4,"v":"x"}]`), batchOf(t, dict, `[{"k":5,"v":"y"}]`))
	require.Equal(t, []string{`{"k":3,"n":3,"v":"x"}`, `{"k":4,"n":4,"v":"x"}`, `{"k":5,"n":null,"v":"y"}`}, f.sorted(c, pathOf("d.t")))
}

// Deletes need the key only, partial updates leave other columns alone, and
// _change_type says row by row what to do.
func TestPutModes(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	f.table("t", true, 2)
	f.mustWrite(c, putCmd(nil), rows(0, 4, "a"))
	res := f.mustWrite(c, putCmd(obj{"mode": "delete"}), batchOf(t, schemaOf(field("k", int64s)), `[{"k":0},{"k":9}]`))
	require.EqualValues(t, 2, res.Rows)
	f.mustWrite(c, putCmd(obj{"partial": true}), batchOf(t, schemaOf(field("n", int32s), field("k", int64s)), `[{"k":1,"n":77}]`))
	require.Equal(t, []string{`{"k":1,"n":77,"v":"a1"}`, `{"k":2,"n":2,"v":"a2"}`, `{"k":3,"n":3,"v":"a3"}`}, f.sorted(c, pathOf("d.t")))
	f.mustWrite(c, putCmd(obj{"partial": true, "mode": "delete"}), batchOf(t, schemaOf(field("v", strs), field("k", int64s)), `[{"k":1}]`))
	typed := schemaOf(field("_change_type", strs), field("k", int64s), field("v", strs))
	f.mustWrite(c, putCmd(nil), batchOf(t, typed, `[{"_change_type":"-U","k":2},{"_change_type":"+U","k":2,"v":"b"},{"_change_type":"-D","k":3},{"_change_type":"+I","k":4,"v":"c"}]`))
	require.Equal(t, []string{`{"k":1,"n":77,"v":null}`, `{"k":2,"n":null,"v":"b"}`, `{"k":4,"n":null,"v":"c"}`}, f.sorted(c, pathOf("d.t")))
}

// What no batch could make good is said at the descriptor and the schema, before
// a batch is sent, and nothing is written.
func TestPutIsRefusedAtTheOpening(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	f.table("t", true, 2)
	f.table("log", false, 2)
	kv := schemaOf(field("k", int64s), field("v", strs))
	for _, x := range []struct {
		d      *flight.FlightDescriptor
		schema *arrow.Schema
		code   codes.Code
		why    errs.Code
	}{
		{pathOf("d", "nothing"), kv, codes.NotFound, errs.TableNotFound},
		{pathOf("d", "t$changelog"), kv, codes.InvalidArgument, errs.ReadOnlyTable},
		{putCmd(obj{"table": "d.t$changelog"}), kv, codes.InvalidArgument, errs.ReadOnlyTable},
		{commandOf(obj{"op": "scan", "table": "d.t"}), kv, codes.InvalidArgument, errs.InvalidValue},
		{commandBytes([]byte("INSERT INTO t")), kv, codes.Unimplemented, errs.NotImplemented},
		{putCmd(obj{"table_id": 99}), kv, codes.FailedPrecondition, errs.TableRecreated},
		{putCmd(obj{"writer": "x"}), kv, codes.InvalidArgument, errs.UnknownField},
		{putCmd(obj{"acks": "never"}), kv, codes.InvalidArgument, errs.InvalidValue},
		{putCmd(obj{"mode": "append"}), kv, codes.InvalidArgument, errs.WrongTableKind},
		{putCmd(obj{"mode": "merge"}), kv, codes.InvalidArgument, errs.InvalidValue},
		{putCmd(obj{"writer_epoch": 3}), kv, codes.InvalidArgument, errs.InvalidValue},
		{putCmd(obj{"writer_id": strings.Repeat("x", 257)}), kv, codes.InvalidArgument, errs.InvalidValue},
		{putCmd(obj{"table": "d.log", "partial": true}), kv, codes.InvalidArgument, errs.WrongTableKind},
		{putCmd(nil), schemaOf(field("k", int64s), field("w", strs)), codes.InvalidArgument, errs.UnknownColumn},
		{putCmd(nil), schemaOf(field("k", strs)), codes.InvalidArgument, errs.TypeMismatch},
		{putCmd(nil), schemaOf(field("v", strs)), codes.InvalidArgument, errs.MissingKey},
		{putCmd(obj{"table": "d.log"}), schemaOf(field("v", strs)), codes.InvalidArgument, errs.MissingColumn},
		{putCmd(obj{"table": "d.log"}), schemaOf(field("_change_type", strs), field("k", int64s)), codes.InvalidArgument, errs.UnknownColumn},
	} {
		st, err := c.DoPut(f.ctx())
		require.NoError(t, err)
		w := flight.NewRecordWriter(st, ipc.WithSchema(x.schema))
		w.SetFlightDescriptor(x.d)
		require.NoError(t, w.Close(), "only the schema is sent, and the stream stays open")
		_, err = st.Recv()
		refused(t, err, x.code, x.why)
	}
	st, err := c.DoPut(f.ctx())
	require.NoError(t, err)
	require.NoError(t, st.CloseSend())
	_, err = st.Recv()
	refused(t, err, codes.InvalidArgument, errs.InvalidRequest)
	require.Empty(t, f.scan(c, pathOf("d.t")))
}

// A bad row ends the stream with its number in the stream, its column and the
// reason; its batch is not written, those before it are.
func TestPutNamesTheRowAtFault(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	f.table("t", true, 3)
	schema := schemaOf(field("k", int64s), field("n", int64s))
	_, err := f.write(c, putCmd(nil),
		batchOf(t, schema, `[{"k":1,"n":1},{"k":2,"n":2}]`), batchOf(t, schema, `[{"k":3,"n":3},{"k":4,"n":3000000000}]`), batchOf(t, schema, `[{"k":5,"n":1}]`))
	info := refused(t, err, codes.InvalidArgument, errs.ValueOutOfRange)
	require.Contains(t, err.Error(), `row 3, column "n"`)
	require.Equal(t, "2", info.Metadata["rows"], "what was taken before is durable")
	require.Len(t, f.scan(c, pathOf("d.t")), 2)
	_, err = f.write(c, putCmd(nil), batchOf(t, schema, `[{"k":7},{"n":1},{"n":2}]`))
	refused(t, err, codes.InvalidArgument, errs.NullNotAllowed)
	require.Contains(t, err.Error(), `row 1, column "k"`)
	require.Contains(t, err.Error(), "row 2")
	_, err = f.write(c, putCmd(nil), wide(2, 1<<20))
	refused(t, err, codes.InvalidArgument, errs.TooLarge)
	require.Len(t, f.scan(c, pathOf("d.t")), 2)
}

// Streamed acknowledgements begin with a ready message, are cumulative, never say
// more than what a read finds, and end with everything.
func TestPutStreamedAcks(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	f.table("t", false, 2)
	p := f.put(c, putCmd(obj{"acks": "stream"}), knSchema)
	require.NoError(t, p.w.Write(rows(0, 0, "")))
	ready, err := p.recv()
	require.NoError(t, err)
	require.Zero(t, ready.AckRows)
	require.Zero(t, ready.AckSeq)
	for i := range 100 {
		require.NoError(t, p.w.Write(rows(i*10, i*10+10, "a")))
		if i%20 != 0 {
			continue
		}
		for acked := int64(-1); acked < int64(i*10+10); {
			a, err := p.recv()
			require.NoError(t, err)
			require.Greater(t, a.AckRows, acked-1)
			acked = a.AckRows
			require.GreaterOrEqual(t, int64(len(f.scan(c, pathOf("d.t")))), acked)
		}
	}
	all, err := p.finish()
	require.NoError(t, err)
	last := all[len(all)-1]
	require.EqualValues(t, 1000, last.AckRows)
	require.EqualValues(t, 101, last.AckSeq, "without numbers, batches are counted")
	require.Len(t, last.Offsets, 2)
}

// A writer that never reads its acknowledgements is not held up by them.
func TestPutAcksThatNobodyReads(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	f.table("t", true, 64)
	p := f.put(c, putCmd(obj{"acks": "stream"}), knSchema)
	// An acknowledgement names 64 buckets: 2,000 of them would fill any window.
	for i := range 2000 {
		require.NoError(t, p.w.Write(rows(i%100*10, i%100*10+10, "a")))
	}
	require.Eventually(t, func() bool {
		return f.metric("millrace_flight_put_inflight_batches") == 0 && f.metric("millrace_flight_put_batches_total") == 2000
	}, time.Minute, 10*time.Millisecond)
	all, err := p.finish()
	require.NoError(t, err)
	require.EqualValues(t, 20_000, all[len(all)-1].AckRows)
}

// A writer that never reads may take longer than any time-out, and learns at its
// end of a batch that failed in the middle.
func TestPutThatFailsUnread(t *testing.T) {
	stall := 2 * time.Second // for what comes after the failure
	f := newFixture(t, stallAfter(stall))
	c := f.dial()
	f.table("t", true, 64)
	for _, batches := range []int{10, 50, 1000} { // acknowledgements within any window, near its end, beyond
		p := f.put(c, putCmd(obj{"acks": "stream"}), knSchema)
		for i := range batches {
			require.NoError(t, p.w.Write(rows(i%100*10, i%100*10+10, "a")))
		}
		if batches == 1000 {
			time.Sleep(stall + stall/4)
		}
		require.NoError(t, p.w.Write(rows(0, 10, "b")))
		require.NoError(t, p.w.Write(wide(1, 1<<20)))
		for range 50 {
			if p.w.Write(wide(1, 10<<10)) != nil {
				break // the stream has ended: finish says why
			}
		}
		all, err := p.finish()
		refused(t, err, codes.InvalidArgument, errs.TooLarge)
		require.EqualValues(t, batches*10+10, all[len(all)-1].AckRows, "and what was taken before")
	}
}

// Numbered batches are written once, however often they are sent; numbers must be
// there and rise.
func TestPutExactlyOnce(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	f.table("t", false, 3)
	send := func(d *flight.FlightDescriptor, seqs ...int) ([]result, error) {
		p := f.put(c, d, knSchema)
		for _, seq := range seqs {
			if p.w.WriteWithAppMetadata(rows(seq*10, seq*10+10, "a"), fmt.Appendf(nil, `{"seq":%d}`, seq)) != nil {
				break
			}
		}
		return p.finish()
	}
	w := putCmd(obj{"writer_id": "w", "acks": "stream"})
	first, err := send(w, 1, 2, 3)
	require.NoError(t, err)
	again, err := send(w, 2, 3, 4, 5)
	require.NoError(t, err)
	require.EqualValues(t, 5, again[len(again)-1].AckSeq)
	require.Equal(t, want(10, 60, "a"), f.sorted(c, pathOf("d.t")))
	require.EqualValues(t, 30, first[len(first)-1].AckRows)

	_, err = send(w, 7, 7)
	info := refused(t, err, codes.FailedPrecondition, errs.OutOfOrderSequence)
	require.Equal(t, "7", info.Metadata["ack_seq"])
	p := f.put(c, w, knSchema)
	require.NoError(t, p.w.Write(rows(0, 1, "x")))
	_, err = p.finish()
	refused(t, err, codes.InvalidArgument, errs.InvalidValue)
	for _, bad := range []string{`{"seq":0}`, `{"seq":-1}`, `{"seq":1.5}`, `{}`, `seq`, `{"seq":9,"x":1}`} {
		p := f.put(c, w, knSchema)
		require.NoError(t, p.w.WriteWithAppMetadata(rows(0, 1, "x"), []byte(bad)))
		_, err = p.finish()
		require.Equal(t, codes.InvalidArgument.String(), codeOf(err).String(), "%s: %v", bad, err)
	}
	final, err := send(putCmd(obj{"writer_id": "w", "writer_epoch": 2}), 8)
	require.NoError(t, err)
	require.EqualValues(t, 8, final[0].LastSeq)
	_, err = send(putCmd(obj{"writer_id": "w", "writer_epoch": 1}), 9)
	refused(t, err, codes.FailedPrecondition, errs.WriterFenced)
	require.Len(t, f.scan(c, pathOf("d.t")), 70)
}

// Nothing behind a batch that a bucket refuses is written, in any bucket, though it was
// sent without waiting: so that the stream can be sent again from there on.
func TestPutStopsAtARefusal(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	f.table("t", true, 4)
	send := func(seqs ...int) error {
		p := f.put(c, putCmd(obj{"writer_id": "w"}), knSchema)
		for _, seq := range seqs {
			if p.w.WriteWithAppMetadata(rows(seq*100, seq*100+100, "a"), fmt.Appendf(nil, `{"seq":%d}`, seq)) != nil {
				break
			}
		}
		_, err := p.finish()
		return err
	}
	require.NoError(t, send(1, 3))
	for range 10 {
		refused(t, send(1, 2, 4, 5, 6, 7, 8), codes.FailedPrecondition, errs.OutOfOrderSequence)
		require.Equal(t, append(want(100, 200, "a"), want(300, 400, "a")...), f.sorted(c, pathOf("d.t")))
	}
	require.NoError(t, send(4, 5, 6, 7, 8))
	require.Len(t, f.scan(c, pathOf("d.t")), 700)
}

// Without a writer, app_metadata is the client's own, but numbers are refused: they
// would promise what is not kept.
func TestPutForeignMetadata(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	f.table("t", false, 1)
	p := f.put(c, putCmd(obj{"acks": "stream"}), knSchema)
	require.NoError(t, p.w.WriteWithAppMetadata(rows(0, 1, "a"), []byte{0xff, 0}))
	require.NoError(t, p.w.WriteMetadata([]byte("hello")))
	require.NoError(t, p.w.WriteWithAppMetadata(rows(1, 2, "a"), []byte(`{"mine":true}`)))
	all, err := p.finish()
	require.NoError(t, err)
	require.EqualValues(t, 2, all[len(all)-1].AckSeq)
	require.EqualValues(t, 2, all[len(all)-1].AckRows)
	p = f.put(c, pathOf("d", "t"), knSchema)
	require.NoError(t, p.w.WriteWithAppMetadata(rows(2, 3, "a"), []byte(`{"seq":1}`)))
	_, err = p.finish()
	refused(t, err, codes.InvalidArgument, errs.InvalidRequest)
	require.Len(t, f.scan(c, pathOf("d.t")), 2)
}

// A load many times larger than the room that writes may take goes through it.
func TestPutWithinItsRoom(t *testing.T) {
	f := newFixture(t, func(o *flightsvc.Options) {
		o.Room = admit.New(admit.Received, 1<<20, time.Now, prometheus.NewRegistry())
	})
	f.table("t", false, 2)
	rec := wide(4, 300<<10)
	done := make(chan error)
	for range 3 {
		c := f.dial()
		go func() {
			_, err := f.write(c, pathOf("d.t"), rec, rec, rec, rec, rec)
			done <- err
		}()
	}
	for range 3 {
		require.NoError(t, <-done)
	}
	n, err := f.router.Count(f.ctx(), "d.t", &router.ReadRequest{})
	require.NoError(t, err)
	require.EqualValues(t, 60, n)
}

// A table that is dropped while it is written to ends the stream with its error.
func TestPutToATableThatGoes(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	tbl := f.table("t", false, 1)
	p := f.put(c, putCmd(obj{"acks": "stream"}), knSchema)
	require.NoError(t, p.w.Write(rows(0, 10, "a")))
	for {
		a, err := p.recv()
		require.NoError(t, err)
		if a.AckRows == 10 {
			break
		}
	}
	f.drop(tbl)
	var err error
	for err == nil {
		if err = p.w.Write(rows(0, 10, "a")); err == nil {
			time.Sleep(time.Millisecond)
		}
	}
	for err = nil; err == nil; {
		_, err = p.recv()
	}
	refused(t, err, codes.NotFound, errs.TableNotFound)
}

func codeOf(err error) codes.Code { return status.Code(err) }

// patched sends what a stock writer makes, changed on the way.
type patched struct {
	flight.DataStreamWriter
	old, new []byte
}

func (p *patched) Send(d *flight.FlightData) error {
	d.DataHeader, d.DataBody = bytes.ReplaceAll(d.DataHeader, p.old, p.new), bytes.ReplaceAll(d.DataBody, p.old, p.new)
	return p.DataStreamWriter.Send(d)
}

// H1: messages that claim what they do not hold are refused and cost no memory, in
// a write and in a lookup.
func TestArrowBombs(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	f.table("t", true, 2)
	little := func(n int64) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(n)) }
	keys := batchOf(t, schemaOf(field("k", int64s)), "["+strings.Repeat(`{"k":7},`, 999)+`{"k":8}]`)
	for _, x := range []struct {
		name     string
		opts     []ipc.Option
		old, new []byte
	}{
		{"lz4 bomb", []ipc.Option{ipc.WithLZ4()}, little(8000), little(1 << 44)},
		{"zstd bomb", []ipc.Option{ipc.WithZstd()}, little(8000), little(1 << 44)},
		{"negative length", []ipc.Option{ipc.WithLZ4()}, little(8000), little(math.MinInt64)},
		{"wrong counts", nil, little(1000), little(1 << 40)},
		{"buffer outside the body", nil, little(8000), little(1 << 40)},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for _, d := range []*flight.FlightDescriptor{putCmd(obj{"partial": true}), lookupCmd(nil)} {
			var w *flight.Writer
			var st interface{ CloseSend() error }
			var recv func() error
			if strings.Contains(string(d.Cmd), "lookup") {
				s, err := c.DoExchange(f.ctx())
				require.NoError(t, err)
				st, recv = s, func() error { _, err := s.Recv(); return err }
				w = flight.NewRecordWriter(&patched{s, x.old, x.new}, append([]ipc.Option{ipc.WithSchema(keys.Schema())}, x.opts...)...)
			} else {
				s, err := c.DoPut(f.ctx())
				require.NoError(t, err)
				st, recv = s, func() error { _, err := s.Recv(); return err }
				w = flight.NewRecordWriter(&patched{s, x.old, x.new}, append([]ipc.Option{ipc.WithSchema(keys.Schema())}, x.opts...)...)
			}
			w.SetFlightDescriptor(d)
			require.NoError(t, w.Write(keys), x.name)
			require.NoError(t, st.CloseSend())
			var err error
			for err == nil {
				err = recv()
			}
			require.Equal(t, codes.InvalidArgument.String(), codeOf(err).String(), "%s: %v", x.name, err)
		}
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20), x.name)
	}
	require.Empty(t, f.scan(c, pathOf("d.t")))
}

// A message that is no Arrow at all, or that comes before the schema, is refused.
func TestPutGarbage(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	f.table("t", false, 1)
	for _, fd := range []*flight.FlightData{
		{FlightDescriptor: pathOf("d.t"), DataHeader: []byte("garbage that is not a flatbuffer")},
		{FlightDescriptor: pathOf("d.t"), DataHeader: bytes.Repeat([]byte{0xff}, 64), DataBody: []byte{1}},
		{DataHeader: []byte("no descriptor")},
	} {
		st, err := c.DoPut(f.ctx())
		require.NoError(t, err)
		require.NoError(t, st.Send(fd))
		_, err = st.Recv()
		require.Equal(t, codes.InvalidArgument.String(), codeOf(err).String(), "%v", err)
	}
	st, err := c.DoPut(f.ctx())
	require.NoError(t, err)
	w := flight.NewRecordWriter(st, ipc.WithSchema(knSchema))
	w.SetFlightDescriptor(pathOf("d.t"))
	require.NoError(t, w.Write(rows(0, 10, "a")))
	require.NoError(t, st.Send(&flight.FlightData{DataHeader: []byte("garbage in the middle of it")}))
	for err == nil {
		_, err = st.Recv()
	}
	require.False(t, errors.Is(err, io.EOF))
	refused(t, err, codes.InvalidArgument, errs.InvalidRequest)
	require.Len(t, f.scan(c, pathOf("d.t")), 10, "the batch before it is whole")
}
