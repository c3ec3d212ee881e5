package iceberg

import (
	"context"
	"log/slog"
	"sync"
	"time"

	ice "github.com/apache/iceberg-go"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
)

// round is a commit in the making. What it wrote belongs to it until it may have been
// published.
type round struct {
	t      *lakeTable
	desc   *millrace.Table
	at     *version  // that it began on
	base   *snapshot // of at; nil when that has none
	number int64

	schema *ice.Schema // that it writes with
	spec   ice.PartitionSpec

	mu struct {
		sync.Mutex
		edit
		found   map[string]*found // by path
		keys    []string          // of all files written
		written lake.Written
		skipped int64 // records
		gaps    int64
		ended   bool // committed, possibly committed, or aborted
	}
}

// edit is what a commit does to the files of its base.
type edit struct {
	addData    []ice.DataFile
	addDeletes []ice.DataFile
	// remove are the paths of data and delete files of the base.
	remove map[string]struct{}
}

// begin begins a round on the newest snapshot.
func (t *lakeTable) begin(ctx context.Context, desc *millrace.Table) (*round, error) {
	v, base, err := t.current(ctx)
	if err != nil {
		return nil, err
	}
	if base != nil && desc.Schema.ID < base.schema {
		return nil, errs.New(errs.SchemaChanged, "the lake table of table %s has version %d of its schema; a round with version %d is out of date", desc.Path, base.schema, desc.Schema.ID)
	}
	schema, err := schemaOf(desc)
	if errs.Is(err, errs.UnsupportedByLake) && !desc.Options.Lake.Enabled {
		schema, err = v.meta.CurrentSchema(), nil // rows can still be removed
	}
	if err != nil {
		return nil, err
	}
	r := &round{t: t, desc: desc, at: v, base: base, number: 1, schema: schema, spec: v.meta.PartitionSpec()}
	if base != nil {
		r.number = base.round + 1
	}
	return r, nil
}

// Written implements lake.Round.
func (r *round) Written() lake.Written {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.written
}

// Append implements lake.Round.
func (r *round) Append(ctx context.Context, s lake.Slice) (lake.Appender, error) {
	w, err := r.newFileWriter(ctx, s)
	if err != nil {
		return nil, err
	}
	return &appender{w: w}, nil
}

// own remembers a file before it is written.
func (r *round) own(key string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.ended {
		return errClosed
	}
	r.mu.keys = append(r.mu.keys, key)
	return nil
}

func (r *round) isEnded() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.ended
}

// added takes data files that are finished.
func (r *round) added(files []ice.DataFile, rows, bytes int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.ended {
		return errClosed
	}
	r.mu.addData = append(r.mu.addData, files...)
	r.mu.written.Rows += rows
	r.mu.written.Files += len(files)
	r.mu.written.Bytes += bytes
	return nil
}

// Skip implements lake.Round.
func (r *round) Skip(records int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.skipped += records
}

// Reach implements lake.Round.
func (r *round) Reach(gaps int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.gaps = max(r.mu.gaps, gaps)
}

// removed takes files of the base out of the table, and says how many live rows go with
// them.
func (r *round) removed(paths []string, rows int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.ended {
		return errClosed
	}
	if r.mu.remove == nil {
		r.mu.remove = make(map[string]struct{}, len(paths))
	}
	for _, p := range paths {
		r.mu.remove[p] = struct{}{}
	}
	r.mu.written.DeletedRows += rows
	return nil
}

// Clear implements lake.Round.
func (r *round) Clear(ctx context.Context, s lake.Slice) error {
	if r.base == nil {
		return nil
	}
	var want []string
	if s.Partition != nil {
		want = s.Partition.Values
	}
	var paths []string
	rows := int64(0)
	err := r.t.eachFile(ctx, r.at.meta, &r.base.snap, func(e ice.ManifestEntry, spec *ice.PartitionSpec) error {
		df := e.DataFile()
		in, err := r.inSlice(df, spec, want, s.Bucket)
		if err != nil || !in {
			return err
		}
		paths = append(paths, df.FilePath())
		switch df.ContentType() {
		case ice.EntryContentData:
			rows += df.Count()
		case ice.EntryContentPosDeletes:
			rows -= df.Count()
		case ice.EntryContentEqDeletes: // nobody knows how many they take
		}
		return nil
	})
	if err != nil {
		return err
	}
	return r.removed(paths, rows)
}

// abortLimit is how long the files of a round are tried to be removed.
const abortLimit = 30 * time.Second

// Abort implements lake.Round.
func (r *round) Abort(ctx context.Context) {
	r.mu.Lock()
	keys := r.mu.keys
	ended := r.mu.ended
	r.mu.ended, r.mu.keys = true, nil
	r.mu.Unlock()
	if ended || len(keys) == 0 {
		return
	}
	// Often the round is given up because its context ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortLimit)
	defer cancel()
	if err := r.t.f.o.Store.Remove(ctx, keys...); err != nil {
		r.t.f.o.Logger.WarnContext(ctx, "files of a round that was given up are still there", slog.Any("table_id", r.t.id), slog.Int("files", len(keys)), slog.Any("err", err))
	}
}
