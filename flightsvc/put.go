package flightsvc

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"golang.org/x/sync/semaphore"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/auth"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/row/arrowrow"
)

// Bounds of what one stream has received and not made durable.
const (
	maxPutBatches = 64
	maxPutBytes   = 64 << 20
	// putPatience is how long a batch waits for room. Its client waits, too: what it sends
	// is not received meanwhile.
	putPatience = 30 * time.Second
)

// put is a DoPut under way. Its batches go from receive (one goroutine) to run (the
// call's) to collect (another), which hands what is durable to acks (a third).
type put struct {
	s      *Service
	c      *call
	ctx    context.Context //nolint:containedctx // of the one call it serves
	stream flight.FlightService_DoPutServer

	table   *millrace.Table
	mode    router.Mode
	partial bool
	pass    router.Pass            // to write; nil: nobody is refused
	writer  *router.WriterSequence // without a number; nil when batches are not numbered
	streams bool                   // acknowledgements come while the stream goes on
	decoder *arrowrow.Decoder
	plan    *arrowrow.Plan

	room     *semaphore.Weighted // of maxPutBytes
	messages chan received
	recvErr  error // why messages was closed; nil at the stream's end
	slots    chan struct{}
	started  chan startedBatch
	failed   chan struct{} // closed when a batch has failed
	collided error         // why; set before failed is closed
	line     router.Line

	rows    int64  // received so far
	batches uint64 // started so far
	lastSeq uint64
	acks    *acks
}

// received is a message and what it takes of the room.
type received struct {
	fd    *flight.FlightData
	bytes int64
}

// DoPut writes a stream of batches to a table.
func (s *Service) DoPut(stream flight.FlightService_DoPutServer) error {
	ctx, cancel := context.WithCancel(streamed(stream.Context()))
	defer cancel()
	closed, err := s.openStream(ctx)
	if err != nil {
		return err
	}
	defer closed()
	p := &put{
		s: s, c: callOf(ctx), ctx: ctx, stream: stream,
		room: semaphore.NewWeighted(maxPutBytes), messages: make(chan received),
		slots: make(chan struct{}, maxPutBatches), started: make(chan startedBatch, maxPutBatches), failed: make(chan struct{}),
	}
	if err := p.open(); err != nil {
		return err
	}
	// Acknowledgements may wait for their reader: as long as rows come, the stream
	// makes progress.
	p.acks = newAcks(p.c.stream, p.streams, p.writer != nil)
	if err := p.acks.ready(); err != nil {
		return err
	}
	s.calls.Go(p.receive)
	collected := make(chan struct{})
	s.calls.Go(func() { defer close(collected); p.collect() })
	if p.streams {
		s.calls.Go(p.acks.send)
	}
	err = p.run()
	close(p.started)
	<-collected
	if p.collided != nil {
		err = p.collided // of a batch before the one that run stopped at
	}
	return p.told(p.end(err))
}

// end tells the client what it was not told yet.
func (p *put) end(err error) error {
	p.c.startWaiting()
	defer p.c.stopWaiting()
	if !p.streams {
		if err != nil {
			return err
		}
		return p.acks.final()
	}
	sent := p.acks.finish(err != nil)
	for {
		select {
		case <-sent:
			if err == nil {
				err = p.acks.sendErr
			}
			return err
		case m, ok := <-p.messages:
			// A client that reads nothing before it has sent everything comes to that
			// only when somebody takes it: for StallTimeout, lest it goes on for days.
			if !ok {
				p.messages = nil
				continue
			}
			p.giveBack(m.bytes)
		case <-p.ctx.Done():
			return p.ctx.Err()
		}
	}
}

// told is the error of a stream with what was taken before it.
func (p *put) told(err error) error {
	e, ok := errors.AsType[*errs.Error](err)
	if !ok || e.Code == errs.Internal {
		return err
	}
	with := &errs.Error{Code: e.Code, Message: err.Error(), Fields: e.Fields}
	for k, v := range e.Extra {
		with = with.With(k, v)
	}
	seq, rows := p.acks.taken()
	with = with.With("rows", rows)
	if p.writer != nil {
		with = with.With("ack_seq", seq)
	}
	return with
}

// writeTable finds a table that is to be written to.
func (s *Service) writeTable(ctx context.Context, path string, id *millrace.TableID) (*millrace.Table, error) {
	if base, suffix := router.SplitVirtual(path); suffix != "" {
		return nil, errs.New(errs.ReadOnlyTable, "%q is a view and can only be read; write to %q", clipText(path, 64), clipText(base, 64))
	}
	return s.o.Router.Table(ctx, path, id)
}

// open reads the opening of the stream, and refuses what no batch could make good.
func (p *put) open() error {
	cmd, first, err := p.c.receiveOpening(p.stream)
	if err != nil {
		return err
	}
	opts := cmd.put
	switch cmd.op {
	case opPut:
	case "":
		opts = &putCommand{}
	default:
		return errs.New(errs.InvalidValue, `"op":%q is not for DoPut, which takes a path or "op":"put"`, cmd.op)
	}
	if p.table, err = p.s.writeTable(p.ctx, cmd.path, opts.TableID); err != nil {
		return err
	}
	if err := p.options(opts); err != nil {
		return err
	}
	if p.decoder, err = openDecoder(first); err != nil {
		return err
	}
	t := p.table
	p.plan, err = arrowrow.NewPlan(p.decoder.Schema(), t.Schema.Columns, arrowrow.Options{
		Key: t.Names(t.PrimaryKey), Partial: p.partial, KeyOnly: p.mode == router.Delete, AllowChangeType: p.mode == router.Upsert,
	})
	if err != nil {
		return err
	}
	if p.pass, err = p.s.o.Router.Writes(p.ctx, t); err != nil {
		return err
	}
	if err := p.s.mayWrite(p.ctx); err != nil {
		return err
	}
	// A write without rows is checked and does nothing.
	_, err = p.s.o.Router.StartWrite(p.ctx, p.request(row.Rows{Columns: p.plan.Columns()}, 1))
	return err
}

