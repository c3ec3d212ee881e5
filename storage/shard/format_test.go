package shard

// These tests hold the formats that a shard owns: golden files of version 1 are read
// for ever, any changed bit of a manifest or tails file is found before it is
// believed, and no bytes make a decoder panic.

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/bucket"
	"github.com/millrace/millrace/storage/segment"
	"github.com/millrace/millrace/storage/wal"
)

var rewrite = flag.Bool("rewrite-golden", false, "write testdata/formats anew")

var goldenBucket = millrace.BucketID{Table: 7, Bucket: 3}

func goldenManifest() *Manifest {
	table := &millrace.Table{
		ID: 7, DatabaseID: 1, Path: millrace.TablePath{Database: "d", Table: "t"}, Kind: millrace.KeyedTable, Buckets: 4,
		Schema:     &millrace.Schema{ID: 1, Columns: []millrace.Column{{ID: 1, Name: "k", Type: millrace.DataType{Kind: millrace.BigInt}}}},
		PrimaryKey: []millrace.ColumnID{1}, BucketKey: []millrace.ColumnID{1}, Shards: []millrace.ShardID{0, 1, 2, 3}, Version: 1, LastColumnID: 1,
	}
	return &Manifest{
		Cluster: []byte("0123456789abcdef"), Shard: 3, Number: 9, LSN: 41, Tail: wal.Tail{LogID: 5, LSN: 41, Hash: 6, Epoch: 2}, FeatureLevel: 1,
		Tables: []*millrace.Table{table}, Schemas: []TableSchemas{{Table: 7, Schemas: []*millrace.Schema{table.Schema}}},
		Buckets: []BucketManifest{{ID: goldenBucket, Start: 0, End: 12, Files: []bucket.FileState{{Base: 0, Length: 4096, Sealed: true}}}},
		Tails:   tailsName(9),
	}
}

func goldenTails(t testing.TB) []bucket.TailBatch {
	payload := segment.AppendRows(nil, 1, []millrace.ChangeType{millrace.Insert, millrace.Delete}, [][]byte{[]byte("row-one"), []byte("row-two!")})
	b, err := bucket.Stamp(goldenBucket, 10, payload, segment.TimeRun{Rows: 2, Micros: 1_796_000_000_000_000})
	require.NoError(t, err)
	return []bucket.TailBatch{b}
}

func goldenEntry() *dataEntry {
	return &dataEntry{
		bucket: goldenBucket, base: 10, time: 1_796_000_000_000_000,
		writers:  []entryWriter{{scope: "0:w", flags: writerFresh, epoch: 2, seq: 9, first: 0, records: 2}},
		payloads: []entryPayload{{records: 2, bytes: []byte("payload")}},
	}
}

const goldenDir = "testdata/formats/shard-v1"

func TestGoldenFilesAreRead(t *testing.T) {
	if *rewrite {
		require.NoError(t, os.MkdirAll(goldenDir, 0o755))
		dir, err := filepath.Abs(goldenDir)
		require.NoError(t, err)
		require.NoError(t, writeManifest(vfs.Default, dir, goldenManifest()))
		_, err = writeTails(vfs.Default, dir, 9, goldenTails(t))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "data.entry"), goldenEntry().encode(), 0o644))
	}
	m, err := readManifest(vfs.Default, goldenDir)
	require.NoError(t, err)
	require.Equal(t, goldenManifest(), m)
	tails, err := readTails(vfs.Default, goldenDir, m.Tails)
	require.NoError(t, err)
	require.Equal(t, map[millrace.BucketID][]bucket.TailBatch{goldenBucket: goldenTails(t)}, tails)
	raw, err := os.ReadFile(filepath.Join(goldenDir, "data.entry"))
	require.NoError(t, err)
	e, err := decodeData(raw)
	require.NoError(t, err)
	require.Equal(t, goldenEntry(), e)
}

// Every changed bit, and every cut, is found and named with the file.
func TestEveryChangedBitIsFound(t *testing.T) {
	for _, name := range []string{manifestName(9), tailsName(9)} {
		magic := manifestMagic
		if name == tailsName(9) {
			magic = tailsMagic
		}
		all, err := os.ReadFile(filepath.Join(goldenDir, name))
		require.NoError(t, err)
		for bit := range 8 * len(all) {
			all[bit/8] ^= 1 << (bit % 8)
			_, err := openEnvelope(name, magic, all)
			require.True(t, errs.Is(err, errs.CorruptData), "bit %d of %s: %v", bit, name, err)
			require.Contains(t, err.Error(), name)
			all[bit/8] ^= 1 << (bit % 8)
		}
		for n := range all {
			_, err := openEnvelope(name, magic, all[:n])
			require.True(t, errs.Is(err, errs.CorruptData), "%s cut at %d: %v", name, n, err)
		}
	}
}

func FuzzDecodeData(f *testing.F) {
	f.Add(goldenEntry().encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if e, err := decodeData(b); err == nil {
			require.Equal(t, b, e.encode(), "what reads is what is written")
		}
	})
}

// The bodies are fuzzed below their checksum, which random bytes do not pass.
func FuzzManifestBody(f *testing.F) {
	f.Add(encodeJSON(goldenManifest()))
	f.Fuzz(func(_ *testing.T, body []byte) {
		fs := vfs.NewMem()
		if publishFile(fs, "", manifestName(1), func(file vfs.File) error { return writeEnvelope(file, manifestMagic, [][]byte{body}) }) == nil {
			_, _ = readManifest(fs, "") // an error or a manifest, no panic
		}
	})
}

func FuzzTailsBody(f *testing.F) {
	b := goldenTails(f)[0]
	f.Add(append(segment.AppendBatchHeader(nil, &b.Header), b.Payload...))
	f.Fuzz(func(_ *testing.T, body []byte) {
		fs := vfs.NewMem()
		if publishFile(fs, "", tailsName(1), func(file vfs.File) error { return writeEnvelope(file, tailsMagic, [][]byte{body}) }) == nil {
			_, _ = readTails(fs, "", tailsName(1)) // an error or batches, no panic
		}
	})
}

// encode is the entry's bytes as they are replayed.
func (d *dataEntry) encode() []byte {
	e := d.logEntry()
	return slices.Concat(append([][]byte{e.Data}, e.More...)...)
}
