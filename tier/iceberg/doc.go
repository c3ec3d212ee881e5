// Package iceberg keeps lake tables as Apache Iceberg tables of format version 2
// (https://iceberg.apache.org/spec/), with iceberg-go for metadata and manifests, and
// arrow-go for Parquet.
//
// A lake table is a folder <cluster id>/<table id> of an object store: metadata/ with the
// versions of the metadata, manifests and offsets, data/ with Parquet files. A round
// writes files, then a commit writes manifests for them, and publishes the next version
// of the metadata; until that file exists, nothing of it is visible.
//
// With a catalog of the user's own ([Options].Catalog) that keeps the metadata, and I1 and
// the version files are its business; I2 to I6 hold there as well.
//
// It leaves to others: what a round takes and when (package tier), and the files
// themselves (package objstore).
//
// Invariants:
//
//	I1  metadata/vN.metadata.json is created exclusively and never written again; the
//	    highest N there is is the newest, also when it is lower than before, or another
//	    file than the one that was seen. version-hint.text never says more than there is,
//	    so a version that it names and that is missing was lost, and nothing is written
//	    before it is back.
//	I2  Where metadata is not of this cluster and table, or a folder has files and no
//	    metadata, nothing is written.
//	I3  A snapshot is published once, whatever answers are lost: the same bytes are tried
//	    again under the same number; when that is taken, the next number is tried only if
//	    the newest version has not got the snapshot. After 10 minutes it is void.
//	I4  Files of a round are removed only when its commit has not happened and never will.
//	    Everything else that nobody refers to waits for maintenance.
//	I5  Each snapshot that we commit says how far it is, those of maintenance as their
//	    parent did, so that parents may expire.
//	I6  Fields have our column ids, the tuple of a file's partition the values of its rows'
//	    partition, and a file's rows are of one bucket when the partition or the file's
//	    name says it.
//	I7  Files that we write are sealed: what is damaged in them is found before a row of
//	    it is given. One that is missing and that a kept snapshot refers to is damage (Damage).
//	I8  Maintenance commits as a round does, on the snapshot that it was planned on, and
//	    gives way to one that comes in between. It removes only files with names of ours
//	    that are 24 hours old and that no kept snapshot refers to, and versions of the
//	    metadata from below.
//
// Concurrency: as package lake says. Of processes, any number may work on one lake table.
package iceberg
