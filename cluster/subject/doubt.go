package subject

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/shardrpc"
)

const (
	// doubtAfter is how long an answer is waited for before it is asked what became of
	// the call, and between two such questions.
	doubtAfter = 2 * time.Second
	// seekAfter is the same while nobody answers that question.
	seekAfter = 250 * time.Millisecond
)

// line is our calls to the owner of a shard in a term. Their numbers rise.
type line struct {
	term string
	from caller
	last atomic.Uint64
}

// lineOf is the line of a term, which begins anew with each term.
func (c *Calls) lineOf(id millrace.ShardID, term string) *line {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lines[id]
	if l == nil || l.term != term {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails
		l = &line{term: term, from: caller(binary.LittleEndian.Uint64(b[:]))}
		c.lines[id] = l
	}
	return l
}

// settled ends the wait for an answer: what became of the call is known otherwise.
type settled struct {
	fate   fate
	answer []byte
}

func (s *settled) Error() string { return "what became of the call is known" }

// send sends a request to the owner in a term. When no answer comes for a while, or the
// connection was lost, it asks what became of it.
func (c *Calls) send(ctx context.Context, id millrace.ShardID, term string, request []byte) ([]byte, error) {
	l := c.lineOf(id, term)
	n := l.last.Add(1)
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	ctx, settle := context.WithCancelCause(ctx)
	defer settle(nil)
	var once sync.Once
	doubt := func() { once.Do(func() { c.doubt(ctx, settle, id, l, n) }) }
	timer := time.AfterFunc(doubtAfter, doubt)
	defer timer.Stop()
	up, done := c.conn.Request(ctx, callTime)
	defer done()
	defer context.AfterFunc(up, doubt)()

	answer, err := c.request(ctx, c.termSubject(id, term), append(appendHead(make([]byte, 0, headLength+len(request)), l.from, n), request...))
	if s, ok := errors.AsType[*settled](context.Cause(ctx)); ok && err != nil {
		switch s.fate {
		case fateAnswered:
			return s.answer, nil
		case fateNever:
			return nil, fmt.Errorf("%w: the call was lost on the way", shardrpc.ErrNobody)
		case fateUnknown, fateUnderWay:
		}
	}
	return answer, err
}

// doubt asks until the call has ended what became of it, and gives it up when the shard
// has another owner and the one it was sent to does not say that it will answer.
func (c *Calls) doubt(ctx context.Context, settle func(error), id millrace.ShardID, l *line, n uint64) {
	var pause time.Duration
	for ; ctx.Err() == nil; wait(ctx, pause) {
		now, err := c.ask(ctx, id)
		if err != nil {
			pause = seekAfter
			continue
		}
		pause = doubtAfter
		moved := now.term != l.term
		c.learn(id, now)
		s, err := c.askAbout(ctx, id, l, n)
		switch {
		case err == nil && (s.fate == fateAnswered || s.fate == fateNever):
			settle(s)
			return
		case moved && (err != nil || s.fate != fateUnderWay):
			settle(&settled{fate: fateUnknown})
			return
		}
	}
}

// askAbout asks the owner of a term what became of a call.
func (c *Calls) askAbout(ctx context.Context, id millrace.ShardID, l *line, n uint64) (*settled, error) {
	b, err := c.askFor(ctx, c.fateSubject(id, l.term), appendHead(nil, l.from, n))
	if err != nil {
		return nil, err
	}
	if len(b) == 0 || b[0] > byte(fateNever) {
		return nil, errors.New("no answer to the question what became of a call")
	}
	return &settled{fate(b[0]), b[1:]}, nil
}

// wait waits, or ends early with the context.
func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
