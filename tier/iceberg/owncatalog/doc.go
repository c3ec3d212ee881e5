// Package owncatalog opens Iceberg catalogs of the user's own, for package tier/iceberg to
// keep the pointers of lake tables there: by REST, or in an SQL database (SQLite). Their
// clients are iceberg-go's.
//
// It leaves to others: what is committed and when (package tier/iceberg).
//
// Invariants:
//
//	O1  Nothing is reached before the first call, and a catalog that is away is tried
//	    anew by the next: a server starts, and goes on, without it.
//	O2  A call ends after callTime, whatever the catalog does.
package owncatalog
