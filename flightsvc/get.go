package flightsvc

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/storage/segment"
)

// maxBodyBytes is the longest body that is sent as it lies; longer ones are cut.
// With header and metadata a message stays below the 4 MiB that stock clients take.
const maxBodyBytes = 3 << 20

// DoGet reads a ticket, or a scan's JSON in its place.
func (s *Service) DoGet(t *flight.Ticket, stream flight.FlightService_DoGetServer) error {
	ctx := stream.Context()
	plan, err := s.planTicket(ctx, t.GetTicket())
	if err != nil {
		return err
	}
	// A follower loses nothing when it ends: its client knows where it stood.
	callOf(ctx).idle.Store(plan.Follow)
	if plan.Follow {
		closed, err := s.openStream(ctx)
		if err != nil {
			plan.Close()
			return err
		}
		defer closed()
	}
	rd := s.o.Router.Open(plan)
	ctx = streamed(ctx)
	return errors.Join((&getStream{s: s, ctx: ctx, out: stream, rd: rd, plan: plan}).run(), rd.Close())
}

// planTicket is the plan of a ticket.
func (s *Service) planTicket(ctx context.Context, ticket []byte) (*router.Plan, error) {
	switch {
	case len(ticket) == 0:
		return nil, errs.New(errs.InvalidValue, "the ticket is empty; ask for one with GetFlightInfo, or send a scan's JSON")
	case isJSON(ticket):
		cmd, err := parseJSON(ticket)
		if err != nil {
			return nil, err
		}
		return s.plan(ctx, cmd)
	case isAny(ticket):
		return nil, errs.New(errs.NotImplemented, "Flight SQL is not implemented yet; a ticket comes from GetFlightInfo or is a scan's JSON")
	}
	return s.o.Router.OpenTicket(ctx, string(ticket))
}

// plan is the plan of a command that reads.
func (s *Service) plan(ctx context.Context, cmd *command) (*router.Plan, error) {
	req, err := cmd.read()
	if err != nil {
		return nil, err
	}
	o := router.Scan
	if req.Until != nil && req.Until.Kind == router.Never {
		o.From = router.Position{Kind: router.Latest} // a tail
	}
	return s.o.Router.Plan(ctx, cmd.path, req, o)
}

// messageSender is the sending half of a stream.
type messageSender interface{ SendMsg(m any) error }

// getStream sends what a reader gives.
type getStream struct {
	s     *Service
	ctx   context.Context //nolint:containedctx // of the one call it serves
	out   messageSender
	rd    *router.Reader
	plan  *router.Plan
	codec segment.Codec
	empty *segment.Message // a batch without rows
}

func (g *getStream) run() error {
	g.codec = segment.Stored
	if g.plan.CodecSet {
		g.codec = g.plan.Codec
	}
	if err := g.out.SendMsg(schemaFrame(g.plan.Schema)); err != nil {
		return err
	}
	var err error
	if g.empty, err = emptyMessage(g.plan.Schema); err != nil {
		return err
	}
	if g.plan.Follow {
		return g.follow()
	}
	for {
		c, err := g.rd.Next(g.ctx, time.Hour)
		if errors.Is(err, io.EOF) {
			return g.sendStats()
		}
		if err != nil {
			return err
		}
		if err := g.sendChunk(c); err != nil {
			return err
		}
	}
}

// sendChunk sends a chunk in messages of at most maxBodyBytes, and releases it.
func (g *getStream) sendChunk(c *router.Chunk) error {
	defer c.Release()
	ships, err := c.Ship(g.codec, maxBodyBytes)
	if err != nil {
		return err
	}
	for i := range ships {
		sh := &ships[i]
		m := batchMeta{
			partition: c.PartitionName, bucket: c.Bucket, base: sh.Base, rows: sh.Rows,
			next: sh.Next, hw: c.HighWatermark, micros: sh.Micros, state: sh.Base == millrace.NoOffset,
		}
		if err := g.send(messageFrame(sh.Message, m.append(make([]byte, 0, 128)))); err != nil {
			return err
		}
	}
	return nil
}

func (g *getStream) send(f *frame) error {
	n := f.size()
	g.rd.Stats().BytesShipped += n
	g.s.metrics.sentBytes.Add(float64(n))
	return g.out.SendMsg(f)
}

// sendEmpty sends a batch without rows.
func (g *getStream) sendEmpty(meta []byte) error {
	return g.send(&frame{header: g.empty.Header, meta: meta, body: g.empty.Body})
}

// sendStats ends a stream with what it cost, and where it ends: the changes since
// are found from there.
func (g *getStream) sendStats() error {
	last := struct {
		Stats   *router.Stats              `json:"stats"`
		Offsets map[string]millrace.Offset `json:"offsets,omitempty"`
	}{Stats: g.rd.Stats()}
	if g.plan.Limit < 0 {
		last.Offsets = g.rd.Places()
	}
	meta := appendJSON(nil, last)
	if len(meta) > maxBodyBytes { // tens of thousands of buckets
		last.Offsets = nil
		meta = appendJSON(nil, last)
	}
	return g.sendEmpty(meta)
}
