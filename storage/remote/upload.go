package remote

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path"
	"strings"
	"sync"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/objstore"
	"github.com/millrace/millrace/storage/bucket"
	"github.com/millrace/millrace/storage/shard"
)

const (
	// A publication loses its number to that of a deposed owner at most so often.
	publishTries = 4
	copyBytes    = 256 << 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// upload is one publication under way.
type upload struct {
	r     *Shard
	c     *shard.RemoteCheckpoint
	m     *shard.Manifest
	last  *shard.Manifest // the newest one that reads; nil when there is none
	named map[string]struct{}
	tag   string
	// attempt is in the keys of objects that have other contents each time.
	attempt string

	eg *errgroup.Group
	mu sync.Mutex // guards r.sent while objects are sent
}

// Publish is part of shard.Remote.
func (r *Shard) Publish(ctx context.Context, c *shard.RemoteCheckpoint) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.s.guard(ctx); err != nil {
		return err
	}
	attempt := strings.ReplaceAll(uuid.NewString(), "-", "")
	for range publishTries {
		began := r.s.o.Clock.Now()
		if r.last == nil || r.s.o.Clock.Now().Sub(r.last.at) > believeFor {
			l, err := r.newest(ctx)
			if err != nil {
				return err
			}
			r.last = l
		}
		if err := r.deposed(c.Manifest); err != nil {
			r.last = nil
			return err
		}
		u := &upload{r: r, c: c, m: c.Manifest, last: r.last.manifest, tag: tag(c.Manifest), attempt: attempt, named: map[string]struct{}{}}
		if u.last != nil {
			u.named = u.last.ObjectKeys()
		}
		if err := u.send(ctx); err != nil {
			return err
		}
		err := u.publish(ctx, r.last.number+1)
		if err == nil {
			clear(r.sent)
			r.last = &link{number: u.m.Number, manifest: u.m, at: began}
			return nil
		}
		r.last = nil // to be read anew: it may be there, whatever the error
		if !errors.Is(err, objstore.ErrExists) {
			return err
		}
	}
	return errs.New(errs.Unavailable, "the manifest of shard %d met others %d times in a row", r.id, publishTries)
}

// deposed says whether the newest manifest is that of a later owner.
func (r *Shard) deposed(m *shard.Manifest) error {
	last := r.last.manifest
	switch {
	case last == nil || last.Tail.Epoch < m.Tail.Epoch:
		return nil
	case last.Tail.Epoch > m.Tail.Epoch || last.Tail.LogID != m.Tail.LogID:
		return errs.New(errs.NotOwner, "the newest checkpoint of shard %d in %s is of epoch %d and of log %x, this is epoch %d of log %x", r.id, r.s.o.Objects.URI(), last.Tail.Epoch, last.Tail.LogID, m.Tail.Epoch, m.Tail.LogID)
	}
	return nil
}

// publish makes the checkpoint one (R1).
func (u *upload) publish(ctx context.Context, number uint64) error {
	u.m.Number = number
	u.m.Remote.Micros = u.r.s.o.Clock.Now().UnixMicro()
	body := shard.EncodeManifest(u.m)
	if err := u.r.s.o.Objects.Create(ctx, u.r.manifestKey(number), body); err != nil {
		return fmt.Errorf("remote.Publish: %w", err)
	}
	u.r.s.m.sent("manifest", int64(len(body)))
	return nil
}

// send uploads what is new of a checkpoint, and fills in where everything is.
func (u *upload) send(ctx context.Context) error {
	u.m.Remote.State, u.m.Remote.Tails = nil, nil
	var of context.Context
	u.eg, of = errgroup.WithContext(ctx)
	u.eg.SetLimit(int(u.r.s.o.Transfers))
	err := u.state(of)
	if err == nil {
		err = u.segments(of)
	}
	if err == nil {
		u.eg.Go(func() error { return u.tails(of) })
	}
	// What failed first is what ended the context of the others.
	if werr := u.eg.Wait(); werr != nil {
		return werr
	}
	return err
}

// immutable says whether a file of the state has the same contents as long as it is
// there under its name.
func immutable(name string) bool {
	ext := path.Ext(name)
	return ext == ".sst" || ext == ".blob"
}

// state sends the files of the state that are not there yet.
func (u *upload) state(ctx context.Context) error {
	names, err := u.c.FS.List(u.c.StateDir)
	if err != nil {
		return fmt.Errorf("remote.Publish: %w", err)
	}
	known := map[string]shard.RemoteObject{}
	for _, o := range u.c.Known {
		if _, ok := u.named[o.Key]; ok && immutable(o.Name) {
			known[o.Name] = o
		}
	}
	u.m.Remote.State = make([]shard.RemoteObject, len(names))
	for i, name := range names {
		file := path.Join(u.c.StateDir, name)
		info, err := u.c.FS.Stat(file)
		if err != nil {
			return fmt.Errorf("remote.Publish: %w", err)
		}
		out := &u.m.Remote.State[i]
		if o, ok := known[name]; ok && o.Bytes == info.Size() {
			*out = o
			continue
		}
		key := u.r.key("sst", u.tag+"-"+name)
		if !immutable(name) {
			key += "-" + u.attempt
		}
		u.object(ctx, "state", key, func(w io.Writer) error { return u.copyFile(w, file) }, func(o shard.RemoteObject) {
			o.Name = name
			*out = o
		})
	}
	return nil
}

