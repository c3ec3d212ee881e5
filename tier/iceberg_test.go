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
	runs, failing := 0, false // a run that fails is made again, smaller and smaller
	rapid.Check(t, func(rt *rapid.T) {
		if runs++; runs > icebergRuns && !failing {
			return
		}
		fine := false
		defer func() { failing = failing || !fine }()
		store, err := objstore.Open(t.Context(), "file:///lake", objstore.Options{FS: vfs.NewMem()})
		require.NoError(rt, err)
		format := iceberg.New(iceberg.Options{Store: store, Cluster: [16]byte{7}, Clock: storagetest.NewClock(), Logger: slog.New(slog.DiscardHandler)})
		simulate(rt, format, &simulation{shapes: shapes})
		fine = true
	})
}

// icebergRuns bounds how many of rapid's runs are made.
const icebergRuns = 10
