// Package quota bounds how much a principal may do in a second, in this process: rows and
// bytes written, bytes read, and streams at a time.
//
// A limit is a balance that fills by the limit each second, up to one second's worth. What
// is asked for is taken as soon as the balance is above nothing, and may overdraw it: so a
// request of any size is served, and who asks next waits. A request waits a second at most
// and is refused then, with how long to wait; a stream that has begun waits between its
// steps as long as it takes, holding nothing, and is slow by that.
//
// It leaves to others where quotas are kept (package catalog), what is counted (package
// router), and which streams are (the doors).
//
// Invariants:
//
//	U1  Over any time, a principal gets at most limit × (time + 1 s), one request more, one
//	    step more of each stream, and the rest of each read that has begun.
//	U2  Who is refused is charged nothing.
//	U3  A principal's own quota and those of its groups hold together; a group's is shared
//	    by its members. Who has neither has the default one, for himself.
//	U4  At most maxBalances are kept: those that are full are let go of.
//	U5  Who may do everything (the service itself, and everybody while authentication is
//	    off) is charged nothing.
//
// A Quotas may be used from any goroutine.
package quota
