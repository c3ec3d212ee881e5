package server

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/millrace/millrace/errs"
)

// metrics are the registry of the process and what the server itself tells.
type metrics struct {
	registry *registry
	handler  http.Handler
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	errors   *prometheus.CounterVec
}

// newMetrics makes the registry that every part registers with.
func newMetrics(version string, unsafe []string, h *health, working func() int64) *metrics {
	m := &metrics{
		registry: &registry{Registry: prometheus.NewRegistry()},
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_server_http_requests_total", Help: "HTTP requests answered.",
		}, []string{"route", "method", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "millrace_server_http_request_duration_seconds", Help: "Time from a request's header to the end of its answer.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"route", "method"}),
	}
	m.errors = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "millrace_server_http_errors_total", Help: "HTTP requests that failed, by the code of the error that their caller was told; streams that broke off included.",
	}, []string{"code"})
	inFlight := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "millrace_server_http_inflight_requests", Help: "HTTP requests under way, streams included."}, func() float64 {
		return float64(working())
	})
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "millrace_server_build_info", Help: "1, with the version of the program."}, []string{"version"})
	build.WithLabelValues(version).Set(1)
	unsafeSettings := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "millrace_server_unsafe_setting_info", Help: "1 for each setting that makes the server less safe than a default start.",
	}, []string{"setting"})
	for _, s := range unsafe {
		unsafeSettings.WithLabelValues(s).Set(1)
	}
	ready := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "millrace_server_ready_info", Help: "1 while the server takes work."}, func() float64 {
		if h.now() == serving && len(h.problems()) == 0 {
			return 1
		}
		return 0
	})
	m.registry.MustRegister(m.requests, m.seconds, m.errors, inFlight, build, unsafeSettings, ready,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.handler = promhttp.HandlerFor(m.registry.Registry, promhttp.HandlerOpts{})
	return m
}

// failed counts an error that a caller was told; "" is none.
func (m *metrics) failed(code errs.Code) {
	if code != "" {
		m.errors.WithLabelValues(string(code)).Inc()
	}
}

// unroutedLabel stands for every path that no operation has.
const unroutedLabel = "other"

// request counts an answer. The labels are bounded: routes and methods of the
// document only.
func (m *metrics) request(route, method string, status int, took time.Duration) {
	if route == "" || route == "/*" {
		route = unroutedLabel
	}
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
	default:
		method = unroutedLabel
	}
	m.requests.WithLabelValues(route, method, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(route, method).Observe(took.Seconds())
}
