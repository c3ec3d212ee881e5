package bucket

import (
	"errors"
	"math"
	"slices"
	"sort"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/storage/segment"
)

// NoLimit lets any batch expire.
const NoLimit millrace.Offset = math.MaxInt64

// Expired is where the log would begin without the stored batches whose last record
// is older than a time (µs) and that end at or before limit, and the time of the last
// record of the batch that would be the first then; math.MaxInt64 when there would be
// none.
func (v *View) Expired(before int64, limit millrace.Offset) (start millrace.Offset, oldest int64) {
	stays := func(end millrace.Offset, lastMicros int64) bool {
		return end > v.Start && (lastMicros >= before || end > limit)
	}
	i := sort.Search(len(v.files), func(i int) bool {
		return stays(v.files[i].End(), v.files[i].MaxTime())
	})
	if i < len(v.files) {
		refs := v.files[i].Batches()
		if len(refs) == 0 { // in the object store, and not read since the start: it expires as a whole
			return max(v.Start, v.files[i].ID().Base), v.files[i].MaxTime()
		}
		ref := refs[sort.Search(len(refs), func(i int) bool { return stays(refs[i].End(), refs[i].MaxTime) })]
		if ref.Base < v.tailStart() { // else it was written after the view was made
			return max(v.Start, ref.Base), ref.MaxTime
		}
	}
	i = sort.Search(len(v.tail), func(i int) bool { return stays(v.tail[i].Header.End(), v.tail[i].Header.MaxTime()) })
	if i == len(v.tail) {
		return v.End, math.MaxInt64
	}
	return max(v.Start, v.tail[i].Header.Base), v.tail[i].Header.MaxTime()
}

// Trim moves the start of the log up to an offset, as of a time (µs). Reads that
// begin from now on see the log from there; those that began before read on below it,
// until Release. It returns how many records the start passed.
// REQUIRES: a batch begins at the offset, or the log ends there.
func (l *Log) Trim(start millrace.Offset, micros int64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := *l.view.Load()
	n := int64(start - v.Start)
	if n <= 0 {
		return 0
	}
	v.Start = start
	if v.passed <= v.Kept {
		v.passed, v.passedMicros = start, micros
	}
	l.view.Store(&v)
	return n
}

// Passing is when the start passed the records that Release lets go of next (µs); 0
// when there are none.
func (v *View) Passing() int64 {
	if v.passed <= v.Kept {
		return 0
	}
	return v.passedMicros
}

// Released is what a log let go of.
type Released struct {
	// Files are for the caller to close, and to remove when no manifest names them.
	Files []*segment.File
	// TailBytes left the memory.
	TailBytes int64
}

// Release lets go of the files and tail batches that lie below where the start was
// at a time before (µs). Since one such place is remembered at a time, what the start
// passed right after it waits as long again from now.
func (l *Log) Release(before, now int64) (Released, error) {
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	if l.closed.Load() != nil {
		return Released{}, nil
	}
	if p := l.View().Passing(); p == 0 || p > before {
		return Released{}, nil
	}
	kept, tailBytes := l.cutBelow(now)
	r := Released{TailBytes: tailBytes}
	err := l.releaseFiles(kept, &r)
	return r, err
}

// cutBelow moves Kept up to the place that the start passed, remembers the next one,
// and takes what lies below out of the view.
func (l *Log) cutBelow(now int64) (kept millrace.Offset, tailBytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := *l.view.Load()
	v.Kept = v.passed
	if v.Start > v.Kept {
		v.passed, v.passedMicros = v.Start, now
	}
	n := 0
	for _, b := range v.tail {
		if b.Header.End() > v.Kept {
			break
		}
		tailBytes += int64(len(b.Payload))
		n++
	}
	v.tail = slices.Clone(v.tail[n:])
	v.bytes -= tailBytes
	v.files = slices.DeleteFunc(slices.Clone(v.files), func(f *segment.File) bool { return f.End() <= v.Kept })
	l.view.Store(&v)
	return v.Kept, tailBytes
}

// releaseFiles takes the files that end at or before kept out of the log, also the
// one being written.
func (l *Log) releaseFiles(kept millrace.Offset, r *Released) error {
	var err error
	n := 0
	for _, f := range l.files {
		if f.file.End() > kept {
			break
		}
		n++
		if n == len(l.files) && l.writer != nil {
			err = errors.Join(err, l.writer.Close())
			l.writer = nil
		}
		r.Files = append(r.Files, f.file)
	}
	l.files = slices.Clone(l.files[n:])
	return err
}

// expiring says whether the file being written begins with records that readers no
// longer see: then it ends, so that they can go when the rest of it has expired, and
// not only when it is full.
func (l *Log) expiring() bool {
	refs := l.files[len(l.files)-1].file.Batches()
	return len(refs) > 0 && refs[0].End() <= l.View().Start
}
