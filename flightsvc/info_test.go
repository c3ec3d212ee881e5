package flightsvc_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/flightsvc"
)

// A bounded scan has an endpoint a bucket that says its range, of one snapshot:
// tickets give the same rows in the same order again, whatever is written meanwhile.
func TestEndpoints(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	for _, keyed := range []bool{false, true} {
		tbl := f.table(fmt.Sprintf("t%v", keyed), keyed, 4)
		f.mustWrite(c, pathOf("d", tbl.Path.Table), rows(0, 300, "a"))
		info, err := c.GetFlightInfo(f.ctx(), pathOf(tbl.Path.String()))
		require.NoError(t, err)
		require.Len(t, info.Endpoint, 4)
		require.EqualValues(t, 300, info.TotalRecords)
		require.Equal(t, !keyed, info.TotalBytes > 0, "%d", info.TotalBytes)
		require.JSONEq(t, fmt.Sprintf(`{"table_id":%d}`, tbl.ID), fmt.Sprintf(`{"table_id":%d}`, tableID(t, info.AppMetadata)))
		first := make([][]string, 4)
		total := 0
		for i, ep := range info.Endpoint {
			var m struct {
				BucketKey  string `json:"bucket_key"`
				Bucket     int
				Start, End *int64
			}
			require.NoError(t, json.Unmarshal(ep.AppMetadata, &m))
			require.Equal(t, fmt.Sprint(i), m.BucketKey)
			require.Equal(t, i, m.Bucket)
			require.Equal(t, keyed, m.Start == nil, "keyed rows have no start in the log")
			require.Empty(t, ep.Location)
			require.WithinDuration(t, f.clock.Now().Add(time.Hour), ep.ExpirationTime.AsTime(), time.Minute)
			r, err := f.open(c, ep.Ticket.Ticket)
			require.NoError(t, err)
			first[i], _ = r.drain()
			require.EqualValues(t, *m.End, len(first[i]))
			total += len(first[i])
		}
		require.Equal(t, 300, total)
		f.mustWrite(c, pathOf(tbl.Path.String()), rows(100, 400, "b"))
		for i, ep := range info.Endpoint {
			r, err := f.open(f.dial(), ep.Ticket.Ticket)
			require.NoError(t, err)
			again, _ := r.drain()
			require.Equal(t, first[i], again)
		}
	}
}

func tableID(t *testing.T, b []byte) int {
	var m struct {
		TableID int `json:"table_id"`
	}
	require.NoError(t, json.Unmarshal(b, &m))
	return m.TableID
}

// One endpoint where rows are counted over all buckets, or never end; it says so.
func TestOneEndpoint(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	f.table("t", false, 4)
	f.mustWrite(c, pathOf("d.t"), rows(0, 100, "a"))
	for name, request := range map[string]obj{
		"limit": {"limit": 7}, "one bucket": {"buckets": []int{2}}, "tail": {"until": "never"}, "pinned by the filter": {"filter": "k = 17"},
	} {
		request["op"], request["table"] = "scan", "d.t"
		info, err := c.GetFlightInfo(f.ctx(), commandOf(request))
		require.NoError(t, err, name)
		require.Len(t, info.Endpoint, 1, name)
	}
	require.Len(t, f.scan(c, commandOf(obj{"op": "scan", "table": "d.t", "limit": 7})), 7)
	info, err := c.GetFlightInfo(f.ctx(), commandOf(obj{"op": "scan", "table": "d.t", "limit": 7}))
	require.NoError(t, err)
	require.EqualValues(t, 7, info.TotalRecords)
	require.Contains(t, string(info.Endpoint[0].AppMetadata), `"bucket_key":null`)
	info, err = c.GetFlightInfo(f.ctx(), commandOf(obj{"op": "scan", "table": "d.t", "filter": "n > 3"}))
	require.NoError(t, err)
	require.EqualValues(t, -1, info.TotalRecords, "how many a filter takes is not known")
}

