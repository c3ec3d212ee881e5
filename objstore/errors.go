package objstore

import (
	"fmt"
	"io"

	"github.com/millrace/millrace/errs"
)

// Operations, as errors and metrics name them.
const (
	opGet    = "get"
	opReadAt = "read_at"
	opStat   = "stat"
	opList   = "list"
	opPut    = "put"
	opCreate = "create"
	opWrite  = "write"
	opRemove = "remove"
)

// failed is a call that did not do what it was asked for, or may not have.
func failed(code errs.Code, op, uri, key string, err error) error {
	return &errs.Error{Code: code, Op: "objstore." + op, Message: uri + "/" + key, Err: err}
}

func missing(uri, key string) error { return fmt.Errorf("%w: %s/%s", ErrNotExist, uri, key) }

func exists(uri, key string) error { return fmt.Errorf("%w: %s/%s", ErrExists, uri, key) }

func tooLarge(uri, key string, size int64) error {
	return errs.New(errs.TooLarge, "the object %s/%s has %d bytes, more than %d are not read at once", uri, key, size, MaxGetBytes)
}

// short is a read beyond an object's end.
func short(uri, key string, n int, off int64) error {
	return failed(errs.Unavailable, opReadAt, uri, key, fmt.Errorf("%d bytes from %d: %w", n, off, io.ErrUnexpectedEOF))
}

func negative(key string, off int64) error {
	return errs.New(errs.InvalidValue, "a read of %q begins at %d", key, off)
}
