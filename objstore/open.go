package objstore

import (
	"context"
	"net/url"
	"path"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/errs"
)

// Options are what a store is opened with, besides its address.
type Options struct {
	// FS holds the files of file:// stores; nil is this machine's.
	FS vfs.FS
	// S3 is how s3:// stores are reached.
	S3 S3
	// Registerer takes the metrics; nil keeps them to itself. One store a registerer.
	Registerer prometheus.Registerer
}

// Open gives the store at an address: file:// and an absolute folder, made when
// something is first written, or s3://bucket/prefix, where the bucket is there and the
// prefix may be missing. It reaches for nothing, so that a server starts while its object
// store is away; the first calls tell.
func Open(ctx context.Context, uri string, o Options) (Store, error) {
	scheme, rest, ok := strings.Cut(uri, "://")
	if !ok {
		return nil, errs.New(errs.InvalidValue, "%q is no address of an object store: write file:///folder or s3://bucket/prefix", uri)
	}
	m := newMetrics(o.Registerer)
	switch scheme {
	case "file":
		root, err := folder(rest)
		if err != nil {
			return nil, errs.New(errs.InvalidValue, "%q: %v", uri, err)
		}
		fs := o.FS
		if fs == nil {
			fs = vfs.Default
		}
		return measure(newFileStore(fs, root), m), nil
	case "s3":
		bucket, prefix, _ := strings.Cut(strings.TrimSuffix(rest, "/"), "/")
		if err := checkPlace(bucket, prefix); err != nil {
			return nil, errs.New(errs.InvalidValue, "%q: %v", uri, err)
		}
		s, err := openS3(ctx, o.S3, bucket, prefix, m)
		if err != nil {
			return nil, err
		}
		return measure(s, m), nil
	default:
		return nil, errs.New(errs.InvalidValue, "%q: there are no object stores by %s://, only by file:// and s3://", uri, scheme)
	}
}

// folder is the folder of an address after file://.
func folder(rest string) (string, error) {
	host, dir, _ := strings.Cut(rest, "/")
	if host != "" && host != "localhost" {
		return "", errs.New(errs.InvalidValue, "the folder is on this machine: write file:/// with three slashes")
	}
	dir = "/" + strings.TrimSuffix(dir, "/")
	switch {
	case dir == "/":
		return "", errs.New(errs.InvalidValue, "name a folder below the root of the file system")
	case path.Clean(dir) != dir:
		return "", errs.New(errs.InvalidValue, "name the folder without empty segments, \".\" and \"..\"")
	case (&url.URL{Path: dir}).EscapedPath() != dir:
		return "", errs.New(errs.InvalidValue, "the folder's name has characters that addresses do not hold as they are, such as spaces and %%")
	}
	return dir, nil
}

// checkPlace says what is wrong with the bucket and the prefix of an address.
func checkPlace(bucket, prefix string) error {
	if len(bucket) < 3 || len(bucket) > 63 || strings.Trim(bucket, "abcdefghijklmnopqrstuvwxyz0123456789.-") != "" || bucket[0] == '.' || bucket[0] == '-' {
		return errs.New(errs.InvalidValue, "a bucket's name has 3 to 63 of a-z 0-9 . -")
	}
	if prefix == "" {
		return nil
	}
	if len(prefix) > maxPrefixBytes {
		return errs.New(errs.InvalidValue, "the prefix has %d bytes, at most %d", len(prefix), maxPrefixBytes)
	}
	return checkKey(prefix)
}
