package iceberg

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/apache/iceberg-go/table"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/objstore"
)

// Versions are files metadata/vN.metadata.json, N from 1 without holes, and the highest
// N is the newest. metadata/version-hint.text holds a number that a version had once:
// stock readers begin there, and a version below it that is missing was lost.
const (
	versionPrefix = "/metadata/v"
	versionSuffix = ".metadata.json"
	hintFile      = "/metadata/version-hint.text"
)

// How long and how often a change is tried. After publishLimit it is void: version files
// stay far longer, so a request that was under way that long finds its number taken.
const (
	publishLimit = 10 * time.Minute
	publishTries = 20
	createTries  = 5
	retryPause   = 50 * time.Millisecond
)

// lakePointer keeps the pointer in the lake table's own folder.
type lakePointer struct {
	store  objstore.Store
	folder string
	// check says whether metadata is of the table that the folder is for.
	check func(table.Metadata) error
	// wait waits before a try, or until the context ends.
	wait func(context.Context, time.Duration) error
}

var _ pointer = (*lakePointer)(nil)

func (p *lakePointer) key(n int64) string {
	return p.folder + versionPrefix + strconv.FormatInt(n, 10) + versionSuffix
}

// load implements pointer: upward from what was seen, or else as the folder is listed.
func (p *lakePointer) load(ctx context.Context, seen *version) (*version, error) {
	var n int64
	var err error
	if seen != nil {
		n = seen.number
	} else if n, err = p.highest(ctx); err != nil {
		return nil, err
	}
	if n > 0 {
		if n, err = p.climb(ctx, n); err != nil {
			return nil, err
		}
	}
	switch {
	case n == 0:
		return nil, nil //nolint:nilnil // There is none.
	case seen != nil && n == seen.number:
		// Old versions are removed, from below: when this one is gone, so may be the next.
		info, err := p.store.Stat(ctx, p.key(n))
		switch {
		case err == nil && seen.file.is(info):
			return seen, nil
		case err == nil: // it was lost, and another one made
		case !errors.Is(err, objstore.ErrNotExist):
			return nil, storeError(err, "look for %s", uriOf(p.store, p.key(n)))
		default:
			if n, err = p.highest(ctx); err != nil || n == 0 {
				return nil, err
			}
		}
	}
	info, err := p.store.Stat(ctx, p.key(n)) // before it is read, so that it is of no later file
	if err != nil {
		return nil, storeError(err, "look for %s", uriOf(p.store, p.key(n)))
	}
	body, err := p.store.Get(ctx, p.key(n))
	if err != nil {
		return nil, storeError(err, "read %s", uriOf(p.store, p.key(n)))
	}
	v, err := p.parse(n, body)
	if err == nil {
		v.file.is(info)
	}
	return v, err
}

// climb gives the highest number from n on without a hole.
func (p *lakePointer) climb(ctx context.Context, n int64) (int64, error) {
	for {
		_, err := p.store.Stat(ctx, p.key(n+1))
		if errors.Is(err, objstore.ErrNotExist) {
			return n, nil
		}
		if err != nil {
			return 0, storeError(err, "look for %s", uriOf(p.store, p.key(n+1)))
		}
		n++
	}
}

// highest is the highest number in the folder; 0 when there is none. The hint is read
// first, so that what it says is in the listing, or was lost.
func (p *lakePointer) highest(ctx context.Context) (int64, error) {
	hint, err := p.hint(ctx)
	if err != nil {
		return 0, err
	}
	n := int64(0)
	err = p.store.List(ctx, p.folder+versionPrefix, func(i objstore.Info) error {
		text, ok := strings.CutSuffix(strings.TrimPrefix(i.Key, p.folder+versionPrefix), versionSuffix)
		if v, err := strconv.ParseInt(text, 10, 64); ok && err == nil && text == strconv.FormatInt(v, 10) {
			n = max(n, v)
		}
		return nil
	})
	if err != nil {
		return 0, storeError(err, "list %s", uriOf(p.store, p.folder+versionPrefix))
	}
	if n < hint {
		return 0, errs.New(errs.CorruptData, "the metadata file %s of a lake table is missing, although version-hint.text names it: restore it; nothing is written to the table before", uriOf(p.store, p.key(hint)))
	}
	if n > hint {
		p.raiseHint(ctx, n)
	}
	return n, nil
}

