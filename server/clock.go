package server

import "time"

// wallClock is the clock of a real server.
type wallClock struct{}

// Now implements the Clock of every package.
func (wallClock) Now() time.Time { return time.Now() }
