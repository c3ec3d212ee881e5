package millrace

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

var durationUnits = []struct {
	name string
	size time.Duration
}{
	{"d", 24 * time.Hour},
	{"h", time.Hour},
	{"min", time.Minute},
	{"m", time.Minute},
	{"s", time.Second},
	{"ms", time.Millisecond},
}

// ParseDuration reads a duration as settings and properties spell it: an integer
// and one of ms, s, min, m, h, d, such as "250ms" or "7d"; "0" needs no unit.
func ParseDuration(s string) (time.Duration, error) {
	digits := 0
	for digits < len(s) && s[digits] >= '0' && s[digits] <= '9' {
		digits++
	}
	n, err := strconv.ParseInt(s[:digits], 10, 64)
	if digits == 0 || err != nil {
		return 0, fmt.Errorf("%s is not a duration such as 250ms, 30s, 5min, 12h or 7d", clip(s))
	}
	if n == 0 && digits == len(s) {
		return 0, nil
	}
	for _, u := range durationUnits {
		if s[digits:] != u.name {
			continue
		}
		if n > math.MaxInt64/int64(u.size) {
			return 0, fmt.Errorf("the duration %s is too long", clip(s))
		}
		return time.Duration(n) * u.size, nil
	}
	return 0, fmt.Errorf("%s is not a duration: the unit is one of ms, s, min, m, h, d", clip(s))
}

// FormatDuration spells d as ParseDuration reads it, in the largest unit that
// loses nothing; parts below a millisecond are cut off.
func FormatDuration(d time.Duration) string {
	if d < time.Millisecond {
		return "0"
	}
	for _, u := range durationUnits {
		if u.name != "m" && d >= u.size && d%u.size == 0 {
			return strconv.FormatInt(int64(d/u.size), 10) + u.name
		}
	}
	return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
}
