package keyvalue

import "context"

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
