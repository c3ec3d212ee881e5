package shardrpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/storage/shard"
	"github.com/millrace/millrace/trace"
)

// ClientOptions are a client's settings and components.
type ClientOptions struct {
	// Bytes bounds the calls under way; 256 MiB unless set.
	Bytes int64
	// Calls bounds their number; 4096 unless set.
	Calls int64
	// Again is how long the answer to a question is waited for before it is asked again,
	// the next time twice as long; 2 s unless set.
	Again time.Duration

	Transport  Transport
	HTTP       HTTP
	Registerer prometheus.Registerer // may be nil
}

// Client asks shards that other processes own.
type Client struct {
	o     ClientOptions
	bytes *semaphore.Weighted
	calls *semaphore.Weighted
	// answers bounds the bytes of answers by HTTP that are being read.
	answers *semaphore.Weighted
	peers   peers
	m       *clientMetrics
}

// NewClient makes a client.
func NewClient(o ClientOptions) *Client {
	if o.Bytes == 0 {
		o.Bytes = 256 << 20
	}
	if o.Calls == 0 {
		o.Calls = 4096
	}
	if o.Again == 0 {
		o.Again = 2 * time.Second
	}
	return &Client{
		o: o, bytes: semaphore.NewWeighted(o.Bytes), calls: semaphore.NewWeighted(o.Calls),
		answers: semaphore.NewWeighted(MaxAnswer), m: newClientMetrics(o.Registerer),
	}
}

// Shard is a shard, wherever it is.
func (c *Client) Shard(id millrace.ShardID) router.Remote { return &remote{c, id} }

type remote struct {
	c  *Client
	id millrace.ShardID
}

var _ router.Remote = (*remote)(nil)

// call asks for something and gives what the answer has. write says that it is one: when
// its answer is lost, its outcome is not known.
func (r *remote) call(ctx context.Context, k kind, write bool, size int, body func([]byte) []byte) (*decoder, error) {
	left := time.Duration(0)
	if end, ok := ctx.Deadline(); ok {
		if left = time.Until(end); left <= 0 {
			return nil, context.DeadlineExceeded
		}
	}
	timer := prometheus.NewTimer(r.c.m.calls.WithLabelValues(k.String()))
	ctx, span := trace.Call(ctx, "call "+k.String())
	answer, err := r.send(ctx, write, body(appendHead(make([]byte, 0, 16+size), k, left)))
	var d *decoder
	if err == nil {
		d, err = open(answer)
	}
	span.Int("millrace.shard", int64(r.id)).End(err)
	if errors.Is(err, errTable) { // the call is made once more
		return nil, err
	}
	timer.ObserveDuration()
	r.c.m.called(err)
	return d, err
}

// send sends a request when there is room for it, and gives its answer.
func (r *remote) send(ctx context.Context, write bool, request []byte) ([]byte, error) {
	room := min(int64(len(request)), r.c.o.Bytes)
	if err := r.c.calls.Acquire(ctx, 1); err != nil {
		return nil, errs.New(errs.Overloaded, "too many calls to other processes are under way: %v", err)
	}
	defer r.c.calls.Release(1)
	if err := r.c.bytes.Acquire(ctx, room); err != nil {
		return nil, errs.New(errs.Overloaded, "too much is being sent to other processes: %v", err)
	}
	defer r.c.bytes.Release(room)
	r.c.m.now.Inc()
	defer r.c.m.now.Dec()
	r.c.m.bytes.Add(float64(room))
	defer r.c.m.bytes.Sub(float64(room))
	var answer []byte
	var err error
	if len(request) <= MaxSmall {
		answer, err = r.small(ctx, write, request)
		if err == nil && len(answer) == 1 && answer[0] == statusByHTTP {
			if answer, err = nil, errTooLong; !write { // which would be done a second time
				answer, err = r.c.post(ctx, r.id, request)
			}
		}
	} else {
		answer, err = r.c.post(ctx, r.id, request)
	}
	if err != nil {
		return nil, lost(ctx, r.id, write, err)
	}
	return answer, nil
}

// small sends by the transport. One that only asks is sent again when it is not answered
// for a while: what carries it may lose it, and nobody would tell.
func (r *remote) small(ctx context.Context, write bool, request []byte) ([]byte, error) {
	if write {
		return r.c.o.Transport.Call(ctx, r.id, request)
	}
	for again := r.c.o.Again; ; again *= 2 { // the owner may be slow
		once, cancel := context.WithTimeout(ctx, again)
		answer, err := r.c.o.Transport.Call(once, r.id, request)
		late := once.Err() != nil && ctx.Err() == nil
		cancel()
		if err == nil || !late || errors.Is(err, ErrNobody) {
			return answer, err
		}
		r.c.m.again.Inc()
	}
}

