// Package markerfs orders directory entries: a file is durable by name before a
// marker that points at it can be.
//
// Pebble names its current manifest in the name of an empty file, marker.manifest.*,
// and syncs the directory once, after both files were made. Where a file system keeps
// unsynced directory entries in any order, as POSIX allows and crash tests do, a
// power failure can leave the marker without the manifest, and the store does not
// open any more. [Wrap] syncs the directory before each marker is made, so that the
// marker is the last entry to become durable.
//
// It leaves to others what the markers mean. A wrapped file system may be used
// concurrently as the one below it may.
package markerfs
