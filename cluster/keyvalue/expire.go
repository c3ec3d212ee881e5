package keyvalue

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/catalog"
)

func (s *Store) revisionOf(key string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.entries[key].Revision
}

// others are the readers besides this process.
func (s *Store) others() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for key := range s.mu.entries {
		if process, ok := strings.CutPrefix(key, prefixReader); ok && process != s.process {
			out = append(out, process)
		}
	}
	slices.Sort(out)
	return out
}

// watch watches the message by which a process shows that it lives.
type watch struct {
	process  string
	sequence uint64        // of the message
	entry    uint64        // of the commit that put the process into the list
	since    time.Duration // when both were first seen
}

// look takes the process out of the list when it has not shown for too long.
func (w *watch) look(s *Store) {
	ctx, cancel := context.WithTimeout(s.ctx, apiTimeout)
	defer cancel()
	sequence, _, err := s.lastShown(ctx, w.process)
	entry, now := s.revisionOf(prefixReader+w.process), s.opts.Clock.Boot()
	switch {
	case err != nil || entry == 0:
	case w.since == 0 || sequence != w.sequence || entry != w.entry:
		w.sequence, w.entry, w.since = sequence, entry, now
	case now-w.since > expireAfter:
		s.log.WarnContext(ctx, "process taken out of the catalog's readers", slog.String("process", w.process))
		if err := s.expire(ctx, w.process, sequence, entry); err != nil {
			s.log.DebugContext(ctx, "it is still there", slog.Any("err", err))
		}
	}
}

// watchNext watches the reader after this one in the list's order, so that one that is
// gone is out of the list before somebody waits for it.
func (r *reader) watchNext(s *Store, w *watch) {
	others := s.others()
	if len(others) == 0 {
		return
	}
	i, _ := slices.BinarySearch(others, s.process)
	if next := others[i%len(others)]; next != w.process {
		*w = watch{process: next}
	}
	w.look(s)
}

// expire takes a process out of the list that has shown last by the message at a sequence,
// and stands in the list by the commit entry.
func (s *Store) expire(ctx context.Context, process string, sequence, entry uint64) error {
	// First of all its next message must be refused: then it knows that it is out.
	if sequence > 0 {
		if err := s.purgeBelow(ctx, s.names.heartbeat+"."+process, sequence+1); err != nil {
			return err
		}
	}
	if again, _, err := s.lastShown(ctx, process); err != nil || again > 0 {
		return err // it has shown meanwhile
	}
	_, err := s.Commit(ctx, entry, catalog.Write{Key: prefixReader + process})
	if _, conflict := errors.AsType[*catalog.ConflictError](err); conflict {
		return nil // it stands there anew, or is out
	}
	return err
}
