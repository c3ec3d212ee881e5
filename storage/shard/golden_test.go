package shard

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/storage/bucket"
	"github.com/millrace/millrace/storage/segment"
	"github.com/millrace/millrace/storage/wal"
)

// What format version 1 wrote, with all its fields. These files are read for ever and never written again;
// a later version gets its own directories.
const (
	fullEntriesDir  = "testdata/formats/entries-v1"
	fullManifestDir = "testdata/formats/manifest-v1"
	// What was added to it: writers with a hash.
	hashedEntriesDir = "testdata/formats/entries-v1-hashed"
)

// fullTable has all fields of a descriptor.
func fullTable() *millrace.Table {
	return &millrace.Table{
		ID: 7, DatabaseID: 2, Path: millrace.TablePath{Database: "shop", Table: "orders"}, Kind: millrace.KeyedTable,
		Schema: &millrace.Schema{ID: 3, Columns: []millrace.Column{
			{ID: 1, Name: "id", Type: millrace.DataType{Kind: millrace.BigInt}},
			{ID: 2, Name: "price", Type: millrace.DataType{Kind: millrace.Decimal, Precision: 12, Scale: 2}, Nullable: true, Comment: "net"},
			{ID: 3, Name: "tags", Nullable: true, Type: millrace.DataType{Kind: millrace.Array, Children: []millrace.Column{
				{ID: 4, Name: millrace.ElementName, Type: millrace.DataType{Kind: millrace.String}},
			}}},
		}},
		PrimaryKey: []millrace.ColumnID{1}, BucketKey: []millrace.ColumnID{1}, Buckets: 4, Shards: []millrace.ShardID{0, 1, 2, 3},
		Properties: map[string]string{"table.log.ttl": "7d"}, Comment: "all orders", Version: 5,
		CreatedAt: time.Date(2026, 7, 1, 8, 30, 0, 0, time.UTC), LastColumnID: 4,
	}
}

// fullPayloads are a payload of rows with change types and one without.
func fullPayloads() [][]byte {
	return [][]byte{
		segment.AppendRows(nil, 3, []millrace.ChangeType{millrace.Insert, millrace.UpdateBefore, millrace.UpdateAfter, millrace.Delete},
			[][]byte{[]byte("\x03\x00\x00\x00first"), []byte("\x03\x00\x00\x00second"), []byte("\x03\x00\x00\x00third"), []byte("\x03\x00\x00\x00")}),
		segment.AppendRows(nil, 3, nil, [][]byte{[]byte("\x03\x00\x00\x00only")}),
	}
}

func fullData() *dataEntry {
	p := fullPayloads()
	return &dataEntry{
		bucket: millrace.BucketID{Table: 7, Partition: 1, Bucket: 3}, base: 4096, time: 1_780_000_000_123_456,
		writers: []entryWriter{
			{scope: "5:alice loader", flags: writerFresh, epoch: 9, seq: 17, first: 0, records: 4},
			{scope: "0:b", epoch: 0, seq: 2, first: 4, records: 1},
			{scope: "0:c", flags: writerRaised, epoch: 4, seq: 1, first: 5, records: 0},
		},
		payloads: []entryPayload{{records: 4, bytes: p[0]}, {records: 1, bytes: p[1]}},
	}
}

func fullEntryFiles() map[string][]byte {
	open := &openEntry{Buckets: []millrace.BucketID{{Table: 7, Partition: 1, Bucket: 3}}, Table: fullTable()}
	return map[string][]byte{
		"data.entry":       fullData().encode(),
		"empty-data.entry": (&dataEntry{bucket: millrace.BucketID{Table: 1}, writers: []entryWriter{{scope: "0:w", seq: 1, flags: writerFresh}}}).encode(),
		"open.entry":       encodeJSON(open),
		"open-again.entry": encodeJSON(&openEntry{Buckets: open.Buckets}),
		"drop.entry":       encodeJSON(endEntry{Table: 7}),
	}
}

// hashedData is of a batch that was taken under an idempotency key.
func hashedData() *dataEntry {
	p := fullPayloads()
	return &dataEntry{
		bucket: millrace.BucketID{Table: 7, Partition: 1, Bucket: 3}, base: 4096, time: 1_780_000_000_123_456,
		writers: []entryWriter{
			{scope: "k5:alicenightly", flags: writerFresh | writerHashed, seq: 1, records: 4, hash: 0xfedcba9876543210},
			{scope: "0:b", seq: 2, first: 4},
			{scope: "k0:again", flags: writerHashed, seq: 3, first: 4, records: 1, hash: 1},
		},
		payloads: []entryPayload{{records: 4, bytes: p[0]}, {records: 1, bytes: p[1]}},
	}
}

// Shows that writers with hashes are written as they were, and read as what they were
// made of.
func TestHashedEntries(t *testing.T) {
	name := filepath.Join(hashedEntriesDir, "data.entry")
	if *rewrite {
		require.NoError(t, os.MkdirAll(hashedEntriesDir, 0o755))
		require.NoError(t, os.WriteFile(name, hashedData().encode(), 0o644))
	}
	stored, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, stored, hashedData().encode())
	d, err := decodeData(stored)
	require.NoError(t, err)
	require.Equal(t, hashedData(), d)
	none := hashedData()
	none.writers[0].hash = 0
	_, err = decodeData(none.encode())
	require.Error(t, err)
	for n := range stored {
		_, err := decodeData(stored[:n])
		require.Error(t, err, n)
	}
}

