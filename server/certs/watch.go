package certs

import (
	"context"
	"log/slog"
	"os"
	"time"
)

const (
	// lookEvery is how soon a change of the files is seen.
	lookEvery = 3 * time.Second
	// warnBefore is how long before its end a certificate is warned of, every warnEvery.
	warnBefore = 30 * 24 * time.Hour
	warnEvery  = 24 * time.Hour
)

// Watch looks at the files until ctx ends: every few seconds, and at once when again
// brings something.
func (f *Files) Watch(ctx context.Context, again <-chan os.Signal) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	f.warnOfExpiry(ctx)
	for {
		told := false
		select {
		case <-tick.C:
		case <-again:
			told = true
		case <-ctx.Done():
			return
		}
		f.Look(ctx, told)
		f.warnOfExpiry(ctx)
	}
}

// Look takes the files when they have changed and are good (K1). Somebody who has told us
// to is answered in the log, whatever there is to say.
func (f *Files) Look(ctx context.Context, told bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, err := f.o.load()
	var s *state
	if err == nil {
		if c.sum() == f.current.Load().sum {
			f.accepted()
			if told {
				f.o.Logger.InfoContext(ctx, "files of tls are as they were")
			}
			return
		}
		s, err = f.o.parse(c, f.o.Clock())
	}
	if err != nil {
		f.met.refused.Set(1)
		if what := err.Error(); what != f.refused || told { // once for each reason
			f.refused = what
			f.met.reloads.WithLabelValues(resultRefused).Inc()
			f.o.Logger.WarnContext(ctx, "files of tls are not good; those read before are used", slog.String("err", what))
		}
		return
	}
	f.accepted()
	f.enter(s)
	f.warned = time.Time{}
	f.met.reloads.WithLabelValues(resultTaken).Inc()
	attrs := []any{}
	if s.pair != nil {
		attrs = append(attrs, slog.Any("names", names(s.pair.Leaf)), slog.Time("not_after", s.pair.Leaf.NotAfter))
	}
	f.o.Logger.InfoContext(ctx, "new files of tls are used", attrs...)
}

func (f *Files) accepted() {
	f.refused = ""
	f.met.refused.Set(0)
}

// warnOfExpiry tells, once a day, that the certificate ends soon or has ended.
func (f *Files) warnOfExpiry(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	leaf, now := f.Leaf(), f.o.Clock()
	if leaf == nil || leaf.NotAfter.Sub(now) > warnBefore || now.Sub(f.warned) < warnEvery {
		return
	}
	f.warned = now
	attrs := []any{slog.String("file", f.o.Cert), slog.Time("not_after", leaf.NotAfter)}
	if now.After(leaf.NotAfter) {
		f.o.Logger.ErrorContext(ctx, "the certificate has expired; clients refuse it", attrs...)
		return
	}
	f.o.Logger.WarnContext(ctx, "the certificate expires soon", append(attrs, slog.Int("days", int(leaf.NotAfter.Sub(now)/(24*time.Hour))))...)
}
