package lake

import (
	"context"
	"errors"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/filter"
)

// ReadGrace is how long a snapshot can be read after another has taken its place: the
// life of a ticket, and a while for the stream it began.
const ReadGrace = 75 * time.Minute

// ErrConflict is a commit that did not happen, since another snapshot has come in
// between. A new round begins from that one.
var ErrConflict = errors.New("lake: another commit came in between")

// Format keeps lake tables of one format in one place.
type Format interface {
	// Open gives the lake table of a table, and makes it when there is none. An error is
	// an errs.Error: Unavailable when the place does not answer, CorruptData when
	// metadata is lost or damaged. Unavailable is also a location that holds something
	// which is not ours.
	Open(ctx context.Context, t *millrace.Table) (Table, error)
	// Purge removes all files of the lake table of a table that had a number and a path,
	// whatever state it is in. Nothing of another table goes, also of one with that path.
	Purge(ctx context.Context, id millrace.TableID, path millrace.TablePath) error
}

// Table is the lake table of one table.
type Table interface {
	// Location is the address of its folder, as stock readers take it.
	Location() string
	// Newest is the snapshot that was committed last, as the lake says; nil when
	// nothing was committed yet.
	Newest(ctx context.Context) (Snapshot, error)
	// Snapshot is a snapshot by number; errs.SnapshotGone when it is no longer kept.
	Snapshot(ctx context.Context, id int64) (Snapshot, error)
	// Damage is what readers found to be lost of snapshots that are kept, and what is
	// still so; nil: nothing is known to be.
	Damage(ctx context.Context) *Failure
	// Begin begins a round on the newest snapshot. What it commits is written with the
	// schema and options of desc.
	Begin(ctx context.Context, desc *millrace.Table) (Round, error)
	// Maintain merges small files and deletes, expires snapshots, and removes files
	// that nothing refers to, as far as the options of desc ask for it and bounds allow.
	Maintain(ctx context.Context, desc *millrace.Table) (Maintained, error)
}

// Offsets are where the logs of buckets go on after a snapshot.
type Offsets map[millrace.BucketID]millrace.Offset

// Snapshot is one commit of a lake table.
type Snapshot interface {
	// ID is unique in the lake table.
	ID() int64
	// CommittedAt is when it was committed.
	CommittedAt() time.Time
	// Round is the number of the round that brought its offsets; rounds count up.
	Round() int64
	// Schema is the version of the table's schema that it was committed with.
	Schema() millrace.SchemaID
	// Offsets are by bucket; a bucket that is not there has no rows in the lake. The
	// caller does not change them.
	Offsets() Offsets
	// Totals are of the whole snapshot.
	Totals() Totals
	// Skipped is how many records rounds have passed over so far (Round.Skip).
	Skipped() int64
	// Gaps is what Round.Reach said last.
	Gaps() int64
	// Files lists the files that may hold rows of a scope, in the snapshot's order.
	Files(ctx context.Context, s Scope) ([]File, error)
	// Rows reads a file of Files.
	Rows(ctx context.Context, f *File, r Read) (Rows, error)
}

// Totals are what metadata says of a snapshot.
type Totals struct {
	Rows        int64 // live rows
	DeletedRows int64 // rows in files that deletes have taken
	DataFiles   int64
	DeleteFiles int64
	Bytes       int64 // of data and delete files
	// EqualityDeletes are another writer's deletes by value: which rows they have taken
	// is not known, and files that they apply to are errs.NotImplemented to read.
	EqualityDeletes int64
}

// Scope says which rows a reader is after; the zero value, all of them.
type Scope struct {
	// Schema is what the filter's names mean.
	Schema *millrace.Schema
	// Filter leaves out files that cannot hold a row that passes; rows are not tested.
	Filter *filter.Filter
	// Partition says whether a partition is wanted, by the canonical texts of its
	// values (millrace.Partition.Values); nil: all are.
	Partition func(values []string) bool
	// Buckets are the wanted ones, rising; nil: all are. Files of no one bucket are
	// always listed.
	Buckets []uint16
}

// NoBucket is the bucket of a file that holds rows of several.
const NoBucket = -1

