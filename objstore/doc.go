// Package objstore is the object store: files under keys, in a folder of this machine
// or in S3, behind one small interface that behaves the same over both (package
// objstoretest is its contract).
//
// It leaves to others what keys mean and who may write them: lake tables (tier/iceberg)
// and, later, remote segments, checkpoints and manifests (storage/remote).
//
// Invariants:
//
//	O1  An object appears whole or not at all, and is durable when the call that made
//	    it returns.
//	O2  Of any number of Create calls for one key at most one succeeds, in any
//	    processes; the others get ErrExists.
//	O3  An error other than ErrExists and ErrNotExist leaves open whether a write or
//	    removal happened.
//	    Create tells the truth when an answer was lost: an object of its own is no
//	    ErrExists.
//	O4  Every call ends: by its context, or by the store's own limits on time and tries.
//	    (A disk of this machine that hangs is waited for.)
//	O5  What is read is what was written, or an error: an answer that is cut off, of
//	    another range or of another length is none, and S3's checksums are compared.
//
// Files: whatever is below the address that a store was opened with. In a folder each
// object is a file at the path that its key is; what is being written lies in ~tmp,
// which is no key, and what a crash left there goes with the first write an hour later.
// In S3 an object has its key below the prefix, and in its metadata a mark of the call
// that made it.
//
// Concurrency: a store may be used by any number of goroutines.
package objstore
