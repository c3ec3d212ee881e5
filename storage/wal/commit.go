package wal

import (
	"fmt"
	"log/slog"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/internal/sharedwrite"
)

const (
	// maxGroupBytes ends a group; what waits goes into the next.
	maxGroupBytes = 16 << 20
	// gatherBytes is the most that is copied to make one write of several pieces.
	gatherBytes = 256 << 10
	// gatherBelow is the size from which a piece is written by itself.
	gatherBelow = 64 << 10
)

// appendFile is the file that is being written.
type appendFile struct {
	f      vfs.File // nil when the next write must begin another file
	number uint64
	start  int64   // of the frames
	next   stamper // behind what is durable
}

// commitLoop writes what has been submitted, group by group, until Close.
func (f *Files) commitLoop() {
	defer close(f.done)
	var group []*request
	for {
		f.mu.Lock()
		group = takeGroup(&f.mu.queue, group[:0])
		closed := f.mu.closed
		f.mu.Unlock()
		switch {
		case len(group) > 0:
			f.commit(group)
		case closed:
			return
		default:
			<-f.wake
		}
	}
}

func takeGroup(queue *[]*request, group []*request) []*request {
	var size int64
	for _, r := range *queue {
		if size += r.size; size > maxGroupBytes && len(group) > 0 {
			break
		}
		group = append(group, r)
	}
	*queue = slices.Delete(*queue, 0, len(group))
	return group
}

// commit makes a group durable and answers it.
func (f *Files) commit(group []*request) {
	w := &f.writing
	w.frames, w.pieces = w.frames[:0], w.pieces[:0]
	var size int64
	for _, r := range group {
		w.frames, w.pieces, size = append(w.frames, r.frames...), append(w.pieces, r.pieces...), size+r.size
	}
	err := f.Err()
	switch {
	case err != nil:
	case f.cur.f == nil || (f.cur.next.off > f.cur.start && f.cur.next.off+size > f.opts.RotateBytes):
		err = f.rotate(w)
	default:
		err = f.extend(w)
	}
	if err == nil {
		f.account(group, size)
	}
	clear(w.frames) // what they are of may be large
	clear(w.pieces)
	for _, r := range group {
		r.done <- err
	}
}

// account moves the heads behind a group that is durable.
func (f *Files) account(group []*request, size int64) {
	f.mu.Lock()
	for _, r := range group {
		f.mu.heads[r.shard].Tail = r.tail
		f.met.records.Add(float64(len(r.frames)))
	}
	last := &f.mu.spans[len(f.mu.spans)-1]
	grown := f.cur.next.off - last.end
	last.end = f.cur.next.off
	f.mu.Unlock()
	f.met.bytes.Add(float64(size))
	f.met.size.Add(float64(grown))
	f.met.group.Observe(float64(len(group)))
}

// writing is what goes into one write.
type writing struct {
	frames [][]byte // to be stamped
	pieces [][]byte
}

// extend appends a group to the current file.
func (f *Files) extend(w *writing) error {
	next := f.cur.next
	next.group = next.off
	for _, b := range w.frames {
		next.stamp(b)
	}
	if err := f.write(f.cur.f, w.pieces); err != nil {
		return f.disown(err)
	}
	if err := f.sync(f.cur.f); err != nil {
		return f.die("fsync of", err)
	}
	f.cur.next = next
	return nil
}

// write writes the buffers one after the other, small ones together.
func (f *Files) write(file vfs.File, bufs [][]byte) error {
	f.gather = f.gather[:0]
	flush := func() error {
		if len(f.gather) == 0 {
			return nil
		}
		_, err := file.Write(f.gather)
		f.gather = f.gather[:0]
		return err
	}
	for _, b := range bufs {
		small := len(bufs) > 1 && len(b) < gatherBelow
		if !small || len(f.gather)+len(b) > gatherBytes {
			if err := flush(); err != nil {
				return err
			}
		}
		if small {
			f.gather = append(f.gather, b...)
			continue
		}
		if err := sharedwrite.Write(file, b); err != nil {
			return err
		}
	}
	return flush()
}

// sync makes what was written durable, the file's length included.
func (f *Files) sync(file vfs.File) error {
	if f.opts.Clock == nil {
		return file.SyncData()
	}
	begun := f.opts.Clock.Now()
	err := file.SyncData()
	f.met.fsync.Observe(f.opts.Clock.Now().Sub(begun).Seconds())
	return err
}

// die stops the log for good: what is on disk is not known any more (W6). The
// error returned is for the group that was being written.
func (f *Files) die(what string, cause error) error {
	name := f.path(f.cur.number, fileSuffix)
	f.mu.Lock()
	f.mu.dead = errs.Wrap(errs.Unavailable, "wal", fmt.Errorf("%w: %s %s failed (%w): check the disk and start again", ErrStopped, what, name, cause))
	f.mu.Unlock()
	f.met.failed.Set(1)
	f.opts.Logger.Error("log stopped", slog.String("file", name), slog.String("operation", what), slog.Any("err", cause))
	return errs.New(errs.UnknownOutcome, "%s %s failed (%v): the write may be there after the next start", what, name, cause)
}

// Close answers what was submitted, stops the committer and closes the file. Later
// Appends get errs.Draining.
func (f *Files) Close() error {
	f.mu.Lock()
	if !f.mu.closed {
		f.mu.closed = true
		close(f.wake) // nobody sends any more: submit looks at closed under mu
	}
	f.mu.Unlock()
	<-f.done
	f.closing.Do(func() {
		f.closed = f.retire()
	})
	return f.closed
}

// retire closes the current file; the next write begins another.
func (f *Files) retire() error {
	if f.cur.f == nil {
		return nil
	}
	err := f.cur.f.Close()
	f.cur.f = nil
	if err != nil {
		return f.fileError("closing", f.path(f.cur.number, fileSuffix), err)
	}
	return nil
}
