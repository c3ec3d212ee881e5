package shard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/bucket"
	"github.com/millrace/millrace/storage/segment"
	"github.com/millrace/millrace/storage/wal"
)

const (
	// StateDir is the directory of the state below that of a shard.
	StateDir = "state"
	// restoreDir holds what is fetched, until it is whole.
	restoreDir = "restore"
)

// TailsFile is the name under which Remote.Restore puts the i-th tails object.
func TailsFile(i int) string { return fmt.Sprintf("tails-%d", i) }

// ErrUnnamed is wrapped by the error of a file whose only copy is in the object store,
// when no checkpoint there names it any more: others went on without it.
var ErrUnnamed = errors.New("no checkpoint in the object store names it any more")

// Open opens a shard: the newest manifest, the files it names, the state, and the
// log from where the lower of them stands; then a new epoch begins, above that of the
// log, of the manifest, and Options.MinEpoch. Where there is an object store, and the
// files are missing, damaged, of another log, or older than what the log has, the newest
// checkpoint there takes their place.
//
// Damage is errs.CorruptData and names the file. The error wraps ErrForeign when the
// files are of another log, and wal.ErrPurged when the log begins behind them.
func Open(ctx context.Context, o Options) (_ *Shard, err error) {
	ctx, span := o.Tracer.Begin(ctx, "shard open")
	defer func() { span.Int("millrace.shard", int64(o.ID)).End(err) }()
	if o.Remote == nil {
		return open(ctx, o)
	}
	cause, err := unusable(ctx, &o)
	if err != nil {
		return nil, err
	}
	var s *Shard
	if cause == nil {
		// What is ahead of the log is kept: it may be all there is of it.
		if s, cause = open(ctx, o); !errs.Is(cause, errs.CorruptData) || errors.Is(cause, errAhead) {
			return s, cause
		}
	}
	restored, err := restore(ctx, &o, cause)
	switch {
	case err != nil:
		return nil, errors.Join(err, cause)
	case !restored:
		return nil, cause
	}
	return open(ctx, o)
}

// unusable says why a shard's directory does not do, without opening it; nil when it
// may.
func unusable(ctx context.Context, o *Options) (cause, err error) {
	if err := o.FS.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("shard.Open: %w", err)
	}
	local, err := readManifest(o.FS, o.Dir)
	if err != nil {
		return err, nil // the object store may have one that reads
	}
	if local != nil {
		away := slices.ContainsFunc(local.Buckets, func(b BucketManifest) bool {
			return slices.ContainsFunc(b.Files, func(f bucket.FileState) bool { return f.Away })
		})
		if !away {
			return nil, nil
		}
	}
	newest, err := o.Remote.Newest(ctx)
	switch {
	case err != nil && local == nil:
		return nil, fmt.Errorf("shard %d has no files here, and the object store does not say whether it has some: %w", o.ID, err)
	case err != nil: // it may well be as it was
		o.Logger.WarnContext(ctx, "the object store is away while a shard opens", slog.Int("shard", int(o.ID)), slogErr(err))
		return nil, nil
	case newest == nil && local == nil:
		return nil, nil
	case local == nil:
		return errors.New("there are no files of it here"), nil
	}
	var named map[string]struct{}
	if newest != nil {
		named = newest.ObjectKeys()
	}
	for _, b := range local.Buckets {
		for _, f := range b.Files {
			if _, ok := named[remoteKey(f)]; f.Away && !ok {
				return fmt.Errorf("the segment of bucket %s from offset %d is away: %w", b.ID, f.Base, ErrUnnamed), nil
			}
		}
	}
	return nil, nil
}

func remoteKey(f bucket.FileState) string {
	if f.Remote == nil {
		return ""
	}
	return f.Remote.Key
}

// restore makes the shard's directory anew of the newest checkpoint in the object store
// that the log goes on from. It says whether there was one.
func restore(ctx context.Context, o *Options, cause error) (bool, error) {
	m, err := fetch(ctx, o, func(m *Manifest) error { return goesOn(ctx, o, m) })
	if err != nil || m == nil {
		return false, err
	}
	o.Logger.WarnContext(ctx, "a shard is opened from the object store", slog.Int("shard", int(o.ID)), slog.Uint64("number", m.Number), slog.Uint64("lsn", uint64(m.LSN)), slogErr(cause))
	return true, settle(o, m, nil, nil)
}

// fetch fetches a checkpoint into restoreDir; nil when there is none.
func fetch(ctx context.Context, o *Options, accept func(*Manifest) error) (*Manifest, error) {
	m, err := o.Remote.Restore(ctx, o.FS, path.Join(o.Dir, restoreDir), accept)
	if err != nil {
		return nil, fmt.Errorf("shard %d: restore: %w", o.ID, err)
	}
	return m, nil
}