func fullManifest() *Manifest {
	t := fullTable()
	older := *t.Schema
	older.ID, older.Columns = 1, older.Columns[:2]
	return &Manifest{
		Cluster: []byte("sixteen bytes !!"), Shard: 2, Number: 12, LSN: 345,
		Tail:         wal.Tail{LogID: 0xfedcba9876543210, LSN: 345, Hash: 0x8877665544332211, Epoch: 6},
		FeatureLevel: FeatureLevel,
		Tables:       []*millrace.Table{t},
		Schemas:      []TableSchemas{{Table: 7, Schemas: []*millrace.Schema{&older, t.Schema}}},
		Buckets: []BucketManifest{
			{ID: millrace.BucketID{Table: 7, Partition: 1, Bucket: 2}, Start: 0, End: 9000, Files: []bucket.FileState{{Base: 0, Length: 65536, Sealed: true}, {Base: 5000, Length: 4096}}},
			{ID: millrace.BucketID{Table: 7, Partition: 1, Bucket: 3}, Start: 0, End: 5},
		},
		Tails: tailsName(12),
	}
}

func fullTails(t *testing.T) []bucket.TailBatch {
	id := millrace.BucketID{Table: 7, Partition: 1, Bucket: 3}
	p := fullPayloads()
	first, err := bucket.Stamp(id, 0, p[0], segment.TimeRun{Rows: 1, Micros: 1_780_000_000_000_000}, segment.TimeRun{Rows: 3, Micros: 1_780_000_000_000_007})
	require.NoError(t, err)
	second, err := bucket.Stamp(id, 4, p[1], segment.TimeRun{Rows: 1, Micros: 1_780_000_000_000_009})
	require.NoError(t, err)
	return []bucket.TailBatch{first, second}
}

// Shows that entries of format version 1 are written as they were, and read as what
// they were made of.
func TestFullEntries(t *testing.T) {
	files := fullEntryFiles()
	if *rewrite {
		require.NoError(t, os.MkdirAll(fullEntriesDir, 0o755))
		for name, b := range files {
			require.NoError(t, os.WriteFile(filepath.Join(fullEntriesDir, name), b, 0o644))
		}
	}
	for name, b := range files {
		stored, err := os.ReadFile(filepath.Join(fullEntriesDir, name))
		require.NoError(t, err)
		require.Equal(t, b, stored, "%s is written otherwise now", name)
		switch {
		case strings.Contains(name, "data"):
			d, err := decodeData(stored)
			require.NoError(t, err)
			if name == "data.entry" {
				require.Equal(t, fullData(), d)
			}
			require.Equal(t, stored, d.encode())
		case strings.HasPrefix(name, "open"):
			var o openEntry
			require.NoError(t, json.Unmarshal(stored, &o))
			require.Equal(t, stored, encodeJSON(&o))
			require.Equal(t, []millrace.BucketID{{Table: 7, Partition: 1, Bucket: 3}}, o.Buckets)
			if name == "open.entry" {
				require.Equal(t, fullTable(), o.Table)
			}
		default:
			require.JSONEq(t, `{"table":7}`, string(stored))
		}
	}
}

// Shows how the end of a table, of a partition, and a seal are written, which a
// release that knows no partitions never wrote.
func TestEndEntries(t *testing.T) {
	require.JSONEq(t, `{"table":7}`, string(encodeJSON(endEntry{Table: 7})))
	require.JSONEq(t, `{"table":7,"partition":4294967295}`, string(encodeJSON(endEntry{Table: 7, Partition: 1<<32 - 1})))
	m := &Manifest{Sealed: []SealedPartition{{Table: 7, Partition: 3}}}
	require.Contains(t, string(encodeJSON(m)), `"sealed":[{"table":7,"partition":3}]`)
}

// Shows that a manifest and a tails file of format version 1 are written as they were,
// and read as what they were made of.
func TestFullManifest(t *testing.T) {
	if *rewrite {
		require.NoError(t, os.MkdirAll(fullManifestDir, 0o755))
		_, err := writeTails(vfs.Default, fullManifestDir, 12, fullTails(t))
		require.NoError(t, err)
		require.NoError(t, writeManifest(vfs.Default, fullManifestDir, fullManifest()))
	}
	m, err := readManifest(vfs.Default, fullManifestDir)
	require.NoError(t, err)
	require.Equal(t, fullManifest(), m)
	tails, err := readTails(vfs.Default, fullManifestDir, m.Tails)
	require.NoError(t, err)
	require.Equal(t, map[millrace.BucketID][]bucket.TailBatch{{Table: 7, Partition: 1, Bucket: 3}: fullTails(t)}, tails)

	fs := vfs.NewMem()
	_, err = writeTails(fs, "", 12, fullTails(t))
	require.NoError(t, err)
	require.NoError(t, writeManifest(fs, "", m))
	for _, name := range []string{manifestName(12), tailsName(12)} {
		stored, err := os.ReadFile(filepath.Join(fullManifestDir, name))
		require.NoError(t, err)
		f, err := fs.Open(name)
		require.NoError(t, err)
		b := make([]byte, len(stored))
		_, err = f.ReadAt(b, 0)
		require.NoError(t, err)
		require.True(t, bytes.Equal(stored, b), "%s is written otherwise now", name)
		require.NoError(t, f.Close())
	}
}
