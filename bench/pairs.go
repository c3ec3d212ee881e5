package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"time"
)

// sample is one run of one side.
type sample struct {
	Work     float64            `json:"work"` // in the unit of the comparison
	Wall     float64            `json:"wall_s"`
	CPU      map[string]float64 `json:"cpu_s"` // by process
	Wire     int64              `json:"wire_bytes,omitempty"`
	Pressure float64            `json:"cpu_pressure_avg10"` // when it began
}

// perSecond is work by time.
func (s *sample) perSecond() float64 { return s.Work / s.Wall }

// perCPU is work by the CPU-seconds of one process, of which the clock counts
// hundredths.
func (s *sample) perCPU(process string) float64 { return s.Work / max(s.CPU[process], 0.01) }

// side is one of the two things that are compared.
type side struct {
	name      string
	processes map[string]int // to account, by name; the harness itself is always there
	// prepare, if there is one, goes before each run, and is not measured.
	prepare func(ctx context.Context) error
	work    func(ctx context.Context) (work float64, wire int64, err error)
}

// metric is a figure of a comparison.
type metric struct {
	name   string
	unit   string
	of     func(s *sample, ours bool) float64
	target float64 // of ours/yardstick at least; 0: none was set
	most   bool    // the target is at most
}

// comparison is ours and a yardstick, run in turn.
type comparison struct {
	id, what   string
	ours, yard side
	metrics    []metric
	disk       bool // what one side left to be written would slow the other
}

// result is what a comparison came to.
type result struct {
	ID        string    `json:"id"`
	What      string    `json:"what"`
	Yardstick string    `json:"yardstick,omitempty"`
	Metric    string    `json:"metric"`
	Unit      string    `json:"unit,omitempty"`
	Ours      float64   `json:"ours"`
	Yard      float64   `json:"yard,omitempty"`
	Ratio     float64   `json:"ratio,omitempty"`
	Ratios    []float64 `json:"ratios,omitempty"`
	Target    float64   `json:"target,omitempty"`
	AtMost    bool      `json:"at_most,omitempty"`
	Met       bool      `json:"met"`
	Busy      int       `json:"busy_runs"`
	Runs      int       `json:"runs"`
	OurRuns   []*sample `json:"our_runs,omitempty"`
	YardRuns  []*sample `json:"yard_runs,omitempty"`
}

// busyAbove is the CPU pressure from which a run counts as disturbed.
const busyAbove = 5.0

// compare runs both sides A-B-B-A…, after one run of each that is not counted.
func (b *bench) compare(ctx context.Context, c *comparison) error {
	b.say("%s %s: %s against %s", c.id, c.what, c.ours.name, c.yard.name)
	for _, s := range []*side{&c.ours, &c.yard} {
		if _, err := b.measure(ctx, s, c.disk); err != nil {
			return err
		}
	}
	var ours, yard []*sample
	for pair := range b.o.Pairs {
		order := []*side{&c.ours, &c.yard}
		if pair%2 == 1 {
			slices.Reverse(order)
		}
		for _, s := range order {
			got, err := b.measure(ctx, s, c.disk)
			if err != nil {
				return err
			}
			if s == &c.ours {
				ours = append(ours, got)
			} else {
				yard = append(yard, got)
			}
		}
	}
	for i, m := range c.metrics {
		r := m.judge(c, ours, yard)
		if i > 0 {
			r.OurRuns, r.YardRuns = nil, nil // they are with the first
		}
		b.add(r)
	}
	return nil
}

func (b *bench) add(r *result) {
	b.results = append(b.results, r)
	b.say("  %s: %s", r.Metric, r.figure())
}

func (m *metric) judge(c *comparison, ours, yard []*sample) *result {
	r := &result{
		ID: c.id, What: c.what, Yardstick: c.yard.name, Metric: m.name, Unit: m.unit, Target: m.target, AtMost: m.most,
		Runs: len(ours) + len(yard), OurRuns: ours, YardRuns: yard,
	}
	var a, y []float64
	for i := range ours {
		a, y = append(a, m.of(ours[i], true)), append(y, m.of(yard[i], false))
		r.Ratios = append(r.Ratios, a[i]/y[i])
	}
	r.Ours, r.Yard, r.Ratio = median(a), median(y), median(r.Ratios)
	r.Met = m.target == 0 || m.most && r.Ratio <= m.target || !m.most && r.Ratio >= m.target
	for _, s := range slices.Concat(ours, yard) {
		if s.Pressure > busyAbove {
			r.Busy++
		}
	}
	return r
}

func (r *result) figure() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s %s", short(r.Ours), r.Unit)
	if r.Yard != 0 {
		fmt.Fprintf(&s, " against %s, ratio %.3f of %s", short(r.Yard), r.Ratio, spread(r.Ratios))
	}
	return s.String()
}

func spread(v []float64) string { return fmt.Sprintf("%.3f–%.3f", slices.Min(v), slices.Max(v)) }

// measure does one run of one side.
func (b *bench) measure(ctx context.Context, s *side, disk bool) (*sample, error) {
	if s.prepare != nil {
		if err := s.prepare(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	if disk {
		syscall.Sync()
	}
	pids := map[string]int{"harness": selfPID}
	maps.Copy(pids, s.processes)
	got := &sample{CPU: map[string]float64{}}
	var err error
	if got.Pressure, err = cpuPressure(); err != nil {
		return nil, err
	}
	before, err := cpuSeconds(pids)
	if err != nil {
		return nil, err
	}
	endProfile, err := b.server.beginProfile(s.processes)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	got.Work, got.Wire, err = s.work(ctx)
	got.Wall = time.Since(began).Seconds()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	after, err := cpuSeconds(pids)
	if err != nil {
		return nil, err
	}
	for name := range pids {
		got.CPU[name] = after[name] - before[name]
	}
	return got, endProfile()
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// percentile of sorted values.
func percentile(sorted []float64, p float64) float64 {
	return sorted[min(int(p*float64(len(sorted))), len(sorted)-1)]
}
