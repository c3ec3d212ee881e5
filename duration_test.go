package millrace

import (
	"testing"
	"time"
)

// Durations are read as the contract spells them, and written back in the form that is read.
func TestParseDuration(t *testing.T) {
	good := map[string]time.Duration{
		"0": 0, "0s": 0, "1ms": time.Millisecond, "30s": 30 * time.Second, "5min": 5 * time.Minute,
		"5m": 5 * time.Minute, "12h": 12 * time.Hour, "7d": 7 * 24 * time.Hour, "106751d": 106751 * 24 * time.Hour,
	}
	for in, want := range good {
		got, err := ParseDuration(in)
		if err != nil || got != want {
			t.Errorf("ParseDuration(%q) = %v, %v; want %v", in, got, err, want)
		}
		if back, err := ParseDuration(FormatDuration(got)); err != nil || back != want {
			t.Errorf("%q is written as %q, which reads as %v, %v", in, FormatDuration(got), back, err)
		}
	}
	for _, in := range []string{"", "s", "1", "-1s", "1.5s", "1 s", "1S", "1w", "1us", "106752d", "99999999999999999999s", "1h30m"} {
		if got, err := ParseDuration(in); err == nil {
			t.Errorf("ParseDuration(%q) = %v, want an error", in, got)
		}
	}
	for in, want := range map[time.Duration]string{
		1500 * time.Millisecond: "1500ms", 90 * time.Second: "90s", 25 * time.Hour: "25h", 2 * time.Minute: "2min", time.Microsecond: "0",
		time.Second + time.Microsecond: "1000ms",
	} {
		if got := FormatDuration(in); got != want {
			t.Errorf("FormatDuration(%v) = %q, want %q", in, got, want)
		}
	}
}
