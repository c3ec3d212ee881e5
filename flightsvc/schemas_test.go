package flightsvc_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// alter adds d in front of the fixture's table, drops v and makes n a BIGINT m.
func (f *fixture) alter(t *millrace.Table) {
	next := *t
	next.Version++
	next.Schema = &millrace.Schema{ID: t.Schema.ID + 1, Columns: []millrace.Column{
		{ID: 4, Name: "d", Type: millrace.DataType{Kind: millrace.Double}, Nullable: true},
		t.Schema.Columns[0],
		{ID: 3, Name: "m", Type: millrace.DataType{Kind: millrace.BigInt}, Nullable: true},
	}}
	f.cat.alter(t, &next)
}

var altered = schemaOf(arrow.Field{Name: "k", Type: arrow.PrimitiveTypes.Int64}, field("m", arrow.PrimitiveTypes.Int64), field("d", arrow.PrimitiveTypes.Float64))

// What was begun before an ALTER goes on as it was promised: a stream of writes in the
// columns that it has, a ticket with the schema of its FlightInfo, a tail with its
// schema, until it meets what it cannot give.
func TestAlterUnderWay(t *testing.T) {
	for _, keyed := range []bool{false, true} {
		f := newFixture(t)
		c := f.dial()
		tbl := f.table("t", keyed, 2)
		f.mustWrite(c, pathOf("d.t"), rows(0, 4, "a"))
		put := f.put(c, commandOf(obj{"op": "put", "table": "d.t", "acks": "stream"}), knSchema)
		require.NoError(t, put.w.Write(rows(4, 6, "b")))
		for { // ready, then acknowledged
			r, err := put.recv()
			require.NoError(t, err)
			if r.AckRows == 2 {
				break
			}
		}
		scan := func(cols ...string) *flight.FlightInfo {
			info, err := c.GetFlightInfo(f.ctx(), commandOf(obj{"op": "scan", "table": "d.t", "columns": cols}))
			require.NoError(t, err)
			return info
		}
		kn, kv := scan("k", "n"), scan("k", "v")
		open := func(cols ...string) *reader {
			r, err := f.open(c, jsonOf(obj{"table": "d.t$changelog", "columns": cols, "from": "latest", "until": "never", "heartbeat_ms": 100}))
			require.NoError(t, err)
			r.must()
			r.must()
			return r
		}
		narrow, whole := open("n", "k"), open()

		f.alter(tbl)
		f.mustWrite(c, pathOf("d.t"), batchOf(t, altered, `[{"k": 6, "m": 60, "d": 0.5}, {"k": 7, "m": 70, "d": 0.5}]`))
		require.NoError(t, put.w.Write(rows(8, 10, "late")))
		_, err := put.finish()
		require.NoError(t, err)
		require.Equal(t, []string{
			`{"d":0.5,"k":6,"m":60}`, `{"d":0.5,"k":7,"m":70}`, `{"d":null,"k":0,"m":0}`, `{"d":null,"k":1,"m":1}`, `{"d":null,"k":2,"m":2}`,
			`{"d":null,"k":3,"m":3}`, `{"d":null,"k":4,"m":4}`, `{"d":null,"k":5,"m":5}`, `{"d":null,"k":8,"m":8}`, `{"d":null,"k":9,"m":9}`,
		}, f.sorted(c, pathOf("d.t")))

		promised, err := flight.DeserializeSchema(kn.Schema, nil)
		require.NoError(t, err)
		n := 0
		for _, ep := range kn.Endpoint {
			r, err := f.open(c, ep.Ticket.Ticket)
			require.NoError(t, err)
			require.True(t, r.r.Schema().Equal(promised))
			got, _ := r.drain()
			n += len(got)
		}
		require.Equal(t, 6, n)
		_, err = f.open(c, kv.Endpoint[0].Ticket.Ticket)
		refused(t, err, codes.FailedPrecondition, errs.SchemaChanged)

		seen := 0
		for seen < 4 {
			g := narrow.must()
			require.Equal(t, arrow.PrimitiveTypes.Int32, g.rec.Column(g.rec.Schema().FieldIndices("n")[0]).DataType())
			seen += int(g.rec.NumRows())
		}
		narrow.cancel()
		for err = nil; err == nil; {
			_, err = whole.next()
		}
		refused(t, err, codes.FailedPrecondition, errs.SchemaChanged)
		_, err = f.write(c, pathOf("d.t"), rows(10, 11, "v is not there"))
		require.Error(t, err)
	}
}
