// Package natstest starts real nats-servers, one or three, each in a process of its
// own, for tests: JetStream that syncs every write, an account "MR" whose user is
// [User], and the system account whose user is [SystemUser]. Each server can be
// stopped, killed, paused and started again on the same files.
//
// It is for programs as well as for tests ([Start] needs no testing.T), and knows
// nothing of Millrace and no client of NATS: what it asks a server, it asks of its
// monitoring port.
//
// Invariants:
//
//	N1  A server keeps its addresses and its store over stops, kills and starts.
//	N2  No server outlives the process that started it, nor [Servers.Close].
//
// Files owned: below the directory given, n<number>.conf, n<number>.log and store<number>.
//
// Concurrency: methods of different servers may be called at the same time; those of
// one server one after the other.
package natstest
