// Package cluster is how a process of Millrace stands in a NATS cluster: the
// connection ([Connect]), the names of its streams and subjects ([Names]), what the
// servers' settings must be ([Conn.Check]), and streams that are as they must be
// ([Conn.OpenStream]).
//
// It leaves to others what is in the streams: the log (cluster/stream), catalog and
// keys (cluster/keyvalue), calls (cluster/subject), and who serves what (cluster/owner).
// Nothing outside of cluster speaks NATS.
//
// Invariants:
//
//	C1  What is sent is sent once: nothing is kept for a later connection. A request
//	    whose connection broke ends at once, and its outcome is not known.
//	C2  A stream that exists is used only if nothing about it loses what it holds, or
//	    shows what it does not hold any more; otherwise it is refused by the name of
//	    the setting.
//	C3  A connection that is lost is sought again for ever.
//
// Streams and subjects owned: those that begin with "mr_" and "mr." (see [Names]).
//
// Concurrency: a Conn may be used from any goroutine.
package cluster
