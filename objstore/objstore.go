package objstore

import (
	"context"
	"errors"
	"io"
	"time"
)

// Errors that callers act on; errors.Is finds them in what a store returns.
var (
	ErrNotExist = errors.New("objstore: there is no such object")
	ErrExists   = errors.New("objstore: the object exists already")
)

// Store holds objects by key. A key is segments of [A-Za-z0-9._=-] with "/" between
// them, at most 1,024 bytes.
type Store interface {
	Reader
	// Put writes an object, also over another one.
	Put(ctx context.Context, key string, body []byte) error
	// Create writes an object unless there is one; ErrExists.
	Create(ctx context.Context, key string, body []byte) error
	// Writer begins an object whose size is not known; it appears at Close.
	Writer(ctx context.Context, key string) (Writer, error)
	// Remove removes objects; those that are not there are no error.
	Remove(ctx context.Context, keys ...string) error
}

// Reader is the reading half of a Store.
type Reader interface {
	// URI is the address of the store's root without a "/" at its end, such as
	// file:///srv/lake or s3://bucket/prefix. The object of a key is at URI + "/" + key.
	URI() string
	// Get reads a whole object; ErrNotExist.
	Get(ctx context.Context, key string) ([]byte, error)
	// ReadAt reads exactly len(p) bytes from an offset of an object; ErrNotExist, and
	// io.ErrUnexpectedEOF when it is shorter.
	ReadAt(ctx context.Context, key string, p []byte, off int64) error
	// Stat describes an object; ErrNotExist.
	Stat(ctx context.Context, key string) (Info, error)
	// List gives each object whose key begins with prefix, rising by key, until give
	// returns an error, which it then returns.
	List(ctx context.Context, prefix string, give func(Info) error) error
}

// Info describes an object.
type Info struct {
	Key      string
	Bytes    int64
	Modified time.Time
}

// Writer is an object being written. One of Close and Abort ends it.
type Writer interface {
	io.Writer
	// Close publishes the object.
	Close() error
	// Abort gives it up; after Close it does nothing.
	Abort()
}
