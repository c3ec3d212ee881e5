package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
)

// request is the JSON of a scan.
type request map[string]any

func scanOf(t *table, r request) []byte {
	cmd := request{"op": "scan", "table": t.full()}
	maps.Copy(cmd, r)
	b, err := json.Marshal(cmd)
	if err != nil {
		panic(err) // texts and numbers
	}
	return b
}

// plan asks for the tickets of a scan.
func plan(ctx context.Context, c flight.Client, cmd []byte) ([][]byte, error) {
	info, err := c.GetFlightInfo(ctx, &flight.FlightDescriptor{Type: flight.DescriptorCMD, Cmd: cmd})
	if err != nil {
		return nil, err
	}
	var tickets [][]byte
	for _, e := range info.Endpoint {
		tickets = append(tickets, e.Ticket.Ticket)
	}
	return tickets, nil
}

// drain reads streams as they come, without decoding them, and counts what is in
// their messages.
func drain(ctx context.Context, c flight.Client, tickets ...[]byte) (wire int64, err error) {
	for _, t := range tickets {
		st, err := c.DoGet(ctx, &flight.Ticket{Ticket: t})
		if err != nil {
			return wire, err
		}
		for {
			fd, err := st.Recv()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return wire, err
			}
			wire += int64(len(fd.DataHeader) + len(fd.DataBody) + len(fd.AppMetadata))
		}
	}
	return wire, nil
}

// scanSide is a scan, as often as Repeat says, by the client that does not decode.
func (b *bench) scanSide(c flight.Client, name string, cmd []byte) side {
	return side{name: name, processes: map[string]int{"millrace": b.server.pid()}, work: func(ctx context.Context) (float64, int64, error) {
		var wire int64
		for range b.size.Repeat {
			n, err := drain(ctx, c, cmd)
			if err != nil {
				return 0, 0, err
			}
			wire += n
		}
		return float64(b.size.Repeat), wire / int64(b.size.Repeat), nil
	}}
}

// loadWide fills the table that all reads share, once, and has it all in files.
func (b *bench) loadWide(ctx context.Context) error {
	if b.wide != nil {
		return nil
	}
	schema := wideSchema()
	t := &table{name: "wide", columns: columnsOf(schema), buckets: 1}
	b.say("loading %d MiB of 40 columns", b.size.WideMiB)
	if err := b.server.create(ctx, t); err != nil {
		return err
	}
	rnd := random(0)
	for i := range b.wideBatches() {
		rec := wideBatch(rnd, schema, int64(i)*wideRows)
		if err := b.server.load(ctx, t, []arrow.RecordBatch{rec}); err != nil {
			return fmt.Errorf("loading: %w", err)
		}
	}
	b.wide = t
	return b.server.restart(ctx)
}

func (b *bench) wideBatches() int { return max(b.size.WideMiB<<20/(wideColumns*8*wideRows), 8) }

// wideMegabytes is the size of the wide table's values.
func (b *bench) wideMegabytes() float64 {
	return float64(b.wideBatches()) * wideColumns * 8 * wideRows / 1e6
}