// Beyond 1,024 buckets an endpoint covers several, and an info with long tickets
// stays within 3 MiB; together they give every row.
func TestManyBucketsAndLongTickets(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	f.table("t", false, 3000)
	f.mustWrite(c, pathOf("d.t"), rows(0, 5000, "a"))
	info, err := c.GetFlightInfo(f.ctx(), pathOf("d.t"))
	require.NoError(t, err)
	require.Len(t, info.Endpoint, 1000)
	require.Contains(t, string(info.Endpoint[0].AppMetadata), `"offsets":{"0":{"start":0,"end":`)
	require.Len(t, f.scan(c, commandOf(obj{"op": "scan", "table": "d.t", "limit": 4000})), 4000, "one ticket names 3,000 buckets")
	_, err = c.GetFlightInfo(f.ctx(), commandOf(obj{"op": "scan", "table": "d.t", "until": "never"}))
	refused(t, err, codes.InvalidArgument, errs.TooManyBuckets)

	f.table("u", true, 400)
	f.mustWrite(c, pathOf("d.u"), rows(0, 1000, "a"))
	long := "v LIKE 'a%' AND v <> '" + noise(30<<10) + "'"
	cmd := commandOf(obj{"op": "scan", "table": "d.u", "filter": long, "columns": []string{"k"}})
	info, err = c.GetFlightInfo(f.ctx(), cmd)
	require.NoError(t, err)
	info.FlightDescriptor = nil
	require.LessOrEqual(t, proto.Size(info), 3<<20)
	require.Less(t, len(info.Endpoint), 400)
	require.Len(t, f.scan(c, cmd), 1000)
}

