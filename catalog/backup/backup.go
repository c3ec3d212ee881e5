package backup

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/objstore"
)

const (
	// Kept is how many exports stay.
	Kept = 10
	// delay is how long changes are gathered for one export.
	delay = time.Second
	// Between attempts after a failure, doubling up to the most.
	firstRetry, lastRetry = time.Second, time.Minute
	// timeout bounds one export.
	timeout = time.Minute
)

// Prefix is where a cluster's exports are, below the root of its object store.
func Prefix(clusterID [16]byte) string { return fmt.Sprintf("%x/catalog/", clusterID) }

// Options are what a Writer works with.
type Options struct {
	Catalog *catalog.Catalog
	Store   objstore.Store
	Prefix  string

	Logger     *slog.Logger
	Registerer prometheus.Registerer // may be nil
}

// Writer writes exports.
type Writer struct {
	opts    Options
	wake    chan struct{}
	wanted  atomic.Int64 // the number of changes that an export is to have
	has     atomic.Int64 // the number of changes that one has
	written prometheus.Counter
	failed  prometheus.Counter
	behind  prometheus.Gauge
}

// NewWriter makes a Writer; from then on changes of this process want an export.
func NewWriter(opts Options) *Writer {
	p := promauto.With(opts.Registerer)
	w := &Writer{
		opts: opts, wake: make(chan struct{}, 1),
		written: p.NewCounter(prometheus.CounterOpts{Name: "millrace_catalog_exports_total", Help: "Exports of the catalog written to the object store."}),
		failed:  p.NewCounter(prometheus.CounterOpts{Name: "millrace_catalog_export_failures_total", Help: "Exports of the catalog that failed; each is tried again."}),
		behind:  p.NewGauge(prometheus.GaugeOpts{Name: "millrace_catalog_export_behind", Help: "1 while the catalog has changes of this process that the object store lacks because writing fails. Alert on it."}),
	}
	opts.Catalog.Made(w.want)
	return w
}

func (w *Writer) want(revision int64) {
	for {
		have := w.wanted.Load()
		if have >= revision {
			break
		}
		if w.wanted.CompareAndSwap(have, revision) {
			break
		}
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Run writes exports until ctx ends. It begins with one if the newest in the store is
// older than the catalog, since a process may have ended before it wrote its own.
func (w *Writer) Run(ctx context.Context) error {
	retry, first := firstRetry, true
	for {
		if !first {
			select {
			case <-w.wake:
			case <-ctx.Done():
				return ctx.Err()
			}
			if w.wanted.Load() <= w.has.Load() {
				continue
			}
			if !pause(ctx, delay) {
				return ctx.Err()
			}
		}
		revision, err := w.write(ctx, first)
		if err == nil {
			w.has.Store(max(w.has.Load(), revision))
			retry, first = firstRetry, false
			w.behind.Set(0)
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		w.failed.Inc()
		w.behind.Set(1)
		w.opts.Logger.WarnContext(ctx, "catalog not exported, trying again", slog.Any("err", err))
		if !pause(ctx, retry) {
			return ctx.Err()
		}
		retry = min(2*retry, lastRetry)
		w.want(w.wanted.Load()) // wakes
	}
}

// Finish writes the export that is wanted still, when Run has ended in order. It tries
// once.
func (w *Writer) Finish(ctx context.Context) error {
	if w.wanted.Load() <= w.has.Load() {
		return nil
	}
	_, err := w.write(ctx, false)
	return err
}

func pause(ctx context.Context, d time.Duration) bool {
	wait := time.NewTimer(d)
	defer wait.Stop()
	select {
	case <-wait.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// write writes one export, and removes the oldest. With unlessThere it does nothing when
// the newest in the store is as new.
func (w *Writer) write(ctx context.Context, unlessThere bool) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	b, revision, err := w.opts.Catalog.Export(ctx)
	if err != nil {
		return 0, err
	}
	if unlessThere {
		there, err := list(ctx, w.opts.Store, w.opts.Prefix)
		if err != nil {
			return 0, err
		}
		if len(there) > 0 && there[len(there)-1] >= revision {
			return revision, nil
		}
	}
	if err := w.opts.Store.Put(ctx, key(w.opts.Prefix, revision), b); err != nil {
		return 0, fmt.Errorf("writing an export of the catalog: %w", err)
	}
	w.written.Inc()
	there, err := list(ctx, w.opts.Store, w.opts.Prefix)
	if err != nil {
		return 0, err
	}
	var old []string
	for _, r := range there[:max(0, len(there)-Kept)] {
		old = append(old, key(w.opts.Prefix, r))
	}
	if err := w.opts.Store.Remove(ctx, old...); err != nil {
		return 0, fmt.Errorf("removing old exports of the catalog: %w", err)
	}
	return revision, nil
}

func key(prefix string, revision int64) string { return fmt.Sprintf("%s%020d", prefix, revision) }

// list is the numbers of the exports there are, rising.
func list(ctx context.Context, store objstore.Reader, prefix string) ([]int64, error) {
	var out []int64
	err := store.List(ctx, prefix, func(info objstore.Info) error {
		name := strings.TrimPrefix(info.Key, prefix)
		if n, err := strconv.ParseInt(name, 10, 64); err == nil && len(name) == 20 && n >= 0 {
			out = append(out, n)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("listing exports of the catalog: %w", err)
	}
	return out, nil
}

// Restore makes a catalog of the newest export that can be read, in a store that has
// none, and returns its number of changes. Newer ones that are damaged are passed over, loudly.
func Restore(ctx context.Context, store objstore.Reader, prefix string, kv catalog.KV, logger *slog.Logger) (int64, error) {
	there, err := list(ctx, store, prefix)
	if err != nil {
		return 0, err
	}
	if len(there) == 0 {
		return 0, errs.New(errs.InvalidRequest, "there is no export of a catalog at %s/%s", store.URI(), prefix)
	}
	newest := there[len(there)-1]
	for i := len(there) - 1; ; i-- {
		at := key(prefix, there[i])
		b, err := store.Get(ctx, at)
		if err == nil {
			err = catalog.Import(ctx, kv, b, newest)
		}
		switch {
		case err == nil:
			return there[i], nil
		case !errs.Is(err, errs.CorruptData) || i == 0:
			return 0, fmt.Errorf("restoring the catalog from %s/%s: %w", store.URI(), at, err)
		}
		logger.ErrorContext(ctx, "export of the catalog damaged, using the one before", slog.String("object", at), slog.Any("err", err))
	}
}
