package flightsvc_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

func lookupCmd(more obj) *flight.FlightDescriptor {
	cmd := obj{"op": "lookup", "table": "d.t"}
	maps.Copy(cmd, more)
	return commandOf(cmd)
}

// exchange is an open stream of lookups.
type exchange struct {
	f  *fixture
	st flight.FlightService_DoExchangeClient
	w  *flight.Writer
	r  *flight.Reader
	n  int
}

func (f *fixture) exchange(c flight.Client, d *flight.FlightDescriptor, schema *arrow.Schema) *exchange {
	st, err := c.DoExchange(f.ctx())
	require.NoError(f.t, err)
	w := flight.NewRecordWriter(st, ipc.WithSchema(schema))
	w.SetFlightDescriptor(d)
	return &exchange{f: f, st: st, w: w}
}

// ask sends keys and waits for the answer, which must bring the metadata back.
func (x *exchange) ask(keys arrow.RecordBatch) (arrow.RecordBatch, error) {
	x.n++
	sent := x.w.WriteWithAppMetadata(keys, fmt.Appendf(nil, "request %d", x.n))
	if x.r == nil {
		var err error
		if x.r, err = flight.NewRecordReader(x.st); err != nil {
			return nil, err
		}
	}
	if !x.r.Next() {
		if err := x.r.Err(); err != nil {
			return nil, err
		}
		return nil, io.EOF
	}
	require.NoError(x.f.t, sent)
	require.Equal(x.f.t, fmt.Sprintf("request %d", x.n), string(x.r.LatestAppMetadata()))
	return x.r.RecordBatch(), nil
}

func (x *exchange) answers(keys string) []string {
	rec, err := x.ask(batchOf(x.f.t, schemaOf(field("k", int64s)), keys))
	require.NoError(x.f.t, err)
	return texts(x.f.t, rec)
}

// Each batch of keys is answered by one batch of rows in the order of the keys,
// as of everything acknowledged before; absent keys are rows of NULL.
func TestLookup(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	f.table("t", true, 4)
	f.mustWrite(c, pathOf("d.t"), rows(0, 100, "a"))
	x := f.exchange(c, lookupCmd(obj{"columns": []string{"v", "k"}}), schemaOf(field("k", int64s)))
	require.Equal(t, []string{`{"_found":true,"k":42,"v":"a42"}`, `{"_found":false,"k":null,"v":null}`, `{"_found":true,"k":7,"v":"a7"}`}, x.answers(`[{"k":42},{"k":-1},{"k":7}]`))
	require.Equal(t, "_found v k", strings.Join(names(x.r.Schema()), " "))
	for _, fl := range x.r.Schema().Fields()[1:] {
		require.True(t, fl.Nullable)
	}
	require.Empty(t, x.answers(`[]`))
	require.Equal(t, []string{`{"_found":false,"k":null,"v":null}`}, x.answers(`[{"k":1000}]`))
	require.Len(t, x.answers("["+strings.Repeat(`{"k":5},`, 999)+`{"k":5}]`), 1000)
	for i := range 20 {
		f.mustWrite(c, putCmd(obj{"partial": true}), batchOf(t, schemaOf(field("k", int64s), field("v", strs)), fmt.Sprintf(`[{"k":42,"v":"b%d"}]`, i)))
		require.Equal(t, []string{fmt.Sprintf(`{"_found":true,"k":42,"v":"b%d"}`, i)}, x.answers(`[{"k":42}]`))
	}
	require.NoError(t, x.st.CloseSend())
	require.False(t, x.r.Next())
	require.NoError(t, x.r.Err())
}

func names(s *arrow.Schema) []string {
	var out []string
	for _, f := range s.Fields() {
		out = append(out, f.Name)
	}
	return out
}

// A key of several columns is matched by name and cast, in whatever order it comes.
func TestLookupCompositeKey(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	tbl := f.tableOf("t", true, 3,
		millrace.Column{ID: 1, Name: "tenant", Type: millrace.DataType{Kind: millrace.String}},
		millrace.Column{ID: 2, Name: "v", Type: millrace.DataType{Kind: millrace.String}, Nullable: true},
		millrace.Column{ID: 3, Name: "id", Type: millrace.DataType{Kind: millrace.BigInt}})
	tbl.PrimaryKey, tbl.BucketKey = []millrace.ColumnID{1, 3}, []millrace.ColumnID{3}
	f.mustWrite(c, pathOf("d.t"), batchOf(t, schemaOf(field("id", int64s), field("tenant", strs), field("v", strs)), `[{"tenant":"x","id":1,"v":"x1"},{"tenant":"y","id":1,"v":"y1"}]`))
	x := f.exchange(c, lookupCmd(obj{"columns": []string{"v"}}), schemaOf(field("id", int32s), field("tenant", arrow.BinaryTypes.LargeString)))
	rec, err := x.ask(batchOf(t, schemaOf(field("id", int32s), field("tenant", arrow.BinaryTypes.LargeString)), `[{"tenant":"y","id":1},{"tenant":"z","id":1},{"tenant":"x","id":1}]`))
	require.NoError(t, err)
	require.Equal(t, []string{`{"_found":true,"v":"y1"}`, `{"_found":false,"v":null}`, `{"_found":true,"v":"x1"}`}, texts(t, rec))
}

