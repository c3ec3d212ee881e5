package millrace

import (
	"math"
	"testing"
)

// Sizes are read in every unit and spelled back; what is none, or too large, is
// refused.
func TestSize(t *testing.T) {
	for _, c := range []struct {
		text string
		want int64
		back string
	}{
		{"128MiB", 128 << 20, "128MiB"},
		{"1gib", 1 << 30, "1GiB"},
		{"0KiB", 0, "0KiB"},
		{"1024KiB", 1 << 20, "1MiB"},
		{"1536KIB", 1536 << 10, "1536KiB"},
		{"8589934591GiB", math.MaxInt64 &^ (1<<30 - 1), "8589934591GiB"},
	} {
		got, err := ParseSize(c.text)
		if err != nil || got != c.want || FormatSize(got) != c.back {
			t.Errorf("%q: %d, %q, %v", c.text, got, FormatSize(got), err)
		}
	}
	if got := FormatSize(1025); got != "1KiB" {
		t.Error(got)
	}
	for _, text := range []string{"", "128", "MiB", "-1MiB", "1.5GiB", "1 MiB", "128MB", "8589934592GiB", "99999999999999999999KiB", "1MiB "} {
		if n, err := ParseSize(text); err == nil {
			t.Errorf("%q is %d", text, n)
		}
	}
}
