package keyvalue

import (
	"context"

	"github.com/millrace/millrace/cluster/owner"
)

// FailCompaction makes compactions of a store ask before each step.
func FailCompaction(s *Store, fail func(step string) error) { s.compact.fail = fail }

// Deafen makes a store read nothing of its stream, until the function that it returns is
// called.
func Deafen(s *Store) (hear func()) {
	for _, sub := range s.subs {
		_ = sub.Unsubscribe()
	}
	s.catching <- struct{}{}
	return func() { <-s.catching }
}

// LoseAnswers makes commits of a store take answers for lost as lose says.
func LoseAnswers(s *Store, lose func() bool) { s.lose = lose }

// Unsubscribe makes a store hear nothing that it does not ask for.
func Unsubscribe(s *Store) {
	for _, sub := range s.subs {
		_ = sub.Unsubscribe()
	}
}

// Expire takes a process out of the list of readers, as if it had not shown for long.
func Expire(ctx context.Context, s *Store, process string) error {
	sequence, _, err := s.lastShown(ctx, process)
	if err != nil {
		return err
	}
	return s.expire(ctx, process, sequence, s.revisionOf(prefixReader+process))
}

// Listed says whether a process is in a store's list of readers.
func Listed(s *Store, process string) bool { return s.revisionOf(prefixReader+process) > 0 }

// Ends is how often a store has asked for the stream's end.
func Ends(s *Store) int64 { return s.ends.Load() }

// WhileApplying does something while a commit is being applied.
func WhileApplying(s *Store, do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

// RenewNow makes a store renew its lease.
func RenewNow(s *Store) { s.reader.renewNow() }

// CanAnswer says whether a store could answer at this moment what it has seen.
func CanAnswer(s *Store) bool {
	if !s.reader.mu.TryLock() {
		return false
	}
	s.reader.mu.Unlock()
	return true
}

// ToldGone says whether a watcher that knows a key at a revision, begins anew, and does not
// meet it where it reads, tells that it is gone.
func ToldGone(ctx context.Context, k *Keys, key string, revision uint64) (gone bool, err error) {
	w := &watcher{keys: k, told: map[string]uint64{key: revision}, ready: true, fn: func(e owner.Event) error {
		gone = gone || e.Kind == owner.Deleted && e.Key == key && e.Revision > revision
		return nil
	}}
	err = w.upToDate(ctx, map[string]bool{})
	return gone, err
}
