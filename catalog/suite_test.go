package catalog_test

import (
	"log/slog"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/catalog/catalogtest"
)

// The store on one disk keeps the contract.
func TestPebbleKV(t *testing.T) {
	catalogtest.RunSuite(t, func(t *testing.T) catalogtest.Store {
		fs := vfs.NewMem()
		return catalogtest.Store{Open: func() catalog.KV {
			kv, err := catalog.OpenPebble(fs, "kv", slog.New(slog.DiscardHandler))
			require.NoError(t, err)
			return kv
		}}
	})
}
