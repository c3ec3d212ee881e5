package millrace

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // zones on machines that have none
)

// Location is the time zone whose days and hours the partitions are.
func (a *AutoPartition) Location() (*time.Location, error) {
	if a.Zone == "Local" {
		return nil, fmt.Errorf("%s is not the name of a time zone such as Europe/Berlin", clip(a.Zone))
	}
	loc, err := time.LoadLocation(a.Zone)
	if err != nil {
		return nil, fmt.Errorf("%s is not the name of a time zone such as Europe/Berlin", clip(a.Zone))
	}
	return loc, nil
}

// Start is the beginning of the period that t is in, by the calendar and clock of
// t's location.
func (u PartitionUnit) Start(t time.Time) time.Time {
	if u == Hourly {
		// Taken off rather than put together: an hour that a clock shows twice is two hours.
		return t.Add(-time.Duration(t.Minute())*time.Minute - time.Duration(t.Second())*time.Second - time.Duration(t.Nanosecond()))
	}
	y, m, d := t.Date()
	return u.startOn(y, m, d, t.Location())
}

// startOn is the beginning of the period, of a day or longer, that a date is in.
func (u PartitionUnit) startOn(y int, m time.Month, d int, loc *time.Location) time.Time {
	switch u {
	case Monthly:
		d = 1
	case Quarterly:
		m, d = (m-1)/3*3+1, 1
	case Yearly:
		m, d = 1, 1
	default:
	}
	t := time.Date(y, m, d, 0, 0, 0, 0, loc)
	if t.Hour() != 0 { // clocks went forward at midnight
		t = time.Date(y, m, d, 1, 0, 0, 0, loc)
	}
	return t
}

// Add is the beginning of the period n after the one that begins at start; n may
// be negative.
func (u PartitionUnit) Add(start time.Time, n int) time.Time {
	y, m, d := start.Date()
	switch u {
	case Hourly:
		return u.Start(start.Add(time.Duration(n) * time.Hour))
	case Monthly:
		m += time.Month(n)
	case Quarterly:
		m += time.Month(3 * n)
	case Yearly:
		y += n
	default:
		d += n
	}
	y, m, d = time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Date()
	return u.startOn(y, m, d, start.Location())
}

// Text is the canonical value, in a partition column of type t, of the period that
// begins at start. A STRING or a number has digits only: 2026082607 for an hour,
// 20260826 for a day, 202608, 20263 for a quarter, 2026; a DATE or timestamp is the
// period's beginning.
func (u PartitionUnit) Text(t DataType, start time.Time) string {
	switch t.Kind {
	case Date:
		return start.Format(time.DateOnly)
	case Timestamp:
		return start.Format(timestampLayout(t.Precision))
	case TimestampLTZ:
		return start.UTC().Format(timestampLayout(t.Precision) + "Z")
	default:
	}
	if u == Quarterly {
		return start.Format("2006") + strconv.Itoa(int(start.Month()-1)/3+1)
	}
	return start.Format(u.layout())
}

// Parse is the beginning of the period that a canonical value of a partition column
// of type t is in; the reverse of Text.
func (u PartitionUnit) Parse(t DataType, value string, loc *time.Location) (time.Time, error) {
	if t.Kind == TimestampLTZ {
		if at, err := time.Parse(time.RFC3339, value); err == nil {
			return u.Start(at.In(loc)), nil
		}
	}
	clock, err := u.parse(t.Kind, value)
	if err != nil {
		return time.Time{}, fmt.Errorf("%s is not a partition by %s of type %v, such as %s",
			clip(value), strings.ToLower(string(u)), t, u.Text(t, u.Start(time.Date(2026, 8, 26, 7, 0, 0, 0, loc))))
	}
	y, m, d := clock.Date()
	if u == Hourly {
		return time.Date(y, m, d, clock.Hour(), 0, 0, 0, loc), nil
	}
	return u.startOn(y, m, d, loc), nil
}

// parse is what calendar and clock show at a value, as if they were those of UTC.
func (u PartitionUnit) parse(k Kind, value string) (time.Time, error) {
	switch k {
	case Date:
		return time.Parse(time.DateOnly, value)
	case Timestamp, TimestampLTZ:
		return time.Parse("2006-01-02T15:04:05", value)
	default:
	}
	if u != Quarterly {
		return time.Parse(u.layout(), value)
	}
	if len(value) != 5 || value[4] < '1' || value[4] > '4' {
		return time.Time{}, fmt.Errorf("%s is not a quarter", clip(value))
	}
	year, err := time.Parse("2006", value[:4])
	return year.AddDate(0, 3*int(value[4]-'1'), 0), err
}

func (u PartitionUnit) layout() string {
	switch u {
	case Hourly:
		return "2006010215"
	case Monthly:
		return "200601"
	case Yearly:
		return "2006"
	default:
		return "20060102"
	}
}

func timestampLayout(precision int) string {
	const layout = "2006-01-02T15:04:05.000000000"
	if precision == 0 {
		return layout[:len("2006-01-02T15:04:05")]
	}
	return layout[:len("2006-01-02T15:04:05.")+precision]
}
