package bucket

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/cockroachdb/pebble/v2/vfs"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/segment"
)

const (
	// A columnar batch at least this large is stored as it lies; smaller ones, and
	// rows, are merged into one.
	mergeBelowBytes = 256 << 10
	// A merged batch gathers about this many bytes, so that it stays near 2 MiB,
	// and at most this many rows and bytes before compression, so that a decoded
	// one stays small.
	mergeTargetBytes    = 2 << 20
	mergeTargetRows     = 128 << 10
	mergeTargetRawBytes = 8 << 20
	// gatherTargetBytes is what is gathered of the tail for a read: each that is under way
	// holds as much for as long as its client takes for it.
	gatherTargetBytes = 1 << 20
)

// target is how much a run of batches gathers: bytes as they lie, and as they take without
// compression, and rows.
type target struct {
	bytes int
	raw   int64
	rows  int
}

var (
	mergeTarget  = target{mergeTargetBytes, mergeTargetRawBytes, mergeTargetRows}
	gatherTarget = target{gatherTargetBytes, gatherTargetBytes, mergeTargetRows}
)

// Flush moves the batches of the tail that end at or before upTo into segment
// files, merging small ones, and returns how many bytes left the memory. It does
// not sync. schemas and to are the table's schemas and the newest of them.
func (l *Log) Flush(upTo millrace.Offset, schemas segment.Schemas, to *millrace.Schema) (freed int64, err error) {
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	for l.closed.Load() == nil {
		v := l.View()
		run := nextRun(v.tail, upTo, mergeTarget)
		if run == 0 {
			return freed, nil
		}
		n, err := l.store(v.tail[:run], schemas, to)
		if err != nil {
			return freed, fmt.Errorf("bucket.Flush %s: %w", l.id, err)
		}
		freed += n
	}
	return freed, nil
}

// nextRun is how many batches at the front of the tail become one.
func nextRun(tail []TailBatch, upTo millrace.Offset, most target) int {
	var bytes, rows, n int
	var raw int64
	for _, b := range tail {
		if b.Header.End() > upTo {
			break
		}
		bytes += len(b.Payload)
		rows += b.Header.Rows
		raw += b.raw
		if n > 0 && (bytes > most.bytes || rows > most.rows || raw > most.raw || !small(b)) {
			break
		}
		n++
		if !small(b) {
			break
		}
	}
	return n
}

func small(b TailBatch) bool {
	return b.rows || len(b.Payload) < mergeBelowBytes
}

