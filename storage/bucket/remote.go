package bucket

import (
	"slices"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/storage/segment"
)

// RemoteFile is the copy of a file in the object store, where all are sealed.
type RemoteFile struct {
	Key     string          `json:"key"`
	Bytes   int64           `json:"bytes"`
	CRC     uint32          `json:"crc"` // CRC32C of all of it
	End     millrace.Offset `json:"end"`
	MaxTime int64           `json:"max_time"` // of its last row, µs
}

// Pinned is a state whose files can be read until Release, whatever becomes of the log.
type Pinned struct {
	State

	// Open are the files of State, in the same order.
	Open []*segment.File
}

// Release lets go of the files.
func (p *Pinned) Release() {
	for _, f := range p.Open {
		_ = f.Close() // read only, and what was read was checked
	}
	p.Open = nil
}

// Pin is Sync, with the files. The caller releases what it returns.
func (l *Log) Pin() (*Pinned, error) {
	st, err := l.Sync()
	if err != nil {
		return nil, err
	}
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	if l.closed.Load() != nil {
		return nil, ErrClosed
	}
	p := &Pinned{State: st}
	for _, f := range l.files {
		if f.file.End() > f.file.ID().Base {
			f.file.Retain()
			p.Open = append(p.Open, f.file)
		}
	}
	return p, nil
}

// Uploaded says that the file at base, to which nothing is written any more, has a copy
// in the object store.
func (l *Log) Uploaded(base millrace.Offset, r RemoteFile) error {
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	for _, f := range l.files {
		if f.file.ID().Base != base || f.file.End() != r.End || l.closed.Load() != nil {
			continue
		}
		f.remote = &r
		if f.away {
			return nil
		}
		src, _ := l.o.OpenRemote(r.Key, r.Bytes)
		return f.file.SetSecond(src)
	}
	return nil // it was let go of meanwhile
}

// SendAway goes on without the local copies of files that the object store has, when
// their last row is older than a time (µs) or they were found damaged. The caller
// closes the files it returns, and removes them when a manifest says that they are
// away.
func (l *Log) SendAway(before int64) []*segment.File {
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	if l.closed.Load() != nil {
		return nil
	}
	var out []*segment.File
	for _, f := range l.files {
		if !f.mayGoAway(before) {
			continue
		}
		local := f.file
		f.goAway(l.openRemote(local.ID(), f.remote))
		l.replace(local, f.file)
		out = append(out, local)
	}
	return out
}

// CanSendAway says whether SendAway would find something.
func (l *Log) CanSendAway(before int64) bool {
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	return slices.ContainsFunc(l.files, func(f *logFile) bool { return f.mayGoAway(before) })
}

func (f *logFile) mayGoAway(before int64) bool {
	return f.remote != nil && !f.away && (f.file.MaxTime() < before || f.file.Damaged())
}

// replace puts a file in the place of another one for those who take a view or open a
// batch from now on.
func (l *Log) replace(old, by *segment.File) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := *l.view.Load()
	v.files = slices.Clone(v.files)
	if i := slices.Index(v.files, old); i >= 0 {
		v.files[i] = by
	}
	l.view.Store(&v)
}

// goAway puts the remote copy in the place of the local one.
func (f *logFile) goAway(remote *segment.File) {
	f.file, f.away, f.sealed, f.durable = remote, true, true, f.remote.Bytes
}

func (l *Log) openRemote(id segment.FileID, r *RemoteFile) *segment.File {
	src, where := l.o.OpenRemote(r.Key, r.Bytes)
	return segment.OpenLater(src, where, id, segment.Outline{Bytes: r.Bytes, End: r.End, MaxTime: r.MaxTime})
}
