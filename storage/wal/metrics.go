package wal

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are what a Files counts.
type metrics struct {
	fsync     prometheus.Histogram
	bytes     prometheus.Counter
	records   prometheus.Counter
	group     prometheus.Histogram
	torn      prometheus.Counter
	damaged   prometheus.Counter
	repaired  prometheus.Counter
	fenced    prometheus.Counter
	abandoned prometheus.Counter
	full      prometheus.Counter
	failed    prometheus.Gauge
	files     prometheus.Gauge
	size      prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	p := promauto.With(reg)
	counter := func(name, help string) prometheus.Counter {
		return p.NewCounter(prometheus.CounterOpts{Name: "millrace_wal_" + name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return p.NewGauge(prometheus.GaugeOpts{Name: "millrace_wal_" + name, Help: help})
	}
	return &metrics{
		fsync: p.NewHistogram(prometheus.HistogramOpts{
			Name: "millrace_wal_fsync_duration_seconds", Help: "Duration of the log's fsyncs.",
			Buckets: prometheus.ExponentialBuckets(50e-6, 2, 16),
		}),
		group: p.NewHistogram(prometheus.HistogramOpts{
			Name: "millrace_wal_group_appends", Help: "Appends that shared a write and an fsync.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 9),
		}),
		bytes:     counter("written_bytes_total", "Bytes written to the log."),
		records:   counter("records_total", "Records made durable."),
		torn:      counter("torn_total", "Torn tails found at a start: kept as .torn and not replayed."),
		damaged:   counter("damaged_shards_total", "Shards found damaged at a start or by a replay."),
		repaired:  counter("damaged_headers_total", "File headers of which one copy was found damaged and the other used."),
		fenced:    counter("fenced_records_total", "Records of a deposed owner that a replay passed over."),
		abandoned: counter("abandoned_entries_total", "Entries that a replay dropped because their last fragment never came."),
		full:      counter("full_total", "Writes refused because there was no room."),
		failed:    gauge("failed", "1 when the log acknowledges nothing until the process is started again."),
		files:     gauge("files", "Files of the log."),
		size:      gauge("size_bytes", "Bytes of the log's files."),
	}
}
