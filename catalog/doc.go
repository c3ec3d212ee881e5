// Package catalog keeps what exists: databases, tables, their schemas and
// partitions, the shards of buckets, grants and quotas, the cluster's id and the keys
// that sign tickets.
//
// A [Spec] is what a user asks for; [Catalog.CreateTable] checks it completely
// (names, types, keys, properties) and makes a millrace.Table descriptor of it, with
// the properties resolved into options. What only later releases can do is refused
// there with not_implemented. [Catalog.AlterTable] makes the next descriptor of a
// table by steps, [Catalog.EnsurePartition] a partition.
//
// It leaves to others: the data of tables (package storage, which drops the
// buckets of tables that are no longer listed), who may do what (package auth),
// and how a specification is spelled on the wire (packages rest and flightsvc).
//
// Invariants:
//
//	C1  Every change rewrites the key "head" under compare-and-set, in one atomic
//	    batch with what it changes. So changes are totally ordered, each is decided
//	    on exactly the state it replaces, and [Catalog.Revision] rises by one.
//	C2  A change is durable before any reader sees it.
//	C3  Database, table and partition ids come from counters in "head" and are
//	    never used again, also not after a drop or a failed change that is durable.
//	C4  A descriptor that was handed out is never changed; a change makes a new one
//	    with a higher Version.
//	C5  Column and nested field ids are given in pre-order from 1 and never reused
//	    in their table.
//	C6  The shard of a bucket is stored with its table or partition and never
//	    computed from anything else.
//	C7  A table or column name is unique in its database or table without regard to
//	    case, and so is a database name. A partition is unique in its table by the
//	    canonical texts of its values.
//	C8  Auto-increment ids that were reserved, and the time before which
//	    auto-partitions are not made again, only rise.
//	C9  A change that an earlier release would misread raises the feature level. It is
//	    refused while a process is there that does not know that level.
//	C10 A change is acknowledged when every process of the cluster answers from it, and none
//	    from what was before it (KV.Settle, KV.Lease). A table or partition that is found,
//	    and that some process may not know yet, is waited for in the same way before it is
//	    returned. So lookups and lists ask nobody, and yet what they return is never older
//	    than what was acknowledged or returned anywhere before they began.
//	C11 What is absent is looked for again at the store's end before it is said to be.
//	C12 A grant names what it is on by ids, and ends with it. In a cluster the functions
//	    of Changed are told of a change of grants, by every process, before it is acknowledged.
//	C13 A principal has one quota at most, which is found by its name without a lock, and
//	    names nothing else: it stays when tables and grants go.
//
// C10 does not cover that a table is gone: while a DROP is being acknowledged one process may
// say so already and another return the table still. Nor does it cover descriptors that
// were looked up before a change and are used after it: their id and version go with each
// op to the shard, which knows of drops and of newer versions. When the process of a change
// ends between commit and acknowledgement, the change is made, and whoever finds it settles it.
//
// Files: everything under <dir>, a Pebble store, opened by one process at a time;
// docs/formats/catalog.md describes keys and values. Stores other than Pebble fit
// behind [KV]: cluster/keyvalue has one for a cluster, which any process may change. Its
// commits are followed and applied to the snapshot one by one ([Catalog.Changed] tells of
// them).
//
// Concurrency: readers take an immutable snapshot without a lock. Changes of a process are
// serialised by one mutex, which is held during the fsync, and not while others are waited for.
package catalog
