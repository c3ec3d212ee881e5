// Package faultproxy stands between an S3 client and its server in tests, and does to
// requests what networks and overloaded servers do: it delays, refuses, breaks off,
// loses answers. Requests are forwarded as they came, signatures included.
//
// It leaves to others what the server does, and what the client makes of it.
//
// Invariants:
//
//	X1  Of a fault it is known whether the server saw the request: [Fault] says so of each.
//	X2  A request that meets no fault is answered as the server answers it.
//	X3  The same seed gives the n-th request the same fault.
//
// Concurrency: a proxy serves any number of requests; its schedule may be changed while
// it does.
package faultproxy
