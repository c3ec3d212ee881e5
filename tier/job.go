package tier

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
)

// tier takes a table to where its logs end now, in as many rounds as that takes.
// REQUIRES: t.busy held.
func (t *table) tier(ctx context.Context, j *job) error {
	src, err := t.m.from()
	if err != nil {
		return err
	}
	desc, err := t.m.o.Catalog.TableByID(ctx, t.id)
	if err != nil {
		return err
	}
	if !enabled(desc) {
		return nil
	}
	snap, err := t.snapshot(ctx, desc)
	if err != nil {
		return err
	}
	// The ends are pinned here; each round reads the descriptor after that (T2).
	todo, err := t.backlog(ctx, src, desc, snap, false)
	if err != nil {
		return err
	}
	if todo.broken != nil { // it may be mended
		if snap, err = t.look(ctx, desc); err == nil {
			todo, err = t.backlog(ctx, src, desc, snap, false)
		}
		if err == nil {
			err = todo.broken
		}
		if err != nil {
			return cmp.Or(t.stays(ctx), err)
		}
	}
	began, some := t.m.o.Clock.Now(), len(todo.pieces) > 0
	for pieces := todo.pieces; len(pieces) > 0; {
		r := &round{t: t, src: src, job: j, pieces: pieces, gaps: desc.Options.Lake.Gaps}
		if pieces, err = r.run(ctx); err != nil {
			return err
		}
	}
	if some {
		t.mu.Lock()
		t.took = (3*t.took + t.m.o.Clock.Now().Sub(began)) / 4
		t.mu.Unlock()
	}
	return nil
}

func enabled(t *millrace.Table) bool { return t.Options.Lake != nil && t.Options.Lake.Enabled }

func offsetsOf(s lake.Snapshot) lake.Offsets {
	if s == nil {
		return nil
	}
	return s.Offsets()
}

// open is the lake table, which is made when there is none.
func (t *table) open(ctx context.Context, desc *millrace.Table) (lake.Table, error) {
	t.mu.Lock()
	lt := t.lt
	t.mu.Unlock()
	if lt != nil {
		return lt, nil
	}
	select {
	case t.opening <- struct{}{}:
		defer func() { <-t.opening }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	t.mu.Lock()
	lt = t.lt
	t.mu.Unlock()
	if lt != nil {
		return lt, nil
	}
	// Opening makes what is not there: it must not bring back what was purged.
	if err := t.stays(ctx); err != nil {
		return nil, err
	}
	lt, err := t.m.o.Format.Open(ctx, desc)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gone {
		return nil, errGone
	}
	t.lt = lt
	return lt, nil
}

// isNotMade says of an error of open that there is no lake table, and need not be: none
// can be made of the table as it is, which is not tiered now.
func isNotMade(desc *millrace.Table, err error) bool {
	return errs.Is(err, errs.UnsupportedByLake) && !enabled(desc)
}

// snapshot is the newest snapshot as far as it is known here; the lake is asked when
// nothing is known.
func (t *table) snapshot(ctx context.Context, desc *millrace.Table) (lake.Snapshot, error) {
	t.mu.Lock()
	s, known := t.newest, t.sure()
	t.mu.Unlock()
	if known {
		return s, nil
	}
	return t.look(ctx, desc)
}

// deafFor is how long a lake that did not answer is not asked again by those who cannot
// wait for long.
const deafFor = 5 * time.Second

// lookSoon is look for those who cannot wait for long: Options.LookTime, and not at all
// for a while after the lake did not answer.
func (t *table) lookSoon(ctx context.Context, desc *millrace.Table) (lake.Snapshot, error) {
	t.mu.Lock()
	deaf, until := t.deaf, t.deafUntil
	t.mu.Unlock()
	if deaf != nil && t.m.o.Clock.Now().Before(until) {
		return nil, deaf
	}
	limited, cancel := context.WithTimeout(ctx, t.m.o.LookTime)
	defer cancel()
	s, err := t.look(limited, desc)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil && limited.Err() != nil {
		err = errs.New(errs.Unavailable, "the lake of table %s does not answer within %s", desc.Path, millrace.FormatDuration(t.m.o.LookTime))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if errs.Is(err, errs.Unavailable) {
		t.deaf, t.deafUntil = err, t.m.o.Clock.Now().Add(deafFor)
	}
	return s, err
}

// look asks the lake for the newest snapshot, and tells the shards.
func (t *table) look(ctx context.Context, desc *millrace.Table) (lake.Snapshot, error) {
	t.mu.Lock()
	commits := t.commits
	t.mu.Unlock()
	var s lake.Snapshot
	lt, err := t.open(ctx, desc)
	if err == nil {
		s, err = lt.Newest(ctx)
	}
	if err != nil && !isNotMade(desc, err) {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.commits == commits {
		t.seeLocked(s)
	}
	return t.newest, nil
}

// seeLocked takes note of a snapshot that the lake says is the newest, and tells the
// shards.
// REQUIRES: t.mu held.
func (t *table) seeLocked(s lake.Snapshot) {
	was := offsetsOf(t.newest)
	t.newest, t.seenAt, t.doubt, t.deaf = s, t.m.o.Clock.Now(), false, nil
	moved := map[millrace.BucketID]millrace.Offset{}
	for b, at := range offsetsOf(s) {
		if at != was[b] {
			moved[b] = at
		}
	}
	for b := range was {
		if _, have := offsetsOf(s)[b]; !have {
			moved[b] = 0 // it went back, or its partition is dropped
		}
	}
	if len(moved) == 0 {
		return
	}
	for _, sh := range t.m.o.Shards {
		sh.Tiered(moved)
	}
}

// committed takes note of what a round has committed.
func (t *table) committed(desc *millrace.Table, s lake.Snapshot, w lake.Written, took time.Duration) {
	m := t.m
	m.metrics.round(w, took)
	t.mu.Lock()
	if t.rounds == 0 {
		t.roundsSince = m.o.Clock.Now()
	}
	t.rounds++
	t.commits++
	t.seeLocked(s)
	t.mu.Unlock()
	m.o.Logger.Debug("tiered", tableAttr(desc), slog.Int64("round", s.Round()), slog.Int64("rows", w.Rows),
		slog.Int64("deleted_rows", w.DeletedRows), slog.Int("files", w.Files), slog.Int64("bytes", w.Bytes), slog.Duration("took", took))
}

// stays says whether a round of a table may commit: the table is still there.
func (t *table) stays(ctx context.Context) error {
	_, err := t.m.o.Catalog.TableByID(ctx, t.id)
	if errs.Is(err, errs.TableNotFound) {
		return errGone
	}
	return err
}

// next are the offsets of a snapshot, to be moved on.
func next(base lake.Snapshot) lake.Offsets {
	if base == nil {
		return lake.Offsets{}
	}
	return maps.Clone(base.Offsets())
}
