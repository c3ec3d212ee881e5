package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	gen "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/flightsvc"
)

// reason is the code of a call's error; "" of none.
func reason(err error) (errs.Code, string) {
	if err == nil || errors.Is(err, io.EOF) {
		return "", ""
	}
	st := status.Convert(err)
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return errs.Code(info.Reason), st.Message()
		}
	}
	return errs.Code(st.Code().String()), st.Message()
}

func (g *guarded) flightContext(authorization string) context.Context {
	if authorization == "" {
		return g.t.Context()
	}
	return metadata.AppendToOutgoingContext(g.t.Context(), "authorization", authorization)
}

// action runs an action to its end.
func (g *guarded) action(authorization, name string, body []byte) (errs.Code, string) {
	s, err := g.fl.DoAction(g.flightContext(authorization), &flight.Action{Type: name, Body: body})
	require.NoError(g.t, err)
	var answer strings.Builder
	for {
		res, err := s.Recv()
		if err != nil {
			code, text := reason(err)
			return code, answer.String() + text
		}
		answer.Write(res.Body)
	}
}

// drained reads a stream of answers to its end.
func drained[T any](recv func() (T, error), text func(T) string) (errs.Code, string) {
	var answer strings.Builder
	for {
		m, err := recv()
		if err != nil {
			code, why := reason(err)
			return code, answer.String() + why
		}
		answer.WriteString(text(m))
	}
}

func command(text string) *flight.FlightDescriptor {
	return &flight.FlightDescriptor{Type: flight.DescriptorCMD, Cmd: []byte(text)}
}

var byPath = &flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{"d", "t"}}

// sendRows sends a batch of rows, or of keys alone, and reads the answers.
func sendRows(s interface {
	flight.DataStreamWriter
	CloseSend() error
}, recv func() (string, error), d *flight.FlightDescriptor, keysOnly bool,
) (errs.Code, string) {
	fields := []arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int64}}
	if !keysOnly {
		fields = append(fields, arrow.Field{Name: "b", Type: arrow.BinaryTypes.String}, arrow.Field{Name: "c", Type: arrow.BinaryTypes.String})
	}
	schema := arrow.NewSchema(fields, nil)
	w := flight.NewRecordWriter(s, ipc.WithSchema(schema))
	w.SetFlightDescriptor(d)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	b.Field(0).(*array.Int64Builder).Append(1)
	for i := 1; i < len(fields); i++ {
		b.Field(i).(*array.StringBuilder).Append("secret")
	}
	_ = w.Write(b.NewRecordBatch()) // what is refused is said by the answer
	_ = w.Close()
	_ = s.CloseSend()
	return drained(recv, func(s string) string { return s })
}

// flightDriver calls a method with a command.
type flightDriver struct {
	need    need
	ok      []errs.Code
	shows   string
	shownTo need
	byID    bool // what names the table by number
	call    func(ctx context.Context) (errs.Code, string)
}

// ticket is a ticket for all of d.t, as root got it.
func (g *guarded) ticket() []byte {
	info, err := g.fl.GetFlightInfo(g.flightContext(g.bearer("root")), byPath)
	require.NoError(g.t, err)
	require.Len(g.t, info.Endpoint, 1)
	return info.Endpoint[0].Ticket.Ticket
}

func protoBytes(m proto.Message) []byte {
	b, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return b
}

