package objstore

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/millrace/millrace/trace"
)

// metrics are what a store counts, by operation.
type metrics struct {
	inFlight     prometheus.Gauge
	duration     *prometheus.HistogramVec
	failures     *prometheus.CounterVec
	requests     *prometheus.CounterVec
	retries      *prometheus.CounterVec
	readBytes    prometheus.Counter
	writtenBytes prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	p := promauto.With(reg)
	return &metrics{
		inFlight: p.NewGauge(prometheus.GaugeOpts{Name: "millrace_objstore_inflight_calls", Help: "Calls to the object store under way."}),
		duration: p.NewHistogramVec(prometheus.HistogramOpts{
			Name: "millrace_objstore_call_duration_seconds", Help: "Time that calls to the object store took, all tries included.",
			Buckets: prometheus.ExponentialBuckets(250e-6, 2, 20),
		}, []string{"operation"}),
		failures: p.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_objstore_failures_total", Help: "Calls to the object store that failed after all tries.",
		}, []string{"operation"}),
		requests: p.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_objstore_requests_total", Help: "Requests sent to S3, which are what it charges for.",
		}, []string{"operation"}),
		retries: p.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_objstore_retries_total", Help: "Requests to S3 that were made again, since the one before failed.",
		}, []string{"operation"}),
		readBytes:    p.NewCounter(prometheus.CounterOpts{Name: "millrace_objstore_read_bytes_total", Help: "Bytes of objects that were read."}),
		writtenBytes: p.NewCounter(prometheus.CounterOpts{Name: "millrace_objstore_written_bytes_total", Help: "Bytes of objects that were written."}),
	}
}

// spanNames are those of the operations in traces.
var spanNames = map[string]string{
	opGet: "objstore get", opReadAt: "objstore read_at", opStat: "objstore stat", opList: "objstore list",
	opPut: "objstore put", opCreate: "objstore create", opWrite: "objstore write", opRemove: "objstore remove",
}

// measured is a store whose calls are counted.
type measured struct {
	Store

	m *metrics
}

func measure(s Store, m *metrics) Store { return &measured{Store: s, m: m} }

// call begins to measure an operation; what it gives ends it. In a trace it is a span, which
// does not name the key: partitions of lake tables stand in keys by their values.
func (m *metrics) call(ctx context.Context, operation string) (context.Context, func(error)) {
	ctx, span := trace.Call(ctx, spanNames[operation])
	timer := prometheus.NewTimer(m.duration.WithLabelValues(operation))
	m.inFlight.Inc()
	return ctx, func(err error) {
		m.inFlight.Dec()
		timer.ObserveDuration()
		if errors.Is(err, ErrExists) || errors.Is(err, ErrNotExist) {
			err = nil // they are answers
		}
		if err != nil {
			m.failures.WithLabelValues(operation).Inc()
		}
		span.End(err)
	}
}

// Get is part of Reader.
func (s *measured) Get(ctx context.Context, key string) ([]byte, error) {
	ctx, end := s.m.call(ctx, opGet)
	body, err := s.Store.Get(ctx, key)
	s.m.readBytes.Add(float64(len(body)))
	end(err)
	return body, err
}

// ReadAt is part of Reader.
func (s *measured) ReadAt(ctx context.Context, key string, p []byte, off int64) error {
	ctx, end := s.m.call(ctx, opReadAt)
	err := s.Store.ReadAt(ctx, key, p, off)
	if err == nil {
		s.m.readBytes.Add(float64(len(p)))
	}
	end(err)
	return err
}

// Stat is part of Reader.
func (s *measured) Stat(ctx context.Context, key string) (Info, error) {
	ctx, end := s.m.call(ctx, opStat)
	info, err := s.Store.Stat(ctx, key)
	end(err)
	return info, err
}

// List is part of Reader. Its time is that of the caller's function too; an error of
// that is no failure.
func (s *measured) List(ctx context.Context, prefix string, give func(Info) error) error {
	ctx, end := s.m.call(ctx, opList)
	var given error
	err := s.Store.List(ctx, prefix, func(i Info) error {
		given = give(i)
		return given
	})
	if given != nil {
		end(nil)
	} else {
		end(err)
	}
	return err
}

// Put is part of Store.
func (s *measured) Put(ctx context.Context, key string, body []byte) error {
	return s.wrote(ctx, opPut, body, func(ctx context.Context) error { return s.Store.Put(ctx, key, body) })
}

// Create is part of Store.
func (s *measured) Create(ctx context.Context, key string, body []byte) error {
	return s.wrote(ctx, opCreate, body, func(ctx context.Context) error { return s.Store.Create(ctx, key, body) })
}

func (s *measured) wrote(ctx context.Context, operation string, body []byte, write func(context.Context) error) error {
	ctx, end := s.m.call(ctx, operation)
	err := write(ctx)
	if err == nil {
		s.m.writtenBytes.Add(float64(len(body)))
	}
	end(err)
	return err
}

// Remove is part of Store.
func (s *measured) Remove(ctx context.Context, keys ...string) error {
	ctx, end := s.m.call(ctx, opRemove)
	err := s.Store.Remove(ctx, keys...)
	end(err)
	return err
}

// Writer is part of Store.
func (s *measured) Writer(ctx context.Context, key string) (Writer, error) {
	ctx, end := s.m.call(ctx, opWrite)
	w, err := s.Store.Writer(ctx, key)
	if err != nil {
		end(err)
		return nil, err
	}
	return &measuredWriter{Writer: w, m: s.m, end: end}, nil
}

// measuredWriter counts when its object appears, or does not.
type measuredWriter struct {
	Writer

	m     *metrics
	bytes int64
	end   func(error)
}

// Write is part of Writer.
func (w *measuredWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	w.bytes += int64(n)
	return n, err
}

// Close is part of Writer.
func (w *measuredWriter) Close() error {
	err := w.Writer.Close()
	if err == nil {
		w.m.writtenBytes.Add(float64(w.bytes))
	}
	w.over(err)
	return err
}

// Abort is part of Writer.
func (w *measuredWriter) Abort() {
	w.Writer.Abort()
	w.over(nil)
}

func (w *measuredWriter) over(err error) {
	if w.end != nil {
		w.end(err)
		w.end = nil
	}
}
