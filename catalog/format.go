package catalog

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"strconv"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// FeatureLevel gates what a cluster may write; it only rises. On one node the first
// change that an earlier release would misread raises it, so that a catalog without
// such changes can still be opened by that release.
type FeatureLevel uint32

// The feature levels, a sentence each.
const (
	// FeatureBase is the first release: log tables and keyed tables on one node.
	FeatureBase FeatureLevel = 1
	// FeatureTables has partitions, merge engines and all that properties can say, id
	// ranges, and tables that were altered.
	FeatureTables FeatureLevel = 2
	// FeatureLake has tables that are in the lake, or were.
	FeatureLake FeatureLevel = 3
	// FeaturePurges had, or has, dropped tables whose lake tables are still to be removed.
	FeaturePurges FeatureLevel = 4
	// FeatureGrants has, or had, grants.
	FeatureGrants FeatureLevel = 5
	// FeatureQuotas has, or had, quotas.
	FeatureQuotas FeatureLevel = 6
	// FeatureNewest is the highest level that this release can read.
	FeatureNewest = FeatureQuotas
)

// Keys of the store. Numbers are padded, so that keys sort as numbers do.
const (
	keyHead    = "head"
	keySigning = "signing"

	prefixDatabase  = "database/"
	prefixGrant     = "grant/"
	prefixIDs       = "ids/"
	prefixPartition = "partition/"
	prefixPurge     = "purge/"
	prefixQuota     = "quota/"
	prefixSchema    = "schema/"
	prefixTable     = "table/"
)

func databaseKey(id millrace.DatabaseID) string { return fmt.Sprintf("%s%010d", prefixDatabase, id) }

func grantKey(id millrace.GrantID) string { return fmt.Sprintf("%s%010d", prefixGrant, id) }

func idsKey(t millrace.TableID) string { return fmt.Sprintf("%s%010d", prefixIDs, t) }

func partitionKey(t millrace.TableID, p millrace.PartitionID) string {
	return fmt.Sprintf("%s%010d/%010d", prefixPartition, t, p)
}

func purgeKey(t millrace.TableID) string { return fmt.Sprintf("%s%010d", prefixPurge, t) }

func quotaKey(id millrace.QuotaID) string { return fmt.Sprintf("%s%010d", prefixQuota, id) }

func tableKey(id millrace.TableID) string { return fmt.Sprintf("%s%010d", prefixTable, id) }

func schemaKey(t millrace.TableID, s millrace.SchemaID) string {
	return fmt.Sprintf("%s%010d/%010d", prefixSchema, t, s)
}

