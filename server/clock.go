package server

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/errs"
)

// EnvClock is how far the server's clock is ahead of its machine's, as "1h" or "-1h", for
// tests of clocks that disagree. It is no setting: nothing that a server should ever run with.
const EnvClock = "MILLRACE_CLOCK_AHEAD"

// wallClock is the clock of a real server.
type wallClock struct{ ahead time.Duration }

// clockAhead is a clock as EnvClock says.
func clockAhead(text string) (wallClock, error) {
	if text == "" {
		return wallClock{}, nil
	}
	ahead, err := time.ParseDuration(text)
	if err != nil {
		return wallClock{}, errs.New(errs.InvalidValue, "%s is %q, which is no time such as 1h or -90s", EnvClock, text)
	}
	return wallClock{ahead}, nil
}

// Now implements the Clock of every package.
func (c wallClock) Now() time.Time { return time.Now().Add(c.ahead) }

// Boot implements owner.Clock by CLOCK_BOOTTIME, which goes on while the machine is
// suspended, as what others see of it does.
func (wallClock) Boot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("server: there is no CLOCK_BOOTTIME: " + err.Error()) // since Linux 2.6.39
	}
	return time.Duration(ts.Nano())
}
