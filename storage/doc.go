// Package storage is the worker. On a single node it opens the write-ahead log and the
// shards of a data directory, and closes them in order ([Open]). In a cluster shards
// come and go ([New]): who serves which, and where the logs are, others decide.
//
// When [shard.Shard.Write] returns, the records are fsynced in the write-ahead log
// (package wal) and visible. State (kv) and bucket logs (bucket, segment) follow
// from the log: after a crash each shard opens its newest manifest, the files it
// names, and applies the log from there. A shard that finds damage is kept closed
// and answers everything with errs.CorruptData; the others go on.
//
// It leaves to others: names and descriptors (package catalog), what requests mean
// (package router), protocols.
//
// Files, below the data directory: wal/ (package wal), shards/<5 digits>/ (package
// shard).
//
// Start order: log, shards. Stop order: shards (each takes a checkpoint), log.
package storage