func (u *upload) copyFile(w io.Writer, file string) error {
	f, err := u.c.FS.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	_, err = io.CopyBuffer(w, f, make([]byte, copyBytes))
	return err
}

// object sends an object, unless it was sent before, and hands done what is there.
func (u *upload) object(ctx context.Context, kind, key string, write func(io.Writer) error, done func(shard.RemoteObject)) {
	u.mu.Lock()
	o, ok := u.r.sent[key]
	u.mu.Unlock()
	if ok {
		done(o)
		return
	}
	u.eg.Go(func() error {
		o, err := u.r.s.put(ctx, kind, key, write)
		if err != nil {
			return err
		}
		u.mu.Lock()
		u.r.sent[key] = o
		u.mu.Unlock()
		done(o)
		return nil
	})
}

// put writes an object, and says what it is.
func (s *Store) put(ctx context.Context, kind, key string, write func(io.Writer) error) (shard.RemoteObject, error) {
	if err := s.slots.Acquire(ctx, 1); err != nil {
		return shard.RemoteObject{}, err
	}
	defer s.slots.Release(1)
	s.m.transfers.Inc()
	defer s.m.transfers.Dec()
	w, err := s.o.Objects.Writer(ctx, key)
	if err != nil {
		return shard.RemoteObject{}, fmt.Errorf("remote: %s: %w", key, err)
	}
	defer w.Abort()
	t := &tally{w: w}
	if err = write(t); err == nil {
		err = w.Close()
	}
	if err != nil {
		return shard.RemoteObject{}, fmt.Errorf("remote: %s: %w", key, err)
	}
	s.m.sent(kind, t.n)
	return shard.RemoteObject{Key: key, Bytes: t.n, CRC: t.crc}, nil
}

// tally counts and sums what is written.
type tally struct {
	w   io.Writer
	n   int64
	crc uint32
}

func (t *tally) Write(p []byte) (int, error) {
	n, err := t.w.Write(p)
	t.n += int64(n)
	t.crc = crc32.Update(t.crc, castagnoli, p[:n])
	return n, err
}

// settled says whether nothing is written any more to a file of a bucket: it is sealed,
// or was left by another process, which others follow.
func settled(files []bucket.FileState, i int) bool { return files[i].Sealed || i < len(files)-1 }

// segments sends the files that are settled and not there yet.
func (u *upload) segments(ctx context.Context) error {
	type place struct {
		id   millrace.BucketID
		base millrace.Offset
	}
	there := map[place]*bucket.RemoteFile{}
	if u.last != nil && u.last.Tail.LogID == u.m.Tail.LogID {
		// The records of a log are the same in whichever file they lie.
		for i := range u.last.Buckets {
			for _, f := range u.last.Buckets[i].Files {
				if f.Remote != nil {
					there[place{u.last.Buckets[i].ID, f.Base}] = f.Remote
				}
			}
		}
	}
	for i := range u.m.Buckets {
		b := &u.m.Buckets[i]
		for k := range b.Files {
			f := &b.Files[k]
			if !settled(b.Files, k) {
				f.Remote = nil // a part of the tails
				continue
			}
			if f.Remote != nil {
				if _, ok := u.named[f.Remote.Key]; ok {
					continue
				}
			}
			open := u.c.Buckets[i].Open[k]
			if f.Away {
				return errs.Wrap(errs.CorruptData, "remote.Publish", fmt.Errorf("%s, the only copy of a segment: %w", u.r.where(f.Remote.Key), shard.ErrUnnamed))
			}
			if t := there[place{b.ID, f.Base}]; t != nil && t.End == open.End() && t.MaxTime == open.MaxTime() {
				f.Remote = t
				continue
			}
			u.object(ctx, "segment", segmentKey(u.r, b.ID, f.Base, u.tag), func(w io.Writer) error {
				return bufferedWrite(w, func(b *bufio.Writer) error { return open.WriteSealed(b) })
			}, func(o shard.RemoteObject) {
				f.Remote = &bucket.RemoteFile{Key: o.Key, Bytes: o.Bytes, CRC: o.CRC, End: open.End(), MaxTime: open.MaxTime()}
			})
		}
	}
	return nil
}

// unpublished are the keys of everything that was sent and that no manifest names yet.
func (r *Shard) unpublished() map[string]struct{} {
	out := map[string]struct{}{}
	for key := range r.sent {
		out[key] = struct{}{}
	}
	return out
}

// bufferedWrite writes through a buffer.
func bufferedWrite(w io.Writer, write func(*bufio.Writer) error) error {
	b := bufio.NewWriterSize(w, copyBytes)
	if err := write(b); err != nil {
		return err
	}
	return b.Flush()
}
