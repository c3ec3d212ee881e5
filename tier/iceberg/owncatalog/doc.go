// Package owncatalog opens Iceberg catalogs of the user's own, for package tier/iceberg to
// keep the pointers of lake tables there: by REST, in AWS Glue, in a Hive metastore, or in
// an SQL database (SQLite). Their clients are iceberg-go's; of a metastore it has the
// semantics from iceberg-go, and the connection is ours.
//
// It leaves to others: what is committed and when, and what a lost answer means (package
// tier/iceberg).
//
// Invariants:
//
//	O1  Nothing is reached before the first call, and a catalog that is away is tried
//	    anew by the next: a server starts, and goes on, without it.
//	O2  A call ends after callTime, whatever the catalog does.
//	O3  A pointer is put only in the place of the one that it was made from: REST and SQL
//	    catalogs check what the commit requires, Glue the table's VersionId, a metastore
//	    (from Hive 4 on) the expected metadata_location. A metastore that is not known to
//	    compare has nothing but its lock: when it does not say what became of a change,
//	    the lock is not given back and expires by itself.
//	O4  No request that changes something is repeated here; package tier/iceberg looks
//	    what became of it. (The client of AWS repeats; the VersionId makes that harmless.)
//	O5  Metadata is read and written through the lake's store, as all its files are.
//	O6  An error about credentials has iceberg.ErrRefused in it.
package owncatalog
