package flightsvc

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	calls        *prometheus.CounterVec
	errors       *prometheus.CounterVec
	duration     *prometheus.HistogramVec
	openStreams  *prometheus.GaugeVec
	stalled      prometheus.Counter
	panics       prometheus.Counter
	sentBytes    prometheus.Counter
	putBytes     prometheus.Counter
	putBatches   prometheus.Counter
	putInFlight  prometheus.Gauge
	putHeld      prometheus.Gauge
	lookupAsks   prometheus.Counter
	ticketsGiven prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	const prefix = "millrace_flight_"
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + name, Help: help})
		reg.MustRegister(c)
		return c
	}
	m := &metrics{
		calls:        prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "calls_total", Help: "Calls that have ended, by method and gRPC code."}, []string{"method", "code"}),
		errors:       prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "errors_total", Help: "Calls that failed, by error code; `canceled` and `deadlineexceeded` are of clients that went away or gave too little time."}, []string{"code"}),
		duration:     prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: prefix + "call_duration_seconds", Help: "How long calls took, streams included.", Buckets: prometheus.ExponentialBuckets(0.0005, 4, 10)}, []string{"method"}),
		openStreams:  prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: prefix + "open_streams", Help: "Streaming calls under way, by method."}, []string{"method"}),
		stalled:      counter("stalled_streams_total", "Streams that were ended because their client stopped reading."),
		panics:       counter("panics_total", "Calls that failed by a bug."),
		sentBytes:    counter("sent_bytes_total", "Bytes of batches that were sent, with their headers."),
		putBytes:     counter("put_bytes_total", "Bytes of batches that were received to be written."),
		putBatches:   counter("put_batches_total", "Batches that were received to be written."),
		putInFlight:  prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + "put_inflight_batches", Help: "Batches that were received and are not durable yet."}),
		putHeld:      prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + "put_inflight_bytes", Help: "Bytes in memory of batches that were received and are not durable yet."}),
		lookupAsks:   counter("lookup_batches_total", "Batches of keys that were looked up."),
		ticketsGiven: counter("tickets_total", "Tickets that were given out."),
	}
	reg.MustRegister(m.calls, m.errors, m.putHeld, m.duration, m.openStreams, m.putInFlight)
	return m
}
