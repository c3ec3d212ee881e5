package main

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/openapi"
)

// printable is text with every control character written out, so that data
// cannot play tricks with the terminal (M3).
func printable(s string) string {
	clean := true
	for _, r := range s {
		if unicode.IsControl(r) || r == unicode.ReplacementChar || isBidi(r) {
			clean = false
			break
		}
	}
	if clean {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case unicode.IsControl(r) || isBidi(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// isBidi says whether r changes the direction of what follows.
func isBidi(r rune) bool {
	return r >= 0x202A && r <= 0x202E || r >= 0x2066 && r <= 0x2069
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return grouped(int64(n)) + " " + noun + "s"
}

// grouped writes a number in groups of three digits.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	first := len(s) % 3
	if n < 0 {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		if i > 0 && i%3 == first {
			b.WriteByte(',')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// byteSize writes a number of bytes for people.
func byteSize(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n)/unit, 0
	for ; f >= unit && i < 3; i++ {
		f /= unit
	}
	return fmt.Sprintf("%.1f %ciB", f, "KMGT"[i])
}

// each is a list of things.
func each[T any](s []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, v := range s {
			if !yield(v, nil) {
				return
			}
		}
	}
}

// sortedBuckets are the bucket keys in order of partition and number.
func sortedBuckets(offsets openapi.Offsets) []string {
	return slices.SortedFunc(maps.Keys(offsets), func(a, b string) int {
		pa, na, errA := millrace.ParseBucketKey(a)
		pb, nb, errB := millrace.ParseBucketKey(b)
		if errA != nil || errB != nil {
			return strings.Compare(a, b)
		}
		return cmp.Or(strings.Compare(pa, pb), cmp.Compare(na, nb))
	})
}
