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
	// Registerer takes the metrics; nil keeps them to itself. One store a registerer.
	Registerer prometheus.Registerer
}

// Open gives the store at an address: file:// and an absolute folder, made when
// something is first written. It reaches for nothing, so that a server starts while its
// object store is away; the first calls tell.
func Open(_ context.Context, uri string, o Options) (Store, error) {
	scheme, rest, ok := strings.Cut(uri, "://")
	if !ok {
		return nil, errs.New(errs.InvalidValue, "%q is no address of an object store: write file:///folder", uri)
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
	default:
		return nil, errs.New(errs.InvalidValue, "%q: there are no object stores by %s://, only by file://", uri, scheme)
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
