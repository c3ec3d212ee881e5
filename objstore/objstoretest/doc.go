// Package objstoretest is the contract of package objstore as tests ([Run]), and a
// store that fails as a test says ([Faulty]) for those who are built on one.
//
// It leaves to objstore's own tests what one kind of store does besides: what a crash
// leaves in a folder, what S3's answers mean.
package objstoretest
