package flightsvc

import (
	"bytes"
	"slices"
	"sync"

	"github.com/apache/arrow-go/v18/arrow/flight"

	"github.com/millrace/millrace/router"
)

// acks holds what of a stream is durable and tells its client: at the end, or as
// it grows. Only the newest state is kept, so a client that does not read costs
// nothing and holds up only the goroutine in send.
type acks struct {
	out     messageSender
	streams bool
	// numbered says that batches have numbers of a writer.
	numbered bool
	changed  chan struct{} // capacity 1
	last     chan struct{} // closed by finish
	sent     chan struct{} // closed when send is done
	sendErr  error         // of send
	failing  bool          // set before last is closed: the stream ends in an error
	bytes    int           // sent so far

	mu      sync.Mutex
	seq     uint64
	rows    int64
	offsets map[string]router.Range
	news    bool // not sent yet
}

func newAcks(out messageSender, streams, numbered bool) *acks {
	return &acks{
		out: out, streams: streams, numbered: numbered, changed: make(chan struct{}, 1), last: make(chan struct{}), sent: make(chan struct{}),
		offsets: map[string]router.Range{},
	}
}

// add takes a batch that is durable.
func (a *acks) add(seq uint64, rows int64, offsets map[string]router.Range) {
	a.mu.Lock()
	a.seq, a.rows, a.news = seq, a.rows+rows, true
	for key, r := range offsets {
		// Ranges of a bucket grow together; what others wrote in between is in them.
		if had, ok := a.offsets[key]; ok {
			r.Start, r.End = min(r.Start, had.Start), max(r.End, had.End)
		}
		a.offsets[key] = r
	}
	a.mu.Unlock()
	if a.streams {
		select {
		case a.changed <- struct{}{}:
		default:
		}
	}
}

func (a *acks) taken() (seq uint64, rows int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.seq, a.rows
}

// ready tells the client of a stream of acknowledgements that its descriptor and
// schema are accepted: many see an error only when they read.
func (a *acks) ready() error {
	if !a.streams {
		return nil
	}
	a.mu.Lock()
	a.news = true
	a.mu.Unlock()
	return a.sendNews()
}

// sendNews sends an acknowledgement if there is anything new.
func (a *acks) sendNews() error {
	a.mu.Lock()
	var b []byte
	if a.news {
		a.news = false
		b = a.textLocked()
	}
	a.mu.Unlock()
	if b == nil {
		return nil
	}
	return a.sendResult(b)
}

// textLocked is the acknowledgement as of now.
// REQUIRES: a.mu is held.
func (a *acks) textLocked() []byte {
	return appendJSON(nil, struct {
		Seq     uint64                  `json:"ack_seq"`
		Rows    int64                   `json:"ack_rows"`
		Offsets map[string]router.Range `json:"offsets"`
	}{a.seq, a.rows, a.offsets})
}

func (a *acks) sendResult(b []byte) error {
	a.bytes += len(b) + 16 // and the frame around it
	return a.out.SendMsg(&flight.PutResult{AppMetadata: b})
}

// Unread, a client's end of a stream takes at least 64 KiB less a byte, as HTTP/2
// has it; gRPC takes 64 KiB more before it makes a sender wait.
const (
	surelyTaken = 48 << 10
	grpcTakes   = 64 << 10
)

// probe comes back when the client reads. A status goes out behind what was sent
// before it: to a client that reads nothing it would not get, and since the call is
// over then, nobody would take what the client still sends, and it would hang.
func (a *acks) probe() error {
	if a.bytes <= surelyTaken {
		return nil
	}
	a.mu.Lock()
	b := a.textLocked()
	a.mu.Unlock()
	long := append(slices.Clone(b), bytes.Repeat([]byte{' '}, grpcTakes)...)
	if err := a.sendResult(long); err != nil {
		return err
	}
	return a.sendResult(b)
}

// send sends acknowledgements until finish is called. It runs in a goroutine of
// its own.
func (a *acks) send() {
	defer close(a.sent)
	for {
		select {
		case <-a.changed:
		case <-a.last:
			if a.sendErr = a.sendNews(); a.sendErr == nil && a.failing {
				a.sendErr = a.probe()
			}
			return
		}
		if a.sendErr = a.sendNews(); a.sendErr != nil {
			return
		}
	}
}

// finish sends what was not sent yet, when nothing more is added. done is closed
// after that; when the stream ends in an error, after its client can learn of it.
func (a *acks) finish(failing bool) (done <-chan struct{}) {
	a.failing = failing
	close(a.last)
	return a.sent
}

// final sends the one result of a stream without acknowledgements.
func (a *acks) final() error {
	a.mu.Lock()
	var last *uint64
	if a.numbered && a.seq > 0 {
		last = new(a.seq)
	}
	b := appendJSON(nil, struct {
		Rows    int64                   `json:"rows"`
		Offsets map[string]router.Range `json:"offsets"`
		LastSeq *uint64                 `json:"last_seq,omitempty"`
	}{a.rows, a.offsets, last})
	a.mu.Unlock()
	return a.out.SendMsg(&flight.PutResult{AppMetadata: b})
}
