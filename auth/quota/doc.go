// Package quota bounds how much a principal may do in a second, in this process: rows and
// bytes written, bytes read, and streams at a time.
//
// A limit is a balance that fills by the limit each second, up to one second's worth. What
// is asked for is taken as soon as the balance is above nothing, and may overdraw it: so a
// request of any size is served, and who asks next waits. A request waits a second at
// most and is refused then, with how long to wait; a stream waits as long as it takes, and
// is slow by that.
//
// It leaves to others where quotas are kept (package catalog), and what is counted
// (package router).
//
// Invariants:
//
//	U1  Over any time, a principal gets at most limit × (time + 1 s), and one request more.
//	U2  Who is refused is charged nothing.
//	U3  A principal's own quota and those of its groups hold together; a group's is shared
//	    by its members.
//	U4  Balances are kept for names that have, or had, a quota, so callers do not make them
//	    grow.
//
// A Quotas may be used from any goroutine.
package quota
