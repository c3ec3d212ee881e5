package flightsvc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	gen "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/millrace/millrace/auth"
	"github.com/millrace/millrace/auth/audit"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/trace"
)

const requestIDKey = "x-request-id"

// call is one call under way.
type call struct {
	s         *Service
	method    string // DoGet …
	requestID string
	start     time.Time
	span      trace.Span
	record    *audit.Record // nil: nobody keeps one

	// Of streaming calls.
	cancel context.CancelCauseFunc
	stream grpc.ServerStream // for sends that may take as long as the client likes
	// waiting is since when the call waits for its client to take a message, or to send
	// the first one, in nanoseconds since start; 0 when it does not.
	waiting atomic.Int64
	// receiving is the same of a message that the client sends.
	receiving atomic.Int64
	held      held
	// idle says that nothing is lost when the call ends now: it waits for the client
	// to ask, or for records to come.
	idle atomic.Bool
	// expired is closed when the caller's token is not good any more.
	expired <-chan struct{}
	// still says whether the caller may go on; asked while the call is idle. nil: not yet, or
	// whoever waits asks himself.
	still atomic.Pointer[func() error]
}

type callKey struct{}

// callOf is the call that ctx belongs to.
func callOf(ctx context.Context) *call { return ctx.Value(callKey{}).(*call) }

func (s *Service) begin(ctx context.Context, fullMethod string) (*call, context.Context) {
	ctx, req := trace.With(ctx, requestID(ctx))
	ctx, span := s.o.Tracer.Serve(joined(ctx), "flight "+path.Base(fullMethod))
	c := &call{s: s, span: span, method: path.Base(fullMethod), requestID: req.ID, start: s.o.Clock.Now()}
	c.record = s.o.Audit.Begin(req.ID, address(ctx), "flight", c.method)
	return c, context.WithValue(audit.With(ctx, c.record), callKey{}, c)
}

// joined is the context of a call in the trace that its client says.
func joined(ctx context.Context) context.Context {
	md, _ := metadata.FromIncomingContext(ctx)
	return trace.Join(ctx, func(header string) string {
		if v := md.Get(header); len(v) == 1 {
			return v[0]
		}
		return ""
	})
}

// requestID is what the client calls its request, or a new name.
func requestID(ctx context.Context) string {
	md, _ := metadata.FromIncomingContext(ctx)
	if ids := md.Get(requestIDKey); len(ids) == 1 {
		return trace.RequestID(ids[0])
	}
	return trace.RequestID("")
}

// age is for how long the call has been under way.
func (c *call) age() time.Duration { return c.s.o.Clock.Now().Sub(c.start) }

// end renders and counts the outcome of a call.
func (c *call) end(ctx context.Context, err error) error {
	err = c.s.render(ctx, c, err)
	took := c.age()
	code := status.Code(err)
	c.s.metrics.calls.WithLabelValues(c.method, code.String()).Inc()
	outcome := audit.OK
	if err != nil {
		outcome = cmp.Or(string(trace.Of(ctx).Failure()), strings.ToLower(code.String()))
		c.s.metrics.errors.WithLabelValues(outcome).Inc()
	}
	c.record.End(outcome)
	if c.span.On() {
		c.span.Text("rpc.system.name", "grpc").Text("rpc.method", c.method).Text("rpc.response.status_code", code.String())
		c.span.Fail(trace.Of(ctx).Failure())
		c.span.End(nil)
	}
	c.s.metrics.duration.WithLabelValues(c.method).Observe(took.Seconds())
	if c.s.o.Logger.Enabled(ctx, slog.LevelDebug) {
		c.s.o.Logger.LogAttrs(ctx, slog.LevelDebug, "flight call", slog.String("method", c.method), slog.String("code", code.String()), slog.Duration("took", took))
	}
	return err
}

// recovered turns a panic into an error.
func (c *call) recovered(err *error) {
	if p := recover(); p != nil {
		c.s.metrics.panics.Inc()
		*err = fmt.Errorf("panic: %s\n%s", trace.PanicText(p), debug.Stack())
	}
}

// isFlight says whether a method is of the Flight service; health has its own ways.
func isFlight(fullMethod string) bool {
	return strings.HasPrefix(fullMethod, "/"+gen.FlightService_ServiceDesc.ServiceName+"/")
}

var errDraining = errs.New(errs.Draining, "the server is shutting down: go on elsewhere, or here in a moment, from where the stream stood")

// unaryDeadline gives a call that is answered once the deadline it lacks.
func unaryDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithTimeout(ctx, maxUnaryTime)
	}
	return context.WithTimeout(ctx, defaultUnaryTime)
}

func (s *Service) interceptStream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if !isFlight(info.FullMethod) {
		return s.serveHealth(srv, ss, info, handler)
	}
	c, ctx := s.begin(ss.Context(), info.FullMethod)
	unary := isUnary(c.method)
	if unary {
		var cancel context.CancelFunc
		ctx, cancel = unaryDeadline(ctx)
		defer cancel()
	}
	ctx, c.cancel = context.WithCancelCause(ctx)
	c.stream = ss
	defer c.cancel(nil)
	if err := ss.SetHeader(metadata.Pairs(requestIDKey, c.requestID)); err != nil {
		return err
	}
	if s.isDraining() {
		return c.end(ctx, errDraining)
	}
	caller, err := s.caller(ctx)
	if err != nil {
		return c.end(ctx, err)
	}
	ctx = auth.With(ctx, caller)
	expired, stop := auth.Expiry(ctx, s.o.Clock.Now)
	defer stop()
	c.expired = expired
	if !unary {
		open := s.metrics.openStreams.WithLabelValues(c.method)
		open.Inc()
		defer open.Dec()
	}
	return c.end(ctx, c.watch(c.run(ctx, srv, info, handler)))
}