// goesOn says why the log does not go on from a checkpoint.
func goesOn(ctx context.Context, o *Options, m *Manifest) error {
	if err := isOf(o, m); err != nil {
		return err
	}
	tail, err := o.Log.Refresh(ctx)
	if err != nil {
		return fmt.Errorf("shard %d: the end of the log: %w", o.ID, err)
	}
	if tail.LogID != m.Tail.LogID {
		return errs.New(errs.CorruptData, "the log of shard %d is another one than that of its checkpoint %d in the object store: if the log was lost, millrace restore brings back what the checkpoints hold", o.ID, m.Number)
	}
	if tail.LSN < max(m.LSN, m.Remote.StateLSN) {
		return errs.New(errs.CorruptData, "the log of shard %d ends at record %d, and its checkpoint %d in the object store was made at record %d", o.ID, tail.LSN, m.Number, max(m.LSN, m.Remote.StateLSN))
	}
	hash, ok, err := o.Log.HashAt(ctx, m.LSN)
	if err != nil {
		return fmt.Errorf("shard %d: the hash of record %d: %w", o.ID, m.LSN, err)
	}
	if ok && hash != m.Tail.Hash {
		return errs.New(errs.CorruptData, "record %d of the log of shard %d is another one than that of checkpoint %d in the object store, so that the log was set back and went on from there", m.LSN, o.ID, m.Number)
	}
	enough := errors.New("the log is there")
	err = o.Log.Replay(ctx, m.LSN, func(millrace.LSN, millrace.Epoch, wal.Entry) error { return enough })
	if err != nil && !errors.Is(err, enough) {
		return fmt.Errorf("from checkpoint %d on: %w", m.Number, err)
	}
	return nil
}

// settle makes the shard's directory of what was fetched. change, when given, sees each
// bucket with what is in no sealed segment, and may cut it; done sees it as it is in the
// local manifest. A crash leaves a directory without a manifest, which is made anew.
func settle(o *Options, m *Manifest, change func(b *BucketManifest, tail []bucket.TailBatch) ([]bucket.TailBatch, error), done func(*BucketManifest) error) error {
	fs := o.FS
	if err := clearDir(fs, o.Dir); err != nil {
		return err
	}
	from := path.Join(o.Dir, restoreDir)
	if err := bucket.SyncDir(fs, path.Join(from, StateDir)); err != nil {
		return fmt.Errorf("shard.restore: %w", err)
	}
	if err := fs.Rename(path.Join(from, StateDir), path.Join(o.Dir, StateDir)); err != nil {
		return fmt.Errorf("shard.restore: %w", err)
	}
	if err := fs.MkdirAll(path.Join(o.Dir, segmentsDir), 0o755); err != nil {
		return fmt.Errorf("shard.restore: %w", err)
	}
	if err := bucket.SyncDir(fs, o.Dir); err != nil {
		return fmt.Errorf("shard.restore: %w", err)
	}
	local := *m
	local.Buckets = make([]BucketManifest, len(m.Buckets))
	t, err := openTails(fs, from, len(m.Remote.Tails))
	if err != nil {
		return err
	}
	defer t.close()
	for i := range m.Buckets {
		b := m.Buckets[i]
		tail, err := t.of(&b)
		if err != nil {
			return err
		}
		if change != nil {
			if tail, err = change(&b, tail); err != nil {
				return err
			}
		}
		if err := settleBucket(o, m, &b, tail); err != nil {
			return err
		}
		if done != nil {
			if err := done(&b); err != nil {
				return err
			}
		}
		local.Buckets[i] = b
	}
	if err := writeManifest(fs, o.Dir, &local); err != nil {
		return err
	}
	return fs.RemoveAll(from)
}

// clearDir removes everything of a shard but what was fetched: the manifests first.
func clearDir(fs vfs.FS, dir string) error {
	names, err := fs.List(dir)
	if err != nil {
		return fmt.Errorf("shard.restore: %w", err)
	}
	for _, manifests := range []bool{true, false} {
		for _, name := range names {
			if name == restoreDir || strings.HasPrefix(name, "manifest-") != manifests {
				continue
			}
			if err := fs.RemoveAll(path.Join(dir, name)); err != nil {
				return fmt.Errorf("shard.restore: %w", err)
			}
		}
		if err := bucket.SyncDir(fs, dir); err != nil {
			return fmt.Errorf("shard.restore: %w", err)
		}
	}
	return nil
}

