package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"
)

const (
	writers     = 64
	connections = 8
)

// messages are an encoded stream: the schema, then one message a batch.
type messages struct {
	schema  *flight.FlightData
	batches []*flight.FlightData
}

// encodeStream encodes batches once, so that sending one costs the client no more
// than gRPC does.
func encodeStream(cmd any, recs []arrow.RecordBatch) (*messages, error) {
	m := &messages{}
	w := flight.NewRecordWriter(m, ipc.WithSchema(recs[0].Schema()))
	j, err := json.Marshal(cmd)
	if err != nil {
		return nil, err
	}
	w.SetFlightDescriptor(&flight.FlightDescriptor{Type: flight.DescriptorCMD, Cmd: j})
	for _, r := range recs {
		if err := w.Write(r); err != nil {
			return nil, err
		}
	}
	return m, w.Close()
}

// Send implements flight.DataStreamWriter; the writer uses the message again.
func (m *messages) Send(fd *flight.FlightData) error {
	fd = proto.Clone(fd).(*flight.FlightData)
	if m.schema == nil {
		m.schema = fd
		return nil
	}
	m.batches = append(m.batches, fd)
	return nil
}

// putStream is an open DoPut that acknowledges batch by batch.
type putStream struct {
	st   flight.FlightService_DoPutClient
	sent int64
}

func openPut(ctx context.Context, c flight.Client, schema *flight.FlightData) (*putStream, error) {
	st, err := c.DoPut(ctx)
	if err != nil {
		return nil, err
	}
	p := &putStream{st: st}
	if err := st.Send(schema); err != nil {
		return nil, err
	}
	return p, p.acked(0) // the server is ready
}

// put sends a batch and waits until it is durable.
func (p *putStream) put(fd *flight.FlightData) error {
	p.sent++
	if err := p.st.Send(fd); err != nil {
		return err
	}
	return p.acked(p.sent)
}

func (p *putStream) acked(seq int64) error {
	for {
		r, err := p.st.Recv()
		if err != nil {
			return err
		}
		var ack struct {
			Seq int64 `json:"ack_seq"`
		}
		if err := json.Unmarshal(r.AppMetadata, &ack); err != nil {
			return err
		}
		if ack.Seq >= seq {
			return nil
		}
	}
}

// putClosedLoop has each of the writers send one batch after the other, each when
// the one before is durable, until n batches are sent.
func (s *server) putClosedLoop(ctx context.Context, clients []flight.Client, streams []*messages, n int) error {
	var left atomic.Int64
	left.Store(int64(n))
	eg, ctx := errgroup.WithContext(ctx)
	for w := range writers {
		eg.Go(func() error {
			m := streams[w%len(streams)]
			p, err := openPut(ctx, clients[w%len(clients)], m.schema)
			if err != nil {
				return err
			}
			for i := w; left.Add(-1) >= 0; i++ {
				if err := p.put(m.batches[i%len(m.batches)]); err != nil {
					return fmt.Errorf("writer %d: %w", w, err)
				}
			}
			return p.st.CloseSend()
		})
	}
	return eg.Wait()
}

// load writes batches through one stream, and waits until they are durable.
func (s *server) load(ctx context.Context, t *table, recs []arrow.RecordBatch) error {
	var rows int
	for _, r := range recs {
		rows += int(r.NumRows())
	}
	return s.loadRows(ctx, t, recs, rows)
}

// loadRows does the same with at least so many rows, in batches taken in turn.
func (s *server) loadRows(ctx context.Context, t *table, recs []arrow.RecordBatch, rows int) error {
	m, err := encodeStream(putCommand(t), recs)
	if err != nil {
		return err
	}
	clients, err := s.dial(1)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	p, err := openPut(ctx, clients[0], m.schema)
	if err != nil {
		return err
	}
	for i := 0; rows > 0; i++ {
		if err := p.put(m.batches[i%len(recs)]); err != nil {
			return err
		}
		rows -= int(recs[i%len(recs)].NumRows())
	}
	return p.st.CloseSend()
}

func putCommand(t *table) any {
	return map[string]string{"op": "put", "table": t.full(), "acks": "stream"}
}
