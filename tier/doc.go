// Package tier moves rows from the log to the lake: what a round takes, when, and what
// is allowed to wait.
//
// A [Manager] looks at the tables that are tiered and begins a job of each before its
// oldest record outside the lake gets older than the table's freshness; a job can also
// be asked for ([Manager.Tier]). A job pins where the logs of the table's buckets end
// and takes the table there in rounds, each of which is one commit of bounded size:
// of log tables the records [tiered, end) of one bucket after another are appended; of
// keyed tables a bucket begins with its state, from a snapshot, and goes on with its
// changelog folded to what became of each key. The manager is also how the router sees
// the lake (router.Lake).
//
// It leaves to others: files and metadata of lake tables (the lake.Format), what a log
// lets go of (the shards, which are told how far the lake is), and reading both together
// (package router).
//
// Invariants:
//
//	T1  What is tiered is what the newest snapshot says. A round goes on from the
//	    offsets of the snapshot that it begins on, and commits rows and offsets
//	    together or not at all: whatever ends it, each row is there once.
//	T2  The descriptor that a round writes with is read after the ends that it goes to
//	    were pinned, so no record that it takes is of a later schema.
//	T3  The changes of one key in a bucket are folded once a round: a round deletes
//	    from its base only, and appends a key at most once.
//	T4  In this process commits of one table follow each other; those of other
//	    processes are told by lake.ErrConflict. A round of a table that is no longer
//	    in the catalog does not commit.
//	T5  Memory is bounded: one open file of a round, one bucket's changes up to
//	    Options.FoldBytes, and as many rounds as Options.Concurrency says, twice
//	    (those that are due, and those that are asked for).
//	T6  The lake table of a table that was dropped with purge is gone when the catalog
//	    forgets the purge: by then nobody who began before the drop writes to it, and who
//	    comes later makes none. Tries are bounded in number and time, and further apart.
//	T7  A table of which everything is in the lake makes no request of the lake.
//	T8  Where the newest snapshot has less than one before it, a log table (and what only
//	    the lake had) is not tiered until that is mended, or accepted by turning tiering
//	    off and on; buckets of keyed tables are made up for from log or state.
//
// Concurrency: a Manager may be used by any number of goroutines. Lock order:
// table.busy, then table.mu; Manager.mu is held alone.
package tier