// What cannot be looked up is refused with its code.
func TestLookupThatIsRefused(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	f.table("t", true, 2)
	f.table("log", false, 2)
	k := schemaOf(field("k", int64s))
	for _, x := range []struct {
		d      *flight.FlightDescriptor
		schema *arrow.Schema
		keys   string
		code   codes.Code
		why    errs.Code
	}{
		{lookupCmd(obj{"table": "d.log"}), k, `[{"k":1}]`, codes.InvalidArgument, errs.WrongTableKind},
		{lookupCmd(obj{"table": "d.nothing"}), k, `[{"k":1}]`, codes.NotFound, errs.TableNotFound},
		{lookupCmd(obj{"table": "d.t$changelog"}), k, `[{"k":1}]`, codes.InvalidArgument, errs.InvalidValue},
		{lookupCmd(obj{"columns": []string{"x"}}), k, `[{"k":1}]`, codes.InvalidArgument, errs.UnknownColumn},
		{lookupCmd(obj{"columns": []string{"_bucket"}}), k, `[{"k":1}]`, codes.InvalidArgument, errs.UnknownColumn},
		{lookupCmd(obj{"x": 1}), k, `[{"k":1}]`, codes.InvalidArgument, errs.UnknownField},
		{pathOf("d.t"), k, `[{"k":1}]`, codes.InvalidArgument, errs.InvalidValue},
		{lookupCmd(nil), schemaOf(field("v", strs)), `[{"v":"a"}]`, codes.InvalidArgument, errs.MissingKey},
		{lookupCmd(nil), schemaOf(field("k", int64s), field("v", strs)), `[{"k":1,"v":"a"}]`, codes.InvalidArgument, errs.UnknownColumn},
		{lookupCmd(nil), schemaOf(field("k", arrow.FixedWidthTypes.Boolean)), `[{"k":true}]`, codes.InvalidArgument, errs.TypeMismatch},
		{lookupCmd(nil), k, `[{"k":null}]`, codes.InvalidArgument, errs.NullNotAllowed},
		{lookupCmd(nil), k, "[" + strings.Repeat(`{"k":1},`, 1000) + `{"k":1}]`, codes.InvalidArgument, errs.TooLarge},
	} {
		_, err := f.exchange(c, x.d, x.schema).ask(batchOf(t, x.schema, x.keys))
		require.False(t, errors.Is(err, io.EOF), "%s", x.keys)
		refused(t, err, x.code, x.why)
	}
}

// A table that is dropped ends its lookups with its error, not with nothing found.
func TestLookupOfADroppedTable(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	tbl := f.table("t", true, 2)
	f.mustWrite(c, pathOf("d.t"), rows(0, 10, "a"))
	x := f.exchange(c, lookupCmd(nil), schemaOf(field("k", int64s)))
	require.Len(t, x.answers(`[{"k":1}]`), 1)
	f.drop(tbl)
	_, err := x.ask(batchOf(t, schemaOf(field("k", int64s)), `[{"k":1}]`))
	refused(t, err, codes.NotFound, errs.TableNotFound)
}

// An answer that a stock client would not take is refused with what to do, before
// it is made.
func TestLookupOfTooMuch(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	f.table("t", true, 2)
	f.mustWrite(c, pathOf("d.t"), wide(30, 900<<10))
	x := f.exchange(c, lookupCmd(nil), schemaOf(field("k", int64s)))
	require.Len(t, x.answers(`[{"k":1},{"k":2}]`), 2)
	_, err := x.ask(batchOf(t, schemaOf(field("k", int64s)), "["+strings.Repeat(`{"k":3},`, 999)+`{"k":3}]`))
	refused(t, err, codes.InvalidArgument, errs.TooLarge)
	x = f.exchange(c, lookupCmd(obj{"columns": []string{"n"}}), schemaOf(field("k", int64s)))
	require.Len(t, x.answers("["+strings.Repeat(`{"k":3},`, 49)+`{"k":3}]`), 50)
}
