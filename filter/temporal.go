package filter

import (
	"cmp"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"

	millrace "github.com/millrace/millrace"
)

// instant is a point in time, seconds and nanoseconds since the Unix epoch in
// UTC, or a time of day since midnight; 0 ≤ nsec < 1e9.
type instant struct {
	sec  int64
	nsec int64
}

func instantOf(t time.Time) instant { return instant{t.Unix(), int64(t.Nanosecond())} }

func (i instant) compare(o instant) int {
	if c := cmp.Compare(i.sec, o.sec); c != 0 {
		return c
	}
	return cmp.Compare(i.nsec, o.nsec)
}

// place is where i lies among whole units of that many nanoseconds.
func (i instant) place(unitNanos int64) place {
	n := new(big.Int).Mul(big.NewInt(i.sec), big.NewInt(int64(time.Second)))
	n.Add(n, big.NewInt(i.nsec))
	rest := new(big.Int)
	n.DivMod(n, big.NewInt(unitNanos), rest)
	return place{floor: n, exact: rest.Sign() == 0}
}

// unitNanos is the unit in which a column of type t counts time.
func unitNanos(t millrace.DataType) int64 {
	switch {
	case t.Kind == millrace.Date:
		return 24 * int64(time.Hour)
	case t.Precision == 0 && t.Kind != millrace.Time:
		return int64(time.Second)
	case t.Precision <= 3:
		return int64(time.Millisecond)
	case t.Precision <= 6:
		return int64(time.Microsecond)
	}
	return 1
}

// readTemporal reads a date, a time or a timestamp.
func readTemporal(s string, k valueKind) (value, error) {
	v := value{kind: k}
	var ok bool
	switch k {
	case valueDate:
		v.instant.sec, ok = readDate(s)
	case valueTime:
		v.instant, ok = readClock(s)
	default:
		var zoned bool
		v.instant, zoned, ok = readTimestamp(s)
		if ok && zoned && k == valueTimestamp {
			return value{}, fmt.Errorf("%s has a time zone offset, which a TIMESTAMP has not", quoteText(s))
		}
	}
	if !ok {
		return value{}, fmt.Errorf("%s is not %s", quoteText(s), temporalForms[k])
	}
	return v, nil
}

// readTimestamp reads a date and, unless it is midnight, T or a space, a time and
// maybe an offset; without an offset the time is UTC.
func readTimestamp(s string) (i instant, zoned, ok bool) {
	if len(s) <= 10 {
		i.sec, ok = readDate(s)
		return i, false, ok
	}
	if s[10] != 'T' && s[10] != 't' && s[10] != ' ' {
		return i, false, false
	}
	date, ok1 := readDate(s[:10])
	clock, offset, zoned, ok2 := cutOffset(s[11:])
	i, ok3 := readClock(clock)
	i.sec += date - offset
	return i, zoned, ok1 && ok2 && ok3
}

var temporalForms = map[valueKind]string{
	valueDate:         "a DATE such as '2026-11-29'",
	valueTime:         "a TIME such as '10:00:00.123'",
	valueTimestamp:    "a TIMESTAMP such as '2026-11-29T10:00:00.123'",
	valueTimestampLTZ: "a TIMESTAMP_LTZ such as '2026-11-29T10:00:00.123Z'",
}

// readDate reads YYYY-MM-DD, year 1 and later, as the seconds of its midnight.
func readDate(s string) (int64, bool) {
	if len(s) != 10 || s[4] != '-' || s[7] != '-' {
		return 0, false
	}
	y, ok1 := readInt(s[:4])
	m, ok2 := readInt(s[5:7])
	d, ok3 := readInt(s[8:])
	if !ok1 || !ok2 || !ok3 || y == 0 || m < 1 || m > 12 || d < 1 || d > daysIn(y, time.Month(m)) {
		return 0, false
	}
	return time.Date(y, time.Month(m), d, 0, 0, 0, 0, time.UTC).Unix(), true
}

