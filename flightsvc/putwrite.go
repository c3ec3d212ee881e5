package flightsvc

import (
	"context"
	"maps"
	"time"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/router"
)

// startedBatch is a batch whose write was started.
type startedBatch struct {
	seq   uint64
	write *router.PendingWrite // nil: it had no rows
	bytes int64                // of the room
}

// writeTimeout is how long a batch may take from when it is the oldest.
const writeTimeout = 30 * time.Second

// write starts the write of a batch.
func (p *put) write(m received) error {
	kept := false
	defer func() {
		if !kept {
			p.giveBack(m.bytes)
		}
	}()
	if len(m.fd.DataHeader) == 0 {
		return nil // metadata alone
	}
	rec, err := p.decoder.Decode(m.fd.DataHeader, m.fd.DataBody)
	if rec == nil || err != nil {
		return err // a dictionary, which the decoder keeps
	}
	defer rec.Release()
	p.s.metrics.putBatches.Inc()
	p.s.metrics.putBytes.Add(float64(m.bytes))
	seq := uint64(0)
	if rec.NumRows() > 0 || len(m.fd.AppMetadata) > 0 {
		if seq, err = p.sequence(m.fd); err != nil {
			return err
		}
	}
	b := startedBatch{seq: seq, bytes: m.bytes}
	if rec.NumRows() > 0 {
		select {
		case p.slots <- struct{}{}:
		case <-p.failed:
			return nil
		case <-p.ctx.Done():
			return p.ctx.Err()
		}
		rows, err := p.plan.Conform(rec)
		if err == nil {
			b.write, err = p.s.o.Router.StartWrite(p.ctx, p.request(rows, seq))
			rows.Release()
		}
		if err != nil {
			<-p.slots
			return err
		}
		p.rows += rec.NumRows()
		p.s.metrics.putInFlight.Inc()
	}
	p.batches++
	if seq == 0 {
		b.seq = p.batches
	} else {
		p.lastSeq = seq
	}
	kept = true
	select {
	case p.started <- b:
	case <-p.ctx.Done():
		p.done(b)
		return p.ctx.Err()
	}
	return nil
}

// collect waits for the batches in their order. After one has failed it looks at
// no other: what comes after may be durable, and is not acknowledged.
func (p *put) collect() {
	for b := range p.started {
		if p.collided == nil {
			if err := p.settle(b); err != nil {
				p.collided = err
				close(p.failed)
			}
		}
		p.done(b)
	}
}

func (p *put) done(b startedBatch) {
	p.giveBack(b.bytes)
	if b.write != nil {
		p.s.metrics.putInFlight.Dec()
		<-p.slots
	}
}

// settle waits for a batch to be durable and acknowledges it.
func (p *put) settle(b startedBatch) error {
	if b.write == nil {
		p.acks.add(b.seq, 0, nil)
		return nil
	}
	ctx, cancel := context.WithTimeout(p.ctx, writeTimeout)
	defer cancel()
	res, err := b.write.Wait(ctx)
	if err == nil {
		p.acks.add(b.seq, res.Rows, res.Offsets)
		return nil
	}
	if res == nil || res.Outcomes == nil {
		return err
	}
	// The parts that other buckets took are no longer to be sent.
	part := &errs.Error{Code: errs.CodeOf(err), Message: err.Error(), Extra: map[string]any{}}
	maps.Copy(part.Extra, map[string]any{"accepted": res.Rows - res.Rejected, "rejected": res.Rejected, "offsets": res.Offsets, "buckets": res.Outcomes})
	return part
}
