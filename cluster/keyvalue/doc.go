// Package keyvalue keeps what a cluster must agree on in NATS: its catalog, and the keys
// by which workers own shards.
//
// [Store] is catalog.KV on one JetStream stream. A message is a commit; it is published
// behind the last commit that its process knows, and only there (compare-and-set on the
// subject's last sequence), so that commits are serial and each was decided on exactly
// what it follows. Its sequence is its revision. Every process has a copy of all entries
// and applies each commit to it. Who makes a commit tells all processes; who was not told
// finds it at the latest a second later, or when it asks for the stream's end (Sync).
//
// Now and then whoever made a commit writes a snapshot of all entries into the stream, and
// purges what is older than the snapshot before. Processes begin with the newest snapshot
// that can be read.
//
// A process that answers from its copy is a reader: it stands in a list, which is part of
// the copies, and has a lease. Settle waits until every reader has seen a commit or is out
// of the list, and a process is taken out only when its lease has run out on the clock of
// whoever does it, and so on its own. No two clocks are compared.
//
// [Keys] is owner.Keys in a bucket of NATS's key-value store, which NATS's own tools show.
// Deletions are remembered for a day.
//
// It leaves to others what entries and keys mean (packages catalog and cluster/owner).
//
// Invariants:
//
//	KV1  A commit is in the stream whole, once, or not at all. One without an answer is
//	     sent again, the same, until something is in its place, and is then told by its id.
//	KV2  Every commit names the one before it, so that none can be missed unseen.
//	KV3  A copy holds the entries of exactly the commits up to its position.
//	KV4  The stream always has a snapshot that was read back, and the one before it, each with
//	     all commits after it; or all commits.
//	KV5  A message that is damaged is never applied: corrupt_data names stream and sequence.
//	KV6  While the lease of a process holds, no revision is settled that it has not seen.
//	KV7  A stream that ends before what was read from it is a failure, when it stays so.
//
// Streams and subjects owned: mr_<name>_catalog with mr.<name>.catalog.> (commit,
// snapshot.<revision>.<writer>.<part>, reader.<process>); mr.<name>.told.> between
// processes; KV_<bucket> with $KV.<bucket>.>. Formats: docs/formats/cluster-catalog.md.
//
// Concurrency: all methods may be called from any goroutine. Lock order: Store.mu, which
// is held while a commit is applied and followers are told, before reader.mu.
package keyvalue
