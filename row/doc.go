// Package row is where rows and columns meet: the Arrow types of our SQL types,
// the compact row in which keyed state is stored, the bytes by which rows are
// ordered and spread over buckets, and the small operations on record batches
// that routing needs.
//
// Everything in memory is an [arrow.RecordBatch] in *canonical types*, those of
// [ArrowType]; never views, dictionaries or run ends. A [Codec] turns one row of
// a record into a compact row and merges compact rows; a [Reader] turns compact
// rows of any schema version back into the columns that are wanted. [AppendKey]
// and [Codec.AppendKeyOfRow] make the key under which a row is stored, and
// [DecodeKey] reads it; a [Bucketer] says which bucket a row belongs to. [Take],
// [Project], [NewBuilders] and [BuildNulls] cut and make records. [Rows] is what
// decoders of requests hand to the router.
//
// It leaves to others: the text forms of rows (row/jsonrow), records from outside
// and conversions to canonical types (row/arrowrow), limits on rows and keys
// (row ≤ 1 MiB, key ≤ 4 KiB), nullability, merge engines, and where rows are
// kept.
//
// Invariants:
//
//	R1  A row's encoding is canonical: rows of one schema hold the same values
//	    exactly when their bytes are equal. NULL slots are zero, every NaN has the
//	    same bits, other floats keep theirs, and maps keep the order of entries.
//	R2  Keys compare as bytes the way their values do, column after column, and the
//	    key of a prefix of the columns is a prefix of the key.
//	R3  A key and a bucket are functions of the values alone: not of the schema
//	    version, the position of the columns or the record they come in.
//	R4  Whatever reads stored bytes and returns an error does so for any bytes,
//	    without panicking and without taking memory out of proportion. What
//	    returns no error needs bytes that were made here or passed [Codec.Check].
//	R5  Values are matched by column id, never by name or position.
//
// Formats: docs/formats/row.md (compact rows and keys) and
// docs/formats/bucket-hash.md. Rows written by each format version are kept in
// testdata/formats and are read for ever.
//
// Concurrency: a Codec and a Bucketer are immutable and may be shared; a Reader
// belongs to one goroutine. Functions that return an Arrow value hand over one
// reference, which the caller releases; arguments are never released or kept.
package row
