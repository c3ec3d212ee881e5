package shard

import "github.com/millrace/millrace/storage/kv"

// Load is what shards have in hand at a moment.
type Load struct {
	QueuedWrites, QueuedBytes int64
	TailBytes                 int64
	UnsavedBytes              int64 // logged since the last checkpoint
	Buckets, Snapshots        int
	State                     kv.Load
}

// AddLoad adds what the shard has. It may hang when the shard's store does.
func (s *Shard) AddLoad(l *Load) {
	if s.Err() != nil || s.kv == nil || !s.reads.enter() {
		return
	}
	defer s.reads.leave()
	l.QueuedWrites += s.queued.Load()
	l.QueuedBytes += s.queuedBytes.Load()
	l.TailBytes += s.tailBytes.Load()
	l.UnsavedBytes += s.sinceBytes.Load()
	s.bucketsMu.RLock()
	l.Buckets += len(s.buckets)
	s.bucketsMu.RUnlock()
	s.snapshots.mu.Lock()
	l.Snapshots += len(s.snapshots.held)
	s.snapshots.mu.Unlock()
	s.kv.AddLoad(&l.State)
}
