// Package catalogtest is the contract of catalog.KV as a test suite, for every
// implementation of it.
//
// It leaves to others what only one implementation can show: crashes, damage, lost
// answers, a disk that is full.
package catalogtest
