package bucket

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/cockroachdb/errors/oserror"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/segment"
)

// State is what a checkpoint keeps of a log: the files, and the tail that is in none.
type State struct {
	Start millrace.Offset
	Kept  millrace.Offset
	End   millrace.Offset
	Files []FileState
	Tail  []TailBatch
	// Passed is where the start was at PassedMicros, when records below it wait to be
	// let go of; else 0.
	Passed       millrace.Offset
	PassedMicros int64
}

// FileState is a durable file, as far as it is durable.
type FileState struct {
	Base   millrace.Offset
	Length int64 // bytes
	Sealed bool
	// Remote is the copy in the object store; nil when none is known.
	Remote *RemoteFile `json:",omitempty"`
	// Away says that the remote copy is the only one.
	Away bool `json:",omitempty"`
}

// ErrClosed is what Sync says of a log that was closed.
var ErrClosed = errors.New("the log of the bucket is closed")

// Sync makes the files durable and returns what there is.
func (l *Log) Sync() (State, error) {
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	if l.closed.Load() != nil {
		return State{}, ErrClosed
	}
	if l.broken != nil {
		return State{}, fmt.Errorf("bucket.Sync %s: cannot be checkpointed until a restart: %w", l.id, l.broken)
	}
	if l.writer != nil {
		last := l.files[len(l.files)-1]
		if last.file.Size() != last.durable {
			n, err := l.writer.Sync()
			if err != nil {
				l.broken = err
				return State{}, fmt.Errorf("bucket.Sync %s: %w", l.id, err)
			}
			last.durable = n
		}
	}
	v := l.View()
	st := State{Start: v.Start, Kept: v.Kept, End: v.End, Tail: v.tail}
	if v.Passing() != 0 {
		st.Passed, st.PassedMicros = v.passed, v.passedMicros
	}
	for _, f := range l.files {
		if f.file.End() > f.file.ID().Base {
			st.Files = append(st.Files, FileState{Base: f.file.ID().Base, Length: f.durable, Sealed: f.sealed, Remote: f.remote, Away: f.away})
		}
	}
	return st, nil
}

// Restore opens the files of a state and makes the log of them and the tail.
func Restore(id millrace.BucketID, st State, o Options) (_ *Log, err error) {
	l := New(id, st.Start, o)
	v := View{Start: st.Start, Kept: st.Kept, End: st.Kept, passed: st.Passed, passedMicros: st.PassedMicros}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close(err))
		}
	}()
	for _, fs := range st.Files {
		var lf *logFile
		if lf, err = l.open(fs); err != nil {
			return nil, err
		}
		l.files = append(l.files, lf)
		f := lf.file
		v.files = append(v.files, f)
		// The earliest record may lie within the first file.
		if fs.Base > v.End || fs.Base < v.End && len(v.files) > 1 {
			return nil, holeError(id, v.End, fs.Base)
		}
		v.End = f.End()
	}
	l.dirMade = len(st.Files) > 0
	l.view.Store(&v)
	for _, b := range st.Tail {
		if b.Header.Base != l.View().End {
			return nil, holeError(id, l.View().End, b.Header.Base)
		}
		l.Append(b)
	}
	return l, nil
}

// open opens a file of a state, from the object store when there is no sound local one.
func (l *Log) open(fs FileState) (*logFile, error) {
	fid := segment.FileID{Cluster: l.o.Cluster, Bucket: l.id, Base: fs.Base}
	lf := &logFile{durable: fs.Length, sealed: fs.Sealed, remote: fs.Remote, away: fs.Away}
	remote := fs.Remote != nil && l.o.OpenRemote != nil
	var err error
	switch {
	case fs.Away && !remote:
		return nil, errs.New(errs.CorruptData, "%s/%s is in the object store alone, and there is none: set remote-uri to what it was", l.o.Dir, segment.FileName(fs.Base))
	case fs.Away:
		lf.goAway(l.openRemote(fid, fs.Remote))
		return lf, nil
	case fs.Sealed:
		lf.file, err = segment.OpenSealed(l.o.FS, l.o.Dir, fid)
	default:
		lf.file, err = segment.OpenUnsealed(l.o.FS, l.o.Dir, fid, fs.Length)
	}
	if oserror.IsNotExist(err) {
		err = errs.New(errs.CorruptData, "%s/%s is named by the manifest and is not there", l.o.Dir, segment.FileName(fs.Base))
	}
	switch {
	case err == nil && remote:
		src, _ := l.o.OpenRemote(fs.Remote.Key, fs.Remote.Bytes)
		return lf, lf.file.SetSecond(src)
	case err != nil && remote && errs.Is(err, errs.CorruptData):
		l.o.Logger.Error("a segment is damaged, its copy in the object store is read", slog.String("bucket", l.id.String()), slog.Any("err", err))
		lf.goAway(l.openRemote(fid, fs.Remote))
		return lf, nil
	}
	return lf, err
}

// Close lets go of the files. Readers that have one open read on; others are told
// the reason.
func (l *Log) Close(reason error) error {
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	if !l.closed.CompareAndSwap(nil, &reason) {
		return nil
	}
	var err error
	if l.writer != nil {
		err = l.writer.Close()
		l.writer = nil
	}
	l.mu.Lock()
	v := *l.view.Load()
	v.files = nil
	v.Kept = v.tailStart()
	v.Start = max(v.Start, v.Kept)
	l.view.Store(&v)
	l.mu.Unlock()
	for _, f := range l.files {
		err = errors.Join(err, f.file.Close())
	}
	l.files = nil
	return err
}

func holeError(id millrace.BucketID, end, base millrace.Offset) error {
	return errs.New(errs.CorruptData, "the log of bucket %s has a hole: after offset %d comes %d", id, end, base)
}
