// Package bucket keeps the log of one bucket: a tail of recent batches in memory
// and segment files before it, read as one sequence of records.
//
// It leaves to others: when a batch may be appended (package shard: only what the
// shard's write-ahead log holds durably), the formats (package segment), and the
// rows of keyed state (package kv).
//
// Invariants:
//
//	B1  A [View] is immutable and covers [Kept, End) without a hole: files, then
//	    the tail; a batch is in one of them. Start lies in between, where a batch
//	    began when it got there.
//	B2  The tail can be lost: it is in the write-ahead log, or in the shard's last
//	    checkpoint, until Sync has made durable the file that took it over.
//	B3  Times never go back within a bucket.
//	B4  A record group that must stay together (-U and its +U) lies in one batch.
//	B5  What Start passes can be read for as long as Release is told before Kept
//	    follows. Neither goes back.
//	B6  A file that is away has its copy in the object store, where a manifest names it;
//	    a local one that has a copy there is read from there when it is damaged.
//
// Files: `<base offset, 20 digits>.seg` in the bucket's directory, each beginning
// where the one before ends. A file that was open when the process ended is never
// appended to again. Files are removed by the shard, when no manifest names them.
//
// Append and Trim have one caller at a time; Flush, Release, Sync and Close wait for
// each other. Views may be taken and read by anyone at any time.
package bucket
