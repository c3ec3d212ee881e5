package keyvalue

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
