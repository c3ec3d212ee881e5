package iceberg

import (
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/lake"
)

var rewrite = flag.Bool("rewrite", false, "write the golden lake table anew")

// goldenTable is the table whose lake table is in testdata/formats.
func goldenTable() *millrace.Table {
	d := testTable(7, []string{"k", "dt"}, []string{"dt"}, 2, "k BIGINT NOT NULL", "dt DATE NOT NULL", "s STRING", "r ROW<n TINYINT, l ARRAY<TIMESTAMP(3)>>")
	d.Options.Lake.SystemColumns = false
	return d
}

// TestGolden reads lake tables as each version of the format wrote them, and goes on writing to
// them.
// -rewrite makes that of the newest.
func TestGolden(t *testing.T) {
	if *rewrite {
		writeGolden(t)
	}
	for _, version := range []string{"lake-v1"} {
		w := newWorld(t)
		root := filepath.Join("testdata", "formats", version)
		require.NoError(t, filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			body, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			key, err := filepath.Rel(root, p)
			if err != nil {
				return err
			}
			return w.store.Put(w.ctx(), filepath.ToSlash(key), body)
		}))
		d := goldenTable()
		s, err := w.f.newest(t.Context(), d)
		require.NoError(t, err)
		require.EqualValues(t, 2, s.Round())
		require.EqualValues(t, 1, s.Schema())
		p := goldenPartition()
		require.Equal(t, lake.Offsets{p.BucketID(0): 5, p.BucketID(1): 3}, s.Offsets())
		require.Equal(t, []string{
			`{"dt":"2026-08-26","k":1,"r":{"l":["2026-08-26T12:34:56.789",null],"n":-1},"s":"one"}`,
			`{"dt":"2026-08-26","k":3,"r":null,"s":null}`,
		}, w.scan(d))
		_, err = w.append(w.f, d, lake.Slice{Partition: p, Bucket: 0}, lake.Offsets{p.BucketID(0): 6}, `{"k":4,"dt":"2026-08-26","s":"four","r":null}`)
		require.NoError(t, err)
		require.Len(t, w.scan(d), 3)
	}
}

func goldenPartition() *millrace.Partition {
	return &millrace.Partition{ID: 3, Table: 7, Values: []string{"2026-08-26"}}
}

// writeGolden writes three rows, and takes one of them out again.
func writeGolden(t *testing.T) {
	w := newWorld(t)
	d, p := goldenTable(), goldenPartition()
	lt, err := w.f.open(t.Context(), d)
	require.NoError(t, err)
	r, err := lt.begin(t.Context(), d)
	require.NoError(t, err)
	require.NoError(t, appendTo(t, r, lake.Slice{Partition: p, Bucket: 0},
		`{"k":1,"dt":"2026-08-26","s":"one","r":{"n":-1,"l":["2026-08-26T12:34:56.789",null]}}`, goldenGone))
	require.NoError(t, appendTo(t, r, lake.Slice{Partition: p, Bucket: 1}, `{"k":3,"dt":"2026-08-26","s":null,"r":null}`))
	_, err = r.commit(t.Context(), lake.Offsets{p.BucketID(0): 2, p.BucketID(1): 3})
	require.NoError(t, err)
	r, err = lt.begin(t.Context(), d)
	require.NoError(t, err)
	n, err := r.Delete(t.Context(), lake.Slice{Partition: p, Bucket: 0}, map[string]struct{}{w.keyOfRow(d, goldenGone): {}})
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	_, err = r.commit(t.Context(), lake.Offsets{p.BucketID(0): 5, p.BucketID(1): 3})
	require.NoError(t, err)
	for _, k := range w.files() {
		body, err := w.store.Get(t.Context(), k)
		require.NoError(t, err)
		file := filepath.Join("testdata", "formats", "lake-v1", filepath.FromSlash(k))
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, body, 0o644))
	}
}

// goldenGone is the row that is taken out again.
const goldenGone = `{"k":2,"dt":"2026-08-26","s":"two","r":null}`
