// Package rest is the HTTP door: JSON, NDJSON, Arrow streams and server-sent
// events over the operations of openapi.yaml, and errors as problem+json.
//
// Life of a request: the server's own middleware (host, request id, drain) → the
// generated router finds the operation → deadline (unary operations) → the
// handler parses strictly, calls catalog or router, and answers. Rows are decoded
// by row/jsonrow and row/arrowrow straight from the body, in bounded chunks, and
// written from the router's chunks as they come: nothing is gathered whole but a
// JSON page. A client that reads slowly holds up its own read only; a stream on
// which nothing could be written for streamStall is ended.
//
// It leaves to others: what operations mean (router, catalog), the document and
// the parameter parsing (openapi), who calls (the server's middleware; auth).
//
// Invariants:
//
//	H1  Every answer that is not a success is problem+json with a code of errs.
//	H2  A failure after the first byte is never silent: an Arrow stream lacks its
//	    end, NDJSON ends in {"__error":…}, SSE in `event: problem`.
//	H3  Nothing of a bad chunk is written; what was written before is told.
package rest
