// Package subject carries small calls to the owner of a shard over NATS; it implements
// shardrpc.Transport.
//
// A shard has a subject at which its owner tells by which *term* it serves the shard, a
// word that is drawn anew each time. Calls go to the subject of a term, at which one
// process alone listens: so a call is taken once at most, also while a deposed owner and
// its successor both listen for the shard. A caller remembers the term for a while, and
// asks again when nobody is there.
//
// It leaves to others what calls mean (package shardrpc), and who the owner is (package
// cluster/owner).
//
// Invariants:
//
//	J1  A call is sent to one process, once. shardrpc.ErrNobody says that it was done by
//	    none, and will be by none.
//	J2  A call that is not answered for a while is given up when another term is told of
//	    meanwhile and the owner it was sent to does not say that it will answer.
//	J3  Calls that are being answered are bounded; others wait in the subscription.
//	J4  A move loses no call. NATS servers hear one after the other that somebody listens
//	    no more, and drop in between what they send each other. So who served in a term
//	    listens on after it, and answers nothing to say that it has ended, for longer than
//	    callers go by what they were told.
//	J5  NATS loses what is on its way through a server that dies, or to a connection that
//	    breaks, and nobody tells. So a caller who hears nothing for a while, or whose own
//	    connection was lost, asks the owner what became of the call (taken.go): it gets
//	    the answer again; or hears that the call did not come, which the owner will not
//	    do any more if it comes later. The owner remembers a bounded number of calls, and
//	    does not know what became of others, which are waited for as long as they have.
//
// Subjects owned: mr.<id8>.shard.<shard>, below it one for each term, and below that one
// for the questions of J5.
//
// A Calls may be used from any goroutine.
package subject
