package jsonrow

import (
	"math"
	"math/bits"

	millrace "github.com/millrace/millrace"
)

const (
	secondsPerDay = 86400
	// The days from 1970-01-01 to 0001-01-01 and to 9999-12-31.
	firstDay = -719162
	lastDay  = 2932896
	// What an int64 of nanoseconds reaches back to: seconds, rounded down, and the
	// nanoseconds within that second (1677-09-21T00:12:43.145224192).
	firstNanoSecond = math.MinInt64/1_000_000_000 - 1
	firstNano       = math.MinInt64%1_000_000_000 + 1_000_000_000
)

// timeUnit says how Arrow counts a TIME or timestamp: per second, and how many
// of the nine digits of a nanosecond it keeps.
type timeUnit struct {
	perSecond int64
	digits    int
}

func unitOf(t millrace.DataType) timeUnit {
	switch {
	case t.Precision == 0 && t.Kind != millrace.Time:
		return timeUnit{1, 0}
	case t.Precision <= 3:
		return timeUnit{1e3, 3}
	case t.Precision <= 6:
		return timeUnit{1e6, 6}
	}
	return timeUnit{1e9, 9}
}

var powersOf10 = [...]int64{1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9}

// daysOf is the number of days from 1970-01-01 of a day of the Gregorian
// calendar; ok is false for a day that does not exist. Years begin in March here,
// so that the leap day comes last.
func daysOf(year, month, day int) (days int32, ok bool) {
	if month < 1 || month > 12 || day < 1 || day > monthDays(year, month) {
		return 0, false
	}
	if month <= 2 {
		year--
		month += 12
	}
	era := year / 400 // the year is never below 0
	y := year - era*400
	d := (153*(month-3)+2)/5 + day - 1
	return int32(era*146097 + y*365 + y/4 - y/100 + d - 719468), true
}

func monthDays(year, month int) int {
	switch month {
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	case 4, 6, 9, 11:
		return 30
	}
	return 31
}

// dateOf is the reverse of daysOf, for days from firstDay on.
func dateOf(days int32) (year, month, day int) {
	z := int(days) + 719468
	era := z / 146097
	doe := z - era*146097
	yoe := (doe - doe/1460 + doe/36524 - doe/146096) / 365
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	mp := (5*doy + 2) / 153
	year, month, day = yoe+era*400, mp+3, doy-(153*mp+2)/5+1
	if month > 12 {
		year, month = year+1, month-12
	}
	return year, month, day
}

// two is the number of the two digits at i, or something above 99.
func two(b []byte, i int) int {
	d1, d2 := b[i]-'0', b[i+1]-'0'
	if d1 > 9 || d2 > 9 {
		return 1 << 20
	}
	return int(d1)*10 + int(d2)
}

// parseDate reads YYYY-MM-DD.
func parseDate(b []byte) (int32, verdict) {
	if len(b) != len("2006-01-02") || b[4] != '-' || b[7] != '-' {
		return 0, badText
	}
	year := two(b, 0)*100 + two(b, 2)
	if year > 9999 {
		return 0, badText
	}
	days, ok := daysOf(year, two(b, 5), two(b, 8))
	switch {
	case !ok:
		return 0, badText
	case year == 0:
		return 0, tooLarge
	}
	return days, good
}

// parseClock reads hh:mm:ss and a fraction of any length at the beginning of b.
// Digits beyond precision must be 0. rest is what follows.
func parseClock(b []byte, precision int) (seconds, nanos int64, rest []byte, v verdict) {
	if len(b) < len("15:04:05") || b[2] != ':' || b[5] != ':' {
		return 0, 0, nil, badText
	}
	h, m, s := two(b, 0), two(b, 3), two(b, 6)
	if h > 23 || m > 59 || s > 59 {
		return 0, 0, nil, badText
	}
	seconds, b = int64(h*3600+m*60+s), b[8:]
	if len(b) == 0 || b[0] != '.' {
		return seconds, 0, b, good
	}
	i := 1
	for ; i < len(b) && b[i]-'0' <= 9; i++ {
		d := int64(b[i] - '0')
		if i > precision {
			if d != 0 {
				v = inexact
			}
			continue
		}
		nanos += d * powersOf10[9-i]
	}
	if i == 1 {
		return 0, 0, nil, badText
	}
	return seconds, nanos, b[i:], v
}

// parseTime reads hh:mm:ss[.fraction] in the unit of u.
func parseTime(b []byte, precision int, u timeUnit) (int64, verdict) {
	s, ns, rest, v := parseClock(b, precision)
	switch {
	case v == badText || len(rest) > 0:
		return 0, badText
	case v != good:
		return 0, v
	}
	return s*u.perSecond + ns/powersOf10[9-u.digits], good
}

// parseTimestamp reads a date, T or a space, a time of day, and an offset from
// UTC exactly when zoned.
func parseTimestamp(b []byte, precision int, u timeUnit, zoned bool) (int64, verdict) {
	const dateLen = len("2006-01-02")
	if len(b) <= dateLen || b[dateLen]|0x20 != 't' && b[dateLen] != ' ' {
		return 0, badText
	}
	days, v := parseDate(b[:dateLen])
	if v == badText {
		return 0, v
	}
	// A year 0 is judged once the rest is known to be a time.
	s, ns, rest, cv := parseClock(b[dateLen+1:], precision)
	if cv == badText {
		return 0, badText
	}
	if zoned {
		offset, ok := parseOffset(rest)
		if !ok {
			return 0, badText
		}
		s -= offset
	} else if len(rest) > 0 {
		return 0, badText
	}
	if v != good || cv != good {
		return 0, max(v, cv)
	}
	return timestamp(int64(days)*secondsPerDay+s, ns, u)
}

// parseOffset reads Z, +hh:mm or -hh:mm.
func parseOffset(b []byte) (seconds int64, ok bool) {
	if len(b) == 1 && b[0]|0x20 == 'z' {
		return 0, true
	}
	if len(b) != len("+00:00") || b[0] != '+' && b[0] != '-' || b[3] != ':' {
		return 0, false
	}
	h, m := two(b, 1), two(b, 4)
	if h > 23 || m > 59 {
		return 0, false
	}
	seconds = int64(h*3600 + m*60)
	if b[0] == '-' {
		seconds = -seconds
	}
	return seconds, true
}

// timestamp is seconds and nanoseconds since 1970 in the unit of u, checked
// against the range of timestamps.
func timestamp(s, ns int64, u timeUnit) (int64, verdict) {
	if s < firstDay*secondsPerDay || s >= (lastDay+1)*secondsPerDay {
		return 0, tooLarge
	}
	hi, lo := bits.Mul64(uint64(max(s, -s)), uint64(u.perSecond))
	if hi != 0 || lo > math.MaxInt64 {
		// Only nanoseconds come here. The second of the lower bound is partly inside.
		if s == firstNanoSecond && ns >= firstNano {
			return math.MinInt64 + (ns - firstNano), good
		}
		return 0, tooLarge
	}
	v := s * u.perSecond
	frac := ns / powersOf10[9-u.digits]
	if v > math.MaxInt64-frac {
		return 0, tooLarge
	}
	return v + frac, good
}

// millisTimestamp is a time in milliseconds since 1970 in the unit of u.
func millisTimestamp(ms int64, precision int, u timeUnit) (int64, verdict) {
	s, frac := ms/1e3, ms%1e3
	if frac < 0 {
		s, frac = s-1, frac+1e3
	}
	if precision < 3 && frac%powersOf10[3-precision] != 0 {
		return 0, inexact
	}
	return timestamp(s, frac*1e6, u)
}
