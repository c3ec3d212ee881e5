// Package laketest holds an exact lake format in memory: what a lake table is, in plain
// slices and maps and without any I/O, for tests of those who write lake tables and of
// those who read them, and for tests of formats to be compared with.
//
// It keeps what package lake promises and checks what it asks of others: a commit that
// leaves a key of a keyed table twice, moves an offset back, or lets go of a bucket's
// offset without clearing its rows, is refused with an error that says so.
//
// It leaves to others: bytes of files, statistics (no file is left out by a filter),
// and what a round takes.
//
// Invariants: those of package lake, and
//
//	T1  What a format keeps is never changed, only replaced, so a snapshot that a test
//	    holds stays what it is until Maintain expires it.
//	T2  Rows are stored as compact rows of the schema that they were written with, and
//	    are read through package row, by column id.
//
// Concurrency: as package lake says.
package laketest
