package shard

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// Metrics are shared by the shards of a process.
type Metrics struct {
	groupOps           prometheus.Histogram
	writeSeconds       prometheus.Histogram
	writesFailed       *prometheus.CounterVec
	rowHits, rowMisses prometheus.Counter
	checkpointSeconds  prometheus.Histogram
	checkpointFailures prometheus.Counter
	writersForgotten   prometheus.Counter
	expiredRecords     prometheus.Counter
	expiredBytes       prometheus.Counter
	oldestSeconds      *prometheus.GaugeVec
	uploadFailures     prometheus.Counter
	uploadAgeSeconds   *prometheus.GaugeVec
}

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		groupOps: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "millrace_shard_group_writes", Help: "Writes that one append to the log made durable.",
			Buckets: prometheus.ExponentialBuckets(1, 4, 8),
		}),
		writeSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "millrace_shard_write_duration_seconds", Help: "Time from when a shard was given a write until it was durable and visible.",
			Buckets: prometheus.ExponentialBuckets(100e-6, 2, 18),
		}),
		writesFailed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_shard_write_failures_total", Help: "Writes that a shard took and did not do, by error code.",
		}, []string{"code"}),
		rowHits: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "millrace_shard_row_cache_hits_total", Help: "Rows of keyed tables that were looked up, by readers or by merges, and were in the cache of rows.",
		}),
		rowMisses: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "millrace_shard_row_cache_misses_total", Help: "Rows of keyed tables that were looked up and were not in that cache, those that do not exist included.",
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
		expiredRecords: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "millrace_shard_expired_records_total", Help: "Records that readers no longer see because they outlived table.log.ttl.",
		}),
		expiredBytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "millrace_shard_expired_bytes_total", Help: "Bytes of expired records that were removed from disk and memory.",
		}),
		oldestSeconds: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "millrace_shard_oldest_record_age_seconds", Help: "Age of the oldest stored batch that readers see, as of the last look for expired ones.",
		}, []string{"shard"}),
		uploadFailures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "millrace_shard_upload_failures_total", Help: "Checkpoints that did not reach the object store.",
		}),
		uploadAgeSeconds: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "millrace_shard_upload_age_seconds", Help: "Age of the newest checkpoint in the object store while it does not cover everything: until then the log keeps the rest.",
		}, []string{"shard"}),
	}
	reg.MustRegister(m.writeSeconds, m.writesFailed, m.rowHits, m.rowMisses, m.uploadFailures, m.uploadAgeSeconds, m.groupOps, m.checkpointSeconds, m.checkpointFailures, m.writersForgotten, m.expiredRecords, m.expiredBytes, m.oldestSeconds)
	return m
}

// wrote counts a write that was answered.
func (m *Metrics) wrote(took time.Duration, err error) {
	if err != nil {
		m.writesFailed.WithLabelValues(string(errs.CodeOf(err))).Inc()
		return
	}
	m.writeSeconds.Observe(took.Seconds())
}

// lookedUp counts rows that were looked up.
func (m *Metrics) lookedUp(hits, misses int) {
	m.rowHits.Add(float64(hits))
	m.rowMisses.Add(float64(misses))
}

// oldestRecord notes the age of a shard's oldest batch.
func (m *Metrics) oldestRecord(id millrace.ShardID, age time.Duration) {
	m.oldestSeconds.WithLabelValues(strconv.Itoa(int(id))).Set(max(0, age.Seconds()))
}

// uploadAge notes how old a shard's newest checkpoint in the object store is.
func (m *Metrics) uploadAge(id millrace.ShardID, age time.Duration) {
	m.uploadAgeSeconds.WithLabelValues(strconv.Itoa(int(id))).Set(max(0, age.Seconds()))
}
