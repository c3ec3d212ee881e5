// Package shard is the owner of one shard: it takes writes, decides what they
// change, makes that durable in the write-ahead log, applies it to state and
// bucket logs, and answers; it serves lookups, snapshots and log views; it takes
// checkpoints and recovers from them. A [Follower] is the recovery left running, for
// a process that may have to take over.
//
// It leaves to others: the write-ahead log (package wal, through [wal.Log]), the
// stores (kv, bucket, segment), which shard a bucket belongs to and what a request
// means (package router).
//
// Life of a write: [Shard.Write] queues an [Op] → the loop gathers ops into a
// group while the group before is in flight, checks sequences, merges rows
// against the state as of what was prepared before (prepare.go) → one append to
// the log (commit.go) → apply: one kv batch, then the bucket logs, then the
// answers (apply.go).
//
// Invariants:
//
//	S1  What is not durable in the log is neither in the state nor in a bucket log,
//	    and is seen by nobody.
//	S2  State, bucket metas, writer windows and the applied LSN change together.
//	S3  A snapshot's rows are the fold of the changelog up to its offsets: the kv
//	    batch and the bucket logs change under applyMu.
//	S4  An append that fails leaves nothing: offsets, times, rows and writers go
//	    back to what is applied.
//	S5  The log is purged up to an LSN only when a published manifest covers it.
//	S6  Answers leave in the order of the log.
//	S7  Of the ops of one [Line] a shard takes none behind one that failed, so that
//	    they can be sent again from there on.
//	S8  No record of a partition stands behind its seal in the log.
//	S9  A table goes by the descriptor with the highest version that an op brought. A
//	    schema is in the log before the first rows of it, and a keyed payload is of the
//	    newest schema: rows of an older one are rewritten when a write meets them.
//	S10  Where a log starts is in the write-ahead log (entry bucket-trim) before a
//	     reader sees it, and never goes back. What a start passed is kept for
//	     KeepExpired, and its files until a manifest no longer names them. Of a table of
//	     which nobody spoke since the start, nothing expires.
//	S11  Of a table that is kept in the lake, a log's start does not pass what the shard
//	     was told last is there (Tiered), since the process started.
//	S12  A follower writes nothing to the log, purges nothing of it and shows nothing. It
//	     becomes the owner by a record of a new epoch, when it has applied all that
//	     stands before it.
//	S13  After an append whose outcome is unknown, or that found another's record, a shard
//	     serves nothing until it is opened again: the log says what was written.
//	S14  While its lease does not let it, a shard sends nothing to the log and shows
//	     nothing. What the log took all the same is answered as taken.
//	S15  Files that are not of the log, or ahead of it, are never served.
//	S16  A log that begins anew after a loss has an id of its own, and in a cluster LSNs
//	     and epochs that the one before cannot have had, so that nobody's files or
//	     checkpoints of that one pass for later ones of this.
//	S17  After a loss a bucket gives out no offset that the lake has (InLake): its log
//	     goes on where the lake ends, that of a keyed table one further. It knows the
//	     numbered batches up to there as far as its state did.
//
// Files, below the shard's directory: state/ (Pebble), segments/<table>/<partition>/<bucket>/,
// manifest-<20 digits> (the two newest), tails-<20 digits> (that of each manifest).
//
// Two goroutines: the loop, which alone touches groups and what is prepared, and
// the flush loop, which alone moves tails, takes checkpoints, and looks for records
// that have expired. Lock order: applyMu, bucketsMu, the locks of a bucket's log.
package shard
