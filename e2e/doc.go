// Package e2e tests the real binary from outside: it is built once, started on
// free ports over a folder of its own, spoken to through HTTP, Arrow Flight and
// the command line, killed, restarted and drained.
//
// It holds tests only, one file a behaviour, and knows nothing of the packages it
// tests: what it expects is written down from docs and examples, by hand. How one
// is run:
//
//	go test ./e2e -run TestKill            one behaviour
//	E2E_MILLRACE=bin/millrace go test ./e2e   with a binary that is built already
//
// It leaves to others: python/ holds the same for stock pyarrow, pandas,
// polars, and the readers of the lake: pyiceberg, DuckDB, Spark.
//
// Settings, all optional: E2E_KILLS (how often the kill loop kills, 10),
// E2E_LOAD_MB (the size of the memory test's load, 150),
// E2E_RSS_MB (what the server may hold meanwhile, 400), E2E_LAKE_SECONDS (how long the
// lake is tiered beside writers and readers, 10; 300 is the long form), E2E_FAILOVER_MB and E2E_FAILOVER_TIMES (how
// much state a shard has that fails over, 8, and how often, 1), E2E_NO_MOUNT (leave
// out tests of full disks, which mount small ones: as root, or in user namespaces).
//
// Invariants:
//
//	T1  No test knows another's tables: each makes a database of its own name.
//	T2  No process outlives the tests; a server that died by itself fails its test.
//	T3  A failing test shows the end of its server's log.
//
// Tests that do not stop their server share one and run in parallel.
package e2e
