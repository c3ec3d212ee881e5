package stream

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are what Streams count.
type metrics struct {
	append     prometheus.Histogram
	records    prometheus.Counter
	bytes      prometheus.Counter
	unanswered prometheus.Counter
	refused    prometheus.Counter
	settled    *prometheus.CounterVec
	full       prometheus.Counter
	abandoned  prometheus.Counter
	damaged    prometheus.Counter
	reread     prometheus.Counter
	size       *prometheus.GaugeVec
}

// Outcomes of a publish that was not answered.
const (
	landed  = "landed"  // it was there
	lost    = "lost"    // the noop was, and it went behind
	fenced  = "fenced"  // another's record was there
	unknown = "unknown" // the servers stayed away
)

func newMetrics(reg prometheus.Registerer) *metrics {
	p := promauto.With(reg)
	counter := func(name, help string) prometheus.Counter {
		return p.NewCounter(prometheus.CounterOpts{Name: "millrace_stream_" + name, Help: help})
	}
	return &metrics{
		append: p.NewHistogram(prometheus.HistogramOpts{
			Name: "millrace_stream_append_duration_seconds", Help: "Duration of appends to the log's streams that succeeded.",
			Buckets: prometheus.ExponentialBuckets(100e-6, 2, 19),
		}),
		records:    counter("records_total", "Records published to the log's streams and acknowledged."),
		bytes:      counter("published_bytes_total", "Bytes of these records."),
		unanswered: counter("unanswered_total", "Publishes without an answer that tells their outcome."),
		refused:    counter("retries_total", "Publishes that reached no server, or one that was busy, and were sent again."),
		settled: p.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_stream_settled_total", Help: "Publishes without an answer, by what became of them.",
		}, []string{"outcome"}),
		full:      counter("full_total", "Appends refused because a stream or the servers have no room."),
		abandoned: counter("abandoned_entries_total", "Entries that a replay dropped because their last fragment never came."),
		damaged:   counter("damaged_total", "Times that a log was found damaged."),
		reread:    counter("reread_records_total", "Records that a replay had to ask a stream's leader for, since another server's copy was bad or not there."),
		size: p.NewGaugeVec(prometheus.GaugeOpts{
			Name: "millrace_stream_size_bytes", Help: "Bytes in the stream of a shard's log, as last seen by this process.",
		}, []string{"shard"}),
	}
}
