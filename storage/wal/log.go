package wal

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// Kind says what an entry is about. The numbers are in files and only ever added to.
type Kind uint8

// The kinds of entries. What their data means is the shard's affair, except for Epoch.
const (
	Data       Kind = 1 // rows of a bucket, as they were decided
	Epoch      Kind = 2 // a new owner begins; see EpochEntry
	BucketOpen Kind = 3
	BucketSeal Kind = 4
	BucketDrop Kind = 5
	IDRange    Kind = 6 // a range of auto-increment values was handed out
	Noop       Kind = 7
	BucketTrim Kind = 8
)

// lastKind is the highest kind that this release can read.
const lastKind = BucketTrim

var kindNames = [...]string{Data: "data", Epoch: "epoch", BucketOpen: "bucket-open", BucketSeal: "bucket-seal", BucketDrop: "bucket-drop", IDRange: "id-range", Noop: "noop", BucketTrim: "bucket-trim"}

// String is the kind's name in the documents.
func (k Kind) String() string {
	if k == 0 || k > lastKind {
		return fmt.Sprintf("kind(%d)", uint8(k))
	}
	return kindNames[k]
}

// Sizes that every implementation keeps.
const (
	// MaxRecordBytes bounds a record, header included: it fits the default
	// payload limit of NATS with room for headers.
	MaxRecordBytes = 896 << 10
	// MaxEntryBytes bounds an entry's data; a larger one is refused (errs.TooLarge).
	// A message of 64 MiB that updates rows becomes a few times as much.
	MaxEntryBytes = 256 << 20
	// MaxAppendBytes bounds the entries of one Append together, each with 8 bytes
	// for its header; more is refused (errs.TooLarge).
	MaxAppendBytes = 320 << 20
)

// Entry is one thing that happened, whole: a reader gets all of it or nothing.
type Entry struct {
	Kind Kind
	// Ignorable lets a release that does not know the kind go on without it.
	Ignorable bool
	Data      []byte
	// More is the rest of the data, in pieces, so that what is large need not be
	// copied to be appended. Replay gives all of it as Data.
	More [][]byte
}

// Len is the length of the data.
func (e *Entry) Len() int {
	n := len(e.Data)
	for _, p := range e.More {
		n += len(p)
	}
	return n
}

// pieces are the data, piece by piece.
func (e *Entry) pieces() [][]byte {
	if len(e.More) == 0 {
		return [][]byte{e.Data}
	}
	return append([][]byte{e.Data}, e.More...)
}

// EpochEntry is the entry with which an owner begins its epoch. It raises the
// epoch of the record it is in and of all later ones.
func EpochEntry(e millrace.Epoch) Entry {
	return Entry{Kind: Epoch, Data: binary.LittleEndian.AppendUint64(nil, uint64(e))}
}

// EpochOf reads the data of an entry of kind Epoch.
func EpochOf(e Entry) (millrace.Epoch, error) {
	if e.Kind != Epoch || len(e.Data) != 8 {
		return 0, errs.New(errs.CorruptData, "an epoch entry has %d bytes of kind %s instead of 8", len(e.Data), e.Kind)
	}
	return millrace.Epoch(binary.LittleEndian.Uint64(e.Data)), nil
}

// Tail is where a log ends: after its last durable record.
type Tail struct {
	// LogID is the log's incarnation: drawn once when the log is begun. Local
	// state belongs to a log when LogID, LSN and Hash match.
	LogID uint64
	LSN   millrace.LSN // 0 before the first record
	Hash  uint64       // chain hash of that record, which covers all records before it
	Epoch millrace.Epoch
}

// Log is one shard's log. Package waltest holds the suite that every
// implementation passes.
type Log interface {
	// Append makes entries durable, in order, after everything appended before,
	// and returns the LSN of the last record they are in. Entries are packed into
	// records of at most MaxRecordBytes; a larger one is cut into fragments.
	// The data may be reused when Append returns. No entries: the tail's LSN.
	//
	// On an error of code errs.UnknownOutcome the entries, or the first few of
	// them, may be in the log when it is opened again; on any other error they
	// never will be. errs.NotOwner: another has written to the log, so that this
	// owner is deposed. After both, and after any error that wraps ErrStopped, the
	// log takes no more until it is opened again; after others it may be tried
	// again. An epoch entry must be above the tail's epoch (it panics).
	//
	// One Append runs at a time on a shard; those of different shards share an
	// fsync. ctx is looked at before anything is written, not after: a write that
	// was begun is waited for, since its outcome matters.
	Append(ctx context.Context, entries []Entry) (millrace.LSN, error)

	// Replay calls fn with every entry that ends in a record after the given LSN,
	// whole, in order, with the LSN and the epoch of that record. Data is valid
	// during the call only. It reads what was durable when it was called.
	// Entries of unknown kinds are left out when they are ignorable.
	//
	// Errors: fn's own, as it is; errs.CorruptData, naming file and byte offset
	// (fn has seen everything before the damage); errs.NotImplemented when the
	// log was written by a newer release; an error that wraps ErrPurged, of code
	// errs.CorruptData, when records after the given LSN were purged.
	Replay(ctx context.Context, after millrace.LSN, fn func(lsn millrace.LSN, epoch millrace.Epoch, e Entry) error) error

	// Purge says that records up to and including upTo are not needed any more.
	// They go when it suits the implementation. A lower value than before, or one
	// beyond the tail, has no effect of its own.
	Purge(ctx context.Context, upTo millrace.LSN) error

	// Refresh reads the end of the log anew, where others may have written to it, and
	// returns it; Tail returns it from then on. It is how an owner begins, and how one
	// that only reads sees what was appended since: Replay goes up to what was there
	// when it was called or, where that is later, to the Tail.
	Refresh(ctx context.Context) (Tail, error)

	// Tail is the end of the log. Whether it is behind what the caller remembers
	// is for the caller to check.
	Tail() Tail

	// HashAt is the chain hash of the record with an LSN, so that what was made of the
	// log up to there can be compared with it. ok is not set when the log does not
	// tell: the record is beyond its end, or it and the one after it were purged.
	HashAt(ctx context.Context, lsn millrace.LSN) (hash uint64, ok bool, err error)
}

// ErrPurged is wrapped by the error of a Replay from a place that was purged: what
// stands there has to come from a checkpoint.
var ErrPurged = errors.New("the log begins behind them")

// ErrStopped is wrapped by the error of an Append to a log that takes no more until
// it is opened again.
var ErrStopped = errors.New("the log takes no more")
