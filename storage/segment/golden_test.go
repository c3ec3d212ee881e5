package segment

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
)

var writeGolden = flag.Bool("write-golden", false, "write the golden files of a new format version")

// goldenDir holds what format version 1 wrote. Its files are read for ever and
// never written again; a later version gets its own directory.
const goldenDir = "testdata/formats/segment-v1"

var goldenBucket = FileID{Cluster: [16]byte{0xc1}, Bucket: millrace.BucketID{Table: 3, Partition: 2, Bucket: 1}, Base: 1000}

// goldenText is what a payload holds: a line of change types, and the rows as
// arrow's JSON.
func goldenText(t *testing.T, p *Payload, s *millrace.Schema) string {
	rec, err := p.Record(memory.DefaultAllocator, only(s), s.Columns)
	require.NoError(t, err)
	defer rec.Release()
	changes, err := p.Changes()
	require.NoError(t, err)
	var b strings.Builder
	for _, c := range changes {
		b.WriteString(c.String())
	}
	b.WriteByte('\n')
	text, err := rec.MarshalJSON()
	require.NoError(t, err)
	b.Write(text)
	return b.String()
}

// Shows that files and payloads of format version 1 give the rows they were
// written with.
func TestGoldenFiles(t *testing.T) {
	s := makeSchema(1, allTypes...)
	if *writeGolden {
		makeGolden(t, s)
	}
	want, err := os.ReadFile(filepath.Join(goldenDir, "rows.txt"))
	require.NoError(t, err)
	check := func(p *Payload) {
		t.Helper()
		require.Equal(t, string(want), goldenText(t, p, s))
	}
	for _, name := range []string{"lz4", "zstd", "none", "rows"} {
		b, err := os.ReadFile(filepath.Join(goldenDir, name+".payload"))
		require.NoError(t, err)
		p, err := OpenBytes(b)
		require.NoError(t, err)
		check(p)
	}
	sealed, err := OpenSealed(vfs.Default, goldenDir, goldenBucket)
	require.NoError(t, err)
	defer func() { require.NoError(t, sealed.Close()) }()
	last := sealed.Batches()[3]
	unsealed, err := OpenUnsealed(vfs.Default, goldenDir, goldenBucket, last.Position+last.Length)
	require.NoError(t, err)
	defer func() { require.NoError(t, unsealed.Close()) }()
	require.Equal(t, unsealed.Batches(), sealed.Batches())
	for i, ref := range sealed.Batches() {
		p, h, err := sealed.Payload(ref)
		require.NoError(t, err)
		check(p)
		require.Equal(t, millrace.Offset(1000+30*i), h.Base)
		require.Equal(t, []TimeRun{{10, int64(1e15) + int64(i)}, {20, int64(1e15) + 500}}, h.Times)
	}
}

func makeGolden(t *testing.T, s *millrace.Schema) {
	_, err := os.Stat(goldenDir)
	require.ErrorIs(t, err, os.ErrNotExist, "golden files are never written again")
	require.NoError(t, os.MkdirAll(goldenDir, 0o755))
	rng := newRand(2026)
	rec := randomRecord(rng, s, 30, 2)
	defer rec.Release()
	changes := randomChanges(rng, 30)
	w, err := Create(vfs.Default, goldenDir, goldenBucket)
	require.NoError(t, err)
	for i, name := range []string{"lz4", "zstd", "none", "rows"} {
		b := rowPayload(s, rec, changes)
		if name != "rows" {
			b = encoded(t, s, rec, changes, codecs[i])
		}
		require.NoError(t, os.WriteFile(filepath.Join(goldenDir, name+".payload"), b, 0o644))
		p, err := OpenBytes(b)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(goldenDir, "rows.txt"), []byte(goldenText(t, p, s)), 0o644))
		h := StampPayload(p, goldenBucket.Bucket, millrace.Offset(1000+30*i), TimeRun{10, int64(1e15) + int64(i)}, TimeRun{20, int64(1e15) + 500})
		_, err = w.Append(&h, b)
		require.NoError(t, err)
	}
	require.NoError(t, w.Seal())
	require.NoError(t, w.File().Close())
}
