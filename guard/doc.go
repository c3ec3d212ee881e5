// Package guard is what the doors see of the catalog, and what the router asks: who may
// not know of a thing does not find it, and who may not do a thing is told so.
//
// A [Guard] has the methods of a catalog that doors call. Each asks the policy (package
// auth) about the caller of its context; lists leave out what he may not know of. It also
// is the router's Access, which covers rows. So a door cannot forget to ask.
//
// It leaves to others: who calls (package auth and the doors), what grants add up to
// (auth.Policy), where grants are kept (package catalog), and operations that are on no
// table, for which doors call [Guard.Allow].
//
// Invariants:
//
//	G1  What may not be known of is answered in the words of what does not exist, and by
//	    the same steps: names, IF EXISTS, IF NOT EXISTS and page tokens tell no more.
//	G2  The policy has the grants of the catalog when a change of them is acknowledged to
//	    whoever made it here, and soon after when another process made it.
//	G3  What is asked is noted for the audit log (package audit), things of a list as one.
//	G4  A pass asks again when grants have changed, and when the caller's token ends.
//	G5  What is made in, altered or dropped by name is asked about once more within the
//	    change, so that it is what was asked about, whatever has the name by then.
//
// Names that are taken are no secret of those who may make things: verbs hold below what
// they are granted on and include describe, so who may create in a database knows all of it.
//
// A Guard may be used concurrently.
package guard
