// Package router turns what a client asks into what shards do: a row to its
// bucket and shard, a read request to a plan, a plan to a stream of chunks, keys
// to lookups. Both doors, REST and Flight, go through it.
//
// It leaves to others: protocols and their encodings (rest, flightsvc), decoding
// of rows (row/jsonrow, row/arrowrow), names and descriptors (catalog, through
// the interface it declares here), and everything that happens in a shard
// (storage/shard).
//
// Life of a read: [ReadRequest] (parsed, strict) → [Router.Plan] resolves table,
// columns, filter and positions into a [Plan] of parts, one a bucket → [Router.Open]
// gives a [Reader], whose Next yields [Chunk] after chunk → a chunk is shipped as
// an Arrow message (stored chunks as they lie) or decoded into a record.
//
// Invariants:
//
//	R1  A plan that is read twice gives the same rows in the same order, as long as
//	    what it stands on is kept (tickets are repeatable).
//	R2  Within a bucket records come in offset order; what a Reader has given and
//	    what its Resume plan gives are together what the plan gives, each row once.
//	R3  A -U and its +U are in one chunk, unless a filter takes one of them.
//	R4  A row of a write goes to one partition and bucket, which the row and the table
//	    alone decide, or (rows without bucket key) the writer's number.
//	R5  A partition that is made while a plan follows its table joins the read at its
//	    earliest record, if the request and its filter leave it; one that ends leaves,
//	    of a table in the lake when the workers let go of it.
//	R6  A write makes the partitions it needs when everything else about it is checked,
//	    and before any of it is written.
//	R7  A read keeps the columns that it began with, their names and types, when the
//	    table is altered; it ends with errs.SchemaChanged where it cannot (schemas.go).
//
//	R8  A plan that reads the lake pins one snapshot, and the ends of the logs after it;
//	    its rows are those of the snapshot and of the logs from exactly its offsets on,
//	    each once, whatever is tiered, merged or expired meanwhile. A partition that
//	    goes to the lake while it is planned makes the plan anew (lakeparts.go).
//	R9  The rows of a keyed table are the same from its state, and from the lake with
//	    what the log has on top (overlay.go); which is read is a matter of cost.
//
//	R10 A shard may be here or elsewhere, and change its owner between any two calls: Owners
//	    is asked each time (owners.go). What is refused with errs.NotOwner is sent to where
//	    the shard is then; the ops of a stream keep their order over that (retry.go).
//	R11 A part that is read elsewhere gives the same rows in the same order, and stands
//	    where it would stand (far.go): so what a stream that broke did not give is asked
//	    for again, each row once.
//	R12 What a caller writes is charged once, when everything else about it is right and
//	    before any of it is written; what he reads is charged when it was read (quota.go). What
//	    this process does by itself or for another is charged to nobody.
//
// A Router is safe for concurrent use; a Reader belongs to one goroutine.
package router
