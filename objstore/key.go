package objstore

import (
	"strings"

	"github.com/millrace/millrace/errs"
)

// Bounds on keys: of what file systems call a name, and of S3's 1,024 bytes the part
// that a prefix of 255 leaves.
const (
	maxSegmentBytes = 255
	maxKeyBytes     = 768
	maxPrefixBytes  = 255
)

// checkKey says what is wrong with a key.
func checkKey(key string) error {
	if len(key) > maxKeyBytes {
		return errs.New(errs.InvalidValue, "an object's key has %d bytes, at most %d", len(key), maxKeyBytes)
	}
	for s := range strings.SplitSeq(key, "/") {
		if !validSegment(s) {
			return errs.New(errs.InvalidValue, "%q is no key of an object: its segments have 1 to %d of A-Z a-z 0-9 . _ = - and are not \".\" or \"..\"", key, maxSegmentBytes)
		}
	}
	return nil
}

// checkPrefix says what is wrong with the beginning of keys; its last segment may be
// cut off anywhere.
func checkPrefix(prefix string) error {
	folder, last := "", prefix
	if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
		folder, last = prefix[:i], prefix[i+1:]
	}
	if len(last) > maxSegmentBytes || !validCharacters(last) {
		return errs.New(errs.InvalidValue, "%q is not how the key of an object can begin", prefix)
	}
	if folder == "" && last == prefix {
		return nil
	}
	return checkKey(folder)
}

func validSegment(s string) bool {
	return s != "" && s != "." && s != ".." && len(s) <= maxSegmentBytes && validCharacters(s)
}

func validCharacters(s string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '=', c == '-':
		default:
			return false
		}
	}
	return true
}
