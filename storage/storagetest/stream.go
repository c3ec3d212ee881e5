package storagetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"sync"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/wal"
)

// Stream is the log of one shard that several processes write and follow, each through
// a StreamLog: what a record is appended behind is compared, as in a cluster.
type Stream struct {
	mu      sync.Mutex
	id      uint64
	records []streamRecord // from purged+1 on
	purged  wal.Tail
	// Fault says, of each record about to be appended, what goes wrong; nil: nothing.
	Fault func() Fault
	// Cuts says, of each entry about to be read, whether the reading ends there; nil:
	// it does not.
	Cuts func() bool
}

type streamRecord struct {
	tail    wal.Tail
	entries []wal.Entry // that end in it
}

// Fault is what goes wrong with an append.
type Fault int

// The faults.
const (
	NoFault  Fault = iota
	Refused        // nothing is written, and the log goes on
	Vanished       // nothing is written, and nobody knows
	Unheard        // it is written, and nobody knows
)

// NewStream is an empty log.
func NewStream(id uint64) *Stream { return &Stream{id: id, purged: wal.Tail{LogID: id}} }

// SetFault sets Fault.
func (s *Stream) SetFault(f func() Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Fault = f
}

// SetBack takes records off the end, as a log does that lost what it acknowledged.
func (s *Stream) SetBack(to millrace.LSN) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.records) > 0 && s.records[len(s.records)-1].tail.LSN > to {
		s.records = s.records[:len(s.records)-1]
	}
}

// Purged is up to where the log was purged.
func (s *Stream) Purged() millrace.LSN {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.purged.LSN
}

func (s *Stream) tailLocked() wal.Tail {
	if n := len(s.records); n > 0 {
		return s.records[n-1].tail
	}
	return s.purged
}

// Open is the log as one process has it.
func (s *Stream) Open() *StreamLog {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &StreamLog{s: s, tail: s.tailLocked()}
}

// StreamLog is a wal.Log over a Stream.
type StreamLog struct {
	s    *Stream
	mu   sync.Mutex // one Append at a time
	tail wal.Tail
	dead error
	cut  bool
	keep bool
}

// Cut ends what the process can do to the log, as when it is killed.
func (l *StreamLog) Cut() {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.cut = true
	if l.dead == nil {
		l.dead = errs.New(errs.NotOwner, "the process was killed")
	}
}

var _ wal.Log = (*StreamLog)(nil)

// streamRecordBytes is the size from which entries span records, or share none.
const streamRecordBytes = 4 << 10

// Append appends records one by one; entries that are small share one.
func (l *StreamLog) Append(ctx context.Context, entries []wal.Entry) (millrace.LSN, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var r streamRecord
	var size int
	first := true
	flush := func() error {
		err := l.publish(&r, first)
		r, size, first = streamRecord{}, 0, false
		return err
	}
	for _, e := range entries {
		data := append([]byte(nil), e.Data...)
		for _, m := range e.More {
			data = append(data, m...)
		}
		size += len(data)
		for ; size > streamRecordBytes; size -= streamRecordBytes {
			if err := l.publish(&r, first); err != nil {
				return 0, err
			}
			r, first = streamRecord{}, false
		}
		r.entries = append(r.entries, wal.Entry{Kind: e.Kind, Ignorable: e.Ignorable, Data: data})
		if e.Kind == wal.Epoch {
			r.tail.Epoch, _ = wal.EpochOf(e)
		}
	}
	if len(r.entries) > 0 {
		if err := flush(); err != nil {
			return 0, err
		}
	}
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	return l.tail.LSN, nil
}

func (l *StreamLog) publish(r *streamRecord, first bool) error {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.dead != nil {
		return errs.Wrap(errs.NotOwner, "stream", fmt.Errorf("%w: %w", wal.ErrStopped, l.dead))
	}
	fault := NoFault
	if s.Fault != nil {
		fault = s.Fault()
	}
	if fault == Refused && first {
		return errs.New(errs.Unavailable, "the stream is away")
	}
	end := s.tailLocked()
	if l.tail != end {
		if first {
			l.dead = errs.New(errs.NotOwner, "record %d is another's", l.tail.LSN+1)
		} else {
			l.dead = errs.New(errs.UnknownOutcome, "record %d is another's; what came before it is there", l.tail.LSN+1)
		}
		return l.dead
	}
	if fault != Vanished {
		h := fnv.New64a()
		_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, end.Hash))
		for _, e := range r.entries {
			_, _ = h.Write(append([]byte{byte(e.Kind)}, e.Data...))
		}
		r.tail = wal.Tail{LogID: s.id, LSN: end.LSN + 1, Hash: h.Sum64() ^ uint64(end.LSN+1), Epoch: max(r.tail.Epoch, end.Epoch)}
		s.records = append(s.records, *r)
		l.tail = r.tail
	}
	if fault == Vanished || fault == Unheard {
		l.dead = errs.New(errs.UnknownOutcome, "no answer came")
		return l.dead
	}
	return nil
}

// Replay gives the entries after a record.
func (l *StreamLog) Replay(ctx context.Context, after millrace.LSN, fn func(millrace.LSN, millrace.Epoch, wal.Entry) error) error {
	s := l.s
	s.mu.Lock()
	purged, records, cuts := s.purged.LSN, s.records, s.Cuts
	s.mu.Unlock()
	if after < purged {
		return errs.Wrap(errs.CorruptData, "stream", fmt.Errorf("records %d to %d were purged: %w", after+1, purged, wal.ErrPurged))
	}
	for _, r := range records {
		if r.tail.LSN <= after {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		for _, e := range r.entries {
			if cuts != nil && cuts() {
				return errs.New(errs.Unavailable, "the stream went away")
			}
			e.Data = bytes.Clone(e.Data)
			if err := fn(r.tail.LSN, r.tail.Epoch, e); err != nil {
				return err
			}
			clear(e.Data) // it is valid during the call only
		}
	}
	return nil
}

// Purge removes records.
func (l *StreamLog) Purge(_ context.Context, upTo millrace.LSN) error {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	for !l.cut && !l.keep && len(s.records) > 0 && s.records[0].tail.LSN <= upTo {
		s.purged, s.records = s.records[0].tail, s.records[1:]
	}
	return nil
}

// Tail is the end as this process knows it.
func (l *StreamLog) Tail() wal.Tail {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	return l.tail
}

// Refresh reads the end anew.
func (l *StreamLog) Refresh(ctx context.Context) (wal.Tail, error) {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return wal.Tail{}, err
	}
	l.tail = l.s.tailLocked()
	return l.tail, nil
}

// HashAt is the hash of a record.
func (l *StreamLog) HashAt(_ context.Context, lsn millrace.LSN) (uint64, bool, error) {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if lsn == l.s.purged.LSN {
		return l.s.purged.Hash, true, nil
	}
	for _, r := range l.s.records {
		if r.tail.LSN == lsn {
			return r.tail.Hash, true, nil
		}
	}
	return 0, false, nil
}

// Begin makes it another log, and empty.
func (s *Stream) Begin(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id, s.records, s.purged = id, nil, wal.Tail{LogID: id}
}

// Noop appends a record that changes nothing.
func (s *Stream) Noop() {
	l := s.Open()
	if _, err := l.Append(context.Background(), []wal.Entry{{Kind: wal.Noop}}); err != nil {
		panic(err)
	}
}

// KeepAll makes purges of this process do nothing.
func (l *StreamLog) KeepAll() {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.keep = true
}
