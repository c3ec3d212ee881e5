package millrace

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

var sizeUnits = []struct {
	name  string
	bytes int64
}{
	{"GiB", 1 << 30},
	{"MiB", 1 << 20},
	{"KiB", 1 << 10},
}

// ParseSize reads a number of bytes as settings and properties spell it: a whole
// number of KiB, MiB or GiB, such as "128MiB". The unit may be in any case.
func ParseSize(s string) (int64, error) {
	digits := 0
	for digits < len(s) && s[digits] >= '0' && s[digits] <= '9' {
		digits++
	}
	n, err := strconv.ParseInt(s[:digits], 10, 64)
	if err == nil {
		for _, u := range sizeUnits {
			if strings.EqualFold(s[digits:], u.name) && n <= math.MaxInt64/u.bytes {
				return n * u.bytes, nil
			}
		}
	}
	return 0, fmt.Errorf("%s is not a number of KiB, MiB or GiB such as 128MiB", clip(s))
}

// FormatSize spells n as ParseSize reads it, in the largest unit that loses nothing;
// parts below a KiB are cut off.
func FormatSize(n int64) string {
	for _, u := range sizeUnits {
		if n >= u.bytes && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n>>10, 10) + "KiB"
}
