// Package stream is the write-ahead log of a cluster: [wal.Log] on NATS JetStream, one
// stream a shard, one message a record, the bytes of the record being those of package
// wal. What is acknowledged is on a majority of the servers.
//
// The sequence number of a message is the LSN of its record. One record is in flight
// at a time; it is published with the expected last sequence, so it lands behind the
// record it continues or not at all. That compare-and-set is the fence: once a new
// owner's epoch record has landed, nothing of the old one can (docs/adr/0007-cluster.md).
// A publish without an answer is not sent again. A noop record is, in its place, until
// something is there, and then it is read which of the two it is; if it is the noop,
// the record goes behind it.
//
// It leaves to others: who may be the owner, and epochs (cluster/owner, package shard);
// comparing [wal.Tail] with what was last known; the servers' settings (package cluster).
//
// Invariants:
//
//	T1  When Append returns without an error, its entries are in the stream, whole and
//	    in order, and every later Replay gives each exactly once.
//	T2  What Append refused (any code but errs.UnknownOutcome) is never replayed.
//	T3  A Log that found a record of another in the place of its own, or does not know
//	    what is there, appends nothing more until Refresh, and then an epoch first.
//	T4  A record is not recognized by its bytes alone: each message has the name of the
//	    Log that sent it, so two owners that write the same do not both succeed.
//	T5  No entry is given out before the sequence, the chain and the checksums of its
//	    records were checked. Errors name stream and sequence.
//	T6  The last record is never purged: it says where the log ends.
//	T7  A log that begins anew behind a tail (Begin) has a first record from the start.
//	    One without any is not begun.
//	T8  A replay holds a few records in memory, however long the log is.
//
// Streams owned: cluster.Names.LogStream of each shard.
//
// Concurrency: all methods may be called from any goroutine. Lock order: Log.mu, which
// an Append holds while it waits for the servers, before Log.at.
package stream
