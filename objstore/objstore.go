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
// them, none of them "." or "..", each of at most 255 bytes and all of at most 768: what
// every file system and S3 can hold below a prefix of 255. Another one is
// errs.InvalidValue, and nothing was touched. No key is another one's folder.
//
// Errors other than those below are errs.Error: errs.StorageFull when there is no room,
// errs.TooLarge when Get meets an object beyond [MaxGetBytes], else errs.Unavailable.
type Store interface {
	Reader
	// Put writes an object, also over another one.
	Put(ctx context.Context, key string, body []byte) error
	// Create writes an object unless there is one; ErrExists.
	Create(ctx context.Context, key string, body []byte) error
	// Writer begins an object whose size is not known; it appears at Close, also over
	// another one. ctx is for the whole life of the writer.
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
	// List gives each object whose key begins with prefix, rising by the bytes of the
	// key, until give returns an error, which it then returns. Of what is written or
	// removed meanwhile it may miss or give any.
	List(ctx context.Context, prefix string, give func(Info) error) error
}

// Info describes an object.
type Info struct {
	Key      string
	Bytes    int64
	Modified time.Time
}

// MaxGetBytes bounds what Get reads into memory.
const MaxGetBytes = 256 << 20

// Writer is an object being written, by one goroutine. One of Close and Abort ends it.
type Writer interface {
	io.Writer
	// Close publishes the object, unless a Write failed.
	Close() error
	// Abort gives it up; after Close it does nothing.
	Abort()
}
