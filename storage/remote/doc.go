// Package remote keeps the checkpoints of shards in an object store (package objstore):
// it uploads what is new, restores a shard from them, reads sealed segments by ranges,
// and removes what no checkpoint needs.
//
// It leaves to others: when a checkpoint is taken, what is in it and what is made of
// one that was fetched (package shard), what the bytes of a segment mean (package
// segment).
//
// Invariants:
//
//	R1  A manifest is created when everything it names is there, with checksums, and
//	    under the number after that of the newest one. So manifests are a chain, and who
//	    was deposed loses its next number to the new owner, or finds a higher epoch.
//	R2  A key is written by one owner of one log (the epoch and the log's id are in it)
//	    and never with other contents.
//	R3  A manifest names only objects that the one before it names, and what its own
//	    owner has uploaded for it. So what a manifest of an owner no longer names, no
//	    later one of that owner does.
//	R4  Collect, by the owner of the newest manifest, removes what a superseded manifest
//	    names and none after it does, no sooner than [KeepSuperseded] after it was
//	    superseded, and then the manifest. What no manifest names goes [KeepOrphans] after
//	    it was written.
//	R5  What is fetched is compared with the checksums of the manifest before it is used;
//	    ranges of segments are compared with those that the segment carries, and read
//	    past the cache when they do not match.
//	R6  The root belongs to one cluster: cluster.json, created exclusively, says which.
//	R7  Memory is bounded: by the cache's weight, and by a few uploads at a time for the
//	    process, each with the parts of one object.
//
// Objects, below the store's root (docs/formats/remote.md):
//
//	cluster.json
//	<cluster>/<shard>/manifest/<number>
//	<cluster>/<shard>/sst/<tag>-<file>[-<attempt>]
//	<cluster>/<shard>/segments/<table>/<partition>/<bucket>/<base>-<tag>
//	<cluster>/<shard>/tails/<tag>-<attempt>
//
// Concurrency: a Store serves any number of shards at once. Of one shard's [shard.Remote],
// Publish and Collect have one caller at a time; everything else has any number.
package remote
