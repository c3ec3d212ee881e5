package server

import (
	"time"

	"golang.org/x/sys/unix"
)

// wallClock is the clock of a real server.
type wallClock struct{}

// Now implements the Clock of every package.
func (wallClock) Now() time.Time { return time.Now() }

// Boot implements owner.Clock by CLOCK_BOOTTIME, which goes on while the machine is
// suspended, as what others see of it does.
func (wallClock) Boot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("server: there is no CLOCK_BOOTTIME: " + err.Error()) // since Linux 2.6.39
	}
	return time.Duration(ts.Nano())
}
