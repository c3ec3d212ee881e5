package tier

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/lake"
)

type metrics struct {
	rounds, failures, conflicts     prometheus.Counter
	rows, deleted, files, bytes     prometheus.Counter
	maintained, maintenanceFailures prometheus.Counter
	merged, expired, removed        prometheus.Counter
	purges, purgeFailures           prometheus.Counter
	seconds, maintenanceSeconds     prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer, m *Manager) *metrics {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "millrace_tier_" + name, Help: help})
		reg.MustRegister(c)
		return c
	}
	gauge := func(name, help string, of func(*table, time.Time) float64, join func(a, b float64) float64) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "millrace_tier_" + name, Help: help}, func() float64 {
			var v float64
			now := m.o.Clock.Now()
			for _, t := range m.all() {
				t.mu.Lock()
				v = join(v, of(t, now))
				t.mu.Unlock()
			}
			return v
		}))
	}
	seconds := func(name, help string) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "millrace_tier_" + name, Help: help, Buckets: prometheus.ExponentialBuckets(0.01, 2, 16)})
		reg.MustRegister(h)
		return h
	}
	sum := func(a, b float64) float64 { return a + b }
	most := func(a, b float64) float64 { return max(a, b) }
	gauge("tables", "Tables that have a lake table.", func(*table, time.Time) float64 { return 1 }, sum)
	gauge("running_jobs", "Tables for which rounds or maintenance go on now.", func(t *table, _ time.Time) float64 {
		if t.running {
			return 1
		}
		return 0
	}, sum)
	gauge("failing_tables", "Tables whose last round failed.", func(t *table, _ time.Time) float64 {
		if t.failure != nil {
			return 1
		}
		return 0
	}, sum)
	gauge("lag_seconds", "Age of the oldest record that is not in the lake, of the table where that is highest.", func(t *table, now time.Time) float64 {
		return t.lagAt(now).Seconds()
	}, most)
	gauge("pending_rows", "Records that were not in the lake at the last look.", func(t *table, _ time.Time) float64 { return float64(t.pending) }, sum)
	reg.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "millrace_tier_pending_purges", Help: "Dropped tables whose lake tables are still to be removed."},
			func() float64 { return float64(len(m.o.Catalog.Purges())) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "millrace_tier_failing_purges", Help: "Dropped tables whose lake tables could not be removed at the last try."},
			func() float64 { return float64(m.failingPurges()) }))
	return &metrics{
		purges:              counter("purges_total", "Lake tables of dropped tables that were removed."),
		purgeFailures:       counter("purge_failures_total", "Tries to remove the lake table of a dropped table that failed."),
		rounds:              counter("rounds_total", "Rounds that were committed."),
		failures:            counter("failures_total", "Jobs of rounds that failed."),
		conflicts:           counter("conflicts_total", "Rounds that were begun anew because another commit came in between."),
		rows:                counter("rows_total", "Rows that committed rounds wrote."),
		deleted:             counter("deleted_rows_total", "Rows that committed rounds deleted."),
		files:               counter("files_total", "Files that committed rounds wrote."),
		bytes:               counter("written_bytes_total", "Bytes of the files that committed rounds wrote."),
		seconds:             seconds("round_duration_seconds", "Time that committed rounds took."),
		maintained:          counter("maintenance_commits_total", "Commits of maintenance."),
		maintenanceFailures: counter("maintenance_failures_total", "Runs of maintenance that failed."),
		merged:              counter("merged_files_total", "Data files that maintenance replaced by fewer."),
		expired:             counter("expired_snapshots_total", "Snapshots that maintenance let go of."),
		removed:             counter("removed_files_total", "Files that maintenance removed from the lake."),
		maintenanceSeconds:  seconds("maintenance_duration_seconds", "Time that runs of maintenance took."),
	}
}

func (m *metrics) round(w lake.Written, took time.Duration) {
	m.rounds.Inc()
	m.rows.Add(float64(w.Rows))
	m.deleted.Add(float64(w.DeletedRows))
	m.files.Add(float64(w.Files))
	m.bytes.Add(float64(w.Bytes))
	m.seconds.Observe(took.Seconds())
}

func (m *metrics) maintenance(done lake.Maintained, took time.Duration) {
	m.maintained.Add(float64(done.Commits))
	m.merged.Add(float64(done.FilesMerged))
	m.expired.Add(float64(done.SnapshotsExpired))
	m.removed.Add(float64(done.FilesRemoved))
	m.maintenanceSeconds.Observe(took.Seconds())
}
