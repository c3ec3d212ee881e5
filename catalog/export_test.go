package catalog

import (
	"log/slog"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// OpenPebble is openPebble, for tests from outside.
func OpenPebble(fs vfs.FS, dir string, logger *slog.Logger) (KV, error) {
	return openPebble(fs, dir, logger)
}
