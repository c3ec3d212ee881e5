// Package arrowrow takes Arrow record batches from senders that are not trusted
// and makes rows of a table of them.
//
// It has two halves. A [Reader] (of an IPC stream) or a [Decoder] (of the header
// and body of each message, as Arrow Flight has them) turns bytes into record
// batches. A [Plan] matches the columns of one stream with those of a table, and
// casts what loses nothing into the types of row.ArrowType.
//
// It leaves to others: HTTP, gRPC and authentication, the size of whole streams,
// where rows go (router), and writing Arrow (arrow-go's own writer does).
//
// Invariants:
//
//	A1  No length that a message states is believed before it is checked against
//	    the bytes that are there and against the Limits: not in its metadata, its
//	    buffers or their compressed content. What a message costs is bounded by
//	    MaxMessageBytes, and a message of n bytes that lies costs far less.
//	A2  A record batch that came out is sound: every buffer is as long as its
//	    array's length demands, offsets rise and end within their data, views and
//	    dictionary indices point to something, arrays have no offset and all their
//	    buffers. arrow-go's ValidateRecordFull finds nothing but text that is not
//	    UTF-8.
//	A3  Values are judged by the Plan, not the reader, since only it can say which
//	    row and column is at fault: UTF-8, ranges, lengths, NOT NULL, keys of maps
//	    that stand twice. What a Plan returns obeys the types of its columns.
//	A4  A cast takes no more memory than Limits.MaxMessageBytes, whatever a
//	    dictionary, a view or a null column would unfold into.
//	A5  What needs no cast is not copied. Rows may share memory with the message
//	    they came in.
//
// arrow-go's IPC reader is not used, since it allocates what a message claims
// (docs/adr/0005-untrusted-arrow.md); its arrays are.
//
// A broken stream is invalid_request, one beyond the limits too_large, a column
// type that cannot be cast type_mismatch.
//
// Values of the package are for one goroutine at a time; the rows and batches
// that they return are not tied to them.
package arrowrow
