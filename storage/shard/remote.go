package shard

import (
	"context"

	"github.com/cockroachdb/pebble/v2/vfs"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/storage/bucket"
	"github.com/millrace/millrace/storage/segment"
)

// Remote is where the checkpoints of one shard also go, so that it can be opened
// elsewhere: package storage/remote is one.
type Remote interface {
	// Publish puts a checkpoint there and fills in what of it lies where: Number and
	// Remote of its manifest, and Remote of its sealed files. When it returns nil, the
	// checkpoint is the newest one and can be restored. errs.NotOwner says that an owner
	// of a higher epoch has published; the error wraps ErrUnnamed when the newest
	// checkpoint there does not name a file that is nowhere else.
	Publish(ctx context.Context, c *RemoteCheckpoint) error
	// Newest is the manifest of the newest checkpoint that reads; nil when there is none.
	Newest(ctx context.Context) (*Manifest, error)
	// Restore fetches the state and tails of the newest checkpoint that accept takes
	// and that is whole into a directory, which is made: state/, and a file for each of
	// the tails, by TailsFile. One that is damaged is passed over for the one before. It
	// returns the manifest; nil when there is none at all.
	Restore(ctx context.Context, fs vfs.FS, dir string, accept func(*Manifest) error) (*Manifest, error)
	// Open gives an object to read, and says where it is.
	Open(key string, bytes int64) (segment.Source, string)
	// Collect removes what no checkpoint needs any more, when it is time.
	Collect(ctx context.Context, epoch millrace.Epoch) error
}

// RemoteCheckpoint is a checkpoint on its way into the object store.
type RemoteCheckpoint struct {
	Manifest *Manifest
	FS       vfs.FS
	// StateDir has the files of the state; they do not change.
	StateDir string
	// Known are the files of the state that this shard's directory has and that were
	// published, by it or by where it was restored from.
	Known []RemoteObject
	// Buckets are the logs, in the order of the manifest's.
	Buckets []*bucket.Pinned
}

// Release lets go of the files of the logs.
func (c *RemoteCheckpoint) Release() {
	for _, b := range c.Buckets {
		b.Release()
	}
	c.Buckets = nil
}

// RemotePart is what of a checkpoint lies in the object store, apart from sealed
// segments. In a local manifest it is what was published last before it.
type RemotePart struct {
	// StateLSN is where the state stands: at or behind the manifest's LSN. What the logs
	// hold beyond it is skipped when there is no log to go on in.
	StateLSN millrace.LSN   `json:"state_lsn"`
	State    []RemoteObject `json:"state"`
	Tails    []RemoteObject `json:"tails,omitempty"`
	// Micros is when it was published, by the owner's clock.
	Micros int64 `json:"micros"`
	// Renewed is set of a checkpoint with which a log begins anew: when that was published
	// which it goes on from; below 0 when there was none.
	Renewed int64 `json:"renewed,omitempty"`
}

// Published is when the rows of the checkpoint were put into the object store (µs); 0 when
// there was no checkpoint and it is empty.
func (m *Manifest) Published() int64 {
	switch {
	case m == nil || m.Remote.Renewed < 0:
		return 0
	case m.Remote.Renewed > 0:
		return m.Remote.Renewed
	}
	return m.Remote.Micros
}

// RemoteObject is a file in the object store.
type RemoteObject struct {
	Name  string `json:"name,omitempty"` // of the file, when it is one of the state
	Key   string `json:"key"`
	Bytes int64  `json:"bytes"`
	CRC   uint32 `json:"crc"` // CRC32C of all of it
}

// TailSpan is a part of a tails object: batches of one bucket, that follow each other.
// Of two spans that overlap the later one counts: what it holds was merged since.
type TailSpan struct {
	Object   int             `json:"object"` // index in RemotePart.Tails
	Position int64           `json:"position"`
	Bytes    int64           `json:"bytes"`
	Base     millrace.Offset `json:"base"`
	End      millrace.Offset `json:"end"`
}

// ObjectKeys are the keys of all objects that the manifest names.
func (m *Manifest) ObjectKeys() map[string]struct{} {
	keys := map[string]struct{}{}
	if m.Remote == nil {
		return keys
	}
	for _, o := range m.Remote.State {
		keys[o.Key] = struct{}{}
	}
	for _, o := range m.Remote.Tails {
		keys[o.Key] = struct{}{}
	}
	for i := range m.Buckets {
		for _, f := range m.Buckets[i].Files {
			if f.Remote != nil {
				keys[f.Remote.Key] = struct{}{}
			}
		}
	}
	return keys
}
