package objstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/millrace/millrace/errs"
)

// errSlow ends a try that took too long.
var errSlow = errors.New("no answer in time")

// failure is why a try failed, as far as the next step depends on it.
type failure struct {
	err error
	// status is the answer's, 0 when there was none that could be read.
	status int
	code   string
}

func failureOf(err error) failure {
	f := failure{err: err}
	if answer, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
		f.status = answer.HTTPStatusCode()
	}
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		f.code = api.ErrorCode()
	}
	return f
}

// again says whether another try may go better.
func (f failure) again() bool {
	if _, ok := errors.AsType[*errs.Error](f.err); ok || errors.Is(f.err, ErrExists) || errors.Is(f.err, ErrNotExist) {
		return false // what the caller is told
	}
	switch f.code {
	case "RequestTimeout", "RequestTimeTooSkewed", "IncompleteBody", "BadDigest", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch",
		"ConditionalRequestConflict", "OperationAborted", "SlowDown", "Throttling", "ThrottlingException",
		"ExistingObjectIsDirectory": // versitygw's, also when two tries of one object meet
		return true
	}
	switch f.status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests:
		return true
	case http.StatusNotImplemented, http.StatusInsufficientStorage:
		return false
	}
	// An answer that refuses and does not get through to say why may mean anything.
	return f.status < 300 || f.status >= 500 || f.code == "" || f.expired()
}

// expired says that the credentials are no longer taken.
func (f failure) expired() bool {
	switch f.code {
	case "ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired":
		return true
	}
	return false
}

// String is what a person can act on.
func (f failure) String() string {
	switch {
	case f.code == "NoSuchBucket":
		return "there is no such bucket"
	case f.status == http.StatusNotImplemented:
		return "this object store does not know how to: " + f.code
	case f.status == http.StatusForbidden, f.expired():
		return fmt.Sprintf("the credentials are not accepted for it: %d %s", f.status, f.code)
	case f.status >= 300 && f.code != "":
		text := ""
		if api, ok := errors.AsType[smithy.APIError](f.err); ok {
			text = api.ErrorMessage()
		}
		return fmt.Sprintf("it answers %d %s: %.200s", f.status, f.code, text)
	case f.status >= 300:
		return fmt.Sprintf("it answers %d", f.status)
	}
	// Of the SDK's layers the innermost says what happened.
	text := f.err.Error()
	if op, ok := errors.AsType[*smithy.OperationError](f.err); ok {
		text = op.Err.Error()
	}
	text = strings.TrimPrefix(text, "exceeded maximum number of attempts, 1, ")
	return fmt.Sprintf("%.400s", strings.TrimPrefix(text, "https response error StatusCode: 0, RequestID: , HostID: , "))
}

// code is what the caller is told.
func (f failure) errsCode() errs.Code {
	if f.status == http.StatusInsufficientStorage || strings.Contains(f.code, "StorageFull") || strings.Contains(f.code, "QuotaExceeded") {
		return errs.StorageFull
	}
	return errs.Unavailable
}

// do makes a request until a try succeeds, another one would not help, or all are used
// up (O4). moved is how many bytes a try sends and receives, as far as is known.
func (s *s3Store) do(ctx context.Context, op, key string, moved int64, try func(ctx context.Context, p patience) error) error {
	wait := s.o.Backoff
	for n := 1; ; n++ {
		err := s.try(ctx, op, moved, try)
		if err == nil {
			return nil
		}
		f := failureOf(err)
		if ctx.Err() != nil {
			// With the store's answer, since the caller may have waited for it to get well.
			return failed(errs.Unavailable, op, s.uri, key, fmt.Errorf("%w (%v)", context.Cause(ctx), f))
		}
		if f.expired() {
			s.credentials.Invalidate()
		}
		switch {
		case errors.Is(err, ErrExists), errors.Is(err, ErrNotExist):
			return err
		case !f.again():
			if _, ok := errors.AsType[*errs.Error](err); ok {
				return err
			}
			return failed(f.errsCode(), op, s.uri, key, errors.New(f.String()))
		case n == s.o.Attempts:
			return failed(f.errsCode(), op, s.uri, key, fmt.Errorf("tried %d times, in the end: %v", n, f))
		}
		s.m.retries.WithLabelValues(op).Inc()
		timer := time.NewTimer(wait/2 + rand.N(wait/2+1))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return failed(errs.Unavailable, op, s.uri, key, fmt.Errorf("%w (%v)", context.Cause(ctx), f))
		}
		wait = min(2*wait, maxBackoff)
	}
}

// patience ends a try that takes longer than what it moves may take.
type patience struct {
	timer *time.Timer
	o     *S3
}

// more begins anew, for bytes to come.
func (p patience) more(bytes int64) { p.timer.Reset(p.o.patience(bytes)) }

func (o *S3) patience(bytes int64) time.Duration {
	return o.Timeout + time.Duration(bytes/slowestPerSecond)*time.Second
}

func (s *s3Store) try(ctx context.Context, op string, moved int64, try func(ctx context.Context, p patience) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(s.o.patience(moved), func() { cancel(errSlow) })
	defer timer.Stop()
	s.m.requests.WithLabelValues(op).Inc()
	err := try(ctx, patience{timer, &s.o})
	if err != nil && errors.Is(context.Cause(ctx), errSlow) {
		return errSlow
	}
	return err
}
