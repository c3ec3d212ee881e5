// Package owner decides which worker owns a shard. It knows no NATS: what the workers
// tell each other stands in a small store of keys, [Keys].
//
// It leaves to others the store itself (package cluster/keyvalue; for tests and the
// simulation package cluster/owner/ownertest) and what an owner does (package
// storage/shard).
package owner
