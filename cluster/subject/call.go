package subject

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/sync/semaphore"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/cluster"
	"github.com/millrace/millrace/shardrpc"
)

const (
	// knownFor is how long a term is taken to be the newest without asking.
	knownFor = time.Second
	// askTime bounds the question for a term.
	askTime = 2 * time.Second
	// callTime bounds a call whose caller sets no end.
	callTime = 60 * time.Second
	// closeTime bounds the wait for calls that are being answered when all ends.
	closeTime = 3 * time.Second
	// doubtAfter is how long an answer is waited for before it is asked whether the owner
	// is still the one.
	doubtAfter = 2 * time.Second
)

// Options are settings and components.
type Options struct {
	// Answers is how many calls are answered at a time; default 1,024.
	Answers int64

	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Calls sends and answers calls.
type Calls struct {
	conn  *cluster.Conn
	names cluster.Names
	o     Options
	room  *semaphore.Weighted
	life  context.Context
	end   context.CancelFunc
	tasks sync.WaitGroup
	// drains are subscriptions that have ended and may have calls in them.
	drains sync.WaitGroup

	calls, nobody prometheus.Counter

	mu    sync.Mutex
	terms map[millrace.ShardID]*known
}

// known is the term of a shard's owner, as it was told last.
type known struct {
	term   string
	asking bool
	age    *time.Timer // runs out when it should be asked for anew
	old    bool
}

var _ shardrpc.Transport = (*Calls)(nil)

// New makes Calls over a connection, which stays the caller's.
func New(conn *cluster.Conn, names cluster.Names, o Options) *Calls {
	if o.Answers == 0 {
		o.Answers = 1024
	}
	p := promauto.With(o.Registerer)
	c := &Calls{
		conn: conn, names: names, o: o, room: semaphore.NewWeighted(o.Answers), terms: map[millrace.ShardID]*known{},
		calls:  p.NewCounter(prometheus.CounterOpts{Name: "millrace_cluster_calls_total", Help: "Calls sent to owners of shards over NATS."}),
		nobody: p.NewCounter(prometheus.CounterOpts{Name: "millrace_cluster_untaken_calls_total", Help: "Calls to owners of shards that nobody took, since a shard had no owner or changed it."}),
	}
	c.life, c.end = context.WithCancel(context.Background())
	return c
}

// Close ends the answering of calls: those that came before are answered, unless that
// takes long.
func (c *Calls) Close() {
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		c.drains.Wait()
		c.tasks.Wait()
		_ = c.conn.NATS().FlushTimeout(flushTime) // whose caller hears nothing asks again
	}()
	long := time.NewTimer(closeTime)
	defer long.Stop()
	select {
	case <-answered:
	case <-long.C:
	}
	c.end()
	c.tasks.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.terms {
		k.age.Stop()
	}
}

// Call implements shardrpc.Transport.
func (c *Calls) Call(ctx context.Context, id millrace.ShardID, request []byte) ([]byte, error) {
	c.calls.Inc()
	term, err := c.term(ctx, id)
	if err == nil {
		var answer []byte
		if answer, err = c.send(ctx, id, term, request); err == nil {
			return answer, nil
		}
		c.forget(id, term)
	}
	if errors.Is(err, shardrpc.ErrNobody) {
		c.nobody.Inc()
	}
	return nil, err
}

// send sends a request to the owner in a term, and doubts after a while that it is one.
func (c *Calls) send(ctx context.Context, id millrace.ShardID, term string, request []byte) ([]byte, error) {
	rctx, cancel := c.conn.Request(ctx, callTime)
	defer cancel()
	doubt := time.AfterFunc(doubtAfter, func() { c.doubt(rctx, cancel, id, term) })
	defer doubt.Stop()
	return c.request(rctx, c.termSubject(id, term), request)
}

// doubt gives up a call when the shard has another owner by now.
func (c *Calls) doubt(ctx context.Context, giveUp func(), id millrace.ShardID, term string) {
	for ctx.Err() == nil {
		if now, err := c.ask(ctx, id); err == nil && now != term {
			c.learn(id, now)
			giveUp()
			return
		}
		t := time.NewTimer(doubtAfter)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
	}
}

// request sends to a subject. The error is shardrpc.ErrNobody when nobody has the message.
func (c *Calls) request(ctx context.Context, subject string, data []byte) ([]byte, error) {
	m, err := c.conn.NATS().RequestWithContext(ctx, subject, data)
	switch {
	case err == nil:
		return m.Data, nil
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, nats.ErrConnectionReconnecting), errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrConnectionClosed):
		return nil, fmt.Errorf("%w: %w", shardrpc.ErrNobody, err)
	}
	return nil, err
}

// term is the term of the shard's owner: as known, or asked for.
func (c *Calls) term(ctx context.Context, id millrace.ShardID) (string, error) {
	c.mu.Lock()
	k := c.terms[id]
	if k != nil {
		if k.old && !k.asking {
			k.asking = true
			c.tasks.Go(func() { c.renew(id) })
		}
		defer c.mu.Unlock()
		return k.term, nil
	}
	c.mu.Unlock()
	term, err := c.ask(ctx, id)
	if err != nil {
		return "", err
	}
	c.learn(id, term)
	return term, nil
}

// ask asks the owner for its term. Nothing is done by that, so whatever the error is, it
// is shardrpc.ErrNobody.
func (c *Calls) ask(ctx context.Context, id millrace.ShardID) (string, error) {
	rctx, cancel := c.conn.Request(ctx, askTime)
	defer cancel()
	b, err := c.request(rctx, c.names.ShardSubject(id), nil)
	switch {
	case err == nil && len(b) > 0 && len(b) <= maxTerm:
		return string(b), nil
	case ctx.Err() != nil:
		return "", ctx.Err()
	case errors.Is(err, shardrpc.ErrNobody):
		return "", err
	}
	return "", fmt.Errorf("%w: %w", shardrpc.ErrNobody, err)
}

// renew asks for a term anew, beside the calls that go by the old one.
func (c *Calls) renew(id millrace.ShardID) {
	term, err := c.ask(c.life, id)
	c.mu.Lock()
	k := c.terms[id]
	c.mu.Unlock()
	if k == nil {
		return
	}
	if err != nil {
		c.forget(id, k.term)
		return
	}
	c.learn(id, term)
}

func (c *Calls) learn(id millrace.ShardID, term string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.terms[id]; k != nil {
		k.age.Stop()
	}
	k := &known{term: term}
	k.age = time.AfterFunc(knownFor, func() {
		c.mu.Lock()
		k.old = true
		c.mu.Unlock()
	})
	c.terms[id] = k
}

func (c *Calls) forget(id millrace.ShardID, term string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.terms[id]; k != nil && k.term == term {
		k.age.Stop()
		delete(c.terms, id)
	}
}

func (c *Calls) termSubject(id millrace.ShardID, term string) string {
	return c.names.ShardSubject(id) + "." + term
}
