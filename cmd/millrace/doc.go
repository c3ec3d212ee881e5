// Command millrace is the server and its command line.
//
//	millrace serve            run a server
//	millrace doctor           look at what a server needs, and say what is wrong
//	millrace db …             create, list, describe and drop databases
//	millrace table …          create, list, describe and drop tables
//	millrace put DB.T         load a file
//	millrace get DB.T k=v     one row by key; lookup: many
//	millrace scan DB.T        read; tail: follow the changes
//	millrace sql "…"         SQL statements, or a script of them with -f
//	millrace offsets DB.T     where each bucket stands; status: the server
//
// Every command explains itself with --help.
//
// Client commands talk HTTP to the server that --server or MILLRACE_SERVER names
// (http://127.0.0.1:8080 when neither does), with the token of MILLRACE_TOKEN; --ca or
// MILLRACE_CA names the authorities of an https one.
// Answers go to standard output, everything else to standard error.
//
// Exit codes: 0 done; 1 failed; 2 wrong usage; 3 a database, table, partition or
// row was not found.
//
// Invariants:
//
//	M1  Nothing here reads the process's arguments, environment or standard files
//	    but main; tests run the whole command line in process.
//	M2  Loading and reading take bounded memory whatever the size of the data.
//	M3  Text from tables never reaches a terminal with control characters in it.
//
// serve.go wires the server; the rest is the client side, on top of package
// client. It leaves to others: what the operations mean (package client and the
// server).
package main
