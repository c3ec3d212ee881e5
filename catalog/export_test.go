package catalog

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/errs"
)

// exportedGolden is the store that was exported for exportGolden.
const exportedGolden = "v1-level4"

var exportGolden = filepath.Join("testdata", "formats", "export-v1", "catalog.export")

// An export of the first version is read for ever, into a catalog that has everything but
// the signing keys.
func TestExportGolden(t *testing.T) {
	c := openGolden(t, goldenFiles(exportedGolden))
	if *rewrite {
		b, _, err := c.Export(t.Context())
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Dir(exportGolden), 0o755))
		require.NoError(t, os.WriteFile(exportGolden, b, 0o644))
	}
	b, err := os.ReadFile(exportGolden)
	require.NoError(t, err)
	fs := vfs.NewMem()
	kv := mustOpenKV(t, fs)
	require.NoError(t, Import(t.Context(), kv, b, 1000))
	require.True(t, errs.Is(Import(t.Context(), kv, b, 0), errs.InvalidRequest), "into one that is not empty")
	require.NoError(t, kv.Close())
	got := openOnDir(t, fs, "kv")
	want := describe(t, c)
	want["revision"] = int64(1001)
	require.Equal(t, want, describe(t, got))
	require.Empty(t, got.current.Load().signing.Keys)
	require.Equal(t, c.current.Load().nextIDs, got.current.Load().nextIDs)
	require.Equal(t, c.Purges(), got.Purges())
}

func openOnDir(t *testing.T, fs vfs.FS, dir string) *Catalog {
	t.Helper()
	c, err := Open(t.Context(), Options{Dir: dir, FS: fs, Logger: slog.New(slog.DiscardHandler), Clock: func() time.Time { return testTime }})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// A damaged export, whatever bit of it, is refused as such, and nothing is imported.
func TestExportDamage(t *testing.T) {
	b, err := os.ReadFile(exportGolden)
	require.NoError(t, err)
	kv := mustOpenKV(t, vfs.NewMem())
	defer kv.Close()
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		bad := bytes.Clone(b)
		if rng.IntN(4) == 0 {
			bad = bad[:rng.IntN(len(bad))]
		} else {
			bad[rng.IntN(len(bad))] ^= 1 << rng.IntN(8)
		}
		require.True(t, errs.Is(Import(t.Context(), kv, bad, 0), errs.CorruptData))
	}
	require.Empty(t, mustLoad(t, kv))
}

// nthCommit fails a commit.
type nthCommit struct {
	KV

	n int
}

func (kv *nthCommit) Commit(ctx context.Context, expect uint64, writes ...Write) (uint64, error) {
	if kv.n--; kv.n < 0 {
		return 0, errors.New("told to")
	}
	return kv.KV.Commit(ctx, expect, writes...)
}

// An import that ends at any commit leaves no catalog, says so, and can be run again, also
// with another export; the result has nothing of the first.
func TestImportCutShort(t *testing.T) {
	other := openMem(t)
	other.mustCreateDatabase(t, "other")
	for range 3 {
		other.mustCreateDatabase(t, string(rune('a'+other.Revision())))
	}
	for n := range 10 { // so that it takes several commits
		_, err := other.CreateDatabase(t.Context(), "big_"+string(rune('a'+n)), string(bytes.Repeat([]byte("x"), 60_000)))
		require.NoError(t, err)
	}
	big, _, err := other.Export(t.Context())
	require.NoError(t, err)
	small, err := os.ReadFile(exportGolden)
	require.NoError(t, err)
	for n := 0; ; n++ {
		fs := vfs.NewMem()
		kv := mustOpenKV(t, fs)
		if Import(t.Context(), &nthCommit{KV: kv, n: n}, big, 0) == nil {
			require.GreaterOrEqual(t, n, 4)
			require.NoError(t, kv.Close())
			require.Equal(t, other.current.Load().head.NextDatabase, openOnDir(t, fs, "kv").current.Load().head.NextDatabase)
			break
		}
		if n > 0 {
			_, err := OpenKV(t.Context(), kv, Options{Logger: slog.New(slog.DiscardHandler), Clock: func() time.Time { return testTime }})
			require.True(t, errs.Is(err, errs.Unavailable), "%v", err)
			require.ErrorContains(t, err, "import")
		}
		require.NoError(t, Import(t.Context(), kv, small, 0))
		require.NoError(t, kv.Close())
		want := describe(t, openGolden(t, goldenFiles(exportedGolden)))
		want["revision"] = want["revision"].(int64) + 1
		require.Equal(t, want, describe(t, openOnDir(t, fs, "kv")), "cut short at commit %d", n)
	}
}
