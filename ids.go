package millrace

import (
	"fmt"
	"strconv"
	"strings"
)

// DatabaseID numbers a database; never reused.
type DatabaseID uint32

// TableID numbers a table; never reused, so a re-created table is another one.
type TableID uint32

// SchemaID numbers the versions of one table's schema, from 1.
type SchemaID uint32

// ColumnID numbers a column or nested field within its table, from 1; never reused.
type ColumnID int32

// PartitionID numbers a partition within the cluster; 0 is the only partition of
// an unpartitioned table.
type PartitionID uint32

// ShardID numbers a shard, from 0.
type ShardID uint16

// Epoch is the fencing number of a shard's owner; it only rises.
type Epoch uint64

// LSN is the dense number of a record in a shard's write-ahead log, from 1.
type LSN uint64

// Offset is the position of a record in a bucket, from 0, dense.
// NoOffset stands for rows of keyed state, which have none.
type Offset int64

// NoOffset is the offset of what has none: a row of keyed state.
const NoOffset Offset = -1

// MaxBuckets is the most buckets a partition may have.
const MaxBuckets = 4096

// BucketID names a bucket by numbers.
type BucketID struct {
	Table     TableID
	Partition PartitionID
	Bucket    uint16
}

// String is "table/partition/bucket", for logs.
func (b BucketID) String() string {
	return fmt.Sprintf("%d/%d/%d", b.Table, b.Partition, b.Bucket)
}

// Compare orders buckets by table, partition, bucket.
func (b BucketID) Compare(o BucketID) int {
	switch {
	case b.Table != o.Table:
		return cmpOrder(b.Table < o.Table)
	case b.Partition != o.Partition:
		return cmpOrder(b.Partition < o.Partition)
	case b.Bucket != o.Bucket:
		return cmpOrder(b.Bucket < o.Bucket)
	}
	return 0
}

func cmpOrder(less bool) int {
	if less {
		return -1
	}
	return 1
}

// BucketKey is the outside name of a bucket: "3", or "<partition name>/3".
func BucketKey(partitionName string, bucket uint16) string {
	n := strconv.Itoa(int(bucket))
	if partitionName == "" {
		return n
	}
	return partitionName + "/" + n
}

// ParseBucketKey splits a bucket key into its partition name ("" when there is
// none) and bucket number.
func ParseBucketKey(s string) (partitionName string, bucket uint16, err error) {
	num := s
	if i := strings.LastIndexByte(s, '/'); i >= 0 {
		partitionName, num = s[:i], s[i+1:]
	}
	n, err := strconv.ParseUint(num, 10, 16)
	if err != nil || n >= MaxBuckets || strconv.FormatUint(n, 10) != num {
		return "", 0, fmt.Errorf("%q is not a bucket key such as \"3\" or \"dt=2026-08-26/3\"", s)
	}
	return partitionName, uint16(n), nil
}

// ChangeType says what a changelog record did.
type ChangeType uint8

// The change types; the numbers are in files and on the wire.
const (
	Insert       ChangeType = 0 // +I
	UpdateBefore ChangeType = 1 // -U
	UpdateAfter  ChangeType = 2 // +U
	Delete       ChangeType = 3 // -D
)

// String is the two-character form: +I, -U, +U, -D.
func (c ChangeType) String() string {
	switch c {
	case Insert:
		return "+I"
	case UpdateBefore:
		return "-U"
	case UpdateAfter:
		return "+U"
	case Delete:
		return "-D"
	}
	return fmt.Sprintf("ChangeType(%d)", uint8(c))
}

// ParseChangeType reads the two-character form.
func ParseChangeType(s string) (ChangeType, error) {
	switch s {
	case "+I":
		return Insert, nil
	case "-U":
		return UpdateBefore, nil
	case "+U":
		return UpdateAfter, nil
	case "-D":
		return Delete, nil
	}
	return 0, fmt.Errorf("%q is not a change type: one of +I, -U, +U, -D", s)
}
