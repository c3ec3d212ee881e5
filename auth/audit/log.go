package audit

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/errs"
)

// Clock tells the time.
type Clock interface {
	Now() time.Time
}

// Sink writes events into a table. When it fails it is given the same events again, under the
// same number.
type Sink func(ctx context.Context, number uint64, events []Event) error

// Options are settings and components.
type Options struct {
	// Path of the file; "" when there is none.
	Path string
	// Table says that events go into a table; they wait until [Log.Feed] says how.
	Table bool
	// Verbs are those of describe, read and write whose calls are written when they are
	// allowed; nil: all.
	Verbs []string
	// Queue is how many events wait at most; default 10,000.
	Queue int
	// Long is how long a call takes before it is written as begun; default 10 s.
	Long time.Duration
	// Patience is how long a call waits for room, for all of its events in all queues;
	// default 10 s.
	Patience time.Duration
	// Try is how long one try to write may take, and Close; default 10 s.
	Try time.Duration
	// Pause is the time between two tries; default 1 s.
	Pause time.Duration

	Clock      Clock
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

const (
	defaultQueue    = 10_000
	defaultLong     = 10 * time.Second
	defaultPatience = 10 * time.Second
	defaultTry      = 10 * time.Second
	defaultPause    = time.Second
)

func (o *Options) ensureDefaults() {
	if o.Queue == 0 {
		o.Queue = defaultQueue
	}
	if o.Long == 0 {
		o.Long = defaultLong
	}
	if o.Patience == 0 {
		o.Patience = defaultPatience
	}
	if o.Try == 0 {
		o.Try = defaultTry
	}
	if o.Pause == 0 {
		o.Pause = defaultPause
	}
}

// Log writes events.
type Log struct {
	o       Options
	file    *file // nil: there is none
	outputs []*output
	table   *output // of outputs; nil: there is none
}

// Open opens the file, and makes it where it is not there: readable by its owner alone.
func Open(o Options) (*Log, error) {
	o.ensureDefaults()
	l := &Log{o: o}
	m := newMetrics(o.Registerer)
	if o.Path != "" {
		l.file = &file{path: o.Path}
		if err := l.file.open(); err != nil {
			return nil, err
		}
		out := newOutput(&l.o, m, "file")
		out.begin(func(ctx context.Context, _ uint64, events []Event) error { return l.file.write(ctx, events) })
		l.outputs = append(l.outputs, out)
	}
	if o.Table {
		l.table = newOutput(&l.o, m, "table")
		l.table.linger = tableLinger
		l.outputs = append(l.outputs, l.table)
	}
	return l, nil
}

// Feed writes the events of the table from now on, until stop, which writes those that wait.
// REQUIRES: Options.Table.
func (l *Log) Feed(s Sink) (stop func()) {
	l.table.begin(s)
	return l.table.close
}

// Begin begins the record of a call, by a name of its door and operation. A nil Log keeps
// none.
func (l *Log) Begin(requestID, address, door, operation string) *Record {
	if l == nil {
		return nil
	}
	r := &Record{log: l, event: Event{RequestID: clip(requestID), Address: clip(address), Door: door, Operation: clip(operation)}}
	r.timer = time.AfterFunc(l.o.Long, func() { r.write(Begun, false) })
	return r
}

// Err is why events are not written at present; nil while they are.
func (l *Log) Err() error {
	var all []error
	for _, out := range l.outputs {
		all = append(all, out.err())
	}
	return errors.Join(all...)
}

// describe is the verb that all others include.
const describe = "describe"

// Optional lists the verbs that can be left out while they are allowed (D5).
func Optional() []string { return []string{describe, "read", "write"} }

// refusals are the codes of calls that are written whatever was asked for (D5).
var refusals = []errs.Code{errs.Unauthenticated, errs.PermissionDenied, errs.ColumnDenied, errs.QuotaExceeded}

// wants says whether something is to be written (D5).
func (l *Log) wants(a asked, outcome string) bool {
	if l.o.Verbs == nil || a.denied || !slices.Contains(Optional(), a.verb) || slices.Contains(l.o.Verbs, a.verb) {
		return true
	}
	return slices.Contains(refusals, errs.Code(outcome))
}

func (l *Log) add(e *Event, p *patience) {
	for _, out := range l.outputs {
		out.add(e, p)
	}
}

// Close writes what is in the queues, in the time of one try each, and closes the file.
func (l *Log) Close() error {
	for _, out := range l.outputs {
		out.close()
	}
	err := l.Err()
	if l.file != nil {
		err = errors.Join(err, l.file.close())
	}
	return err
}
