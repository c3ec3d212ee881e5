package iceberg

import (
	"context"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/objstore"
)

// purgeKeys is how many files are listed before they are removed.
const purgeKeys = 1000

// Purge implements lake.Format. It goes by the table's folder alone, whatever state that
// is in; a catalog of the user's own lets go of the table before its files go.
func (f *Format) Purge(ctx context.Context, id millrace.TableID, path millrace.TablePath) error {
	if p, ok := f.handle(id, path).pointer.(*catalogPointer); ok {
		if err := p.forget(ctx); err != nil {
			return err
		}
	}
	folder := f.folder(id) + "/"
	var keys []string
	remove := func() error {
		if len(keys) == 0 {
			return nil
		}
		err := f.o.Store.Remove(ctx, keys...)
		keys = keys[:0]
		return err
	}
	err := f.o.Store.List(ctx, folder, func(i objstore.Info) error {
		if keys = append(keys, i.Key); len(keys) < purgeKeys {
			return nil
		}
		return remove()
	})
	if err == nil {
		err = remove()
	}
	if err != nil {
		return storeError(err, "remove the files in %s", uriOf(f.o.Store, folder))
	}
	return nil
}
