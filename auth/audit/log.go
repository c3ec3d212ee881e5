package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Clock tells the time.
type Clock interface {
	Now() time.Time
}

// Sink takes events besides the file; an error is counted and tried again with the next ones.
type Sink func(ctx context.Context, events []Event) error

// Options are settings and components.
type Options struct {
	// Path of the file; "" when events go to Sink alone.
	Path string
	// Verbs are those whose calls are written when they end well; nil: all. Refused calls
	// are always written.
	Verbs []string
	// Sink is nil when there is none.
	Sink Sink
	// Queue is how many events wait at most; default 10,000.
	Queue int

	Clock      Clock
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

const (
	defaultQueue = 10_000
	// most is how many events are written at a time.
	most = 1000
	// sinkTime bounds a Sink.
	sinkTime = 10 * time.Second
)

// Log writes events.
type Log struct {
	o       Options
	queue   chan Event
	ended   chan struct{}
	closing sync.RWMutex // held to add, so that the queue is not closed meanwhile
	closed  bool
	file    *os.File
	failed  atomic.Pointer[error]

	written, lost, failures prometheus.Counter
}

// Open opens the file, and makes it where it is not there: readable by its owner alone.
func Open(o Options) (*Log, error) {
	if o.Queue == 0 {
		o.Queue = defaultQueue
	}
	p := promauto.With(o.Registerer)
	l := &Log{
		o: o, queue: make(chan Event, o.Queue), ended: make(chan struct{}),
		written:  p.NewCounter(prometheus.CounterOpts{Name: "millrace_audit_events_total", Help: "Events of the audit log that were written."}),
		lost:     p.NewCounter(prometheus.CounterOpts{Name: "millrace_audit_lost_total", Help: "Events of the audit log that were not written, since it could not be in time."}),
		failures: p.NewCounter(prometheus.CounterOpts{Name: "millrace_audit_failures_total", Help: "Attempts to write to the audit log that failed."}),
	}
	promauto.With(o.Registerer).NewGaugeFunc(prometheus.GaugeOpts{Name: "millrace_audit_queue_events", Help: "Events that wait to be written to the audit log."}, func() float64 { return float64(len(l.queue)) })
	if o.Path != "" {
		if err := l.open(); err != nil {
			return nil, err
		}
	}
	go l.run()
	return l, nil
}

func (l *Log) open() error {
	f, err := os.OpenFile(filepath.Clean(l.o.Path), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	l.file = f
	return nil
}

// Begin begins the record of a call, by a name of its door and operation. A nil Log keeps
// none.
func (l *Log) Begin(requestID, address, door, operation string) *Record {
	if l == nil {
		return nil
	}
	return &Record{log: l, event: Event{RequestID: clip(requestID), Address: address, Door: door, Operation: operation}}
}

// Err is why events are not written at present; nil while they are.
func (l *Log) Err() error {
	if err := l.failed.Load(); err != nil {
		return *err
	}
	return nil
}

func (l *Log) wants(verb string) bool { return l.o.Verbs == nil || slices.Contains(l.o.Verbs, verb) }

// add puts an event into the queue.
func (l *Log) add(ctx context.Context, e Event) {
	l.closing.RLock()
	defer l.closing.RUnlock()
	if l.closed {
		l.lost.Inc()
		return
	}
	select {
	case l.queue <- e:
		return
	default:
	}
	select {
	case l.queue <- e:
	case <-ctx.Done():
		l.lost.Inc()
	}
}

// Close writes what is in the queue, and closes the file.
func (l *Log) Close() error {
	l.closing.Lock()
	if !l.closed {
		l.closed = true
		close(l.queue)
	}
	l.closing.Unlock()
	<-l.ended
	if l.file == nil {
		return l.Err()
	}
	return errors.Join(l.Err(), l.file.Close())
}

func (l *Log) run() {
	defer close(l.ended)
	for e := range l.queue {
		events := append(make([]Event, 0, 16), e)
	more:
		for len(events) < most {
			select {
			case e, ok := <-l.queue:
				if !ok {
					break more
				}
				events = append(events, e)
			default:
				break more
			}
		}
		err := l.write(events)
		if l.o.Sink != nil {
			ctx, cancel := context.WithTimeout(context.Background(), sinkTime)
			err = errors.Join(err, l.o.Sink(ctx, events))
			cancel()
		}
		if err == nil {
			l.written.Add(float64(len(events)))
			l.failed.Store(nil)
			continue
		}
		l.failures.Inc()
		l.lost.Add(float64(len(events)))
		if l.failed.Swap(&err) == nil {
			l.o.Logger.Error("the audit log cannot be written", slog.Any("err", err))
		}
	}
}

// write appends events to the file and syncs it.
func (l *Log) write(events []Event) error {
	if l.o.Path == "" {
		return nil
	}
	if err := l.reopen(); err != nil {
		return err
	}
	var lines bytes.Buffer
	enc := json.NewEncoder(&lines)
	enc.SetEscapeHTML(false)
	for i := range events {
		if err := enc.Encode(&events[i]); err != nil {
			return fmt.Errorf("audit log: %w", err)
		}
	}
	before, err := l.file.Seek(0, 2)
	if err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	if _, err := l.file.Write(lines.Bytes()); err != nil {
		// A part of a line would spoil the next one.
		return errors.Join(fmt.Errorf("audit log: %w", err), l.file.Truncate(before))
	}
	if err := l.file.Sync(); err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	return nil
}

// reopen makes the file anew when it was moved away or removed, as log rotation does.
func (l *Log) reopen() error {
	is, err := l.file.Stat()
	if err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	named, err := os.Stat(l.o.Path)
	if err == nil && os.SameFile(is, named) {
		return nil
	}
	old := l.file
	if err := l.open(); err != nil {
		return err
	}
	return old.Close()
}
