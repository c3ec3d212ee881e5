package audit

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// most is how many events are written at a time.
	most = 1000
	// tableLinger is how long events for a table wait for others, so that its batches are
	// not of one row.
	tableLinger = 100 * time.Millisecond
)

// output is one place that events go to, with a queue of its own.
type output struct {
	o       *Options
	metrics *metrics
	name    string
	linger  time.Duration

	queue   chan Event
	ended   chan struct{} // closed when nothing is written any more
	ending  chan struct{} // closed when what fails is not tried again
	life    context.Context
	end     context.CancelFunc // of life: nothing is written any more
	adding  sync.RWMutex       // held to add, so that the queue is not closed meanwhile
	begun   bool
	closed  bool
	failure atomic.Pointer[error]
}

func newOutput(o *Options, m *metrics, name string) *output {
	out := &output{o: o, metrics: m, name: name, queue: make(chan Event, o.Queue), ended: make(chan struct{}), ending: make(chan struct{})}
	out.life, out.end = context.WithCancel(context.Background())
	m.begin(name)
	return out
}

// begin writes what is in the queue from now on.
func (out *output) begin(write Sink) {
	out.begun = true
	go func() {
		defer close(out.ended)
		out.run(write)
	}()
}

// patience is how long a call waits for room, from the first time that it has to.
type patience struct {
	long  time.Duration
	over  chan struct{} // closed when it is; nil: it has not begun
	timer *time.Timer
}

func (p *patience) begin() (over <-chan struct{}) {
	if p.over == nil {
		over := make(chan struct{})
		p.over, p.timer = over, time.AfterFunc(p.long, func() { close(over) })
	}
	return p.over
}

func (p *patience) end() {
	if p.timer != nil {
		p.timer.Stop()
	}
}

// add puts an event into the queue, when there is room while the call has patience (D2).
func (out *output) add(e *Event, p *patience) {
	out.adding.RLock()
	defer out.adding.RUnlock()
	if out.closed {
		out.lose(1)
		return
	}
	defer out.waiting()
	select {
	case out.queue <- *e:
		return
	default:
	}
	select {
	case out.queue <- *e:
	case <-p.begin():
		out.lose(1)
	case <-out.ending:
		out.lose(1)
	}
}

func (out *output) lose(n int) { out.metrics.lost.WithLabelValues(out.name).Add(float64(n)) }
func (out *output) waiting() {
	out.metrics.queue.WithLabelValues(out.name).Set(float64(len(out.queue)))
}

func (out *output) err() error {
	if err := out.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// close writes what is in the queue, as far as it gets in the time of one try, and takes no
// more.
func (out *output) close() {
	out.adding.RLock()
	closed := out.closed
	out.adding.RUnlock()
	if closed {
		return
	}
	defer out.end()
	close(out.ending)
	defer time.AfterFunc(out.o.Try, out.end).Stop()
	out.adding.Lock()
	out.closed = true
	close(out.queue)
	out.adding.Unlock()
	if !out.begun { // a start that failed
		out.lose(len(out.queue))
		return
	}
	<-out.ended
}

func (out *output) run(write Sink) {
	given := false // up: the server ends, and it cannot be written
	number := uint64(0)
	for e := range out.queue {
		events := out.gather(e)
		out.waiting()
		number++
		if given || !out.persist(write, number, events) {
			given = true
			out.lose(len(events))
		}
	}
}

// gather takes what waits besides an event.
func (out *output) gather(e Event) []Event {
	if out.linger > 0 {
		wait := time.NewTimer(out.linger)
		select {
		case <-wait.C:
		case <-out.ending:
			wait.Stop()
		}
	}
	events := append(make([]Event, 0, 1+min(len(out.queue), most-1)), e)
	for len(events) < most {
		select {
		case e, ok := <-out.queue:
			if !ok {
				return events
			}
			events = append(events, e)
		default:
			return events
		}
	}
	return events
}

// persist writes events, again and again until it can (D4).
func (out *output) persist(write Sink, number uint64, events []Event) bool {
	for {
		ctx, cancel := context.WithTimeout(out.life, out.o.Try)
		err := write(ctx, number, events)
		cancel()
		if err == nil {
			out.metrics.written.WithLabelValues(out.name).Add(float64(len(events)))
			if out.failure.Swap(nil) != nil {
				out.o.Logger.Info("the audit log is written again", slog.String("output", out.name))
			}
			return true
		}
		out.metrics.failures.WithLabelValues(out.name).Inc()
		err = fmt.Errorf("the %s of the audit log: %w", out.name, err)
		if out.failure.Swap(&err) == nil {
			out.o.Logger.Error("the audit log cannot be written", slog.Any("err", err))
		}
		pause := time.NewTimer(out.o.Pause)
		select {
		case <-pause.C:
		case <-out.ending:
			pause.Stop()
			return out.finally(write, number, events)
		}
	}
}

// finally tries for the last time.
func (out *output) finally(write Sink, number uint64, events []Event) bool {
	ctx, cancel := context.WithTimeout(out.life, out.o.Try)
	defer cancel()
	if err := write(ctx, number, events); err != nil {
		return false
	}
	out.metrics.written.WithLabelValues(out.name).Add(float64(len(events)))
	out.failure.Store(nil)
	return true
}
