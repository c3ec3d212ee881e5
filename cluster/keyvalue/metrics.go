package keyvalue

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are what a Store counts.
type metrics struct {
	all       later
	commit    prometheus.Histogram
	conflicts prometheus.Counter
	failures  prometheus.Counter
	settle    prometheus.Histogram
	lost      prometheus.Counter
	missed    prometheus.Counter
	snapshots prometheus.Counter
	failed    prometheus.Counter
}

// later are metrics that are registered when their store is open: an attempt that failed
// is made again, with new ones.
type later []prometheus.Collector

// Register is part of prometheus.Registerer.
func (l *later) Register(c prometheus.Collector) error {
	*l = append(*l, c)
	return nil
}

// MustRegister is part of prometheus.Registerer.
func (l *later) MustRegister(c ...prometheus.Collector) { *l = append(*l, c...) }

// Unregister is part of prometheus.Registerer.
func (l *later) Unregister(prometheus.Collector) bool { return false }

func newMetrics(s *Store) *metrics {
	const prefix = "millrace_keyvalue_"
	m := &metrics{}
	p := promauto.With(&m.all)
	counter := func(name, help string) prometheus.Counter {
		return p.NewCounter(prometheus.CounterOpts{Name: prefix + name, Help: help})
	}
	seconds := func(name, help string) prometheus.Histogram {
		return p.NewHistogram(prometheus.HistogramOpts{Name: prefix + name, Help: help, Buckets: prometheus.ExponentialBuckets(1e-3, 2, 15)})
	}
	gauge := func(name, help string, of func() float64) {
		p.NewGaugeFunc(prometheus.GaugeOpts{Name: prefix + name, Help: help}, of)
	}
	gauge("revision", "Revision of the catalog that this process has: far behind another's, it does not follow.", func() float64 { return float64(s.position()) })
	gauge("entries", "Entries of the catalog in this process's copy.", func() float64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		return float64(len(s.mu.entries))
	})
	gauge("lease_remaining_seconds", "For how long this process may still answer from its copy of the catalog, were NATS away from now on.", func() float64 {
		return max(0, (time.Duration(s.reader.deadline.Load()) - s.opts.Clock.Boot()).Seconds())
	})
	gauge("failed", "1 when the catalog's stream cannot be followed any more; the log says why.", func() float64 {
		if s.Err() != nil {
			return 1
		}
		return 0
	})
	m.commit = seconds("commit_duration_seconds", "Time that changes of the catalog took which are in its stream, without waiting for other processes to see them.")
	m.conflicts = counter("conflicts_total", "Changes of the catalog that were refused since what they were decided on had changed.")
	m.failures = counter("failures_total", "Changes of the catalog that failed, or whose outcome is not known.")
	m.settle = seconds("settle_duration_seconds", "Time until every process had seen a change of the catalog.")
	m.missed = counter("missed_renewals_total", "Renewals of this process's catalog lease that failed.")
	m.lost = counter("leases_lost_total", "Times that others took this process for gone, and it took its catalog lease again.")
	m.snapshots = counter("snapshots_total", "Snapshots of the catalog that this process wrote into its stream.")
	m.failed = counter("snapshot_failures_total", "Attempts at that which failed; each is made again.")
	return m
}
