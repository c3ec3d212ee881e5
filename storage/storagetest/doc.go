// Package storagetest holds what tests of storage compare it with: a model of
// buckets in plain maps and slices, written from the rules of what tables mean and
// sharing no code with what it checks, and the ways from its rows to an op of a
// shard and back from Arrow records.
//
// It leaves to others: which writes are made, and what is compared when.
//
// Nothing here is safe for concurrent use.
package storagetest
