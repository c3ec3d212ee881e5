package shard

import (
	"log/slog"
	"path"
	"sync"

	millrace "github.com/millrace/millrace"
)

// takeDrop adds the drop of a table to a group. One that has no bucket here, nor one
// that is about to be opened, needs no record: writes to it are refused from now on,
// and after a restart nobody has its descriptor.
func (s *Shard) takeDrop(g *group, p *pending) {
	switch {
	case s.preparedTable(p.drop) != nil:
		g.drops = append(g.drops, p.drop)
	case !s.isDropped(g, p.drop):
		s.dropped[p.drop] = struct{}{}
	}
	g.answers = append(g.answers, answer{to: p})
}

// bucketsOf are the open buckets of a table, and those that are about to be.
func (s *Shard) bucketsOf(t millrace.TableID) []*bucketState {
	var out []*bucketState
	for _, b := range append(s.allBuckets(), values(s.unborn)...) {
		if b.id.Table == t {
			out = append(out, b)
		}
	}
	return out
}

// unlist forgets the buckets of a table and returns them.
func (s *Shard) unlist(t millrace.TableID) []*bucketState {
	s.bucketsMu.Lock()
	defer s.bucketsMu.Unlock()
	var out []*bucketState
	for id, b := range s.buckets {
		if id.Table == t {
			out = append(out, b)
			delete(s.buckets, id)
		}
	}
	delete(s.tables, t)
	return out
}

// closeDropped closes the logs of buckets that the record lsn dropped. Their files
// stay until a manifest covers that record: a start before that opens them, and the
// log then drops them again.
func (s *Shard) closeDropped(dropped []*bucketState, lsn millrace.LSN) {
	for _, b := range dropped {
		if err := b.log.Close(gone(b.id.Table)); err != nil {
			s.o.Logger.Warn("files of a dropped bucket do not close", slogBucket(b.id), slogErr(err))
		}
		s.tailBytes.Add(-b.log.View().TailBytes())
		s.doomed.add(b.id.Table, lsn)
		s.subs.notify(b.id)
	}
}

// doomedDirs are the directories of dropped tables, with the record that dropped them.
type doomedDirs struct {
	mu     sync.Mutex
	tables map[millrace.TableID]millrace.LSN
}

func (d *doomedDirs) add(t millrace.TableID, lsn millrace.LSN) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tables == nil {
		d.tables = map[millrace.TableID]millrace.LSN{}
	}
	d.tables[t] = lsn
}

// upTo takes out the tables that were dropped by records up to lsn.
func (d *doomedDirs) upTo(lsn millrace.LSN) []millrace.TableID {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []millrace.TableID
	for t, at := range d.tables {
		if at <= lsn {
			out = append(out, t)
			delete(d.tables, t)
		}
	}
	return out
}

// removeDoomed removes the files of tables whose drop a manifest covers. What cannot
// be removed stays: the next start removes what no manifest names.
func (s *Shard) removeDoomed(covered millrace.LSN) {
	for _, t := range s.doomed.upTo(covered) {
		dir := path.Join(s.o.Dir, segmentsDir, tableDir(t))
		if err := s.o.FS.RemoveAll(dir); err != nil {
			s.o.Logger.Warn("files of a dropped table stay", slog.String("dir", dir), slogErr(err))
		}
	}
}
