package stream

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/storage/wal"
)

const (
	// fewRecords are asked for one by one: a consumer costs the servers more.
	fewRecords = 8
	// readAhead bounds what is on its way to us (T8).
	readAhead = 8 << 20
	// silence is how long a consumer may say nothing before the leader is asked.
	silence = 3 * time.Second
	// idleConsumer is when a server forgets a consumer that nobody asks.
	idleConsumer = time.Minute
)

// reader reads records next..end of a stream, in order.
type reader struct {
	l         *Log
	next, end uint64

	consumer string
	messages jetstream.MessagesContext
}

// read reads the next record, and says how long it is.
func (rd *reader) read(ctx context.Context) (wal.Record, int, error) {
	if err := ctx.Err(); err != nil {
		return wal.Record{}, 0, err
	}
	if rd.messages == nil && rd.end-rd.next < fewRecords {
		return rd.ask(ctx)
	}
	for {
		seq, b, err := rd.take(ctx)
		if err == nil && seq < rd.next {
			continue
		}
		if err != nil || seq > rd.next { // the server whose consumer it is does not have it, or is away
			return rd.reread(ctx)
		}
		if rec, err := wal.ParseRecord(b); err != nil || rec.Tail().LogID != rd.l.logID {
			return rd.reread(ctx)
		}
		rec, err := rd.l.parse(seq, b)
		if err == nil {
			rd.next++
		}
		return rec, len(b), err
	}
}

// reread asks the leader for a record that another server's consumer did not give.
func (rd *reader) reread(ctx context.Context) (wal.Record, int, error) {
	rd.close()
	if err := ctx.Err(); err != nil {
		return wal.Record{}, 0, err
	}
	rd.l.s.met.reread.Inc()
	return rd.ask(ctx)
}

func (rd *reader) ask(ctx context.Context) (wal.Record, int, error) {
	rec, size, err := rd.l.recordSize(ctx, rd.next)
	if err == nil {
		rd.next++
	}
	return rec, size, err
}

// take gets the next message of the consumer, and makes one where there is none.
func (rd *reader) take(ctx context.Context) (uint64, []byte, error) {
	if rd.messages == nil {
		if err := rd.open(ctx); err != nil {
			return 0, nil, err
		}
	}
	quiet, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	msg, err := rd.messages.Next(jetstream.NextContext(quiet))
	if err != nil {
		return 0, nil, err
	}
	meta, err := msg.Metadata()
	if err != nil {
		return 0, nil, err
	}
	return meta.Sequence.Stream, msg.Data(), nil
}

func (rd *reader) open(ctx context.Context) error {
	rctx, cancel := rd.l.s.conn.Request(ctx, rd.l.s.opts.AnswerTimeout)
	defer cancel()
	c, err := rd.l.st.CreateConsumer(rctx, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: rd.next,
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: idleConsumer,
	})
	if err != nil {
		return err
	}
	rd.consumer = c.CachedInfo().Name
	rd.messages, err = c.Messages(jetstream.PullMaxBytes(readAhead), jetstream.PullExpiry(silence), jetstream.PullHeartbeat(silence/4))
	return err
}

// close lets go of the consumer.
func (rd *reader) close() {
	if rd.messages != nil {
		rd.messages.Stop()
		rd.messages = nil
	}
	if rd.consumer == "" {
		return
	}
	ctx, cancel := rd.l.s.conn.Request(context.Background(), time.Second)
	defer cancel()
	if ctx.Err() == nil { // else the server forgets it by itself
		_ = rd.l.st.DeleteConsumer(ctx, rd.consumer)
	}
	rd.consumer = ""
}