// settleBucket writes the batches of a bucket that are in no sealed segment into a
// file, and makes its part of the local manifest: sealed segments stay where they are.
func settleBucket(o *Options, m *Manifest, b *BucketManifest, tail []bucket.TailBatch) error {
	b.Spans = nil
	files := make([]bucket.FileState, 0, len(b.Files)+1)
	for _, f := range b.Files {
		if f.Remote != nil { // else it is in the tails
			files = append(files, bucket.FileState{Base: f.Base, Length: f.Remote.Bytes, Sealed: true, Remote: f.Remote, Away: true})
		}
	}
	b.Files = files
	if len(tail) == 0 {
		return nil
	}
	t := m.table(b.ID.Table)
	log := bucket.New(b.ID, tail[0].Header.Base, bucketOptions(o, b.ID))
	log.Append(tail...)
	_, err := log.Flush(log.View().End, m.schemas(b.ID.Table), t.Schema)
	var st bucket.State
	if err == nil {
		st, err = log.Sync()
	}
	if err = errors.Join(err, log.Close(errors.New("it is settled"))); err != nil {
		return fmt.Errorf("shard.restore: %w", err)
	}
	b.Files = append(b.Files, st.Files...)
	return nil
}

// table finds the descriptor of a table; check made sure of those of the buckets.
func (m *Manifest) table(id millrace.TableID) *millrace.Table {
	for _, t := range m.Tables {
		if t.ID == id {
			return t
		}
	}
	return nil
}

func (m *Manifest) schemas(id millrace.TableID) segment.Schemas {
	known := map[millrace.SchemaID]*millrace.Schema{}
	for _, ts := range m.Schemas {
		for _, s := range ts.Schemas {
			if ts.Table == id && s != nil {
				known[s.ID] = s
			}
		}
	}
	return func(id millrace.SchemaID) *millrace.Schema { return known[id] }
}

// tailFiles are the tails objects of a checkpoint, as they were fetched.
type tailFiles struct {
	files []vfs.File
}

func openTails(fs vfs.FS, dir string, n int) (*tailFiles, error) {
	t := &tailFiles{}
	for i := range n {
		f, err := fs.Open(path.Join(dir, TailsFile(i)))
		if err != nil {
			t.close()
			return nil, fmt.Errorf("shard.restore: %w", err)
		}
		t.files = append(t.files, f)
	}
	return t, nil
}

func (t *tailFiles) close() {
	for _, f := range t.files {
		_ = f.Close() // only read
	}
}

// of reads what of a bucket is in no sealed segment.
func (t *tailFiles) of(b *BucketManifest) ([]bucket.TailBatch, error) {
	from := b.kept()
	sealed := false
	for _, f := range b.Files {
		if f.Remote != nil {
			from, sealed = max(from, f.Remote.End), true
		}
	}
	var out []bucket.TailBatch
	for _, s := range b.Spans {
		batches, err := t.span(b.ID, s)
		if err != nil {
			return nil, err
		}
		for _, tb := range batches {
			if tb.Header.End() <= from {
				continue
			}
			for len(out) > 0 && out[len(out)-1].Header.Base >= tb.Header.Base {
				out = out[:len(out)-1] // merged into this one
			}
			out = append(out, tb)
		}
	}
	next := from
	for i, tb := range out {
		// The first one may begin below what is kept.
		if tb.Header.Base > next || tb.Header.Base < next && (i > 0 || sealed) {
			return nil, errs.New(errs.CorruptData, "the tails of bucket %s in the object store have a hole: after offset %d comes %d", b.ID, next, tb.Header.Base)
		}
		next = tb.Header.End()
	}
	if next != b.End {
		return nil, errs.New(errs.CorruptData, "the tails of bucket %s in the object store end at offset %d, and its manifest says %d", b.ID, next, b.End)
	}
	return out, nil
}

func (t *tailFiles) span(id millrace.BucketID, s TailSpan) ([]bucket.TailBatch, error) {
	if s.Object < 0 || s.Object >= len(t.files) || s.Position < 0 || s.Bytes < 0 || s.Bytes > maxEnvelopeBytes {
		return nil, errs.New(errs.CorruptData, "the manifest in the object store names %d bytes of tails object %d for bucket %s", s.Bytes, s.Object, id)
	}
	b := make([]byte, s.Bytes)
	if _, err := t.files[s.Object].ReadAt(b, s.Position); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("shard.restore: %w", err)
	}
	var out []bucket.TailBatch
	for at := 0; at < len(b); {
		h, n, err := segment.ParseBatchHeader(b[at:])
		if err == nil && (h.Bucket != id || h.PayloadLen > int64(len(b)-at-n)) {
			err = errs.New(errs.CorruptData, "a batch of bucket %s with %d bytes", h.Bucket, h.PayloadLen)
		}
		if err != nil {
			return nil, errs.New(errs.CorruptData, "tails object %d, byte %d, where bucket %s belongs: %v", s.Object, s.Position+int64(at), id, err)
		}
		at += n
		tb, err := bucket.Check(h, bytes.Clone(b[at:][:h.PayloadLen]))
		if err != nil {
			return nil, err
		}
		out = append(out, tb)
		at += int(h.PayloadLen)
	}
	return out, nil
}