// lost is the error of a call without an answer (P1).
func lost(ctx context.Context, id millrace.ShardID, write bool, err error) error {
	_, coded := errors.AsType[*errs.Error](err)
	switch {
	case errors.Is(err, ErrNobody):
		return errs.New(errs.NotOwner, "nobody takes calls for shard %d", id)
	case coded:
		return err
	case write:
		return errs.New(errs.UnknownOutcome, "the write was sent to the owner of shard %d and not answered: %v", id, err)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return errs.New(errs.Unavailable, "the owner of shard %d did not answer in time", id)
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return errs.New(errs.NotOwner, "the owner of shard %d did not answer: %v", id, err)
}

// open reads the status of an answer.
func open(answer []byte) (*decoder, error) {
	d := &decoder{b: answer}
	switch status := d.within(statusTable); {
	case d.bad || status == statusByHTTP:
		return nil, errBroken
	case status == statusError:
		err := d.failure()
		if end := d.end(); end != nil {
			return nil, end
		}
		return nil, err
	case status == statusTable:
		return nil, errTable
	}
	return d, nil
}

// errTooLong is the error of an answer that is too long for the way that its call went.
var errTooLong = errors.New("the answer is too long for the way it came")

// errTable says that who was asked does not know the descriptor of a write.
var errTable = errors.New("shardrpc: the descriptor is not known there")

// Look implements router.Remote.
func (r *remote) Look(ctx context.Context, q *router.Question) (*router.Looks, error) {
	d, err := r.call(ctx, kindLook, false, 32+16*len(q.Buckets), func(b []byte) []byte { return appendQuestion(b, q) })
	if err != nil {
		return nil, err
	}
	l := d.looks()
	return l, d.end()
}

// Rehold implements router.Remote.
func (r *remote) Rehold(ctx context.Context, id string, idle, ttl time.Duration) error {
	return r.tell(ctx, kindRehold, 64, func(b []byte) []byte {
		b = appendBytes(b, id)
		return appendOffset(appendOffset(b, millrace.Offset(idle)), millrace.Offset(ttl))
	})
}

// LetGo implements router.Remote.
func (r *remote) LetGo(ctx context.Context, id string) error {
	return r.tell(ctx, kindLetGo, 64, func(b []byte) []byte { return appendBytes(b, id) })
}

// tell is a call whose answer says nothing.
func (r *remote) tell(ctx context.Context, k kind, size int, body func([]byte) []byte) error {
	d, err := r.call(ctx, k, false, size, body)
	if err != nil {
		return err
	}
	return d.end()
}

// Lookup implements router.Remote.
func (r *remote) Lookup(ctx context.Context, of []router.BucketKeys, most int64) ([][]byte, error) {
	d, err := r.call(ctx, kindLookup, false, 4096, func(b []byte) []byte { return appendKeys(b, of, most) })
	if err != nil {
		return nil, err
	}
	rows := d.rows()
	return rows, d.end()
}

// Prefixes implements router.Remote.
func (r *remote) Prefixes(ctx context.Context, of []router.BucketPrefix, limit, most int64) ([][][]byte, error) {
	d, err := r.call(ctx, kindPrefixes, false, 4096, func(b []byte) []byte { return appendPrefixes(b, of, limit, most) })
	if err != nil {
		return nil, err
	}
	rows := d.rowLists()
	return rows, d.end()
}

// Write implements router.Remote.
func (r *remote) Write(ctx context.Context, ops []*shard.Op) ([]router.Written, error) {
	size := sizeOf(ops)
	d, err := r.call(ctx, kindWrite, true, size, func(b []byte) []byte { return appendWrite(b, ops, nil) })
	if errors.Is(err, errTable) {
		text, merr := json.Marshal(ops[0].Table)
		if merr != nil {
			return nil, errs.Wrap(errs.Internal, "shardrpc.Write", merr)
		}
		d, err = r.call(ctx, kindWrite, true, size+len(text), func(b []byte) []byte { return appendWrite(b, ops, text) })
	}
	if err != nil {
		return nil, err
	}
	out := d.written()
	if err := d.end(); err != nil {
		return nil, errs.New(errs.UnknownOutcome, "the answer to the write does not read")
	}
	return out, nil
}

// Schemas implements router.Remote.
func (r *remote) Schemas(ctx context.Context, table millrace.TableID) ([]*millrace.Schema, error) {
	d, err := r.call(ctx, kindSchemas, false, 16, func(b []byte) []byte { return appendOffset(b, millrace.Offset(table)) })
	if err != nil {
		return nil, err
	}
	var out []*millrace.Schema
	if err := json.NewDecoder(bytes.NewReader(d.b)).Decode(&out); err != nil {
		return nil, errBroken
	}
	for _, s := range out {
		if s == nil {
			return nil, errBroken
		}
	}
	return out, nil
}

// End implements router.Remote.
func (r *remote) End(ctx context.Context, e router.Ending) error {
	return r.tell(ctx, kindEnd, 32, func(b []byte) []byte {
		b = appendBucket(appendOffset(b, millrace.Offset(e.Table)), millrace.BucketID{Partition: e.Partition})
		return appendBool(b, e.Seal)
	})
}

// Tell implements router.Remote.
func (r *remote) Tell(ctx context.Context, t *millrace.Table) error {
	text, err := json.Marshal(t)
	if err != nil {
		return errs.Wrap(errs.Internal, "shardrpc.Tell", err)
	}
	return r.tell(ctx, kindTell, len(text)+8, func(b []byte) []byte { return appendBytes(b, text) })
}

// Tiered implements router.Remote.
func (r *remote) Tiered(ctx context.Context, next map[millrace.BucketID]millrace.Offset) error {
	return r.tell(ctx, kindTiered, 16+16*len(next), func(b []byte) []byte { return appendOffsets(b, next) })
}

// Status implements router.Remote.
func (r *remote) Status(ctx context.Context) (shard.Status, error) {
	d, err := r.call(ctx, kindStatus, false, 0, func(b []byte) []byte { return b })
	if err != nil {
		return shard.Status{}, err
	}
	st := d.status()
	return st, d.end()
}