// noise is text that does not get shorter.
func noise(n int) string {
	b := make([]byte, n*3/4)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// A ticket expires after an hour, can be renewed and cancelled, and is refused when
// a byte of it was changed.
func TestTicketLife(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	f.table("t", true, 2)
	f.mustWrite(c, pathOf("d.t"), rows(0, 100, "a"))
	info, err := c.GetFlightInfo(f.ctx(), pathOf("d.t"))
	require.NoError(t, err)
	ticket := info.Endpoint[0].Ticket.Ticket
	for i := range 10 {
		bad := bytes.Clone(ticket)
		bad[i*len(bad)/10] ^= 1
		_, err = f.open(c, bad)
		refused(t, err, codes.InvalidArgument, errs.InvalidValue)
	}
	f.clock.forward(40 * time.Minute)
	renewed, err := c.RenewFlightEndpoint(f.ctx(), &flight.RenewFlightEndpointRequest{Endpoint: info.Endpoint[0]})
	require.NoError(t, err)
	require.WithinDuration(t, f.clock.Now().Add(time.Hour), renewed.ExpirationTime.AsTime(), time.Minute)
	f.clock.forward(40 * time.Minute)
	_, err = f.open(c, ticket)
	refused(t, err, codes.InvalidArgument, errs.TicketExpired)
	r, err := f.open(c, renewed.Ticket.Ticket)
	require.NoError(t, err)
	got, _ := r.drain()
	require.NotEmpty(t, got)

	res, err := c.CancelFlightInfo(f.ctx(), &flight.CancelFlightInfoRequest{Info: &flight.FlightInfo{Endpoint: []*flight.FlightEndpoint{renewed}}})
	require.NoError(t, err)
	require.Equal(t, flight.CancelStatusCancelled, res.Status)
	r, err = f.open(c, renewed.Ticket.Ticket)
	if err == nil {
		_, err = r.next()
	}
	refused(t, err, codes.Aborted, errs.SnapshotGone)

	f.drop(f.cat.AllTables(t.Context())[0])
	_, err = f.open(c, renewed.Ticket.Ticket)
	refused(t, err, codes.NotFound, errs.TableNotFound)
}

// What a descriptor or ticket cannot be is refused with its code, before anything is read.
func TestDescriptorsThatAreRefused(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	f.table("t", false, 2)
	f.table("keyed", true, 2)
	f.mustWrite(c, pathOf("d.t"), rows(0, 10, "a"))
	sqlAny, err := anypb.New(&anypb.Any{TypeUrl: "type.googleapis.com/x"})
	require.NoError(t, err)
	flightSQL, err := proto.Marshal(sqlAny)
	require.NoError(t, err)
	scan := func(more obj) *flight.FlightDescriptor {
		cmd := obj{"op": "scan", "table": "d.t"}
		maps.Copy(cmd, more)
		return commandOf(cmd)
	}
	for _, x := range []struct {
		name string
		d    *flight.FlightDescriptor
		code codes.Code
		why  errs.Code
	}{
		{"no table", pathOf("d", "nothing"), codes.NotFound, errs.TableNotFound},
		{"a path of three", pathOf("d", "t", "x"), codes.InvalidArgument, errs.InvalidValue},
		{"a path of none", pathOf(), codes.InvalidArgument, errs.InvalidValue},
		{"no descriptor", &flight.FlightDescriptor{}, codes.InvalidArgument, errs.InvalidValue},
		{"a name that is none", pathOf("d", "../t"), codes.InvalidArgument, errs.InvalidName},
		{"lake", pathOf("d", "t$lake"), codes.InvalidArgument, errs.InvalidValue},
		{"another suffix", pathOf("d", "t$x"), codes.InvalidArgument, errs.InvalidValue},
		{"an empty command", commandBytes(nil), codes.InvalidArgument, errs.InvalidValue},
		{"Flight SQL", commandBytes(flightSQL), codes.Unimplemented, errs.NotImplemented},
		{"SQL", commandBytes([]byte("SELECT 1")), codes.Unimplemented, errs.NotImplemented},
		{"half a command", commandBytes([]byte(`{"op":"scan"`)), codes.InvalidArgument, errs.InvalidRequest},
		{"another op", commandOf(obj{"op": "juggle"}), codes.InvalidArgument, errs.InvalidValue},
		{"an op that is none", commandBytes([]byte(`{"op":1}`)), codes.InvalidArgument, errs.InvalidRequest},
		{"prefix_lookup", commandOf(obj{"op": "prefix_lookup", "table": "d.keyed"}), codes.InvalidArgument, errs.InvalidValue},
		{"put", commandOf(obj{"op": "put", "table": "d.t"}), codes.InvalidArgument, errs.InvalidValue},
		{"lookup", commandOf(obj{"op": "lookup", "table": "d.keyed"}), codes.InvalidArgument, errs.InvalidValue},
		{"no table named", commandOf(obj{"op": "scan"}), codes.InvalidArgument, errs.InvalidValue},
		{"another table id", scan(obj{"table_id": 99}), codes.FailedPrecondition, errs.TableRecreated},
		{"an unknown field", scan(obj{"colums": 1}), codes.InvalidArgument, errs.UnknownField},
		{"an unknown column", scan(obj{"columns": []string{"x"}}), codes.InvalidArgument, errs.UnknownColumn},
		{"a broken filter", scan(obj{"filter": "k ="}), codes.InvalidArgument, errs.InvalidFilter},
		{"a page", scan(obj{"page_size": 10}), codes.InvalidArgument, errs.InvalidValue},
		{"a contradiction", commandOf(obj{"op": "scan", "table": "d.t$changelog", "view": "rows"}), codes.InvalidArgument, errs.InvalidValue},
		{"another compression", scan(obj{"compression": "gzip"}), codes.InvalidArgument, errs.InvalidValue},
		{"the future", scan(obj{"view": "changelog", "from": f.clock.Now().Add(time.Hour)}), codes.InvalidArgument, errs.TimestampInFuture},
	} {
		_, err := c.GetFlightInfo(f.ctx(), x.d)
		refused(t, err, x.code, x.why)
		_, err = c.GetSchema(f.ctx(), x.d)
		if x.d.Type != flight.DescriptorCMD || !bytes.Contains(x.d.Cmd, []byte(`"put"`)) && !bytes.Contains(x.d.Cmd, []byte(`lookup"`)) {
			refused(t, err, x.code, x.why)
		} else {
			require.NoError(t, err, "%s: what is put or looked up has a schema too", x.name)
		}
		if x.d.Type == flight.DescriptorCMD && x.name != "SQL" { // a ticket that is text is signed, or not
			_, err = f.open(c, x.d.Cmd)
			refused(t, err, x.code, x.why)
		}
	}
	_, err = c.GetFlightInfo(f.ctx(), scan(obj{"view": "changelog", "from": obj{"0": 99}}))
	info := refused(t, err, codes.OutOfRange, errs.OffsetOutOfRange)
	require.Contains(t, info.Metadata["offsets"], `"start":0`, "the error says what each bucket has")
	require.NotEmpty(t, info.Metadata["request_id"])
	_, err = c.PollFlightInfo(f.ctx(), pathOf("d.t"))
	refused(t, err, codes.Unimplemented, errs.NotImplemented)
}

func commandBytes(b []byte) *flight.FlightDescriptor {
	return &flight.FlightDescriptor{Type: flight.DescriptorCMD, Cmd: b}
}

// GetSchema says what will come, in which types and with which metadata, for
// reading, writing and looking up.
func TestGetSchema(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	f.table("t", true, 2)
	fields := func(d *flight.FlightDescriptor) string {
		res, err := c.GetSchema(f.ctx(), d)
		require.NoError(t, err)
		s, err := flight.DeserializeSchema(res.Schema, nil)
		require.NoError(t, err)
		kind, _ := s.Metadata().GetValue("millrace.kind")
		require.Equal(t, "keyed", kind)
		var out []string
		for _, f := range s.Fields() {
			text := f.Name
			if f.Nullable {
				text += "?"
			}
			out = append(out, text)
		}
		return strings.Join(out, " ")
	}
	require.Equal(t, "k v? n?", fields(pathOf("d", "t")))
	require.Equal(t, "_change_type _log_offset? _commit_timestamp? k v? n? _partition? _bucket?", fields(pathOf("d", "t$changelog")))
	require.Equal(t, "n? k", fields(commandOf(obj{"op": "scan", "table": "d.t", "columns": []string{"n", "k"}})))
	require.Equal(t, "k v? n?", fields(commandOf(obj{"op": "put", "table": "d.t"})))
	require.Equal(t, "_found n? k?", fields(commandOf(obj{"op": "lookup", "table": "d.t", "columns": []string{"n", "k"}})))
}

// With an advertised address, endpoints name it and the connection they came over.
func TestAdvertisedAddress(t *testing.T) {
	f := newFixture(t, func(o *flightsvc.Options) { o.AdvertiseURI = "grpc+tcp://example.org:8815" })
	f.table("t", false, 1)
	info, err := f.dial().GetFlightInfo(f.ctx(), pathOf("d.t"))
	require.NoError(t, err)
	var uris []string
	for _, l := range info.Endpoint[0].Location {
		uris = append(uris, l.Uri)
	}
	require.Equal(t, []string{"grpc+tcp://example.org:8815", "arrow-flight-reuse-connection://?"}, uris)
}

// ListFlights lists the tables that begin with the criteria, with tickets that read them.
func TestListFlights(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	for _, name := range []string{"b", "a", "ab"} {
		f.table(name, false, 2)
	}
	f.mustWrite(c, pathOf("d.ab"), rows(0, 10, "a"))
	list := func(prefix string) (names []string, infos []*flight.FlightInfo) {
		st, err := c.ListFlights(f.ctx(), &flight.Criteria{Expression: []byte(prefix)})
		require.NoError(t, err)
		for {
			info, err := st.Recv()
			if err != nil {
				return names, infos
			}
			names = append(names, strings.Join(info.FlightDescriptor.Path, "."))
			infos = append(infos, info)
		}
	}
	names, _ := list("")
	require.Equal(t, []string{"d.a", "d.ab", "d.b"}, names)
	names, _ = list("d")
	require.Len(t, names, 3)
	names, _ = list("e")
	require.Empty(t, names)
	names, infos := list("d.ab")
	require.Equal(t, []string{"d.ab"}, names)
	require.EqualValues(t, 10, infos[0].TotalRecords)
	r, err := f.open(c, infos[0].Endpoint[0].Ticket.Ticket)
	require.NoError(t, err)
	got, _ := r.drain()
	slices.Sort(got)
	require.Equal(t, f.sorted(c, pathOf("d.ab")), got)
	f.drop(f.cat.AllTables(t.Context())[2])
	f.table("ab", false, 2)
	_, err = f.open(c, infos[0].Endpoint[0].Ticket.Ticket)
	refused(t, err, codes.FailedPrecondition, errs.TableRecreated)
}
