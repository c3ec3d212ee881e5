// Package certs keeps the certificates of a server: read from files, checked in words
// that a person can act on, and read again while the server runs.
//
// [Open] reads them; [Files.Server] and [Files.Client] are what connections are made
// with; [Files.Watch] looks at the files every few seconds and takes what has changed.
//
// It leaves to others: listening and calling (server), and who a certificate of a client
// stands for (auth).
//
// Invariants:
//
//	K1  What is in force was whole and good when it was read: certificate and key fit each
//	    other, the certificate is valid at that moment, and nobody but owner and group may
//	    read the key. Files that are not leave in force what was, with a warning and a metric.
//	K2  New files are for new connections; those that are there go on with what they began
//	    with. A session is not resumed whose client's certificate would not be taken now.
//	K3  TLS 1.2 at least, and of 1.2 only suites with forward secrecy and authenticated
//	    encryption.
//
// A Files may be used from any goroutine.
package certs