// The payloads of the keys, as JSON. Fields are only ever added.
type (
	headRecord struct {
		FeatureLevel  FeatureLevel         `json:"feature_level"`
		ClusterID     string               `json:"cluster_id"` // 32 hex digits
		Shards        int                  `json:"shards"`
		Revision      int64                `json:"revision"`
		NextDatabase  millrace.DatabaseID  `json:"next_database"`
		NextTable     millrace.TableID     `json:"next_table"`
		NextPartition millrace.PartitionID `json:"next_partition"`
		NextShard     millrace.ShardID     `json:"next_shard"` // where the next table's rotation starts
		NextGrant     millrace.GrantID     `json:"next_grant,omitempty"`
		NextQuota     millrace.QuotaID     `json:"next_quota,omitempty"`
		CreatedMicros int64                `json:"created_us"`
	}
	databaseRecord struct {
		ID            millrace.DatabaseID `json:"id"`
		Name          string              `json:"name"`
		Comment       string              `json:"comment,omitempty"`
		CreatedMicros int64               `json:"created_us"`
	}
	tableRecord struct {
		ID          millrace.TableID    `json:"id"`
		DatabaseID  millrace.DatabaseID `json:"database_id"`
		Name        string              `json:"name"`
		Kind        millrace.TableKind  `json:"kind"`
		SchemaID    millrace.SchemaID   `json:"schema_id"`
		PrimaryKey  []millrace.ColumnID `json:"primary_key,omitempty"`
		PartitionBy []millrace.ColumnID `json:"partition_by,omitempty"`
		BucketKey   []millrace.ColumnID `json:"bucket_key,omitempty"`
		Buckets     int                 `json:"buckets"`
		Shards      []millrace.ShardID  `json:"shards"`
		Properties  map[string]string   `json:"properties,omitempty"`
		// Options are absent in records of the first release, and when they are zero.
		Options       *millrace.TableOptions `json:"options,omitempty"`
		Comment       string                 `json:"comment,omitempty"`
		Version       int64                  `json:"version"`
		CreatedMicros int64                  `json:"created_us"`
		LastColumnID  millrace.ColumnID      `json:"last_column_id"`
		// ExpiredMicros is the time before which auto-partitions are not made again; 0 is none.
		ExpiredMicros int64 `json:"expired_us,omitempty"`
	}
	partitionRecord struct {
		ID            millrace.PartitionID    `json:"id"`
		TableID       millrace.TableID        `json:"table_id"`
		Values        []string                `json:"values"`
		State         millrace.PartitionState `json:"state"`
		Shards        []millrace.ShardID      `json:"shards"`
		CreatedMicros int64                   `json:"created_us"`
		Dropping      bool                    `json:"dropping,omitempty"`
		ExpiredMicros int64                   `json:"expired_us,omitempty"` // when it became expired
		Gone          bool                    `json:"gone,omitempty"`
	}
	purgeRecord struct {
		TableID       millrace.TableID `json:"table_id"`
		Database      string           `json:"database"`
		Name          string           `json:"name"`
		DroppedMicros int64            `json:"dropped_us"`
	}
	grantRecord struct {
		ID            millrace.GrantID    `json:"id"`
		Principal     string              `json:"principal"`
		DatabaseID    millrace.DatabaseID `json:"database_id,omitempty"`
		TableID       millrace.TableID    `json:"table_id,omitempty"`
		Verbs         []string            `json:"verbs"`
		Columns       []millrace.ColumnID `json:"columns,omitempty"`
		CreatedMicros int64               `json:"created_us"`
	}
	quotaRecord struct {
		ID         millrace.QuotaID `json:"id"`
		Principal  string           `json:"principal"`
		WriteRows  int64            `json:"write_rows_per_s,omitempty"`
		WriteBytes int64            `json:"write_bytes_per_s,omitempty"`
		ReadBytes  int64            `json:"read_bytes_per_s,omitempty"`
		Streams    int64            `json:"streams,omitempty"`
	}
	idsRecord struct {
		TableID millrace.TableID `json:"table_id"`
		Next    int64            `json:"next"`
	}
	schemaRecord struct {
		TableID millrace.TableID `json:"table_id"`
		Schema  *millrace.Schema `json:"schema"`
	}
	signingRecord struct {
		Keys []signingKeyRecord `json:"keys"` // newest first
	}
	signingKeyRecord struct {
		ID            uint32 `json:"id"`
		Secret        []byte `json:"secret"` // base64
		CreatedMicros int64  `json:"created_us"`
	}
)

func recordOfTable(t *table) tableRecord {
	r := tableRecord{
		ID: t.ID, DatabaseID: t.DatabaseID, Name: t.Path.Table, Kind: t.Kind, SchemaID: t.Schema.ID,
		PrimaryKey: t.PrimaryKey, PartitionBy: t.PartitionBy, BucketKey: t.BucketKey, Buckets: t.Buckets, Shards: t.Shards,
		Properties: t.Properties, Comment: t.Comment, Version: t.Version, CreatedMicros: t.CreatedAt.UnixMicro(), LastColumnID: t.LastColumnID,
	}
	if !isZero(t.Options) {
		r.Options = &t.Options
	}
	if !t.expired.IsZero() {
		r.ExpiredMicros = t.expired.UnixMicro()
	}
	return r
}

// table is the descriptor that r and its schema describe.
func (r *tableRecord) table(database string, schema *millrace.Schema) (*millrace.Table, error) {
	t := &millrace.Table{
		ID: r.ID, DatabaseID: r.DatabaseID, Path: millrace.TablePath{Database: database, Table: r.Name}, Kind: r.Kind, Schema: schema,
		PrimaryKey: r.PrimaryKey, PartitionBy: r.PartitionBy, BucketKey: r.BucketKey, Buckets: r.Buckets, Shards: r.Shards,
		Properties: r.Properties, Comment: r.Comment, Version: r.Version, CreatedAt: time.UnixMicro(r.CreatedMicros).UTC(), LastColumnID: r.LastColumnID,
	}
	if r.Options != nil {
		t.Options = *r.Options
		return t, nil
	}
	var err error
	t.Options, err = resolveOptions(t)
	return t, err
}

func recordOfPartition(p *millrace.Partition) partitionRecord {
	r := partitionRecord{
		ID: p.ID, TableID: p.Table, Values: p.Values, State: p.State, Shards: p.Shards, CreatedMicros: p.CreatedAt.UnixMicro(),
		Dropping: p.Dropping, Gone: p.Gone,
	}
	if !p.ExpiredAt.IsZero() {
		r.ExpiredMicros = p.ExpiredAt.UnixMicro()
	}
	return r
}