// run runs a call; the channel has how it ended.
func (c *call) run(ctx context.Context, srv any, info *grpc.StreamServerInfo, handler grpc.StreamHandler) <-chan error {
	w := &watchedStream{
		ServerStream: c.stream, ctx: ctx, c: c,
		most: mostOf(info.FullMethod, c.method), free: freeBytes,
		once: !info.IsClientStream, prompt: !info.IsClientStream || c.method == "Handshake",
	}
	if c.method == "DoPut" {
		w.free = 0
	}
	done := make(chan error, 1)
	c.s.calls.Go(func() {
		var err error
		defer func() { done <- err }()
		defer c.letGo(true)
		defer c.recovered(&err)
		err = handler(srv, w)
	})
	return done
}

// serveHealth serves a call of grpc.health.v1, which needs no caller: nothing is written
// down of it, and it is watched as others are.
func (s *Service) serveHealth(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	c := &call{s: s, method: path.Base(info.FullMethod), start: s.o.Clock.Now(), stream: ss}
	ctx, cancel := context.WithCancelCause(ss.Context())
	c.cancel = cancel
	defer cancel(nil)
	return s.render(ctx, c, c.watch(c.run(ctx, srv, info, handler)))
}

// startWaiting and stopWaiting enclose what the client can hold up.
func (c *call) startWaiting() { c.waiting.Store(int64(c.age()) | 1) }
func (c *call) stopWaiting()  { c.waiting.Store(0) }

// stuck says whether the client has held the call up for too long.
func (c *call) stuck() bool {
	for _, since := range []int64{c.waiting.Load(), c.receiving.Load()} {
		if since != 0 && c.age()-time.Duration(since) > c.s.o.StallTimeout {
			return true
		}
	}
	return false
}

func (c *call) startReceiving() { c.receiving.Store(int64(c.age()) | 1) }

// watchedStream tells its call while the client holds it up.
type watchedStream struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // the stream's own, as gRPC has it
	c   *call

	most   int64 // bytes of a message
	free   int64 // bytes that ask for no room
	once   bool  // the client sends one message
	prompt bool  // nothing but its messages is waited for
}

func (w *watchedStream) Context() context.Context { return w.ctx }

func (w *watchedStream) SendMsg(m any) error {
	w.c.startWaiting()
	defer w.c.stopWaiting()
	return w.ServerStream.SendMsg(m)
}

// How often a streaming call is looked at while draining, and how long it has to
// end once it was told to.
const (
	drainPoll  = 20 * time.Millisecond
	cancelTime = 500 * time.Millisecond
)

// watch waits for a streaming call to end, and ends it when its client stops
// reading (F3), its caller's token expires, or the server has to go.
func (c *call) watch(done <-chan error) error {
	tick := time.NewTicker(max(c.s.o.StallTimeout/4, time.Millisecond))
	defer tick.Stop()
	again := time.NewTicker(router.PassEvery)
	defer again.Stop()
	draining, expired := c.s.draining, c.expired
	poll := time.NewTicker(drainPoll)
	defer poll.Stop()
	poll.Stop()
	var cause error // why the call has to end; nil while it has not
	var grace <-chan time.Time
	for {
		select {
		case err := <-done:
			return err
		case <-tick.C:
			if c.stuck() {
				c.s.metrics.stalled.Inc()
				return c.endNow(done, errs.New(errs.Unavailable, "nothing came from the client, or went to it, for %s; go on from where the stream stood", c.s.o.StallTimeout))
			}
			continue
		case <-again.C:
			if err := c.mayGoOn(); err != nil {
				return c.endNow(done, err)
			}
			continue
		case <-draining:
			draining, cause = nil, errDraining
		case <-expired:
			expired = nil
			if cause == nil {
				cause = auth.ErrExpired
			}
		case <-poll.C:
		case <-grace:
			return c.endNow(done, cause)
		}
		if c.idle.Load() {
			return c.endNow(done, cause)
		}
		if grace == nil {
			poll.Reset(drainPoll)
			end := time.NewTimer(c.s.o.DrainGrace)
			defer end.Stop()
			grace = end.C
		}
	}
}

// mayGoOn asks whether the caller of a call that waits for him may go on.
func (c *call) mayGoOn() error {
	if still := c.still.Load(); still != nil && c.idle.Load() {
		return (*still)()
	}
	return nil
}

// endNow tells a call to end and does not wait long for it: it may be stuck in the
// transport, which lets go when this call returns.
func (c *call) endNow(done <-chan error, cause error) error {
	c.cancel(cause)
	patience := time.NewTimer(cancelTime)
	defer patience.Stop()
	select {
	case err := <-done:
		if err == nil || errors.Is(err, context.Canceled) || status.Code(err) == codes.Canceled {
			return cause
		}
		return err
	case <-patience.C:
		return cause
	}
}
