package remote

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/objstore"
	"github.com/millrace/millrace/storage/shard"
)

// fetchBytes is how much of an object is in memory at a time while it is fetched.
const fetchBytes = 1 << 20

// Restore is part of shard.Remote.
func (r *Shard) Restore(ctx context.Context, fs vfs.FS, dir string, accept func(*shard.Manifest) error) (*shard.Manifest, error) {
	if err := r.s.guard(ctx); err != nil {
		return nil, err
	}
	all, err := r.numbers(ctx)
	if err != nil {
		return nil, err
	}
	var damage []error
	for _, n := range slices.Backward(all) {
		m, err := r.manifest(ctx, n)
		if err == nil {
			if err := accept(m); err != nil {
				return nil, errors.Join(append(damage, err)...)
			}
			err = r.fetchAll(ctx, m, fs, dir)
		}
		if err == nil {
			return m, nil
		}
		if !passOver(err) {
			return nil, err
		}
		r.passedOver(n, err)
		damage = append(damage, err)
	}
	return nil, errors.Join(damage...)
}

// fetchAll fetches what of a checkpoint is needed at once.
func (r *Shard) fetchAll(ctx context.Context, m *shard.Manifest, fs vfs.FS, dir string) error {
	if err := fs.RemoveAll(dir); err != nil {
		return fmt.Errorf("remote.Restore: %w", err)
	}
	if err := fs.MkdirAll(path.Join(dir, shard.StateDir), 0o755); err != nil {
		return fmt.Errorf("remote.Restore: %w", err)
	}
	eg, of := errgroup.WithContext(ctx)
	eg.SetLimit(int(r.s.o.Transfers))
	for _, o := range m.Remote.State {
		if o.Name == "" || path.Base(o.Name) != o.Name {
			return errs.New(errs.CorruptData, "%s names the file %q of the state", r.where(r.manifestKey(m.Number)), o.Name)
		}
		eg.Go(func() error { return r.Fetch(of, o, fs, path.Join(dir, shard.StateDir, o.Name)) })
	}
	for i, o := range m.Remote.Tails {
		eg.Go(func() error { return r.Fetch(of, o, fs, path.Join(dir, shard.TailsFile(i))) })
	}
	return eg.Wait()
}

// Fetch fetches an object into a file that is durable then, and whose checksum matches.
// What does not match is fetched a second time: an answer may have been damaged on its
// way.
func (r *Shard) Fetch(ctx context.Context, o shard.RemoteObject, fs vfs.FS, file string) error {
	if err := r.s.slots.Acquire(ctx, 1); err != nil {
		return err
	}
	defer r.s.slots.Release(1)
	r.s.m.transfers.Inc()
	defer r.s.m.transfers.Dec()
	err := r.fetch(ctx, o, fs, file)
	if errs.Is(err, errs.CorruptData) {
		err = r.fetch(ctx, o, fs, file)
	}
	return err
}

func (r *Shard) fetch(ctx context.Context, o shard.RemoteObject, fs vfs.FS, file string) (err error) {
	f, err := fs.Create(file, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("remote.Restore: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	crc := uint32(0)
	buf := make([]byte, min(fetchBytes, max(o.Bytes, 0)))
	for at := int64(0); at < o.Bytes; at += int64(len(buf)) {
		buf = buf[:min(int64(len(buf)), o.Bytes-at)]
		if err := r.s.readAt(ctx, o.Key, buf, at); err != nil {
			return err
		}
		crc = crc32.Update(crc, castagnoli, buf)
		if _, err := f.Write(buf); err != nil {
			return fmt.Errorf("remote.Restore: %s: %w", file, err)
		}
	}
	if crc != o.CRC {
		return errs.New(errs.CorruptData, "%s does not match the checksum in the manifest (%08x, not %08x)", r.where(o.Key), crc, o.CRC)
	}
	r.s.m.fetchedBytes.Add(float64(o.Bytes))
	return f.Sync()
}

// readAt reads a range of an object. One that is missing or too short is
// errs.CorruptData.
func (s *Store) readAt(ctx context.Context, key string, p []byte, off int64) error {
	err := s.o.Objects.ReadAt(ctx, key, p, off)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, objstore.ErrNotExist):
		return errs.New(errs.CorruptData, "%s/%s is not there", s.o.Objects.URI(), key)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errs.New(errs.CorruptData, "%s/%s ends before byte %d", s.o.Objects.URI(), key, off+int64(len(p)))
	case errs.CodeOf(err) == errs.Internal: // a store that says no more than that it failed
		return errs.Wrap(errs.Unavailable, "remote.read", fmt.Errorf("%s/%s: %w", s.o.Objects.URI(), key, err))
	}
	return fmt.Errorf("remote.read: %s/%s: %w", s.o.Objects.URI(), key, err)
}
