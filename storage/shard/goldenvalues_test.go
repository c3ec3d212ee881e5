package shard

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/storage/bucket"
	"github.com/millrace/millrace/storage/segment"
	"github.com/millrace/millrace/storage/wal"
)

// What the golden files are made of: golden… is small, full… has all fields of the
// first release, hashedData and what trim_test.go has came later.

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

func fullTails(t testing.TB) []bucket.TailBatch {
	id := millrace.BucketID{Table: 7, Partition: 1, Bucket: 3}
	p := fullPayloads()
	first, err := bucket.Stamp(id, 0, p[0], segment.TimeRun{Rows: 1, Micros: 1_780_000_000_000_000}, segment.TimeRun{Rows: 3, Micros: 1_780_000_000_000_007})
	require.NoError(t, err)
	second, err := bucket.Stamp(id, 4, p[1], segment.TimeRun{Rows: 1, Micros: 1_780_000_000_000_009})
	require.NoError(t, err)
	return []bucket.TailBatch{first, second}
}
