// Package backup writes exports of the catalog to an object store, and makes a catalog of
// the newest of them, so that a cluster can be restored from its object store alone.
//
// Objects <prefix><number of changes, 20 digits>, each a catalog.Export. The process that
// made a change writes one, within a second of it, or when it ends in order before; the
// newest Kept stay. What fails is tried again and counted, and never fails the change.
//
// It leaves to others what is exported (package catalog) and where the prefix is.
//
// Invariants:
//
//	B1  A change that was made while the store could be reached, and whose process lived
//	    for a few seconds more, is in an export.
//	B2  Exports are removed oldest first, and only when Kept newer ones are there.
//	B3  A restored catalog counts its changes on above every export that was there, so that
//	    its own exports are the newest.
package backup
