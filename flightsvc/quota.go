package flightsvc

import (
	"context"
	"time"

	"github.com/millrace/millrace/auth/quota"
)

// Quotas bound what callers write in a stream, and how many streams they have; the router
// charges what is written and read.
type Quotas interface {
	// MayWrite says whether the caller may write now.
	MayWrite(ctx context.Context) error
	// WaitWrite waits, at most for most, until a stream may write more.
	WaitWrite(ctx context.Context, most time.Duration) (may bool, err error)
	// Stream counts a stream of the caller's until it is closed.
	Stream(ctx context.Context) (closed func(), err error)
}

// openStream counts a stream until it is closed.
func (s *Service) openStream(ctx context.Context) (closed func(), err error) {
	if s.o.Quotas == nil {
		return func() {}, nil
	}
	return s.o.Quotas.Stream(ctx)
}

// mayWrite says whether the caller may begin to write.
func (s *Service) mayWrite(ctx context.Context) error {
	if s.o.Quotas == nil {
		return nil
	}
	return s.o.Quotas.MayWrite(ctx)
}

// waitWrite waits until a stream may bring more rows.
func (s *Service) waitWrite(ctx context.Context) error {
	for s.o.Quotas != nil {
		if may, err := s.o.Quotas.WaitWrite(ctx, time.Second); may || err != nil {
			return err
		}
	}
	return nil
}

// streamed is the context of a call that is slowed down from now on, and not refused.
func streamed(ctx context.Context) context.Context { return quota.Streaming(ctx, nil) }
