package shard

import "github.com/prometheus/client_golang/prometheus"

// Metrics are shared by the shards of a process.
type Metrics struct {
	groupOps           prometheus.Histogram
	checkpointSeconds  prometheus.Histogram
	checkpointFailures prometheus.Counter
	writersForgotten   prometheus.Counter
}

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		groupOps: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "millrace_shard_group_writes", Help: "Writes that one append to the log made durable.",
			Buckets: prometheus.ExponentialBuckets(1, 4, 8),
		}),
		checkpointSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "millrace_shard_checkpoint_duration_seconds", Help: "Time a checkpoint took.",
			Buckets: prometheus.ExponentialBuckets(0.005, 3, 10),
		}),
		checkpointFailures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "millrace_shard_checkpoint_failures_total", Help: "Flushes and checkpoints that failed.",
		}),
		writersForgotten: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "millrace_shard_writers_forgotten_total", Help: "Idle writers and idempotency keys that a bucket forgot.",
		}),
	}
	reg.MustRegister(m.groupOps, m.checkpointSeconds, m.checkpointFailures, m.writersForgotten)
	return m
}
