package wal

import (
	"context"
	"slices"

	millrace "github.com/millrace/millrace"
)

// Purge lets files go whose records no shard needs.
func (l *shardLog) Purge(ctx context.Context, upTo millrace.LSN) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f := l.f
	f.mu.Lock()
	f.mu.purged[l.shard] = max(f.mu.purged[l.shard], min(upTo, f.mu.heads[l.shard].LSN))
	f.dropSpansLocked()
	doomed := f.takeDoomedLocked()
	f.mu.Unlock()
	f.removeAll(doomed)
	return nil
}

// dropSpansLocked drops files of which no shard needs a record, wherever they
// stand: one shard that does not move must not keep what others are done with.
// REQUIRES: f.mu held.
func (f *Files) dropSpansLocked() {
	spans := f.mu.spans
	var kept []span
	for i := range spans {
		if i+1 == len(spans) || f.neededLocked(&spans[i], &spans[i+1]) {
			kept = append(kept, spans[i])
			continue
		}
		f.mu.doomed = append(f.mu.doomed, spans[i].number)
		f.met.files.Dec()
		f.met.size.Sub(float64(spans[i].end))
	}
	f.mu.spans = kept
}

// neededLocked says whether a shard has records in a file that it still needs.
// After the file that followed was dropped, next is a later one: then more records
// may seem to be in the file than are, and all of those were purged.
func (f *Files) neededLocked(sp, next *span) bool {
	for s, purged := range f.mu.purged {
		id := millrace.ShardID(s)
		end := next.head(id).LSN
		if end > purged && end > sp.head(id).LSN {
			return true
		}
	}
	return false
}

// pin returns the files and where the shard ends, and keeps the files there until unpin.
func (f *Files) pin(s millrace.ShardID) ([]span, head) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.pins++
	return slices.Clone(f.mu.spans), f.mu.heads[s]
}

func (f *Files) unpin() {
	f.mu.Lock()
	f.mu.pins--
	doomed := f.takeDoomedLocked()
	f.mu.Unlock()
	f.removeAll(doomed)
}

// takeDoomedLocked returns the files that may be removed now. REQUIRES: f.mu held.
func (f *Files) takeDoomedLocked() []uint64 {
	if f.mu.pins > 0 {
		return nil
	}
	doomed := f.mu.doomed
	f.mu.doomed = nil
	return doomed
}

// removeAll removes files. The directory is not synced: a file that comes back
// after a crash is not in the newest header's list.
func (f *Files) removeAll(doomed []uint64) {
	for _, n := range doomed {
		f.remove(f.path(n, fileSuffix))
	}
}
