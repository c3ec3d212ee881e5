package iceberg

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/objstore"
)

const (
	// footerAhead is what the first request for a file asks for: its footer, usually whole.
	footerAhead = 64 << 10
	// gapBytes is what is read and thrown away rather than asking twice.
	gapBytes = 256 << 10
	// maxRequestBytes is the longest range that one request asks for.
	maxRequestBytes = 16 << 20
	// maxRequests is how many requests one reader has under way at a time.
	maxRequests = 4
)

// span is a part of a file.
type span struct {
	at   int64
	body []byte
}

// extent is where a span lies.
type extent struct{ from, to int64 }

// source reads one object by ranges, as arrow-go wants it. What is held in memory
// is served from there. It belongs to one reader, whose goroutines may read at once.
type source struct {
	ctx   context.Context // of the reader: its life is the source's
	store objstore.Reader
	key   string
	size  int64
	check func(span) error // of bytes that came from the store; nil: none
	held  []span           // rising
	read  atomic.Int64     // bytes that came from the store
	// failed is the first failure of the store, which arrow-go may not hand on.
	failed atomic.Pointer[error]
}

// ReadAt serves arrow-go; bytes beyond the end are a damaged footer's.
func (s *source) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off > s.size || int64(len(p)) > s.size-off {
		return 0, fmt.Errorf("bytes %d to %d of a file of %d", off, off+int64(len(p)), s.size)
	}
	for _, h := range s.held {
		if off >= h.at && off+int64(len(p)) <= h.at+int64(len(h.body)) {
			return copy(p, h.body[off-h.at:]), nil
		}
	}
	e := s.aligned(extent{off, off + int64(len(p))})
	if e == (extent{off, off + int64(len(p))}) {
		return len(p), s.get(s.ctx, span{at: off, body: p})
	}
	got := span{at: e.from, body: make([]byte, e.to-e.from)}
	if err := s.get(s.ctx, got); err != nil {
		return 0, err
	}
	return copy(p, got.body[off-got.at:]), nil
}

// Seek answers where the end is; arrow-go asks nothing else of it.
func (s *source) Seek(offset int64, whence int) (int64, error) {
	if whence != io.SeekEnd {
		return 0, errors.New("a source of ranges has no position")
	}
	return s.size + offset, nil
}

// get fills a span from the store.
func (s *source) get(ctx context.Context, p span) error {
	err := s.store.ReadAt(ctx, s.key, p.body, p.at)
	if err != nil {
		err = s.readFailed(err)
	} else {
		s.read.Add(int64(len(p.body)))
		if s.check != nil {
			err = s.check(p)
		}
	}
	if err != nil {
		s.failed.CompareAndSwap(nil, &err)
	}
	return err
}

// fetch reads extents, several at a time, joining neighbours.
func (s *source) fetch(ctx context.Context, extents []extent) ([]span, error) {
	extents = s.joined(extents)
	out := make([]span, len(extents))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxRequests)
	for i, e := range extents {
		out[i] = span{at: e.from, body: make([]byte, e.to-e.from)}
		for at := e.from; at < e.to; at += maxRequestBytes {
			part := span{at: at, body: out[i].body[at-e.from : min(at+maxRequestBytes, e.to)-e.from]}
			g.Go(func() error { return s.get(ctx, part) })
		}
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return out, nil
}

// joined puts extents that lie close together into one, aligned for checks.
func (s *source) joined(extents []extent) []extent {
	extents = slices.Clone(extents)
	slices.SortFunc(extents, func(a, b extent) int { return cmp.Compare(a.from, b.from) })
	var out []extent
	for _, e := range extents {
		e = s.aligned(e)
		if n := len(out); n > 0 && e.from-out[n-1].to <= gapBytes {
			out[n-1].to = max(out[n-1].to, e.to)
			continue
		}
		out = append(out, e)
	}
	return out
}

// aligned widens an extent to whole blocks, which is what can be checked.
func (s *source) aligned(e extent) extent {
	if s.check == nil {
		return e
	}
	return extent{e.from &^ (sealBlock - 1), min((e.to+sealBlock-1)&^(sealBlock-1), s.size)}
}

// readFailed says what a failed read of a file means.
func (s *source) readFailed(err error) error {
	var known *errs.Error
	switch {
	case errors.Is(err, objstore.ErrNotExist):
		return &errs.Error{Code: errs.SnapshotGone, Message: fmt.Sprintf("file %s of the lake is not there: its snapshot is no longer kept", s.key), Err: &missingFile{s.key}}
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errs.New(errs.CorruptData, "file %s of the lake is shorter than its metadata say (%d bytes)", s.key, s.size)
	case errors.As(err, &known), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return errs.New(errs.Unavailable, "file %s of the lake cannot be read: %v", s.key, err)
}
