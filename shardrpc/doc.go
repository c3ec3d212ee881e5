// Package shardrpc is what a process asks of a shard that another one owns: the calls
// of router.Remote ([Client]), who answers them ([Server]), and what they look like
// in between.
//
// It leaves to others how a small call finds the owner ([Transport]: cluster/subject,
// or [Processes] within one process), who the owner is (router.Owners), and what the
// answers are (router, storage/shard). It knows no NATS.
//
// Life of a call: Client encodes it, with what is left of its time → up to MaxSmall
// bytes it goes by Transport, to whoever owns the shard; longer ones by HTTP to the
// address that a small call told → Server decodes it, finds the shard here or
// answers errs.NotOwner, does it, and answers; what is too long for an answer by
// Transport is asked for again by HTTP.
//
// Invariants:
//
//	P1  A call that answers errs.NotOwner changed nothing. One whose answer is lost is
//	    errs.UnknownOutcome if it is a write; what only asks is asked again after a while,
//	    and is errs.NotOwner, or errs.Unavailable when there is no time left. No answer is
//	    waited for when another process owns the shard by then.
//	P2  Errors keep their code, message, fields and further members on the way.
//	P3  What comes over the wire is checked before it is believed: no length leads to an
//	    allocation that is not bounded by the bytes that came, or to a panic.
//	P4  What is under way is bounded, in calls and in bytes, on both sides.
//	P5  By HTTP a request needs a token of the cluster; a process that does not own the
//	    shard answers 421.
//
// Files: wire.go (values), calls.go (kinds of calls), the rest by activity.
//
// A Client and a Server may be used from any goroutine.
package shardrpc
