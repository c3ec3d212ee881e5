// Package sim simulates a cluster: its tests run several processes in one bubble of
// testing/synctest, with faults drawn from a seed, and check what a client may see.
//
// Real are the workers and shards (package storage), the checkpoints in the object store
// (storage/remote) and the manager of sessions, leases and moves (cluster/owner). Fake are
// the log of each shard (storagetest.Stream: compare-and-set in memory), the keys
// (ownertest.Store), the file systems (crashable, in memory), the object store (files in
// memory, calls of which fail) and time (the bubble's; each process has clocks that are
// skewed and jump).
//
// Faults: a process crashes and comes back with what it had synced, with all, or with an
// empty directory; is drained; loses its way to the keys, to the object store or to the
// logs; loses answers of the keys; its clocks jump. An append to the log is refused, is
// lost or done without an answer, takes longer than a lease lives, or lands late, when its
// owner has given up, was killed or was deposed.
//
// Checked, with one client that asks any process that answers:
//
//  1. The changelog of a bucket is the outcome of writes, one after the other, whole, as
//     the model of package storagetest does them: of all that were acknowledged, at the
//     offsets that were told, of none that was refused, and of each other one or nothing.
//  2. A read sees all that was acknowledged or seen by reads before it began.
//  3. A scan and a lookup see what the changelog makes up to one of its records.
//  4. When the faults end, every shard is served again and all of that holds; also when
//     every process has lost its directory.
//  5. The manager makes calls for one shard one at a time.
//
// Planted bugs, in wrappers that are in the tests alone, show that it would find: a log
// that is no fence, a shard that goes on after an unknown outcome as if nothing were in
// the log, a purge before the checkpoint is in the object store, a lease that nobody looks
// at.
//
// A seed fixes settings, faults and writes, and the moments of the client's calls. It does
// not fix in which order goroutines run that can run at the same moment of the bubble's
// time, so what the log is asked first, and with it the rest of a run, may differ.
//
// The test takes seeds for 40 s (8 s with -short). SIM_RUNS says how many instead, SIM_SEED
// which is the first, and with SIM_VERBOSE the logs of the processes are printed.
//
// Not modelled: slow or failing disks and full ones, expiry, partitions of tables, the
// catalog, fronts and the transport of calls, and time that passes inside what holds a
// mutex, since a bubble's clock stands still meanwhile.
package sim