// File is a data file of a snapshot, with the deletes that apply to it.
type File struct {
	Path  string
	Bytes int64
	// Rows are those in the file, deleted ones too; a row's position is below.
	Rows int64
	// Deleted is how many of them deletes have taken; -1 when only reading would tell.
	Deleted int64
	// Values are the canonical texts of its partition's values; nil on a table without
	// partitions.
	Values []string
	// Bucket holds all its rows; NoBucket when there is no such one.
	Bucket int
	// Handle is the format's own.
	Handle any
}

// Read says what is read of a file.
type Read struct {
	// Columns of the answer, matched by id: of Arrow type row.ArrowType, NULL where the
	// file is older than the column, widened where it is narrower.
	Columns []millrace.Column
	// Schema and Filter leave out parts of the file that cannot hold a row that passes;
	// rows are not tested.
	Schema *millrace.Schema
	Filter *filter.Filter
	// From is the position to begin at.
	From int64
	// BatchRows bounds the rows of a batch; 0: the format's own choice.
	BatchRows int
}

// Rows are the live rows of a file, read in order.
type Rows interface {
	// Next is the next rows, and the position of each in the file; io.EOF at the end.
	// The caller releases the batch. positions are good until the next call.
	Next() (batch arrow.RecordBatch, positions []int64, err error)
	// Stats is what was read so far.
	Stats() ReadStats
	Close() error
}

// ReadStats are what reading cost.
type ReadStats struct {
	RowsSkipped  int64 // by statistics, without looking
	BytesRead    int64 // stored bytes that were read
	BytesSkipped int64 // stored bytes of the file that were not
}

// Slice is where rows of a round go.
type Slice struct {
	// Partition is nil on a table without partitions.
	Partition *millrace.Partition
	// Bucket is NoBucket for rows of several; those of keyed tables, and of tables
	// whose lake table is partitioned by bucket, are of one.
	Bucket int
}

// Round is a commit in the making. Nothing of it is visible before Commit.
type Round interface {
	// Base is the snapshot that it builds on; nil when there is none.
	Base() Snapshot
	// Append begins to write rows of a slice.
	Append(ctx context.Context, s Slice) (Appender, error)
	// Delete removes the live rows of a keyed table's slice that have one of the keys
	// (row.AppendKey of the primary key), and says how many they were.
	Delete(ctx context.Context, s Slice, keys map[string]struct{}) (int64, error)
	// Clear removes all rows that the base has of a slice; of all buckets of its
	// partition when the slice's is NoBucket.
	Clear(ctx context.Context, s Slice) error
	// Skip notes that the round passes over records, which were gone before it.
	Skip(records int64)
	// Reach notes that with this round each bucket of the table has been gone over since its
	// millrace.LakeOptions.Gaps were so many. It never goes back.
	Reach(gaps int64)
	// Commit publishes the round: files, deletes, schema and offsets at once. next are
	// the offsets of all buckets afterwards, those that did not move too.
	// ErrConflict: it did not happen and never will. Any other error leaves open
	// whether it happened; Begin tells.
	Commit(ctx context.Context, next Offsets) (Snapshot, error)
	// Abort ends a round that is not committed and removes its files as far as that
	// is possible now. After Commit it does nothing.
	Abort(ctx context.Context)
	// Written is what the round has written so far.
	Written() Written
}

// Written is what a round wrote.
type Written struct {
	Rows, DeletedRows int64
	Files             int
	Bytes             int64
}

// Appender writes rows of one slice into as many files as their size asks for.
type Appender interface {
	// Write appends rows: the columns of the round's schema in order, of Arrow type
	// row.ArrowType, then with system columns __bucket INT, __offset BIGINT,
	// __timestamp TIMESTAMP_LTZ(6). The batch stays the caller's.
	Write(batch arrow.RecordBatch) error
	// Close finishes the files. An appender that was not closed writes nothing.
	Close() error
}

// Maintained is what maintenance did.
type Maintained struct {
	Commits          int // that it made
	FilesMerged      int // data files that were replaced
	FilesWritten     int // by others
	DeletesMerged    int // delete files that are gone with them
	SnapshotsExpired int
	FilesRemoved     int // from the place
}
