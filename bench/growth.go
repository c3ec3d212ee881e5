package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// How far R16 grows: everything a hundredfold.
type extent struct{ rows, tables, partitions int }

// keysPerWrite is how many rows one request writes while a table grows.
const keysPerWrite = 1000

// idleBuckets is R15: what 4,096 buckets with a small write each hold in memory.
func (b *bench) idleBuckets(ctx context.Context) error {
	s, err := startServer(ctx, b.o, b.path("buckets"))
	if err != nil {
		return err
	}
	defer func() { s.child.stop() }()
	if err := s.createDatabase(ctx); err != nil {
		return err
	}
	n := b.size.IdleBuckets
	b.say("R15 memory of %d buckets with a small write each", n)
	before, err := memoryMiB(s.pid())
	if err != nil {
		return err
	}
	pressure, err := cpuPressure()
	if err != nil {
		return err
	}
	t := &table{name: "buckets", columns: "id BIGINT, v STRING", key: "id", buckets: n}
	if err := s.create(ctx, t); err != nil {
		return err
	}
	// Ten keys a bucket leave none of them out, but for one in 20,000.
	if err := s.fill(ctx, t, 10*n, ""); err != nil {
		return err
	}
	time.Sleep(5 * time.Second) // collections and flushes end
	after, err := memoryMiB(s.pid())
	if err != nil {
		return err
	}
	b.add(&result{
		ID: "R15", What: fmt.Sprintf("%d buckets with a small write each", n), Metric: "more memory", Unit: "MiB",
		Ours: after - before, Target: 200, AtMost: true, Met: after-before <= 200, Busy: busy(pressure), Runs: 1,
	})
	return s.stop()
}

func busy(pressure float64) int {
	if pressure > busyAbove {
		return 1
	}
	return 0
}

// grow is R16: what single requests cost on a server with much, and on one with a
// hundredth of that, measured in turn.
func (b *bench) grow(ctx context.Context) error {
	large := extent{b.size.GrowRows, b.size.GrowTables, b.size.GrowPartitions}
	small := extent{large.rows / 100, large.tables / 100, large.partitions / 100}
	b.say("R16 growth from %+v to %+v", small, large)
	requests := map[string][]func() error{}
	for i, e := range []extent{small, large} {
		s, err := startServer(ctx, b.o, b.path(fmt.Sprintf("growth-%d", i)))
		if err != nil {
			return err
		}
		defer func() { s.child.stop() }()
		if err := s.loadExtent(ctx, e); err != nil {
			return err
		}
		for what, f := range s.requests(ctx, e) {
			requests[what] = append(requests[what], f)
		}
	}
	pressure, err := cpuPressure()
	if err != nil {
		return err
	}
	for _, what := range slices.Sorted(maps.Keys(requests)) {
		cost, err := inTurn(requests[what])
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		ratio := cost[1] / cost[0]
		b.add(&result{
			ID: "R16", What: what, Yardstick: "with a hundredth of the data", Metric: "median", Unit: "µs",
			Ours: cost[1], Yard: cost[0], Ratio: ratio, Ratios: []float64{ratio}, Target: 1.3, AtMost: true, Met: ratio <= 1.3, Busy: busy(pressure), Runs: 1,
		})
	}
	return nil
}

var (
	grownKeyed  = &table{name: "keyed", columns: "id BIGINT, v STRING", key: "id", buckets: 16}
	grownLog    = &table{name: "log", columns: "id BIGINT, v STRING", buckets: 16}
	grownParted = &table{name: "parted", columns: "id BIGINT, p BIGINT, v STRING", key: "id,p", partition: "p", buckets: 1}
)

// loadExtent fills an empty server, and restarts it, so that everything is where it stays.
func (s *server) loadExtent(ctx context.Context, e extent) error {
	if err := s.createDatabase(ctx); err != nil {
		return err
	}
	for _, t := range []*table{grownKeyed, grownLog, grownParted} {
		if err := s.create(ctx, t); err != nil {
			return err
		}
	}
	for n := range e.tables {
		if err := s.create(ctx, &table{name: "t" + strconv.Itoa(n), columns: "id BIGINT", buckets: 1}); err != nil {
			return err
		}
	}
	err := errors.Join(s.fill(ctx, grownKeyed, e.rows, ""), s.fill(ctx, grownLog, e.rows, ""), s.fill(ctx, grownParted, e.partitions, "p"))
	if err != nil {
		return err
	}
	return s.restart(ctx)
}