// partition is the partition that r describes, of the table t.
func (r *partitionRecord) partition(t *millrace.Table) *millrace.Partition {
	p := &millrace.Partition{
		ID: r.ID, Table: r.TableID, Name: millrace.PartitionName(t.Names(t.PartitionBy), r.Values), Values: r.Values,
		State: r.State, Shards: r.Shards, CreatedAt: time.UnixMicro(r.CreatedMicros).UTC(), Dropping: r.Dropping, Gone: r.Gone,
	}
	if r.ExpiredMicros != 0 {
		p.ExpiredAt = time.UnixMicro(r.ExpiredMicros).UTC()
	}
	return p
}

func recordOfPurge(p *millrace.Purge) purgeRecord {
	return purgeRecord{TableID: p.Table, Database: p.Path.Database, Name: p.Path.Table, DroppedMicros: p.DroppedAt.UnixMicro()}
}

func (r *purgeRecord) purge() *millrace.Purge {
	return &millrace.Purge{
		Table: r.TableID, Path: millrace.TablePath{Database: r.Database, Table: r.Name}, DroppedAt: time.UnixMicro(r.DroppedMicros).UTC(),
	}
}

func encodeRecord(r any) []byte {
	b, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("catalog: %T does not encode: %v", r, err)) // records hold nothing that can fail
	}
	return b
}

func decodeRecord(e Entry, into any) error {
	if err := json.Unmarshal(e.Value, into); err != nil {
		return corrupt("key %q does not decode: %v", e.Key, err)
	}
	return nil
}

func corrupt(format string, args ...any) *errs.Error {
	return &errs.Error{Code: errs.CorruptData, Op: "catalog.Open", Message: fmt.Sprintf(format, args...)}
}

// A value in the Pebble store, little endian:
//
//	+-------+---------+-------+----------+---------+--------+
//	| magic | version | flags | revision | payload | crc32c |
//	| "MC"  | u8 = 1  | u8 = 0|   u64    |  JSON   |  u32   |
//	+-------+---------+-------+----------+---------+--------+
//
// The checksum covers the key and everything before it, so a value under
// another key is found too.
const (
	valueMagic    = "MC"
	valueVersion  = 1
	valueHeader   = 2 + 1 + 1 + 8
	valueOverhead = valueHeader + 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func valueChecksum(key string, body []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte(key), castagnoli), castagnoli, body)
}

func makeValue(key string, revision uint64, payload []byte) []byte {
	v := make([]byte, 0, valueOverhead+len(payload))
	v = append(v, valueMagic...)
	v = append(v, valueVersion, 0)
	v = binary.LittleEndian.AppendUint64(v, revision)
	v = append(v, payload...)
	return binary.LittleEndian.AppendUint32(v, valueChecksum(key, v))
}

// parseValue returns the revision and the payload, which aliases b.
func parseValue(key string, b []byte) (revision uint64, payload []byte, err error) {
	if len(b) < valueOverhead || string(b[:2]) != valueMagic {
		return 0, nil, corrupt("key %s does not hold a catalog value", strconv.QuoteToASCII(key))
	}
	body, sum := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	if got := valueChecksum(key, body); got != sum {
		return 0, nil, corrupt("key %s has checksum %08x, not %08x", strconv.QuoteToASCII(key), got, sum)
	}
	if v := b[2]; v != valueVersion || b[3] != 0 {
		return 0, nil, newerRelease(fmt.Sprintf("key %s has format version %d and flags %#x", strconv.QuoteToASCII(key), v, b[3]))
	}
	return binary.LittleEndian.Uint64(b[4:]), body[valueHeader:], nil
}

// storedSum is the checksum in a value that parseValue took or makeValue made.
func storedSum(v []byte) uint32 { return binary.LittleEndian.Uint32(v[len(v)-4:]) }

// total sums up a store: how many keys it has, and the sum of the checksums of
// their values. As the payload of a key it is two u64, little endian.
type total struct{ keys, sum uint64 }

func (t total) encode() []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, t.keys), t.sum)
}

func parseTotal(b []byte) (total, error) {
	if len(b) != 16 {
		return total{}, corrupt("key %q has a payload of %d bytes", keyTotal, len(b))
	}
	return total{keys: binary.LittleEndian.Uint64(b), sum: binary.LittleEndian.Uint64(b[8:])}, nil
}

// newerRelease is the error for what is whole but not known here.
func newerRelease(what string) *errs.Error {
	return &errs.Error{Code: errs.NotImplemented, Op: "catalog.Open", Message: what + ": it was written by a newer release; start that one"}
}
