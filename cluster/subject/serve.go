package subject

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/trace"
)

const (
	termBytes = 8
	maxTerm   = 2 * termBytes
	flushTime = 2 * time.Second
	// lingerFor is how long calls of a term that has ended are told so (J4).
	lingerFor = 2 * time.Second
	// Calls that wait in a subscription, of which each shard has one; more are dropped, and
	// their callers hear that they did not come (J5).
	maxWaiting      = 16 << 10
	maxWaitingBytes = 32 << 20
)

// Serve answers the calls for a shard, until stop is called: those that come after that
// for a while are told that the term has ended. An answer is not empty.
func (c *Calls) Serve(id millrace.ShardID, answer func(ctx context.Context, id millrace.ShardID, request []byte) []byte) (stop func(), err error) {
	var b [termBytes]byte
	_, _ = rand.Read(b[:]) // never fails
	term := hex.EncodeToString(b[:])
	var ended atomic.Bool
	var came taken
	calls, err := c.subscribe(c.termSubject(id, term), func(m *nats.Msg) {
		from, n, request, ok := splitHead(m.Data)
		if !ok || !came.begin(from, n) {
			return // its caller waits for nothing (J5)
		}
		if ended.Load() {
			came.end(from, n, nil)
			c.reply(m, nil)
			return
		}
		if c.room.Acquire(c.life, 1) != nil {
			return
		}
		c.tasks.Go(func() {
			defer c.room.Release(1)
			c.answering.Inc()
			defer c.answering.Dec()
			a := answer(trace.Extract(c.life, m.Header.Get), id, request)
			came.end(from, n, a)
			c.reply(m, a)
		})
	})
	if err != nil {
		return nil, err
	}
	fates, err := c.subscribe(c.fateSubject(id, term), func(m *nats.Msg) {
		if from, n, _, ok := splitHead(m.Data); ok {
			is, a := came.ask(from, n)
			c.reply(m, append([]byte{byte(is)}, a...))
		}
	})
	if err != nil {
		c.drain(calls)
		return nil, err
	}
	asked, err := c.subscribe(c.names.ShardSubject(id), func(m *nats.Msg) { c.reply(m, []byte(term)) })
	if err != nil {
		c.drain(calls)
		c.drain(fates)
		return nil, err
	}
	if err := c.conn.NATS().FlushTimeout(flushTime); err != nil { // it is served when callers find it
		c.o.Logger.Warn("whether calls for a shard come here is not known yet", slog.Int("shard", int(id)), slog.Any("err", err))
	}
	return func() {
		c.drain(asked)
		ended.Store(true)
		c.drains.Add(1)
		time.AfterFunc(lingerFor, func() {
			defer c.drains.Done()
			c.drain(calls)
			c.drain(fates)
		})
	}, nil
}

func (c *Calls) subscribe(subject string, fn nats.MsgHandler) (*nats.Subscription, error) {
	sub, err := c.conn.NATS().Subscribe(subject, fn)
	if err == nil {
		err = sub.SetPendingLimits(maxWaiting, maxWaitingBytes)
	}
	if err != nil {
		return nil, errs.New(errs.Unavailable, "calls for a shard cannot be taken: %v", err)
	}
	return sub, nil
}

// drain ends a subscription when what was on its way has been handled.
func (c *Calls) drain(sub *nats.Subscription) {
	c.drains.Add(1)
	done := sync.OnceFunc(c.drains.Done)
	sub.SetClosedHandler(func(string) { done() })
	err := sub.Drain()
	if err == nil {
		return
	}
	done()
	if c.life.Err() == nil && c.conn.NATS().IsConnected() {
		c.o.Logger.Warn("subscription not ended well", slog.String("subject", sub.Subject), slog.Any("err", err))
	}
}

// reply answers a message; a caller that hears nothing does not know what became of it.
func (c *Calls) reply(m *nats.Msg, answer []byte) {
	if err := m.Respond(answer); err != nil && c.life.Err() == nil {
		c.o.Logger.Debug("call not answered", slog.String("subject", m.Subject), slog.Any("err", err))
	}
}