// readClock reads HH:MM[:SS[.fraction]], at most nine digits of fraction.
func readClock(s string) (instant, bool) {
	var i instant
	s, frac, hasFrac := strings.Cut(s, ".")
	if hasFrac {
		n, ok := readInt(frac)
		if !ok || len(frac) > 9 || len(s) != 8 {
			return i, false
		}
		i.nsec = int64(n)
		for range 9 - len(frac) {
			i.nsec *= 10
		}
	}
	if len(s) != 5 && len(s) != 8 || s[2] != ':' || len(s) == 8 && s[5] != ':' {
		return i, false
	}
	h, ok1 := readInt(s[:2])
	m, ok2 := readInt(s[3:5])
	sec, ok3 := 0, true
	if len(s) == 8 {
		sec, ok3 = readInt(s[6:])
	}
	i.sec = int64(h*3600 + m*60 + sec)
	return i, ok1 && ok2 && ok3 && h < 24 && m < 60 && sec < 60
}

// cutOffset takes Z or ±HH:MM off the end of a time; the offset is in seconds.
func cutOffset(s string) (clock string, offset int64, zoned, ok bool) {
	if c, found := strings.CutSuffix(strings.ToUpper(s), "Z"); found {
		return c, 0, true, true
	}
	at := strings.LastIndexAny(s, "+-")
	if at < 0 {
		return s, 0, false, true
	}
	z := s[at+1:]
	if len(z) != 5 || z[2] != ':' {
		return s[:at], 0, true, false
	}
	h, ok1 := readInt(z[:2])
	m, ok2 := readInt(z[3:])
	offset = int64(h*3600 + m*60)
	if s[at] == '-' {
		offset = -offset
	}
	return s[:at], offset, true, ok1 && ok2 && h < 24 && m < 60
}

func readInt(s string) (int, bool) {
	n := 0
	for i := range len(s) {
		if !isDigit(s[i]) || i >= 18 {
			return 0, false
		}
		n = n*10 + int(s[i]-'0')
	}
	return n, s != ""
}

func daysIn(year int, month time.Month) int {
	return time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day()
}

// interval is a signed number of seconds, or of calendar months.
type interval struct {
	seconds int64
	months  int64
}

// intervalUnits are the units of INTERVAL; a plural S is allowed.
var intervalUnits = map[string]interval{
	"SECOND": {seconds: 1}, "MINUTE": {seconds: 60}, "HOUR": {seconds: 3600},
	"DAY": {seconds: 86400}, "WEEK": {seconds: 7 * 86400},
	"MONTH": {months: 1}, "QUARTER": {months: 3}, "YEAR": {months: 12},
}

// maxInterval keeps the arithmetic far from overflow.
const maxInterval = 1_000_000_000

func readInterval(count, unit string, sign int64) (interval, error) {
	u, ok := intervalUnits[strings.TrimSuffix(strings.ToUpper(unit), "S")]
	if !ok {
		return interval{}, fmt.Errorf("%s is not a unit; the units are SECOND, MINUTE, HOUR, DAY, WEEK, MONTH, QUARTER and YEAR", clip(unit))
	}
	digits, minus := strings.CutPrefix(count, "-")
	n, ok := readInt(digits)
	if !ok {
		return interval{}, fmt.Errorf("%s is not a whole number", quoteText(count))
	}
	if n > maxInterval {
		return interval{}, fmt.Errorf("%s is more than %d", quoteText(count), maxInterval)
	}
	if minus {
		sign = -sign
	}
	u.seconds *= sign * int64(n)
	u.months *= sign * int64(n)
	return u, nil
}

// shift adds an interval. A day that the month reached does not have becomes its
// last day, as in SQL.
func shift(t time.Time, by interval) (time.Time, error) {
	t = t.UTC()
	if by.months != 0 {
		months := int64(t.Year())*12 + int64(t.Month()-1) + by.months
		y, m := int(months/12), time.Month(months%12+1)
		if months < 12 || y > 9999 {
			return t, errOutsideTime
		}
		day := min(t.Day(), daysIn(y, m))
		t = time.Date(y, m, day, t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
	}
	t = time.Unix(t.Unix()+by.seconds, int64(t.Nanosecond())).UTC()
	if t.Year() < 1 || t.Year() > 9999 {
		return t, errOutsideTime
	}
	return t, nil
}

var errOutsideTime = errors.New("the time lies outside the years 0001 to 9999")
