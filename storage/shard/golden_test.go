package shard

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/storage/bucket"
)

// Golden files hold what each release wrote: they are read for ever and never written
// again. A later version, or what is added to one, gets files of its own.

var rewrite = flag.Bool("rewrite-golden", false, "write the golden files that are not there")

const formats = "testdata/formats"

// golden is what a golden file holds, which must be what is written now.
func golden(t testing.TB, name string, now []byte) []byte {
	t.Helper()
	file := filepath.Join(formats, name)
	stored, err := os.ReadFile(file)
	if os.IsNotExist(err) && *rewrite {
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, now, 0o644))
		stored, err = now, nil
	}
	require.NoError(t, err)
	require.True(t, bytes.Equal(now, stored), "%s is written otherwise now", name)
	return stored
}

// Shows that data entries of all releases are written as they were, and read as what
// they were made of.
func TestGoldenData(t *testing.T) {
	for name, made := range map[string]*dataEntry{
		"shard-v1/data.entry":          goldenEntry(),
		"entries-v1/data.entry":        fullData(),
		"entries-v1/empty-data.entry":  {bucket: millrace.BucketID{Table: 1}, writers: []entryWriter{{scope: "0:w", seq: 1, flags: writerFresh}}},
		"entries-v1-hashed/data.entry": hashedData(),
	} {
		stored := golden(t, name, made.encode())
		d, err := decodeData(stored)
		require.NoError(t, err, name)
		require.Equal(t, made, d, name)
		require.Equal(t, stored, d.encode(), name)
		for n := range stored {
			_, err := decodeData(stored[:n])
			require.Error(t, err, "%s cut at %d", name, n)
		}
	}
	none := hashedData()
	none.writers[0].hash = 0
	_, err := decodeData(none.encode())
	require.Error(t, err)
}

// Shows the same of the entries that open and end buckets.
func TestGoldenOpenAndDrop(t *testing.T) {
	ids := []millrace.BucketID{{Table: 7, Partition: 1, Bucket: 3}}
	for name, made := range map[string]*openEntry{
		"entries-v1/open.entry":        {Buckets: ids, Table: fullTable()},
		"entries-v1/open-again.entry":  {Buckets: ids},
		"entries-v1-later/learn.entry": {Buckets: []millrace.BucketID{}, Table: fullTable()},
	} {
		var o openEntry
		require.NoError(t, json.Unmarshal(golden(t, name, encodeJSON(made)), &o))
		require.Equal(t, made, &o, name)
	}
	require.JSONEq(t, `{"table":7}`, string(golden(t, "entries-v1/drop.entry", encodeJSON(endEntry{Table: 7}))))
}

// Shows how the end of a table, of a partition, and a seal are written, which a
// release that knows no partitions never wrote.
func TestEndEntries(t *testing.T) {
	require.JSONEq(t, `{"table":7}`, string(encodeJSON(endEntry{Table: 7})))
	require.JSONEq(t, `{"table":7,"partition":4294967295}`, string(encodeJSON(endEntry{Table: 7, Partition: 1<<32 - 1})))
	m := &Manifest{Sealed: []SealedPartition{{Table: 7, Partition: 3}}}
	require.Contains(t, string(encodeJSON(m)), `"sealed":[{"table":7,"partition":3}]`)
}

// Shows that manifests and tails files of all releases are written as they were, and
// read as what they were made of.
func TestGoldenManifests(t *testing.T) {
	for dir, made := range map[string]*Manifest{"shard-v1": goldenManifest(), "manifest-v1": fullManifest()} {
		tails := goldenTails(t)
		if dir == "manifest-v1" {
			tails = fullTails(t)
		}
		fs := vfs.NewMem()
		require.NoError(t, writeManifest(fs, "", made))
		_, err := writeTails(fs, "", made.Number, tails)
		require.NoError(t, err)
		for _, name := range []string{manifestName(made.Number), tailsName(made.Number)} {
			golden(t, filepath.Join(dir, name), readAll(t, fs, name))
		}
		m, err := readManifest(vfs.Default, filepath.Join(formats, dir))
		require.NoError(t, err)
		require.Equal(t, made, m)
		read, err := readTails(vfs.Default, filepath.Join(formats, dir), m.Tails)
		require.NoError(t, err)
		require.Equal(t, map[millrace.BucketID][]bucket.TailBatch{tails[0].Header.Bucket: tails}, read)
	}
}

func readAll(t testing.TB, fs vfs.FS, name string) []byte {
	t.Helper()
	f, err := fs.Open(name)
	require.NoError(t, err)
	st, err := f.Stat()
	require.NoError(t, err)
	b := make([]byte, st.Size())
	_, err = f.ReadAt(b, 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	return b
}
