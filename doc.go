// Package millrace is the vocabulary of the project: the names of things, with
// their spelling, limits and parsing, and no I/O.
//
// A [TablePath] names a table: a database and a name. A table is a *log table*
// (append-only) or a *keyed table* (the latest row per primary key, with a
// changelog); its [Table] descriptor holds the [Schema], the keys, the number of
// buckets and the properties. A table is split into *partitions* (by value) and
// each partition into *buckets* ([BucketID]); a bucket is one ordered sequence
// of records, numbered by [Offset] from 0 without holes. The buckets of one
// *shard* ([ShardID]) share a write-ahead log, a state store and an owner. The
// owner writes records, numbered by [LSN], under a fencing number, the [Epoch].
//
// Everything a user names (databases, tables, columns, partitions) also has a
// number that is never used again ([DatabaseID], [TableID], [ColumnID],
// [PartitionID], [SchemaID]). Data is matched by number, never by name or
// position, and only numbers reach file names.
//
// A changelog record has a [ChangeType]: +I, -U, +U or -D. A log table's
// records are all +I.
//
// Ranges are half-open, [start, end). Times of records are microseconds since
// the Unix epoch, UTC.
//
// It leaves to others: errors (package errs), Arrow and row formats (package
// row), and everything that happens to data.
package millrace
