package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
)

// memoryServer is what a Go program would write to serve batches that it has: the
// stock Flight server of arrow-go.
type memoryServer struct {
	flight.BaseFlightServer
	schema *arrow.Schema
	recs   []arrow.RecordBatch
}

// DoGet sends all batches, whatever the ticket.
func (s *memoryServer) DoGet(_ *flight.Ticket, st flight.FlightService_DoGetServer) error {
	w := flight.NewRecordWriter(st, ipc.WithSchema(s.schema))
	for _, r := range s.recs {
		if err := w.Write(r); err != nil {
			return err
		}
	}
	return w.Close()
}

// serveFromMemory reads tickets from a server and serves what they gave until ctx
// ends; it prints its address.
func serveFromMemory(ctx context.Context, args []string, stdout io.Writer) error {
	clients, err := dialFlight(args[0], 1)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	s := &memoryServer{}
	for _, arg := range args[1:] {
		ticket, err := base64.StdEncoding.DecodeString(arg)
		if err != nil {
			return err
		}
		if err := s.take(ctx, clients[0], ticket); err != nil {
			return err
		}
	}
	srv := flight.NewServerWithMiddleware(nil)
	if err := srv.Init("127.0.0.1:0"); err != nil {
		return err
	}
	srv.RegisterFlightService(s)
	context.AfterFunc(ctx, srv.Shutdown)
	fmt.Fprintln(stdout, srv.Addr())
	return srv.Serve()
}

func (s *memoryServer) take(ctx context.Context, c flight.Client, ticket []byte) error {
	st, err := c.DoGet(ctx, &flight.Ticket{Ticket: ticket})
	if err != nil {
		return err
	}
	r, err := flight.NewRecordReader(st)
	if err != nil {
		return err
	}
	defer r.Release()
	s.schema = r.Schema()
	for r.Next() {
		if rec := r.RecordBatch(); rec.NumRows() > 0 {
			rec.Retain()
			s.recs = append(s.recs, rec)
		}
	}
	if err := r.Err(); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}