// flightDrivers are by method and command.
func (g *guarded) flightDrivers() map[string][]flightDriver {
	info := func(d *flight.FlightDescriptor) func(context.Context) (errs.Code, string) {
		return func(ctx context.Context) (errs.Code, string) {
			_, err := g.fl.GetFlightInfo(ctx, d)
			return reason(err)
		}
	}
	schema := func(d *flight.FlightDescriptor) func(context.Context) (errs.Code, string) {
		return func(ctx context.Context) (errs.Code, string) {
			_, err := g.fl.GetSchema(ctx, d)
			return reason(err)
		}
	}
	get := func(ticket func() []byte) func(context.Context) (errs.Code, string) {
		return func(ctx context.Context) (errs.Code, string) {
			s, err := g.fl.DoGet(ctx, &flight.Ticket{Ticket: ticket()})
			require.NoError(g.t, err)
			return drained(s.Recv, func(d *flight.FlightData) string { return string(d.DataBody) })
		}
	}
	text := func(s string) func() []byte { return func() []byte { return []byte(s) } }
	put := func(d *flight.FlightDescriptor) func(context.Context) (errs.Code, string) {
		return func(ctx context.Context) (errs.Code, string) {
			s, err := g.fl.DoPut(ctx)
			require.NoError(g.t, err)
			return sendRows(s, func() (string, error) { m, err := s.Recv(); return string(m.GetAppMetadata()), err }, d, false)
		}
	}
	exchange := func(d *flight.FlightDescriptor) func(context.Context) (errs.Code, string) {
		return func(ctx context.Context) (errs.Code, string) {
			s, err := g.fl.DoExchange(ctx)
			require.NoError(g.t, err)
			return sendRows(s, func() (string, error) { m, err := s.Recv(); return string(m.GetDataBody()), err }, d, true)
		}
	}
	const scanAll, scanB = `{"op":"scan","table":"d.t"}`, `{"op":"scan","table":"d.t","columns":["b"]}`
	ticket := g.ticket()
	action := func(name string, body func() []byte) func(context.Context) (errs.Code, string) {
		return func(ctx context.Context) (errs.Code, string) {
			md, _ := metadata.FromOutgoingContext(ctx)
			return g.action(strings.Join(md.Get("authorization"), ""), name, body())
		}
	}
	return map[string][]flightDriver{
		"Handshake ": {{need: known, call: func(ctx context.Context) (errs.Code, string) {
			s, err := g.fl.Handshake(ctx)
			require.NoError(g.t, err)
			_ = s.CloseSend()
			return drained(s.Recv, func(*flight.HandshakeResponse) string { return "" })
		}}},
		"ListActions ": {{need: known, call: func(ctx context.Context) (errs.Code, string) {
			s, err := g.fl.ListActions(ctx, &flight.Empty{})
			require.NoError(g.t, err)
			return drained(s.Recv, func(a *flight.ActionType) string { return a.Type })
		}}},
		"PollFlightInfo ": {{need: known, ok: []errs.Code{errs.NotImplemented}, call: func(ctx context.Context) (errs.Code, string) {
			_, err := g.fl.PollFlightInfo(ctx, byPath)
			return reason(err)
		}}},
		"ListFlights ": {{need: need{rule: "describe"}, shows: "d.t;", shownTo: ofTable, call: func(ctx context.Context) (errs.Code, string) {
			s, err := g.fl.ListFlights(ctx, &flight.Criteria{})
			require.NoError(g.t, err)
			return drained(s.Recv, func(i *flight.FlightInfo) string { return strings.Join(i.FlightDescriptor.Path, ".") + ";" })
		}}},
		"GetFlightInfo path":      {{need: readAll, call: info(byPath)}},
		"GetFlightInfo scan":      {{need: readAll, call: info(command(scanAll))}, {need: reading("b"), call: info(command(scanB))}},
		"GetSchema path":          {{need: readAll, call: schema(byPath)}},
		"GetSchema scan":          {{need: readAll, call: schema(command(scanAll))}, {need: reading("b"), call: schema(command(scanB))}},
		"GetSchema put":           {{need: ofTable, call: schema(command(`{"op":"put","table":"d.t"}`))}},
		"GetSchema lookup":        {{need: ofTable, call: schema(command(`{"op":"lookup","table":"d.t"}`))}},
		"GetSchema prefix_lookup": {{need: ofTable, call: schema(command(`{"op":"prefix_lookup","table":"d.t"}`))}},
		"DoGet scan": {
			{need: readAll, call: get(text(scanAll))},
			{need: reading("b"), call: get(text(scanB))},
			{need: reading("ac"), call: get(text(`{"op":"scan","table":"d.t","columns":["a"],"filter":"c = 'x'"}`))},
			{need: reading("b"), call: get(text(`{"op":"scan","table":"d.t$changelog","columns":["b"]}`))},
		},
		"DoGet ticket": {{need: readAll, byID: true, call: get(func() []byte { return ticket })}},
		"DoPut path":   {{need: writing, call: put(byPath)}},
		"DoPut put":    {{need: writing, call: put(command(`{"op":"put","table":"d.t"}`))}},
		"DoExchange lookup": {
			{need: readAll, call: exchange(command(`{"op":"lookup","table":"d.t"}`))},
			{need: reading("ab"), call: exchange(command(`{"op":"lookup","table":"d.t","columns":["b"]}`))},
			{need: inserting, call: exchange(command(`{"op":"lookup","table":"d.t","insert_if_absent":true}`))},
		},
		"DoExchange prefix_lookup": {
			{need: readAll, call: exchange(command(`{"op":"prefix_lookup","table":"d.t"}`))}, {need: reading("ab"), call: exchange(command(`{"op":"prefix_lookup","table":"d.t","columns":["b"]}`))},
		},
		"DoAction " + flight.RenewFlightEndpointActionType: {{need: readAll, byID: true, call: action(flight.RenewFlightEndpointActionType, func() []byte {
			return protoBytes(&flight.RenewFlightEndpointRequest{Endpoint: &flight.FlightEndpoint{Ticket: &flight.Ticket{Ticket: ticket}}})
		})}},
		"DoAction " + flight.CancelFlightInfoActionType: {{need: readAll, byID: true, call: action(flight.CancelFlightInfoActionType, func() []byte {
			return protoBytes(&flight.CancelFlightInfoRequest{Info: &flight.FlightInfo{Endpoint: []*flight.FlightEndpoint{{Ticket: &flight.Ticket{Ticket: g.ticket()}}}}})
		})}},
	}
}

