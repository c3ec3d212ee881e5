package tier_test

import (
	"log/slog"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/objstore"
	"github.com/millrace/millrace/storage/storagetest"
	"github.com/millrace/millrace/tier/iceberg"
)

// The same holds of Iceberg tables in a folder, read back through the format: fewer and
// shorter runs, since each commit writes files.
func TestIcebergIsLog(t *testing.T) {
	check(t, 10, func(rt *rapid.T) {
		simulate(rt, icebergFormat(t), &simulation{shapes: shapes})
	})
}

// icebergFormat keeps Iceberg tables in a folder in memory.
func icebergFormat(t *testing.T) *iceberg.Format {
	t.Helper()
	store, err := objstore.Open(t.Context(), "file:///lake", objstore.Options{FS: vfs.NewMem()})
	require.NoError(t, err)
	return iceberg.New(iceberg.Options{Store: store, Cluster: [16]byte{7}, Clock: storagetest.NewClock(), Logger: slog.New(slog.DiscardHandler)})
}
