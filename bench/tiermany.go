package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// tierMany takes millions of rows to the lake at once: how long that takes, how much
// memory, and what is in the object store afterwards.
func (b *bench) tierMany(ctx context.Context) error {
	recs, err := flights()
	if err != nil {
		return err
	}
	t := &table{name: "many", columns: columnsOf(flightSchema), buckets: 4, properties: lakeProperties()}
	if err := b.server.create(ctx, t); err != nil {
		return err
	}
	b.say("loading %d flights", b.size.TierManyRows)
	if err := b.server.loadRows(ctx, t, recs, b.size.TierManyRows); err != nil {
		return err
	}
	if err := b.server.restart(ctx); err != nil { // its memory is that of tiering
		return err
	}
	idle, err := memoryMiB(b.server.pid())
	if err != nil {
		return err
	}
	before, err := b.server.storeCalls(ctx)
	if err != nil {
		return err
	}
	var done *lakeStatus
	got, err := b.measure(ctx, &side{name: "tiering", processes: map[string]int{"millrace": b.server.pid()}, work: func(ctx context.Context) (float64, int64, error) {
		if err := b.server.tierNow(ctx, t); err != nil {
			return 0, 0, err
		}
		var err error
		if done, err = b.server.lakeStatus(ctx, t); err != nil {
			return 0, 0, err
		}
		return float64(done.Totals.Rows), done.Totals.Bytes, nil
	}}, true)
	if err != nil {
		return err
	}
	if done.Pending != 0 || done.Totals.Rows < int64(b.size.TierManyRows) {
		return fmt.Errorf("%d rows are in the lake and %d are not, of %d", done.Totals.Rows, done.Pending, b.size.TierManyRows)
	}
	peak, err := peakMiB(b.server.pid())
	if err != nil {
		return err
	}
	after, err := b.server.storeCalls(ctx)
	if err != nil {
		return err
	}
	objects, err := countFiles(done.Location)
	if err != nil {
		return err
	}
	var calls []string
	total := 0.0
	for op, n := range after {
		if n -= before[op]; n > 0 {
			calls = append(calls, fmt.Sprintf("%s %.0f", op, n))
			total += n
		}
	}
	slices.Sort(calls)
	what := fmt.Sprintf("tiering %.3g million flights in 4 buckets at once", got.Work/1e6)
	for i, r := range []result{
		{Metric: "rows/s", Unit: "rows/s", Ours: got.perSecond()},
		{Metric: "per server-CPU-second", Unit: "rows/CPU-s", Ours: got.perCPU("millrace")},
		{Metric: "peak memory", Unit: fmt.Sprintf("MiB (%.0f before)", idle), Ours: peak},
		{Metric: "objects", Unit: fmt.Sprintf("of %.0f MB, %d of them data", float64(done.Totals.Bytes)/1e6, done.Totals.Files), Ours: float64(objects)},
		{Metric: "calls of the object store", Unit: strings.Join(calls, ", "), Ours: total},
	} {
		r.ID, r.What, r.Busy, r.Runs, r.Met = "R12M", what, busy(got.Pressure), 1, true
		if i == 0 {
			r.OurRuns = []*sample{got}
		}
		b.add(&r)
	}
	return nil
}

// storeCalls is how often the server has called its object store, by operation; one that
// writes an object in parts counts once.
func (s *server) storeCalls(ctx context.Context) (map[string]float64, error) {
	body, err := s.ask(ctx, http.MethodGet, "/metrics", nil)
	if err != nil {
		return nil, err
	}
	out := map[string]float64{}
	for line := range strings.Lines(string(body)) {
		rest, ok := strings.CutPrefix(line, `millrace_objstore_call_duration_seconds_count{operation="`)
		if !ok {
			continue
		}
		op, count, _ := strings.Cut(rest, `"} `)
		if out[op], err = strconv.ParseFloat(strings.TrimSpace(count), 64); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// countFiles is how many files there are below the location of a lake table in files.
func countFiles(location string) (int, error) {
	u, err := url.Parse(location)
	if err != nil {
		return 0, err
	}
	n := 0
	return n, filepath.WalkDir(u.Path, func(_ string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			n++
		}
		return err
	})
}
