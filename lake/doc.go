// Package lake is the vocabulary of lake tables: what the history of a table in an
// open format is to those who write it (package tier) and those who read it (package
// router), whatever the format. A format implements it; Iceberg is tier/iceberg.
//
// A lake table belongs to one table, by number: a table that was dropped and created
// again has another one. It changes by commits, each of which makes a [Snapshot]: rows
// in files, and in the same commit the offsets up to which each bucket's log is in
// them. So the lake itself says how far it is, and nothing else has to.
//
// It leaves to others: what a round takes and when (package tier), how a plan puts lake
// and log together (package router), and every byte of files and metadata (the format).
//
// Invariants:
//
//	L1  A snapshot is immutable. Its files, their order, and the rows of each file in
//	    their order are the same whenever it is read, so a place in it is a file's
//	    index and a row's position.
//	L2  A snapshot holds, of each bucket it has an offset for, exactly the rows that
//	    the bucket's log stands for below that offset: of a log table every record
//	    once, of a keyed table the last row of each key, less what was deleted.
//	L3  A commit happens on the snapshot that its round began with, or not at all
//	    ([ErrConflict]). Whoever does not know whether it happened asks the lake.
//	L4  What a snapshot needs stays readable for [ReadGrace] after it is not the newest
//	    any more.
//
// Concurrency: formats, tables and snapshots may be used by any number of goroutines;
// a round, an appender and rows being read belong to one each.
package lake
