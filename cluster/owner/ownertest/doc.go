// Package ownertest has owner.Keys in memory, with faults at will, and its contract as a
// test suite for every implementation.
//
// A [Store] is shared by [Client]s, one a process. A client can be cut off, and answers
// can be lost. Everything waits on channels only, so that a store runs in a bubble of
// testing/synctest.
package ownertest
