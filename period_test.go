package millrace

import (
	"testing"
	"time"
)

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	loc, err := (&AutoPartition{Zone: name}).Location()
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

func mustType(t *testing.T, text string) DataType {
	t.Helper()
	typ, err := ParseType(text)
	if err != nil {
		t.Fatal(err)
	}
	return typ
}

// The text of a period, and the beginnings of the periods around it, are those of
// the calendar; what Text writes, Parse reads.
func TestPeriods(t *testing.T) {
	berlin := zone(t, "Europe/Berlin")
	for _, c := range []struct {
		unit                   PartitionUnit
		typ, at                string
		want, before, nextNext string
	}{
		{Hourly, "STRING", "2026-12-31T23:59:59Z", "2027010100", "2026123123", "2027010102"},
		{Daily, "STRING", "2026-02-28T12:00:00Z", "20260228", "20260227", "20260302"},
		{Monthly, "INT", "2026-01-31T22:59:59Z", "202601", "202512", "202603"},
		{Monthly, "INT", "2026-01-31T23:00:00Z", "202602", "202601", "202604"},
		{Quarterly, "STRING", "2026-11-29T10:00:00Z", "20264", "20263", "20272"},
		{Yearly, "BIGINT", "2026-11-29T10:00:00Z", "2026", "2025", "2028"},
		{Daily, "DATE", "2026-03-29T10:00:00Z", "2026-03-29", "2026-03-28", "2026-03-31"},
		{Quarterly, "DATE", "2026-03-29T10:00:00Z", "2026-01-01", "2025-10-01", "2026-07-01"},
		{Daily, "TIMESTAMP(3)", "2026-08-26T10:00:00Z", "2026-08-26T00:00:00.000", "2026-08-25T00:00:00.000", "2026-08-28T00:00:00.000"},
		{Daily, "TIMESTAMP_LTZ(0)", "2026-03-28T10:00:00Z", "2026-03-27T23:00:00Z", "2026-03-26T23:00:00Z", "2026-03-29T22:00:00Z"},
		// The clock goes back at 01:00Z, and the hour from two to three comes twice.
		{Hourly, "TIMESTAMP_LTZ(0)", "2026-10-25T00:30:00Z", "2026-10-25T00:00:00Z", "2026-10-24T23:00:00Z", "2026-10-25T02:00:00Z"},
		{Hourly, "STRING", "2026-10-25T00:30:00Z", "2026102502", "2026102501", "2026102503"},
		{Hourly, "STRING", "2026-10-25T01:30:00Z", "2026102502", "2026102502", "2026102504"},
	} {
		typ := mustType(t, c.typ)
		at, err := time.Parse(time.RFC3339, c.at)
		if err != nil {
			t.Fatal(err)
		}
		start := c.unit.Start(at.In(berlin))
		if start.After(at) || !c.unit.Add(start, 1).After(at) {
			t.Errorf("%s: the period at %s is [%s, %s)", c.unit, c.at, start, c.unit.Add(start, 1))
		}
		for _, p := range []struct {
			start time.Time
			want  string
		}{{start, c.want}, {c.unit.Add(start, -1), c.before}, {c.unit.Add(start, 2), c.nextNext}} {
			if got := c.unit.Text(typ, p.start); got != p.want {
				t.Errorf("%s at %s: %q, want %q", c.unit, c.at, got, p.want)
			}
			back, err := c.unit.Parse(typ, p.want, berlin)
			if again := c.unit.Text(typ, back); err != nil || again != p.want {
				t.Errorf("%s: %q is read as %s (%q), %v", c.unit, p.want, back, again, err)
			}
		}
	}
}

// A day whose midnight a clock skipped begins at one o'clock and is that day.
func TestSkippedMidnight(t *testing.T) {
	loc := zone(t, "America/Sao_Paulo") // 2018-11-04 began at one o'clock
	text := mustType(t, "STRING")
	start := Daily.Start(time.Date(2018, 11, 4, 15, 0, 0, 0, loc))
	if got := Daily.Text(text, start); got != "20181104" || start.Hour() != 1 {
		t.Errorf("%s, %q", start, got)
	}
	for n, want := range map[int]string{-1: "20181103", 1: "20181105"} {
		if got := Daily.Text(text, Daily.Add(start, n)); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
	if got := Daily.Add(Daily.Add(start, -1), 1); !got.Equal(start) {
		t.Errorf("%s, want %s", got, start)
	}
	if got, err := Daily.Parse(text, "20181104", loc); err != nil || !got.Equal(start) {
		t.Errorf("%s, %v", got, err)
	}
}

// What is no period is refused, with one that is.
func TestBadPeriods(t *testing.T) {
	for _, c := range []struct {
		unit       PartitionUnit
		typ, value string
	}{
		{Daily, "STRING", "2026-08-26"},
		{Daily, "STRING", "2026082"},
		{Daily, "STRING", "20260231"},
		{Daily, "STRING", ""},
		{Hourly, "STRING", "20260826"},
		{Hourly, "STRING", "2026082624"},
		{Quarterly, "STRING", "20265"},
		{Quarterly, "STRING", "2026Q1"},
		{Monthly, "INT", "20260826"},
		{Yearly, "BIGINT", "-2026"},
	} {
		if got, err := c.unit.Parse(mustType(t, c.typ), c.value, time.UTC); err == nil {
			t.Errorf("%s %s: %s", c.unit, c.value, got)
		}
	}
}
