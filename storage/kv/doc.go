// Package kv keeps the state of one shard in a Pebble: the current rows of keyed
// buckets, and what the shard knows of each bucket and writer.
//
// It leaves to others: what a row is (package row), when a change may be applied
// (package shard: only what the log holds durably), and the log itself. Pebble's
// own write-ahead log is off: after a crash the store is at some earlier record,
// [Store.Applied] says which, and the shard applies the rest again.
//
// Keys (docs/formats/kv.md), big endian:
//
//	table u32 · partition u32 · bucket u16 · kind u8 · rest
//	kind 0x01 bucket meta, no rest · 0x02 writer state, rest = writer scope
//	kind 0x10 row, rest = order-preserving primary key
//	table 0, kind 0x00: the applied LSN (table ids start at 1)
//
// Invariants:
//
//	K1  One [Batch] holds all that one record of the log changes, with the LSN;
//	    so the store always stands at the end of a record.
//	K2  A [Snapshot]'s rows and bucket metas are of the same instant: a bucket's
//	    rows are the fold of its changelog up to Meta.Next.
//	K3  What is fatal to Pebble (it cannot tell whether its manifest was written)
//	    makes the store dead, not the process: nothing more is written, [Store.Dead]
//	    is closed, reads go on as long as somebody wants them. What is on disk is
//	    what a crash at that moment leaves; after Close it can be opened again.
//	K4  A flush or compaction that fails, as on a full disk, is tried again until it
//	    succeeds; until then [Store.Flush] fails, and [Store.Room] says when there is
//	    no memory left to go on without it.
//	K5  [Store.Rows] is linearizable for each key: a row that was given is never
//	    followed by an older one, whether the cache of rows had it or not.
//
// A Store is safe for concurrent use; a Batch belongs to one goroutine. Snapshots
// must be closed before the store.
package kv
