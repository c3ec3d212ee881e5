package shardrpc

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/millrace/millrace/errs"
)

const metricPrefix = "millrace_shardrpc_"

// seconds are the buckets of calls: within a process they take microseconds.
var seconds = prometheus.ExponentialBuckets(50e-6, 2, 20)

// clientMetrics are what a Client counts.
type clientMetrics struct {
	calls  *prometheus.HistogramVec
	failed *prometheus.CounterVec
	again  prometheus.Counter
	now    prometheus.Gauge
	bytes  prometheus.Gauge
	reads  prometheus.Gauge
}

func newClientMetrics(reg prometheus.Registerer) *clientMetrics {
	p := promauto.With(reg)
	return &clientMetrics{
		calls: p.NewHistogramVec(prometheus.HistogramOpts{
			Name: metricPrefix + "call_duration_seconds", Help: "Time that calls to owners of shards in other processes took, by what they ask for.", Buckets: seconds,
		}, []string{"kind"}),
		failed: p.NewCounterVec(prometheus.CounterOpts{
			Name: metricPrefix + "call_failures_total", Help: "Calls to owners of shards that were answered with an error or not at all, by error code; `not_owner` and most others are made again.",
		}, []string{"code"}),
		again: p.NewCounter(prometheus.CounterOpts{Name: metricPrefix + "repeated_questions_total", Help: "Questions that were asked again since no answer came for a while."}),
		now:   p.NewGauge(prometheus.GaugeOpts{Name: metricPrefix + "inflight_calls", Help: "Calls to owners of shards under way; 4,096 at most, then they wait."}),
		bytes: p.NewGauge(prometheus.GaugeOpts{Name: metricPrefix + "inflight_bytes", Help: "Bytes of these calls; 256 MiB at most, then they wait."}),
		reads: p.NewGauge(prometheus.GaugeOpts{Name: metricPrefix + "open_reads", Help: "Streams of rows that come from other processes."}),
	}
}

// called counts a call that has ended.
func (m *clientMetrics) called(err error) {
	if err != nil {
		m.failed.WithLabelValues(string(errs.CodeOf(err))).Inc()
	}
}

// serverMetrics are what a Server counts.
type serverMetrics struct {
	answers *prometheus.HistogramVec
	failed  *prometheus.CounterVec
	bytes   prometheus.Gauge
	reads   prometheus.Gauge
}

func newServerMetrics(reg prometheus.Registerer) *serverMetrics {
	p := promauto.With(reg)
	return &serverMetrics{
		answers: p.NewHistogramVec(prometheus.HistogramOpts{
			Name: metricPrefix + "answer_duration_seconds", Help: "Time that calls of other processes took here, by what they ask for.", Buckets: seconds,
		}, []string{"kind"}),
		failed: p.NewCounterVec(prometheus.CounterOpts{
			Name: metricPrefix + "answer_failures_total", Help: "Calls of other processes that were answered with an error, by its code.",
		}, []string{"code"}),
		bytes: p.NewGauge(prometheus.GaugeOpts{Name: metricPrefix + "answering_bytes", Help: "Bytes of calls of other processes that are being answered; 256 MiB at most, then they wait."}),
		reads: p.NewGauge(prometheus.GaugeOpts{Name: metricPrefix + "answering_reads", Help: "Streams of rows that go to other processes; 2,048 at most."}),
	}
}
