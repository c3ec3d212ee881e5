package audit

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are by output: the file, the table.
type metrics struct {
	written, lost, failures *prometheus.CounterVec
	queue                   *prometheus.GaugeVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	p, labels := promauto.With(reg), []string{"output"}
	return &metrics{
		written:  p.NewCounterVec(prometheus.CounterOpts{Name: "millrace_audit_events_total", Help: "Events of the audit log that were written."}, labels),
		lost:     p.NewCounterVec(prometheus.CounterOpts{Name: "millrace_audit_lost_total", Help: "Events of the audit log that were not written, since there was no room for them in time."}, labels),
		failures: p.NewCounterVec(prometheus.CounterOpts{Name: "millrace_audit_failures_total", Help: "Attempts to write to the audit log that failed; they are made again."}, labels),
		queue:    p.NewGaugeVec(prometheus.GaugeOpts{Name: "millrace_audit_queue_events", Help: "Events that wait to be written to the audit log."}, labels),
	}
}

// begin makes the metrics of an output, which alerts look for, from the start.
func (m *metrics) begin(output string) {
	for _, c := range []*prometheus.CounterVec{m.written, m.lost, m.failures} {
		c.WithLabelValues(output)
	}
	m.queue.WithLabelValues(output).Set(0)
}
