package shard

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"path"

	"github.com/cockroachdb/pebble/v2/vfs"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/bucket"
	"github.com/millrace/millrace/storage/kv"
	"github.com/millrace/millrace/storage/segment"
	"github.com/millrace/millrace/storage/wal"
)

// Rebuild makes a shard's directory of the newest checkpoint in the object store,
// complete in itself, for a log that begins anew: it holds the records up to where the
// state of the checkpoint stands. Of what it returns, Begin is for a log that has no
// records.
//
// Of the options it takes ID, Dir (which has nothing of a shard), Cluster, FS, Logger,
// Remote, InLake and those of files.
func Rebuild(ctx context.Context, o Options) (*Renewal, error) {
	o.ensureDefaults()
	if err := o.FS.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("shard.Rebuild: %w", err)
	}
	m, err := fetch(ctx, &o, func(m *Manifest) error { return isOf(&o, m) })
	if err != nil {
		return nil, err
	}
	r := &Renewal{From: m}
	if m == nil {
		r.Behind, err = rebuildBehind(ctx, o, 0)
		return r, err
	}
	next, err := standing(ctx, &o, m, true)
	if err != nil {
		return nil, err
	}
	alone := *m
	alone.LSN, alone.Tail, alone.Remote = 0, wal.Tail{Epoch: m.Tail.Epoch}, &RemotePart{Tails: m.Remote.Tails}
	cut := func(b *BucketManifest, tail []bucket.TailBatch) ([]bucket.TailBatch, error) {
		return cutAt(b, tail, next[b.ID])
	}
	local := func(b *BucketManifest) error { return bringHome(ctx, &o, b) }
	if err := settle(&o, &alone, cut, local); err != nil {
		return nil, err
	}
	o.Logger.InfoContext(ctx, "shard restored", slog.Int("shard", int(o.ID)), slog.Uint64("number", m.Number), slog.Uint64("lsn", uint64(m.Remote.StateLSN)), slog.Int("buckets", len(m.Buckets)))
	r.Behind, err = rebuildBehind(ctx, o, m.Tail.Epoch)
	return r, err
}

// isOf says whether a checkpoint is of the shard.
func isOf(o *Options, m *Manifest) error {
	if string(m.Cluster) != string(o.Cluster[:]) || m.Shard != o.ID {
		return errs.New(errs.CorruptData, "the checkpoint of shard %d in the object store is of another cluster or shard", o.ID)
	}
	return nil
}

// standing returns where each bucket stands in the fetched state; with anew, that
// becomes one of a log without records.
func standing(ctx context.Context, o *Options, m *Manifest, anew bool) (next map[millrace.BucketID]millrace.Offset, err error) {
	store, err := kv.Open(kv.Options{FS: o.FS, Dir: path.Join(o.Dir, restoreDir, StateDir), Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	applied, err := store.Applied()
	if err != nil {
		return nil, err
	}
	if applied != m.Remote.StateLSN {
		return nil, errs.New(errs.CorruptData, "checkpoint %d of shard %d says that its state stands at record %d, and it stands at %d", m.Number, o.ID, m.Remote.StateLSN, applied)
	}
	next = map[millrace.BucketID]millrace.Offset{}
	for i := range m.Buckets {
		meta, err := store.Meta(m.Buckets[i].ID)
		if err != nil {
			return nil, err
		}
		next[m.Buckets[i].ID] = meta.Next
	}
	if !anew {
		return next, nil
	}
	if err := store.NewBatch().Commit(0); err != nil {
		return nil, err
	}
	return next, store.Flush(ctx)
}

// cutAt cuts a bucket where its state stands: what the log has beyond it cannot be
// applied without the log.
func cutAt(b *BucketManifest, tail []bucket.TailBatch, next millrace.Offset) ([]bucket.TailBatch, error) {
	end := b.kept()
	for _, f := range b.Files {
		if f.Remote != nil {
			end = max(end, f.Remote.End)
		}
	}
	n := 0
	for ; n < len(tail) && tail[n].Header.End() <= next; n++ {
		end = tail[n].Header.End()
	}
	if end != next && (len(tail) > 0 || len(b.Files) > 0) {
		return nil, errs.New(errs.CorruptData, "the log of bucket %s in the object store has no batch that ends at offset %d, where its state stands, but one at %d", b.ID, next, end)
	}
	kept := min(b.kept(), next)
	b.Start, b.Kept, b.End = min(b.Start, next), &kept, next
	if b.Passed > b.Start {
		b.Passed, b.PassedMicros = 0, 0
	}
	return tail[:n], nil
}

// bringHome fetches the segments of a bucket into its directory.
func bringHome(ctx context.Context, o *Options, b *BucketManifest) error {
	bo := bucketOptions(o, b.ID)
	for i := range b.Files {
		f := &b.Files[i]
		if !f.Away {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := o.FS.MkdirAll(bo.Dir, 0o755); err != nil {
			return fmt.Errorf("shard.Rebuild: %w", err)
		}
		src, where := o.Remote.Open(f.Remote.Key, f.Remote.Bytes)
		err := copySound(o.FS, path.Join(bo.Dir, segment.FileName(f.Base)), src, f.Remote, where)
		if err = errors.Join(err, src.Close()); err != nil {
			return err
		}
		f.Remote, f.Away = nil, false
	}
	for d := bo.Dir; len(b.Files) > 0 && d != o.Dir && d != "."; d = path.Dir(d) {
		if err := bucket.SyncDir(o.FS, d); err != nil {
			return fmt.Errorf("shard.Rebuild: %w", err)
		}
	}
	return nil
}

// copyBytes is how much of a segment is in memory while it is fetched.
const copyBytes = 1 << 20

// copySound copies an object into a file, and compares it with its checksum.
func copySound(fs vfs.FS, file string, src segment.Source, r *bucket.RemoteFile, where string) (err error) {
	f, err := fs.Create(file, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("shard.Rebuild: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	crc := crc32.New(castagnoli)
	if _, err := io.CopyBuffer(io.MultiWriter(f, crc), io.NewSectionReader(src, 0, r.Bytes), make([]byte, copyBytes)); err != nil {
		return fmt.Errorf("shard.Rebuild: %s: %w", where, err)
	}
	if crc.Sum32() != r.CRC {
		return errs.New(errs.CorruptData, "%s does not match the checksum in the manifest (%08x, not %08x)", where, crc.Sum32(), r.CRC)
	}
	return f.Sync()
}
