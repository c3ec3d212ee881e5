// Package wal is the write-ahead log of shards: the [Log] interface, the format
// of its records, and the implementation for a single node, [Files], which keeps
// all shards of a process in one append file.
//
// A [Log] is a shard's sequence of *records*, numbered by LSN from 1 without
// holes, each carrying the hash of the one before. What callers append and get
// back are *entries*; several share a record, and a large one is cut into
// fragments over consecutive records. [Files] writes what all shards brought
// while the previous fsync ran with one write and one fsync (no linger timer).
// docs/formats/wal.md draws the bytes; docs/adr/0002-file-log.md says why it is so.
//
// It leaves to others: what entries mean, and applying them (package shard);
// when a record is not needed any more (checkpoints, package shard); comparing
// [Tail] with what was last known; choosing epochs and owners; the lock on the
// data directory; and how the log of a cluster is replicated.
//
// Invariants:
//
//	W1  When Append returns without an error, its entries are on stable storage
//	    and every later Replay, after any crash, gives each exactly once, in order.
//	W2  What Append refused (any code but errs.UnknownOutcome) is never replayed.
//	W3  A file gets its name (.wal) when its header and first records are synced;
//	    it is never appended to after a restart, and never truncated. The newest
//	    file's header lists the files that live and where each ends: bytes beyond
//	    that, and files that are not listed, are not part of the log.
//	W4  All bytes before a frame's group offset were synced when the frame was
//	    written. So a bad byte before the highest group offset is damage; one after
//	    it may be a torn write. What lies after it is not trusted where it lies: it
//	    is carried over into the next file, whole records only.
//	W5  No entry is given out before the checksums and the chain of its records
//	    were checked. A damaged shard is errs.CorruptData, naming file and offset;
//	    the other shards go on.
//	W6  After a failed fsync nothing is ever acknowledged again by this process.
//
// Files owned: in the directory given, <20-digit number>.wal; .wal.tmp, a file in
// the making (removed at the next start); .wal.torn, a copy of a torn tail (at
// most 1 MiB each, the newest 16 are kept).
//
// Concurrency: all methods may be called from any goroutine. A Files has one
// goroutine, the committer, which alone writes files; Close waits for it. Lock
// order: shardLog.mu before Files.mu; nothing is written or synced under Files.mu.
package wal
