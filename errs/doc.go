// Package errs holds the one table of error codes, and the error type that
// carries a code through the layers.
//
// A code says what the caller should do; messages are for people and may change.
// A code is chosen where the cause is understood ([New], [Wrap]); layers above
// add context with fmt.Errorf and %w, and change the code only on purpose. Each
// protocol renders the table in its own words (HTTP status, gRPC code); this
// package knows numbers only and imports no transport.
//
// Invariants:
//
//	E1  Codes are never renamed, reused or removed; a golden list guards them.
//	E2  [CodeOf] of an error without a code is Internal: an unforeseen error never
//	    looks like the caller's fault.
package errs