func (p *put) options(o *putCommand) (err error) {
	if p.mode, err = router.ParseMode(o.Mode, p.table); err != nil {
		return err
	}
	p.partial = o.Partial
	switch o.Acks {
	case "", "final":
	case "stream":
		p.streams = true
	default:
		return errs.New(errs.InvalidValue, `acks is "final" or "stream", not %q`, clipText(o.Acks, 64))
	}
	switch {
	case o.WriterID != "":
		p.writer = &router.WriterSequence{Principal: auth.Scope(p.ctx), ID: o.WriterID, Epoch: o.WriterEpoch}
	case o.WriterEpoch != 0:
		return errs.New(errs.InvalidValue, "a writer_epoch is of a writer: give its writer_id too")
	}
	return nil
}

// request is the write of some rows of the stream.
func (p *put) request(rows row.Rows, seq uint64) *router.WriteRequest {
	req := &router.WriteRequest{Table: p.table, Mode: p.mode, Rows: rows, Partial: p.partial, FirstRow: p.rows, Line: &p.line}
	if p.writer != nil {
		w := *p.writer
		w.Seq = seq
		req.Writer = &w
	}
	return req
}

// receive takes messages from the client while there is room for what they hold.
func (p *put) receive() {
	defer close(p.messages)
	for {
		if err := p.s.waitWrite(p.ctx); err != nil {
			p.recvErr = err
			return
		}
		fd, err := p.stream.Recv()
		if err != nil {
			if !ended(err) {
				p.recvErr = err
			}
			return
		}
		m := received{fd, p.c.held.takeOver()} // it is maxPutBytes at most
		if err := p.take(m.bytes); err != nil {
			p.recvErr = err
			return
		}
		select {
		case p.messages <- m:
		case <-p.ctx.Done():
			p.giveBack(m.bytes)
			return
		}
	}
}

// take waits for room for n bytes, which have room in the process, among those of this
// stream, of which some comes back by itself, as they become durable.
func (p *put) take(n int64) error {
	if err := p.room.Acquire(p.ctx, n); err != nil {
		p.s.o.Room.Give(n)
		return err
	}
	p.s.metrics.putHeld.Add(float64(n))
	return nil
}

func (p *put) giveBack(n int64) {
	p.room.Release(n)
	p.s.o.Room.Give(n)
	p.s.metrics.putHeld.Sub(float64(n))
}

// run starts the write of each batch, until the stream ends or something fails.
func (p *put) run() error {
	var again <-chan time.Time
	if p.pass != nil {
		t := time.NewTicker(router.PassEvery)
		defer t.Stop()
		again = t.C
	}
	for {
		select {
		case m, ok := <-p.messages:
			if !ok {
				return p.recvErr
			}
			if err := p.write(m); err != nil {
				return err
			}
		case <-p.failed:
			return nil // collided says why
		case <-again: // each write asks by itself
			if err := p.pass.Still(); err != nil {
				return err
			}
		case <-p.s.draining:
			return errDraining // what was received before is finished
		case <-p.c.expired:
			return auth.ErrExpired
		case <-p.ctx.Done():
			return p.ctx.Err()
		}
	}
}

// sequence reads the number that a batch has in its app_metadata; 0 when it has
// none, which a batch of a writer may not.
func (p *put) sequence(fd *flight.FlightData) (uint64, error) {
	var meta struct {
		Seq *uint64 `json:"seq"`
	}
	if p.writer == nil {
		// Metadata of another kind is the client's own. One that numbers its batches
		// relies on their being taken once, which without a writer they are not.
		if len(fd.AppMetadata) > 0 && json.Unmarshal(fd.AppMetadata, &meta) == nil && meta.Seq != nil {
			return 0, errs.New(errs.InvalidRequest, `the batches are numbered, {"seq":%d}, and the command names no writer_id: give {"op":"put",…,"writer_id":"…"}`, *meta.Seq)
		}
		return 0, nil
	}
	if len(fd.AppMetadata) == 0 {
		return 0, errs.New(errs.InvalidValue, `each batch of a writer has its number in app_metadata, {"seq":n}; batch %d has none`, p.batches+1)
	}
	if err := router.DecodeStrict(fd.AppMetadata, &meta); err != nil {
		return 0, err
	}
	if meta.Seq == nil || *meta.Seq == 0 {
		return 0, errs.New(errs.InvalidValue, `each batch of a writer has its number, from 1, in app_metadata, {"seq":n}; batch %d has none`, p.batches+1)
	}
	if *meta.Seq <= p.lastSeq {
		return 0, errs.New(errs.OutOfOrderSequence, "the numbers of a stream rise: %d comes after %d", *meta.Seq, p.lastSeq)
	}
	return *meta.Seq, nil
}
