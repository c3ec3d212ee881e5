package router

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	openReaders   prometheus.Gauge
	rowsRead      prometheus.Counter
	rowsSkipped   prometheus.Counter
	rowsShipped   prometheus.Counter
	bytesRead     prometheus.Counter
	bytesSkipped  prometheus.Counter
	bytesShipped  prometheus.Counter
	bucketsRead   prometheus.Counter
	partsRead     prometheus.Counter
	partsSkipped  prometheus.Counter
	rowsWritten   prometheus.Counter
	writesRefused prometheus.Counter
	lookupKeys    prometheus.Counter
	lookupBuckets prometheus.Counter
	prefixLookups prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "millrace_router_" + name, Help: help})
		reg.MustRegister(c)
		return c
	}
	m := &metrics{
		openReaders:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "millrace_router_open_readers", Help: "Reads under way."}),
		rowsRead:      counter("rows_read_total", "Rows that reads looked at."),
		rowsSkipped:   counter("rows_skipped_total", "Rows that reads skipped by statistics."),
		rowsShipped:   counter("rows_shipped_total", "Rows that reads gave."),
		bytesRead:     counter("bytes_read_total", "Stored bytes that reads looked at."),
		bytesSkipped:  counter("bytes_skipped_total", "Stored bytes of the same ranges that reads did not look at."),
		bytesShipped:  counter("bytes_shipped_total", "Bytes that reads sent."),
		bucketsRead:   counter("buckets_read_total", "Buckets that reads covered."),
		partsRead:     counter("partitions_read_total", "Partitions that reads covered."),
		partsSkipped:  counter("partitions_skipped_total", "Partitions that reads left out, by name or by their filter."),
		rowsWritten:   counter("rows_written_total", "Rows of acknowledged writes."),
		writesRefused: counter("writes_refused_total", "Parts of writes that a shard refused."),
		lookupKeys:    counter("lookup_keys_total", "Keys looked up."),
		lookupBuckets: counter("lookup_buckets_total", "Buckets that lookups touched."),
		prefixLookups: counter("prefix_lookups_total", "Key prefixes looked up."),
	}
	reg.MustRegister(m.openReaders)
	return m
}

// read counts a read that has ended.
func (m *metrics) read(s *Stats) {
	m.openReaders.Dec()
	m.rowsRead.Add(float64(s.RowsRead))
	m.rowsSkipped.Add(float64(s.RowsSkipped))
	m.rowsShipped.Add(float64(s.RowsShipped))
	m.bytesRead.Add(float64(s.BytesRead))
	m.bytesSkipped.Add(float64(s.BytesSkipped))
	m.bytesShipped.Add(float64(s.BytesShipped))
	m.bucketsRead.Add(float64(s.Buckets))
	m.partsRead.Add(float64(s.Partitions))
	m.partsSkipped.Add(float64(s.PartitionsSkipped))
}
