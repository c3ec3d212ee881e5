package token

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	refused *prometheus.CounterVec
	reads   *prometheus.CounterVec
	keys    prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer, remembered func() int) *metrics {
	m := &metrics{
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_auth_refused_total", Help: "Requests without a good token, by what was wrong.",
		}, []string{"reason"}),
		reads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_auth_key_reads_total", Help: "Times that the keys of tokens were read from their file or address, by outcome.",
		}, []string{"outcome"}),
		keys: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "millrace_auth_keys", Help: "Keys that tokens are checked with.",
		}),
	}
	held := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "millrace_auth_remembered_tokens", Help: "Tokens that were verified and need not be again.",
	}, func() float64 { return float64(remembered()) })
	reg.MustRegister(m.refused, m.reads, m.keys, held)
	for _, r := range refusals() {
		m.refused.WithLabelValues(string(r))
	}
	return m
}
