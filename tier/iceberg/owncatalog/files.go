package owncatalog

import (
	"context"
	"net/url"
	"strings"
	"sync"

	iceio "github.com/apache/iceberg-go/io"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/objstore"
	"github.com/millrace/millrace/tier/iceberg"
)

// storeKey is the key of the store in the context of a call: iceberg-go finds files by
// the scheme of their address, in a registry of the process, and hands the context on.
type storeKey struct{}

// schemes are those of addresses of stores.
var schemes = []string{"file", "s3"}

var registerOnce sync.Once

// register makes iceberg-go's clients reach files through the store of the call, which
// knows the S3 server and its credentials, and has a file on disk before it is named.
func register() {
	registerOnce.Do(func() {
		for _, s := range schemes {
			iceio.Unregister(s)
			iceio.Register(s, filesOf)
		}
	})
}

// filesOf is how a file is reached. What is on disk outside of the store may be read, to
// see whose it is.
func filesOf(ctx context.Context, address *url.URL, _ map[string]string) (iceio.IO, error) {
	store, ok := ctx.Value(storeKey{}).(objstore.Store)
	switch {
	case ok && strings.HasPrefix(address.String(), store.URI()+"/"):
		return iceberg.StoreIO(ctx, store), nil
	case address.Scheme == "file":
		return iceio.LocalFS{}, nil
	}
	return nil, errs.New(errs.InvalidValue, "the catalog has the table at %s, which is not in the lake: it is someone else's, or lake-uri was changed", address.Redacted())
}