// fill writes rows 0, 1, 2 …; with a partition column each into one of its own.
func (s *server) fill(ctx context.Context, t *table, rows int, partition string) error {
	for lo := 0; lo < rows; lo += keysPerWrite {
		var texts []string
		for id := lo; id < min(lo+keysPerWrite, rows); id++ {
			texts = append(texts, rowOf(id, partition))
		}
		if err := s.write(ctx, t, strings.Join(texts, ",")); err != nil {
			return err
		}
	}
	return nil
}

// write writes rows, the JSON of each.
func (s *server) write(ctx context.Context, t *table, rows string) error {
	return s.call(ctx, http.MethodPost, t.path()+"/records", json.RawMessage(`{"rows":[`+rows+`]}`))
}

func rowOf(id int, partition string) string {
	if partition == "" {
		return fmt.Sprintf(`{"id":%d,"v":"value %d"}`, id, id)
	}
	return fmt.Sprintf(`{"id":%d,%q:%d,"v":"value %d"}`, id, partition, id, id)
}

func (t *table) path() string { return "/v1/databases/" + database + "/tables/" + t.name }

// requests are the single requests that are measured.
func (s *server) requests(ctx context.Context, e extent) map[string]func() error {
	rnd := random(1)
	next := 0
	get := func(format string, args ...any) error {
		return s.call(ctx, http.MethodGet, fmt.Sprintf(format, args...), nil)
	}
	return map[string]func() error{
		"lookup": func() error { return get("%s/rows/%d", grownKeyed.path(), rnd.IntN(e.rows)) },
		"lookup in a partition": func() error {
			id := rnd.IntN(e.partitions)
			return get("%s/rows?pk.id=%d&pk.p=%d", grownParted.path(), id, id)
		},
		"append": func() error {
			next++
			return s.write(ctx, grownLog, rowOf(-next, ""))
		},
		"upsert":                func() error { return s.write(ctx, grownKeyed, rowOf(rnd.IntN(e.rows), "")) },
		"upsert in a partition": func() error { return s.write(ctx, grownParted, rowOf(rnd.IntN(e.partitions), "p")) },
		"open a table":          func() error { return get("/v1/databases/%s/tables/t%d", database, rnd.IntN(e.tables)) },
		"list ten tables":       func() error { return get("/v1/databases/%s/tables?limit=10", database) },
		"list ten partitions":   func() error { return get("%s/partitions?limit=10", grownParted.path()) },
		"scan of a partition":   func() error { return get("%s/scan?filter=p%%3D%d", grownParted.path(), rnd.IntN(e.partitions)) },
	}
}

// inTurn are the median times of requests in µs, each made many times, one after the
// other, so that what disturbs one disturbs all.
func inTurn(fs []func() error) ([]float64, error) {
	const times = 500
	micros := make([][]float64, len(fs))
	for range times {
		for i, f := range fs {
			began := time.Now()
			if err := f(); err != nil {
				return nil, err
			}
			micros[i] = append(micros[i], float64(time.Since(began).Microseconds()))
		}
	}
	out := make([]float64, len(fs))
	for i, m := range micros {
		slices.Sort(m)
		out[i] = percentile(m, 0.5)
	}
	return out, nil
}

// memoryMiB is what a process holds of memory.
func memoryMiB(pid int) (float64, error) { return statusMiB(pid, "VmRSS:") }

// peakMiB is the most that it has held.
func peakMiB(pid int) (float64, error) { return statusMiB(pid, "VmHWM:") }

func statusMiB(pid int, field string) (float64, error) {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(b), field)
	line, _, _ := strings.Cut(rest, "kB")
	kib, err := strconv.ParseFloat(strings.TrimSpace(line), 64)
	return kib / 1024, err
}
