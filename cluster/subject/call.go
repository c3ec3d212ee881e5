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
	"github.com/millrace/millrace/trace"
)

const (
	// knownFor is how long after it was asked for a term is taken to be the newest; then
	// it is asked for anew, beside calls.
	knownFor = 500 * time.Millisecond
	// trustFor is how long after it was asked for a term is called at all: less than
	// lingerFor (J4).
	trustFor = 1500 * time.Millisecond
	// againAfter is how long the answer to the question for a term is waited for before
	// it is asked again, the next time twice as long.
	againAfter = 200 * time.Millisecond
	// callTime bounds a call whose caller sets no end.
	callTime = 60 * time.Second
	// closeTime bounds the wait for calls that are being answered when all ends.
	closeTime = 4 * time.Second
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
	answering     prometheus.Gauge

	mu    sync.Mutex
	terms map[millrace.ShardID]*known
	lines map[millrace.ShardID]*line
}

// known is the term of a shard's owner, as it was told last.
type known struct {
	term    string
	asking  bool
	old     bool
	ended   bool // not to be called any more
	ageing  *time.Timer
	endings *time.Timer
}

func (k *known) stop() {
	k.ageing.Stop()
	k.endings.Stop()
}

var _ shardrpc.Transport = (*Calls)(nil)

// New makes Calls over a connection, which stays the caller's.
func New(conn *cluster.Conn, names cluster.Names, o Options) *Calls {
	if o.Answers == 0 {
		o.Answers = 1024
	}
	p := promauto.With(o.Registerer)
	c := &Calls{
		conn: conn, names: names, o: o, room: semaphore.NewWeighted(o.Answers), terms: map[millrace.ShardID]*known{}, lines: map[millrace.ShardID]*line{},
		calls:     p.NewCounter(prometheus.CounterOpts{Name: "millrace_cluster_calls_total", Help: "Calls sent to owners of shards over NATS."}),
		answering: p.NewGauge(prometheus.GaugeOpts{Name: "millrace_cluster_answering_calls", Help: "Calls of other processes over NATS that are being answered; 1,024 at most, others wait."}),
		nobody:    p.NewCounter(prometheus.CounterOpts{Name: "millrace_cluster_untaken_calls_total", Help: "Calls to owners of shards that nobody took, since a shard had no owner or changed it."}),
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
		k.stop()
	}
}

// Call implements shardrpc.Transport.
func (c *Calls) Call(ctx context.Context, id millrace.ShardID, request []byte) ([]byte, error) {
	c.calls.Inc()
	term, err := c.term(ctx, id)
	if err == nil {
		var answer []byte
		answer, err = c.send(ctx, id, term, request)
		switch {
		case err != nil:
		case len(answer) > 0:
			return answer, nil
		default: // who had the shard in this term is there still, to say so
			err = fmt.Errorf("%w: its term has ended", shardrpc.ErrNobody)
		}
		c.forget(id, term)
	}
	if errors.Is(err, shardrpc.ErrNobody) {
		c.nobody.Inc()
	}
	return nil, err
}

// request sends to a subject. The error is shardrpc.ErrNobody when nobody has the message.
func (c *Calls) request(ctx context.Context, subject string, data []byte) ([]byte, error) {
	request := &nats.Msg{Subject: subject, Data: data}
	trace.Inject(ctx, func(header, value string) {
		if request.Header == nil {
			request.Header = nats.Header{}
		}
		request.Header.Set(header, value)
	})
	m, err := c.conn.NATS().RequestMsgWithContext(ctx, request)
	switch {
	case err == nil:
		return m.Data, nil
	// Not nats.ErrConnectionClosed, which is also said of what was sent before.
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, nats.ErrConnectionReconnecting), errors.Is(err, nats.ErrReconnectBufExceeded):
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
	k, err := c.ask(ctx, id)
	if err != nil {
		return "", err
	}
	c.learn(id, k)
	return k.term, nil
}

// ask asks the owner for its term. Nothing is done by that, so whatever the error is, it
// is shardrpc.ErrNobody.
func (c *Calls) ask(ctx context.Context, id millrace.ShardID) (*known, error) {
	k := &known{}
	// From before it is asked, so that the owner had not ended the term yet.
	k.ageing = time.AfterFunc(knownFor, func() {
		c.mu.Lock()
		k.old = true
		c.mu.Unlock()
	})
	k.endings = time.AfterFunc(trustFor, func() { c.endKnown(id, k) })
	b, err := c.askFor(ctx, c.names.ShardSubject(id), nil)
	if err == nil && len(b) > 0 && len(b) <= maxTerm {
		k.term = string(b)
		return k, nil
	}
	k.stop()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, shardrpc.ErrNobody):
		return nil, err
	}
	return nil, fmt.Errorf("%w: %w", shardrpc.ErrNobody, err)
}

// askFor asks for as long as a term is good, again and again: a question may be lost as
// owners come and go, and nobody tells.
func (c *Calls) askFor(ctx context.Context, subject string, question []byte) ([]byte, error) {
	rctx, cancel := c.conn.Request(ctx, trustFor)
	defer cancel()
	for again := againAfter; ; again *= 2 {
		once, cancel := context.WithTimeout(rctx, again)
		b, err := c.request(once, subject, question)
		cancel()
		if err == nil || errors.Is(err, shardrpc.ErrNobody) || rctx.Err() != nil {
			return b, err
		}
	}
}

// renew asks for a term anew, beside the calls that go by the old one.
func (c *Calls) renew(id millrace.ShardID) {
	now, err := c.ask(c.life, id)
	if err == nil {
		c.learn(id, now)
		return
	}
	c.mu.Lock()
	k := c.terms[id]
	c.mu.Unlock()
	if k != nil {
		c.forget(id, k.term)
	}
}

func (c *Calls) learn(id millrace.ShardID, now *known) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.terms[id]; k != nil {
		k.stop()
	}
	if now.ended {
		delete(c.terms, id)
		return
	}
	c.terms[id] = now
}

func (c *Calls) endKnown(id millrace.ShardID, k *known) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k.ended = true
	if c.terms[id] == k {
		delete(c.terms, id)
	}
}

func (c *Calls) forget(id millrace.ShardID, term string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.terms[id]; k != nil && k.term == term {
		k.stop()
		delete(c.terms, id)
	}
}

func (c *Calls) termSubject(id millrace.ShardID, term string) string {
	return c.names.ShardSubject(id) + "." + term
}

// fateSubject is where it is asked what became of calls of a term.
func (c *Calls) fateSubject(id millrace.ShardID, term string) string {
	return c.termSubject(id, term) + ".fate"
}
