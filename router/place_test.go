package router

import (
	"testing"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
)

// A refused place is told as a sentence: the offset at fault, the end of a range if its start is there, and what the log holds.
func TestSayOutside(t *testing.T) {
	for _, c := range []struct {
		from, to   millrace.Offset
		start, end millrace.Offset
		want       string
	}{
		{99, 99, 0, 18, "offset 99 is outside the log of bucket 3, which holds offsets 0 to 17 (the next is 18)"},
		{2, 18, 5, 18, "offset 2 is outside the log of bucket 3, which holds offsets 5 to 17 (the next is 18): what was there has expired (table.log.ttl)"},
		{7, 20, 5, 18, "offset 20 is outside the log of bucket 3, which holds offsets 5 to 17 (the next is 18)"},
		{1, 1, 0, 0, "offset 1 is outside the log of bucket 3, which is empty (the next offset is 0)"},
		{1, 1, 6, 6, "offset 1 is outside the log of bucket 3, which is empty (the next offset is 6): what was there has expired (table.log.ttl)"},
	} {
		got := sayOutside(&Part{Key: "3", Start: c.from, End: c.to}, LogRange{Start: c.start, End: c.end})
		require.Equal(t, c.want, got)
	}
}