// store writes a run of batches, or its beginning, as one and takes them out of
// the tail.
func (l *Log) store(run []TailBatch, schemas segment.Schemas, to *millrace.Schema) (int64, error) {
	h, payload, run, err := encodeRun(l.id, run, schemas, to, l.o.Codec)
	if err != nil {
		return 0, err
	}
	var freed int64
	for _, b := range run {
		freed += int64(len(b.Payload))
	}
	if err := l.roll(h.Base); err != nil {
		return 0, err
	}
	if _, err := l.writer.Append(&h, payload); err != nil {
		// The writer takes no more. What the file held before stays, the batches
		// stay in the tail, and the next flush begins a new file.
		return 0, errors.Join(err, l.closeWriter())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	v := *l.view.Load()
	v.tail = slices.Clone(v.tail[len(run):])
	v.bytes -= freed
	if f := l.files[len(l.files)-1].file; len(v.files) == 0 || v.files[len(v.files)-1] != f {
		v.files = append(slices.Clone(v.files), f)
	}
	l.view.Store(&v)
	return freed, nil
}

// encodeRun makes one stored batch of a run, or of as much of its beginning as fits
// into one. A compact row can take a thousand times its bytes as columns (NULLs of
// wide types); rows that do not fit at all stay compact.
func encodeRun(id millrace.BucketID, run []TailBatch, schemas segment.Schemas, to *millrace.Schema, codec segment.Codec) (segment.BatchHeader, []byte, []TailBatch, error) {
	for {
		if len(run) == 1 && !small(run[0]) {
			return run[0].Header, run[0].Payload, run, nil
		}
		h, payload, err := mergeRun(id, run, schemas, to, codec)
		switch {
		case !errs.Is(err, errs.TooLarge):
			return h, payload, run, err
		case len(run) == 1:
			return run[0].Header, run[0].Payload, run, nil
		}
		run = run[:len(run)/2]
	}
}

func mergeRun(id millrace.BucketID, run []TailBatch, schemas segment.Schemas, to *millrace.Schema, codec segment.Codec) (segment.BatchHeader, []byte, error) {
	parts := make([]*segment.Payload, len(run))
	var times []segment.TimeRun
	for i, b := range run {
		p, err := segment.OpenBytes(b.Payload)
		if err != nil {
			return segment.BatchHeader{}, nil, err
		}
		parts[i] = p
		for _, t := range b.Header.Times {
			if n := len(times); n > 0 && times[n-1].Micros == t.Micros {
				times[n-1].Rows += t.Rows
			} else {
				times = append(times, t)
			}
		}
	}
	payload, err := segment.Merge(nil, memory.DefaultAllocator, schemas, to, parts, segment.EncodeOptions{Codec: codec})
	if err != nil {
		return segment.BatchHeader{}, nil, err
	}
	p, err := segment.OpenBytes(payload)
	if err != nil {
		return segment.BatchHeader{}, nil, err
	}
	return segment.StampPayload(p, id, run[0].Header.Base, times...), payload, nil
}

// roll makes sure that there is a file to write to, which the batch at base can follow.
func (l *Log) roll(base millrace.Offset) error {
	if l.writer != nil && (l.files[len(l.files)-1].file.Size() >= l.o.SealBytes || l.expiring()) {
		if err := l.seal(); err != nil {
			return err
		}
	}
	if l.writer != nil {
		return nil
	}
	if err := l.makeDir(); err != nil {
		return err
	}
	w, err := segment.Create(l.o.FS, l.o.Dir, segment.FileID{Cluster: l.o.Cluster, Bucket: l.id, Base: base})
	if err != nil {
		return err
	}
	l.writer = w
	l.files = append(l.files, &logFile{file: w.File()})
	return nil
}

// seal ends the file being written with its footer.
func (l *Log) seal() error {
	if err := l.writer.Seal(); err != nil {
		return errors.Join(err, l.closeWriter())
	}
	f := l.files[len(l.files)-1]
	f.sealed, f.durable = true, f.file.Size()
	l.writer = nil
	return nil
}

// closeWriter ends the file being written without a footer, after an error. When
// what it holds cannot be made durable, the log cannot be checkpointed any more: the
// records stay in the write-ahead log, from which a restart reads them again.
func (l *Log) closeWriter() error {
	n, err := l.writer.Sync()
	if err != nil {
		l.broken = fmt.Errorf("segment %s: %w", l.files[len(l.files)-1].file.Path(), err)
	}
	last := l.files[len(l.files)-1]
	last.durable = n
	err = errors.Join(err, l.writer.Close())
	l.writer = nil
	if last.file.End() == last.file.ID().Base {
		// It holds nothing, and the next file has its name: it must not be let go of by
		// that name later.
		l.files = l.files[:len(l.files)-1]
		err = errors.Join(err, last.file.Close())
	}
	return err
}

// makeDir makes the bucket's directory and every new one above it durable.
func (l *Log) makeDir() error {
	if l.dirMade {
		return nil
	}
	if err := l.o.FS.MkdirAll(l.o.Dir, 0o755); err != nil {
		return err
	}
	for d := l.o.Dir; ; d = path.Dir(d) {
		if err := SyncDir(l.o.FS, d); err != nil {
			return err
		}
		if d == l.o.Root || !strings.HasPrefix(d, l.o.Root) {
			break
		}
	}
	l.dirMade = true
	return nil
}

// SyncDir makes a directory's entries durable.
func SyncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	if err := d.Sync(); err != nil {
		_ = d.Close() // the sync's error says more
		return err
	}
	return d.Close()
}
