package owner

import (
	"context"
	"fmt"
	"strings"

	"github.com/millrace/millrace/errs"
)

// Keys is a small store of keys, each changed by compare-and-set on its revision. A
// key is words of ASCII letters, digits, '-' and '_', joined by dots (CheckKey).
//
// Revisions are of the store: each change has one above those of all changes before
// it, also over deletions, so a revision that was seen is never met again with another
// value.
//
// Bounds are the caller's: a change or read goes on until ctx ends. A change that was
// sent and not answered is settled as long as ctx allows, by sending it again (it can be
// made once only) and by reading: values must tell their writers and what they wrote
// apart, since a key that is found to hold exactly what was to be written counts as
// written by this call. The errors are
//
//   - *ConflictError: the key has another revision, and not what was to be written.
//     Nothing will be changed by this call any more.
//   - unknown_outcome: ctx ended first. The change is made, or will be, or not: only a
//     later read that finds a revision above the expected one says which.
//   - unavailable: nothing was sent, and nothing will be.
//   - invalid_value: the key or value cannot be stored.
type Keys interface {
	// Create gives a key its first value. The key must be absent.
	Create(ctx context.Context, key string, value []byte) (revision uint64, err error)
	// Update replaces the value of a key that has the revision.
	Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error)
	// Delete removes a key that has the revision.
	Delete(ctx context.Context, key string, revision uint64) error
	// Get asks the store's leader; ok is false when the key is absent. A leader that has been
	// deposed and does not know yet may answer too, so what is read is a hint until a
	// change that expects its revision was made.
	Get(ctx context.Context, key string) (entry Entry, ok bool, err error)
	// Watch calls fn, one call at a time: first with every key under prefix as it
	// stands, then with UpToDate, then with each change. It goes on over lost
	// connections by reading anew, and then passes on what is different: of several changes
	// of a key the last one, and keys that are gone as Deleted. Per key, revisions rise. The prefix
	// is empty or ends with a dot. Watch returns when fn fails, with its error, and when ctx ends, with ctx's.
	Watch(ctx context.Context, prefix string, fn func(Event) error) error
}

// Entry is a key as it stands.
type Entry struct {
	Key      string
	Value    []byte
	Revision uint64
}

// EventKind says what an Event tells.
type EventKind uint8

// What an Event tells.
const (
	// Put: the key has the value.
	Put EventKind = iota + 1
	// Deleted: the key is absent. Revision is the deletion's, or above it when that
	// was not seen itself.
	Deleted
	// UpToDate: every key that was there when Watch was called has been told. It
	// comes once, without a key.
	UpToDate
)

// Event is one thing that a watcher is told.
type Event struct {
	Kind EventKind
	Entry
}

// ConflictError says that a key had another revision than a change expected.
type ConflictError struct {
	Key       string
	Want, Got uint64 // 0: absent
}

// Error names the key and both revisions.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("key %q has revision %d, not %d", e.Key, e.Got, e.Want)
}

// Limits of keys.
const (
	MaxKeyBytes   = 200
	MaxValueBytes = 256 << 10
)

// CheckKey checks that a key can be stored.
func CheckKey(key string) error {
	if key == "" || len(key) > MaxKeyBytes {
		return errs.New(errs.InvalidValue, "a key has %d bytes; it has 1 to %d", len(key), MaxKeyBytes)
	}
	for word := range strings.SplitSeq(key, ".") {
		if word == "" || strings.ContainsFunc(word, func(r rune) bool { return !keyRune(r) }) {
			return errs.New(errs.InvalidValue, "key %q is not words of letters, digits, '-' and '_' joined by dots", key)
		}
	}
	return nil
}

// CheckPrefix checks a prefix of Watch.
func CheckPrefix(prefix string) error {
	if prefix == "" {
		return nil
	}
	word, ok := strings.CutSuffix(prefix, ".")
	if !ok {
		return errs.New(errs.InvalidValue, "prefix %q does not end with a dot", prefix)
	}
	return CheckKey(word)
}

// CheckValue checks that a value can be stored.
func CheckValue(key string, value []byte) error {
	if len(value) == 0 || len(value) > MaxValueBytes {
		return errs.New(errs.InvalidValue, "the value of key %q has %d bytes; it has 1 to %d", key, len(value), MaxValueBytes)
	}
	return nil
}

func keyRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_'
}