// hint is what version-hint.text says; 0 when it is not there or not a number, as it is
// a hint only.
func (p *lakePointer) hint(ctx context.Context) (int64, error) {
	body, err := p.store.Get(ctx, p.folder+hintFile)
	if errors.Is(err, objstore.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, storeError(err, "read %s", uriOf(p.store, p.folder+hintFile))
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(body)), 10, 64)
	if err != nil || n < 0 {
		return 0, nil //nolint:nilerr // Someone else's text is no hint.
	}
	return n, nil
}

// raiseHint makes the hint n unless it is higher. Nothing depends on it but how soon
// stock readers see a version, so it may fail.
func (p *lakePointer) raiseHint(ctx context.Context, n int64) {
	if hint, err := p.hint(ctx); err == nil && hint < n {
		_ = p.store.Put(ctx, p.folder+hintFile, strconv.AppendInt(nil, n, 10))
	}
}

func (p *lakePointer) parse(n int64, body []byte) (*version, error) {
	uri := uriOf(p.store, p.key(n))
	meta, err := table.ParseMetadataBytes(body)
	if err != nil {
		return nil, errs.New(errs.CorruptData, "the metadata file %s of a lake table is damaged: %v: restore it; nothing is written to the table before", uri, err)
	}
	if err := p.check(meta); err != nil {
		return nil, err
	}
	return &version{number: n, location: uri, meta: meta, file: &versionFile{bytes: int64(len(body))}}, nil
}

// publish implements pointer.
func (p *lakePointer) publish(ctx context.Context, c change) (*version, error) {
	ctx, cancel := context.WithTimeout(ctx, publishLimit)
	defer cancel()
	base := c.seen
	for range publishTries {
		var err error
		if base, err = p.load(ctx, base); err != nil {
			return nil, err
		}
		if base != nil && c.snapshot != 0 && base.meta.SnapshotByID(c.snapshot) != nil {
			return base, nil // an earlier try of ours happened
		}
		next, err := p.try(ctx, base, c)
		if err != nil || next != nil {
			return next, err
		}
	}
	return nil, errs.New(errs.Unavailable, "lake table %s is changed too often for a change of ours to get through", uriOf(p.store, p.folder))
}

// try makes the version after base; nil when it is there already.
func (p *lakePointer) try(ctx context.Context, base *version, c change) (*version, error) {
	n, meta, err := p.apply(base, c)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(meta)
	if err != nil {
		return nil, fmt.Errorf("encode the metadata of lake table %s: %w", uriOf(p.store, p.folder), err)
	}
	switch created, err := p.create(ctx, p.key(n), body); {
	case err != nil:
		return nil, err
	case !created:
		return nil, nil //nolint:nilnil // The caller looks who it was.
	}
	file := &versionFile{bytes: int64(len(body))}
	if info, err := p.store.Stat(ctx, p.key(n)); err == nil {
		file.is(info)
	}
	p.raiseHint(ctx, n)
	return &version{number: n, location: uriOf(p.store, p.key(n)), meta: meta, file: file}, nil
}

// apply gives the metadata that follows base, and its number.
func (p *lakePointer) apply(base *version, c change) (int64, table.Metadata, error) {
	n, current, location := int64(1), table.Metadata(nil), ""
	if base != nil {
		n, current, location = base.number+1, base.meta, base.location
	}
	for _, r := range c.requirements {
		if err := r.Validate(current); err != nil {
			return 0, nil, fmt.Errorf("%w: %w", errConflict, err)
		}
	}
	b, err := table.NewMetadataBuilder(formatVersion)
	if base != nil {
		b, err = table.MetadataBuilderFromBase(current, location)
	}
	for i := 0; err == nil && i < len(c.updates); i++ {
		err = c.updates[i].Apply(b)
	}
	if err != nil {
		return 0, nil, fmt.Errorf("change lake table %s: %w", uriOf(p.store, p.folder), err)
	}
	meta, err := b.Build()
	if err != nil {
		return 0, nil, fmt.Errorf("change lake table %s: %w", uriOf(p.store, p.folder), err)
	}
	return n, meta, nil
}

// create makes a file with a body that no one else would write, and says whether no one
// has made it before: another, or an earlier try of ours whose answer was lost. Without an
// answer it tries again: the same file twice is one file.
func (p *lakePointer) create(ctx context.Context, key string, body []byte) (bool, error) {
	var last error
	for i := range createTries {
		if i > 0 {
			if p.wait(ctx, retryPause<<i) != nil {
				break
			}
		}
		last = p.store.Create(ctx, key, body)
		if last == nil {
			return true, nil
		}
		if errors.Is(last, objstore.ErrExists) {
			return false, nil
		}
	}
	return false, storeError(last, "create %s, which may yet have happened", uriOf(p.store, key))
}

// pause is how lakePointer waits.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
