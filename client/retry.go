package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/millrace/millrace/errs"
)

// Pauses between attempts: they double from the first to the longest, with
// jitter; a Retry-After of the server is kept, up to its own bound.
const (
	firstPause    = 100 * time.Millisecond
	longestPause  = 3 * time.Second
	longestAdvice = 30 * time.Second
)

type retrySafe struct{}

// asRead marks the requests of a context as reads, whatever their method.
func asRead(ctx context.Context) context.Context {
	return context.WithValue(ctx, retrySafe{}, true)
}

func isRead(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Method == http.MethodHead || r.Context().Value(retrySafe{}) != nil
}

// isSafe says whether the request does no harm when it is sent again though it may
// have been done: a read, or a write that the server recognises.
func isSafe(r *http.Request) bool {
	return isRead(r) || r.Header.Get(headerKey) != "" || r.Header.Get(headerSeq) != ""
}

// The headers by which the server recognises a write.
const (
	headerKey = "Idempotency-Key"
	headerSeq = "X-Writer-Seq"
)

// retrier sends a request again where C1 allows it, and turns transport errors
// into ours.
type retrier struct {
	http    *http.Client
	retries int
}

// Do implements httpclient.HttpRequestDoer.
func (d *retrier) Do(r *http.Request) (*http.Response, error) {
	replayable := r.Body == nil || r.Body == http.NoBody || r.GetBody != nil
	for attempt := 0; ; attempt++ {
		resp, err := d.http.Do(r)
		again, advice := d.again(r, resp, err)
		if err != nil {
			err = transportError(r, err)
		}
		if !again || !replayable || attempt >= d.retries {
			return resp, err
		}
		if resp != nil {
			_ = resp.Body.Close() // again() has read it
		}
		if !sleep(r.Context(), pause(attempt, advice)) {
			if err == nil {
				err = transportError(r, r.Context().Err())
			}
			return nil, err
		}
		if r.GetBody != nil {
			body, err := r.GetBody()
			if err != nil {
				return nil, fmt.Errorf("client: %w", err)
			}
			r.Body = body
		}
	}
}

// again decides whether the request may be sent again, and what the server
// advised about when.
func (d *retrier) again(r *http.Request, resp *http.Response, err error) (bool, time.Duration) {
	if err != nil {
		return r.Context().Err() == nil && (isSafe(r) || neverSent(err)) && notSecure(r, err) == nil, 0
	}
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
	case http.StatusConflict: // the same request may still be running
		if r.Header.Get(headerKey) == "" {
			return false, 0
		}
	case http.StatusBadGateway, http.StatusGatewayTimeout:
		return isSafe(r), 0 // unknown, or a proxy's: a write may have got through
	default:
		return false, 0
	}
	body, readErr := io.ReadAll(io.LimitReader(resp.Body, maxProblemBytes))
	_ = resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(body))
	if readErr != nil {
		return isSafe(r), 0
	}
	if p := parseProblem(body); p != nil {
		// Part of a streamed write was taken: sending it again would write it twice.
		if n, ok := p.Extra[extraAccepted].(int64); ok && n > 0 && !isSafe(r) {
			return false, 0
		}
		if !errs.KindOf(p.Code).Retry {
			return false, 0
		}
	} else if !isSafe(r) {
		return false, 0 // not our server's word
	}
	seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return true, 0
	}
	return true, min(time.Duration(seconds)*time.Second, longestAdvice)
}

// neverSent says whether the connection was not even made.
func neverSent(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

func transportError(r *http.Request, err error) error {
	if ctxErr := r.Context().Err(); ctxErr != nil {
		code := errs.Unavailable
		if !isRead(r) {
			code = errs.UnknownOutcome
		}
		return &errs.Error{Code: code, Message: fmt.Sprintf("no answer from %s://%s within the time given", r.URL.Scheme, r.URL.Host), Err: ctxErr}
	}
	if e := notSecure(r, err); e != nil {
		return e
	}
	cause := err
	if op, ok := errors.AsType[*net.OpError](err); ok {
		cause = op.Err
	}
	if !isRead(r) && !neverSent(err) {
		return &errs.Error{Code: errs.UnknownOutcome, Message: fmt.Sprintf("%s://%s did not answer; the write may have happened", r.URL.Scheme, r.URL.Host), Err: cause}
	}
	return &errs.Error{Code: errs.Unavailable, Message: fmt.Sprintf("cannot reach %s://%s", r.URL.Scheme, r.URL.Host), Err: cause}
}

func pause(attempt int, advice time.Duration) time.Duration {
	if advice > 0 {
		return advice
	}
	d := min(firstPause<<min(attempt, 10), longestPause)
	return d/2 + rand.N(d/2) // spread out those that failed together
}

// sleep waits, and says whether it waited to the end.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
