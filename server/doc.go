// Package server builds a Millrace server from settings, and starts and stops it.
//
// [Load] puts the settings together: flags over environment over file over
// defaults. [Run] starts the server, serves until its context ends, and drains.
//
// Start: data directory and its lock → listeners (from here /healthz answers, and
// everything else says that the server is starting) → NATS, in a cluster → catalog, and
// whether the directory's data is that cluster's → place of the lake → worker, which
// recovers; in a cluster it has no shards yet → tiering → router → doors, with the role
// front → tiering begins → keeper of partitions → membership, in a cluster: shards are
// taken from here on → addresses.json → ready.
//
// Stop, when the context ends: readiness off and new work refused with `draining`
// → requests and streams under way end, at most drainTime → shards handed to others, at
// most leaveTime, and membership ended → keeper ended → doors closed →
// tiering ended, whatever it was at → worker closed, with a checkpoint → catalog closed → lock released.
//
// It leaves to others: what any of the parts does, and the command line (cmd).
//
// Invariants:
//
//	V1  One server at a time has a data directory, and a data directory belongs to
//	    one cluster: a catalog that is another's, or was lost and made anew, is refused.
//	V2  Without authentication a server listens on loopback addresses only and
//	    answers loopback Host names only, unless it is told to be insecure. With it, every
//	    request but for health, the document and its pages has a caller (auth.Of).
//	V3  Every answer carries X-Request-Id, the caller's when it sent a good one.
//	V4  A request makes progress or is ended: headers within 10 s, each piece of a
//	    body or of an answer within 30 s, 1 KiB of a body in each 2 min of waiting, what
//	    is left of a body after the answer within 5 s, idle connections for 2 min. A
//	    port holds a bounded number of connections, and closes one without work for a
//	    new one.
//	V5  What a setting of a later release asks for is refused, never ignored.
//	V6  A lake that does not answer keeps nothing else from being served, nor the server
//	    from starting or being ready.
//	V7  A process of a cluster answers other processes only with a token of the cluster
//	    (shardrpc), and for shards it serves at that moment.
//	V8  With a certificate both ports speak TLS only, and so does every address that is
//	    told of them; metrics-addr never does (package certs).
//	V9  A page in a browser changes nothing here, unless it is ours or of an origin that was
//	    allowed; whatever a browser adds unasked is no leave.
//	V10 [Doctor] leaves data directory and object stores as they were, whatever runs on them.
//
// Files, below the data directory: LOCK (the pid of the server that holds it),
// cluster.json (whose data this is), auth/dev-key.json (package token), addresses.json (where the running server
// listens); the folders are those of packages catalog and storage.
package server
