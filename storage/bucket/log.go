package bucket

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/segment"
)

// Options says where a bucket's files are and how they are written.
type Options struct {
	FS  vfs.FS
	Dir string // of this bucket; made when the first file is
	// Root is the directory above, which exists and is durable.
	Root    string
	Cluster [16]byte
	// SealBytes is the size at which a file is sealed and the next begun; default 64 MiB.
	SealBytes int64
	Codec     segment.Codec
	Logger    *slog.Logger
	// OpenRemote gives the object that is the copy of a sealed file, and where it is;
	// nil where there is no object store.
	OpenRemote func(key string, bytes int64) (src segment.Source, where string)
}

// Log is the log of one bucket.
type Log struct {
	o    Options
	id   millrace.BucketID
	view atomic.Pointer[View]

	// mu guards the change from one view to the next, and which files are open.
	mu sync.Mutex

	// flushMu is held by Flush, Sync and Close. Taken before mu.
	flushMu sync.Mutex
	files   []*logFile
	writer  *segment.Writer // of the last of files; nil when none is being written
	dirMade bool
	broken  error // set when a file could not be made durable

	closed atomic.Pointer[error] // what readers of files are told after Close
}

type logFile struct {
	file    *segment.File
	durable int64 // bytes known to be durable
	sealed  bool
	remote  *RemoteFile // nil while there is no copy in the object store
	away    bool        // there is no local copy
}

// View is a log as of one moment.
type View struct {
	Start millrace.Offset // the earliest record for who begins to read
	Kept  millrace.Offset // the earliest record there is, for who began before
	End   millrace.Offset // the high watermark
	files []*segment.File // in order
	tail  []TailBatch
	bytes int64 // of the tail

	// The start was at passed, which is above Kept, at passedMicros: from then on a
	// last time runs for what lies below. Nothing waits when passed is not above Kept.
	passed       millrace.Offset
	passedMicros int64
}

// TailBatch is a batch in memory. Its payload is sound: Stamp or Check saw it.
type TailBatch struct {
	Header  segment.BatchHeader
	Payload []byte
	rows    bool  // the payload is row-encoded
	raw     int64 // bytes of the payload before compression
}

// Stamp makes the batch of a payload.
func Stamp(id millrace.BucketID, base millrace.Offset, payload []byte, times ...segment.TimeRun) (TailBatch, error) {
	p, err := segment.OpenBytes(payload)
	if err != nil {
		return TailBatch{}, err
	}
	return TailBatch{
		Header:  segment.StampPayload(p, id, base, times...),
		Payload: payload,
		rows:    p.Encoding() == segment.Rows,
		raw:     p.RawBytes(),
	}, nil
}

// Check makes the batch of a header and payload that were stored together.
func Check(h segment.BatchHeader, payload []byte) (TailBatch, error) {
	p, err := segment.OpenBytes(payload)
	if err != nil {
		return TailBatch{}, err
	}
	if p.MetaCRC() != h.PayloadCRC || p.Rows() != h.Rows {
		return TailBatch{}, errs.New(errs.CorruptData, "the batch at offset %d of bucket %s and its header do not belong together", h.Base, h.Bucket)
	}
	return TailBatch{Header: h, Payload: payload, rows: p.Encoding() == segment.Rows, raw: p.RawBytes()}, nil
}

// New makes an empty log that begins at an offset.
func New(id millrace.BucketID, start millrace.Offset, o Options) *Log {
	if o.SealBytes == 0 {
		o.SealBytes = 64 << 20
	}
	l := &Log{o: o, id: id}
	l.view.Store(&View{Start: start, Kept: start, End: start})
	return l
}

// ID is the bucket's id.
func (l *Log) ID() millrace.BucketID { return l.id }

// View is the log as of now.
func (l *Log) View() *View { return l.view.Load() }

// Append adds batches at the end. The log keeps the payloads.
// REQUIRES: they are durable in the write-ahead log, and follow each other from View().End.
func (l *Log) Append(batches ...TailBatch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := *l.view.Load()
	for _, b := range batches {
		if b.Header.Base != v.End {
			panic("bucket: an appended batch leaves a hole")
		}
		v.End = b.Header.End()
		v.bytes += int64(len(b.Payload))
	}
	// Older views end before these elements, so they may share the array.
	v.tail = append(v.tail, batches...)
	l.view.Store(&v)
}

// TailBytes is the size of the batches in memory.
func (v *View) TailBytes() int64 { return v.bytes }

// Tail is the batches in memory. It must not be changed.
func (v *View) Tail() []TailBatch { return v.tail }

// Bytes is about what the log takes, on disk, in the object store and in memory.
func (v *View) Bytes() int64 {
	n := v.bytes
	for _, f := range v.files {
		n += f.Size()
	}
	return n
}

// tailStart is where the tail begins.
func (v *View) tailStart() millrace.Offset {
	if len(v.tail) == 0 {
		return v.End
	}
	return v.tail[0].Header.Base
}
