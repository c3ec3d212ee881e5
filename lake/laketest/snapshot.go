package laketest

import (
	"context"
	"io"
	"slices"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/row"
)

// file is a data file; it is immutable.
type file struct {
	path      string
	partition millrace.PartitionID
	values    []string
	bucket    int
	schema    millrace.SchemaID
	rows      [][]byte
	keys      []string // of keyed tables, by row
	system    []System // with system columns, by row
	bytes     int64
}

// System is what the system columns of a row say.
type System struct {
	Bucket    uint16
	Offset    millrace.Offset
	Timestamp arrow.Timestamp
}

// Snapshot is one commit.
type Snapshot struct {
	t           *Table
	id          int64
	committedAt time.Time
	round       int64
	schema      millrace.SchemaID
	offsets     lake.Offsets
	skipped     int64
	gaps        int64
	files       []*file
	deleted     map[*file]map[int64]struct{}
}

// ID is unique in the lake table.
func (s *Snapshot) ID() int64 { return s.id }

// Skipped is how many records rounds have passed over.
func (s *Snapshot) Skipped() int64 { return s.skipped }

// Gaps is what Reach said last.
func (s *Snapshot) Gaps() int64 { return s.gaps }

// CommittedAt is when it was committed.
func (s *Snapshot) CommittedAt() time.Time { return s.committedAt }

// Round is the number of the round that brought its offsets.
func (s *Snapshot) Round() int64 { return s.round }

// Schema is the version of the schema that it was committed with.
func (s *Snapshot) Schema() millrace.SchemaID { return s.schema }

// Offsets are where the logs go on.
func (s *Snapshot) Offsets() lake.Offsets { return s.offsets }

// Totals are of the whole snapshot.
func (s *Snapshot) Totals() lake.Totals {
	var t lake.Totals
	for _, f := range s.files {
		gone := int64(len(s.deleted[f]))
		t.Rows += int64(len(f.rows)) - gone
		t.DeletedRows += gone
		t.DataFiles++
		if gone > 0 {
			t.DeleteFiles++
		}
		t.Bytes += f.bytes
	}
	return t
}

// Files lists the files of a scope.
func (s *Snapshot) Files(_ context.Context, sc lake.Scope) ([]lake.File, error) {
	var out []lake.File
	for _, f := range s.files {
		if sc.Partition != nil && f.values != nil && !sc.Partition(f.values) {
			continue
		}
		if sc.Buckets != nil && f.bucket != lake.NoBucket && !slices.Contains(sc.Buckets, uint16(f.bucket)) {
			continue
		}
		out = append(out, lake.File{
			Path: f.path, Bytes: f.bytes, Rows: int64(len(f.rows)), Deleted: int64(len(s.deleted[f])), Values: f.values, Bucket: f.bucket, Handle: f,
		})
	}
	return out, nil
}

// defaultBatch is small, so that tests with few rows have several batches.
const defaultBatch = 100

// Rows reads a file.
func (s *Snapshot) Rows(ctx context.Context, lf *lake.File, r lake.Read) (lake.Rows, error) {
	if err := s.t.f.ask(ReadRows, s.t.id); err != nil {
		return nil, err
	}
	f, ok := lf.Handle.(*file)
	if !ok || !slices.Contains(s.files, f) {
		return nil, errs.New(errs.CorruptData, "file %s is not of lake snapshot %d", lf.Path, s.id)
	}
	s.t.f.mu.Lock()
	schemas := s.t.schemas
	s.t.f.mu.Unlock()
	most := r.BatchRows
	if most <= 0 {
		most = defaultBatch
	}
	find := func(id millrace.SchemaID) *millrace.Schema { return schemas[id] }
	return &rows{ctx: ctx, f: f, gone: s.deleted[f], at: r.From, most: most, reader: row.NewReader(memory.DefaultAllocator, find, r.Columns)}, nil
}

// System is what the system columns of the rows of a file say, by position; nil when
// it has none.
func (s *Snapshot) System(lf *lake.File) []System { return lf.Handle.(*file).system }

// rows are the live rows of a file.
type rows struct {
	ctx       context.Context // of the read
	f         *file
	gone      map[int64]struct{}
	at        int64
	most      int
	reader    *row.Reader
	positions []int64
	read      int64
}

// Next is the next rows.
func (r *rows) Next() (arrow.RecordBatch, []int64, error) {
	if err := r.ctx.Err(); err != nil {
		return nil, nil, err
	}
	r.positions = r.positions[:0]
	for ; r.at < int64(len(r.f.rows)) && len(r.positions) < r.most; r.at++ {
		if _, gone := r.gone[r.at]; gone {
			continue
		}
		if err := r.reader.Append(r.f.rows[r.at]); err != nil {
			return nil, nil, err
		}
		r.positions = append(r.positions, r.at)
		r.read += int64(len(r.f.rows[r.at]))
	}
	if len(r.positions) == 0 {
		return nil, nil, io.EOF
	}
	return r.reader.Record(), r.positions, nil
}

// Stats is what was read so far.
func (r *rows) Stats() lake.ReadStats { return lake.ReadStats{BytesRead: r.read} }

// Close ends the read.
func (r *rows) Close() error {
	r.reader.Close()
	return nil
}
