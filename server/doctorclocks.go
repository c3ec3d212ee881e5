package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"
)

const (
	subjectClocks = "clocks"
	// clockOff is how far clocks may be apart before a word is said, and clockWrong before
	// tokens are refused (the leeway of package token).
	clockOff, clockWrong = 2 * time.Second, 50 * time.Second
)

// otherClock is how far a clock is ahead of ours, give or take what cannot be known.
type otherClock struct {
	whose  string
	ahead  time.Duration
	unsure time.Duration
}

// clock remembers what another clock said at a moment between two of ours; it tells whole
// units only.
func (d *doctor) clock(whose string, before, after, said time.Time, unit time.Duration) {
	half := after.Sub(before) / 2
	d.clocks = append(d.clocks, otherClock{whose, said.Add(unit / 2).Sub(before.Add(half)), half + unit/2})
}

// dated remembers the Date of an answer.
func (d *doctor) dated(whose string, before time.Time, h http.Header) {
	if at, err := http.ParseTime(h.Get("Date")); err == nil {
		d.clock(whose, before, d.now(), at, time.Second)
	}
}

// lookAtClocks compares the clocks of all that were asked with ours.
func (d *doctor) lookAtClocks(context.Context) {
	if len(d.clocks) == 0 {
		d.skipped(subjectClocks, "", "nothing else that tells the time was reached; tokens and certificates go by this machine's: %s", d.now().UTC().Format(time.RFC3339))
		return
	}
	var same []string
	for _, c := range d.clocks {
		apart := c.ahead.Abs() - c.unsure
		which := "ahead of"
		if c.ahead < 0 {
			which = "behind"
		}
		const advice = "let all machines follow one source of time (chrony, systemd-timesyncd): tokens, certificates and requests to S3 are refused when clocks differ, and times of commits jump"
		switch text := fmt.Sprintf("that of %s is %v %s ours", c.whose, apartText(c.ahead.Abs()), which); {
		case apart > clockWrong:
			d.failed(subjectClocks, advice, "%s", text)
		case apart > clockOff:
			d.warn(subjectClocks, advice, "%s", text)
		default:
			same = append(same, c.whose)
		}
	}
	if len(same) > 0 {
		d.ok(subjectClocks, "ours agrees with %s", strings.Join(same, ", "))
	}
}

// apartText leaves out what cannot be known.
func apartText(t time.Duration) time.Duration {
	if t > time.Minute {
		return t.Round(10 * time.Second)
	}
	return t.Round(100 * time.Millisecond)
}
