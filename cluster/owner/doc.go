// Package owner decides who serves which shard: it keeps the session of this process,
// takes and releases the leases of shards, chooses standbys, and moves shards, by
// compare-and-set on a few shared keys. No process coordinates the others: each computes
// the same placement from the same keys, and the keys let one of them win.
//
// It leaves to others: opening, following and handing over a shard ([Host]; package
// server over package storage), where the keys are ([Keys]; package cluster/keyvalue),
// how a shard is reached, and fencing: a lease says who should serve, the
// compare-and-set of the shard's log who can write.
//
// Invariants:
//
//	N1  What a shard answers it answers while its session is sure to be ours: until TTL
//	    after the last renewal that was answered was *sent*, on a clock that goes on
//	    while the machine is suspended. After a session was lost, shards taken in it
//	    answer nothing any more, whatever comes.
//	N2  A session is ended by others only when its key did not change for TTL + 1 s on
//	    their own clock, on which they could renew theirs, and at that revision. No two
//	    clocks are compared.
//	N3  A lease is taken only when it is released, or the session it was taken in is gone.
//	N4  Of a shard, one task runs at a time.
//	N5  Shards are moved to balance only when the members were the same for 10 s, and only
//	    to a worker that follows them and had everything a moment ago.
//
// Keys owned: session.<worker>, lease.<5 digits of the shard>.
//
// Concurrency: one goroutine renews the session, one watches, one decides; a task of a
// shard is a goroutine of its own, four at once, and four that begin to follow. Manager.mu guards what is known;
// nothing waits under it.
package owner