// flightCases are the methods that Flight has, with the commands that there are, and the
// actions that ListActions lists.
func (g *guarded) flightCases(cases map[string][]matrixCase, declared map[string]millrace.Rule) {
	g.fl = g.flightClient(g.t)
	rules := map[string]millrace.Rule{}
	var methods []string
	for _, r := range flightsvc.Rules() {
		rules[r.Method+" "+r.Command] = r.Rule
		methods = append(methods, r.Method)
		declared["flight "+r.Method+" "+r.Command] = r.Rule
	}
	for _, m := range gen.FlightService_ServiceDesc.Methods {
		require.Contains(g.t, methods, m.MethodName)
	}
	for _, m := range gen.FlightService_ServiceDesc.Streams {
		require.Contains(g.t, methods, m.StreamName)
	}
	for _, op := range flightsvc.Commands() {
		require.True(g.t, slices.ContainsFunc(flightsvc.Rules(), func(r flightsvc.Rule) bool { return r.Command == op }), "no method has a rule for the command %s", op)
	}
	s, err := g.fl.ListActions(g.flightContext(g.bearer("root")), &flight.Empty{})
	require.NoError(g.t, err)
	for {
		a, err := s.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(g.t, err)
		require.NotEmpty(g.t, rules["DoAction "+a.Type], "action %s has no rule", a.Type)
	}
	for name, drivers := range g.flightDrivers() {
		for i, d := range drivers {
			cases["flight "+name] = append(cases["flight "+name], matrixCase{
				what: fmt.Sprint(i), need: d.need, ok: d.ok, shows: d.shows, shownTo: d.shownTo, coarse: d.byID,
				ask: func(authorization string) (errs.Code, string) { return d.call(g.flightContext(authorization)) },
			})
		}
	}
}
