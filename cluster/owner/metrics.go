package owner

import (
	"github.com/prometheus/client_golang/prometheus"

	millrace "github.com/millrace/millrace"
)

type metrics struct {
	led, following         prometheus.Gauge
	expired, missed, moved prometheus.Counter
	failed                 prometheus.Counter
	took                   prometheus.Histogram
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		led:       prometheus.NewGauge(prometheus.GaugeOpts{Name: "millrace_owner_led_shards", Help: "Shards that this worker serves."}),
		following: prometheus.NewGauge(prometheus.GaugeOpts{Name: "millrace_owner_followed_shards", Help: "Shards that this worker follows as their standby."}),
		expired:   prometheus.NewCounter(prometheus.CounterOpts{Name: "millrace_owner_sessions_expired_total", Help: "Sessions of others that this process ended since they were not renewed."}),
		missed:    prometheus.NewCounter(prometheus.CounterOpts{Name: "millrace_owner_missed_renewals_total", Help: "Renewals of this process's session that failed."}),
		moved:     prometheus.NewCounter(prometheus.CounterOpts{Name: "millrace_owner_moved_shards_total", Help: "Shards that this worker handed over."}),
		failed:    prometheus.NewCounter(prometheus.CounterOpts{Name: "millrace_owner_failed_tasks_total", Help: "Attempts to open, follow or hand over a shard that failed."}),
		took:      prometheus.NewHistogram(prometheus.HistogramOpts{Name: "millrace_owner_take_duration_seconds", Help: "Time from taking a shard's lease to serving it.", Buckets: prometheus.ExponentialBuckets(0.01, 2, 14)}),
	}
	if r != nil {
		r.MustRegister(m.led, m.following, m.expired, m.missed, m.moved, m.failed, m.took)
	}
	return m
}

// look counts what the shards of this process do.
func (m *metrics) look(shards map[millrace.ShardID]*shardState) {
	led, following := 0, 0
	for _, s := range shards {
		if s.leading {
			led++
		}
		if s.following {
			following++
		}
	}
	m.led.Set(float64(led))
	m.following.Set(float64(following))
}
