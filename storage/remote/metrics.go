package remote

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are what a store counts.
type metrics struct {
	sentBytes    *prometheus.CounterVec
	sentObjects  *prometheus.CounterVec
	fetchedBytes prometheus.Counter
	cacheHits    prometheus.Counter
	cacheMisses  prometheus.Counter
	reread       prometheus.Counter
	passedOver   prometheus.Counter
	removed      prometheus.Counter
	transfers    prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer, s *Store) *metrics {
	p := promauto.With(reg)
	p.NewGaugeFunc(prometheus.GaugeOpts{Name: "millrace_remote_cache_bytes", Help: "Bytes of the cache of ranges of remote segments in use."},
		func() float64 { return float64(s.cache.WeightedSize()) })
	return &metrics{
		sentBytes: p.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_remote_sent_bytes_total", Help: "Bytes of checkpoints that were put into the object store.",
		}, []string{"kind"}),
		sentObjects: p.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_remote_sent_objects_total", Help: "Objects of checkpoints that were put into the object store.",
		}, []string{"kind"}),
		fetchedBytes: p.NewCounter(prometheus.CounterOpts{
			Name: "millrace_remote_fetched_bytes_total", Help: "Bytes of checkpoints and segments that were read from the object store.",
		}),
		cacheHits: p.NewCounter(prometheus.CounterOpts{
			Name: "millrace_remote_cache_hits_total", Help: "Ranges of remote segments that were in the cache, or on their way there.",
		}),
		cacheMisses: p.NewCounter(prometheus.CounterOpts{
			Name: "millrace_remote_cache_misses_total", Help: "Ranges of remote segments that were asked of the object store.",
		}),
		reread: p.NewCounter(prometheus.CounterOpts{
			Name: "millrace_remote_rereads_total", Help: "Ranges of remote segments that were read again, since they did not match their checksums.",
		}),
		passedOver: p.NewCounter(prometheus.CounterOpts{
			Name: "millrace_remote_damaged_checkpoints_total", Help: "Checkpoints in the object store that were found damaged and passed over.",
		}),
		transfers: p.NewGauge(prometheus.GaugeOpts{
			Name: "millrace_remote_inflight_transfers", Help: "Objects of checkpoints on their way to or from the object store; others wait behind the first 8.",
		}),
		removed: p.NewCounter(prometheus.CounterOpts{
			Name: "millrace_remote_removed_objects_total", Help: "Objects that no checkpoint needed any more and that were removed.",
		}),
	}
}

// sent counts an object.
func (m *metrics) sent(kind string, bytes int64) {
	m.sentBytes.WithLabelValues(kind).Add(float64(bytes))
	m.sentObjects.WithLabelValues(kind).Inc()
}
