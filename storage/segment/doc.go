// Package segment is the columnar heart: how rows are encoded into payloads, how
// payloads are stamped with a batch header and kept in segment files, and how
// some columns of a payload are read, decoded or shipped without decoding.
//
// A *payload* holds rows of one schema version, as columns (one contiguous
// chunk a column, its buffers compressed as Arrow IPC compresses them) or as
// compact rows (package row) when there are too few for columns to pay. It is
// made by [AppendColumns], [AppendRows] or [Merge] and opened with [Open] or
// [OpenBytes]. A *batch* is a payload behind a [BatchHeader], which the owner of
// a bucket stamps: bucket, offsets, times. A *segment file* is a run of batches
// of one bucket ([Writer], [File]). docs/formats/segment.md draws the bytes.
//
// It leaves to others: what a row means and whether it may be written, which
// offsets and times a batch gets, when a segment is sealed or deleted, and which
// files exist (package shard and its manifest); compact rows (package row).
//
// Invariants:
//
//	G1  Every byte of a payload, a batch header, a file header and an index is
//	    covered by a CRC32C that is compared before anything that depends on the
//	    byte is returned. What does not check is errs.CorruptData, and the error
//	    names file and position. (Padding between them is zero and not read.)
//	G2  Opening reads the meta part only; Record, Message and Changes read only the
//	    chunks that they need.
//	G3  A claimed length is compared with what it is taken from, or a limit, before
//	    anything of that size is allocated. No bytes make a reader panic.
//	G4  Columns, and fields of ROWs, are matched by id. One that the payload's schema
//	    did not have reads as NULL, one that was widened since is cast; one that was
//	    narrower gives what fits, or errs.SchemaChanged. A chunk is shipped as it
//	    lies only when its layout is that of the wanted type.
//	G5  A file is written from start to end by one Writer and never appended to
//	    after it was closed. Batches lie in offset order without holes.
//	G6  What Sync or Seal returned for is on stable storage, the file's directory
//	    entry included.
//
// Files owned: <20-digit base offset>.seg in the directory that the caller gives.
//
// Concurrency: a Payload and a File may be used by many goroutines; a Writer by
// one, while others read through its File. Records, messages and change types own
// their memory; CompactRows and the bytes of Stats point into the payload.
package segment
