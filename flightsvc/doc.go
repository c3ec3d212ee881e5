// Package flightsvc is the Arrow Flight door: it plans and serves reads, takes
// writes and lookups as streams of record batches, and offers every unary
// operation of the HTTP interface as an action.
//
// It leaves to others: what requests mean (router), bytes from strangers
// (row/arrowrow), the unary operations (whoever implements [Actions], by calling
// the same code as HTTP), listening, TLS and the order of start and stop (server).
//
// Life of a call: before its message is received (receive.go), an interceptor (call.go) gives it a request id, refuses it while
// draining, recovers panics, ends it when its client stops reading, and renders
// its error (render.go). A descriptor or ticket becomes a command (command.go).
//
//	GetFlightInfo, GetSchema   info.go, tickets.go    plan → one signed ticket a bucket
//	DoGet                      get.go, tail.go        plan → chunks → messages, as they lie
//	DoPut                      put.go, putwrite.go, acks.go
//	DoExchange                 exchange.go            keys → rows, in their order
//	DoAction, List…            action.go, list.go
//
// Invariants:
//
//	F1  What DoGet sends has exactly the schema that GetFlightInfo promised, in
//	    messages of less than 4 MiB, each of one bucket.
//	F2  Stored bytes go from the segment to the wire with one copy: the codec
//	    (codec.go) hands the message's body to gRPC as it is.
//	F3  A client that does not read blocks its own stream only; what waits for it is
//	    bounded (one message of a read, one acknowledgement of a write), and after
//	    [Options.StallTimeout] its stream ends.
//	F4  The batches of a DoPut are written in their order; behind the first that
//	    fails none is taken ([router.Line]). What it holds in memory is bounded: by
//	    maxPutBatches and maxPutBytes a stream, by Options.Room in all.
//	    Of any message nothing is received before its caller is known, its length is
//	    within the method's bound and, beyond freeBytes, it has its room; while it comes
//	    the client has StallTimeout for each piece.
//	F5  An acknowledgement is sent after the batch, and all before it in the stream,
//	    are durable. Acknowledgements that nobody reads hold nothing up.
//	F6  Every error carries its code as the reason of an ErrorInfo; what went wrong
//	    inside is logged and not told.
//
// Goroutines: each streaming call runs in one of its own, while gRPC's waits for
// it (so that a call can end that is stuck in the transport); a DoPut has three
// more: one receives, one waits for writes, one sends acknowledgements. All end
// with their call; [Service.Close] waits for them.
package flightsvc
