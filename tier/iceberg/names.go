package iceberg

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"path"
	"regexp"
	"strconv"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/lake"
)

// ours matches the names of the Parquet files that we write:
// p<partition id>[-b<bucket>]-r<round>-<random>[-deletes].parquet.
var ours = regexp.MustCompile(`^p(\d+)(?:-b(\d+))?-r\d+-[0-9a-f]{16}(-deletes)?\.parquet$`)

// dataName is a new name of a data file of a slice.
func dataName(s lake.Slice, round int64) string { return fileName(s, round, "") }

// deletesName is a new name of a file of position deletes of a slice.
func deletesName(s lake.Slice, round int64) string { return fileName(s, round, "-deletes") }

func fileName(s lake.Slice, round int64, kind string) string {
	var partition millrace.PartitionID
	if s.Partition != nil {
		partition = s.Partition.ID
	}
	bucket := ""
	if s.Bucket != lake.NoBucket {
		bucket = fmt.Sprintf("-b%d", s.Bucket)
	}
	var random [8]byte
	_, _ = rand.Read(random[:]) // which never fails
	return fmt.Sprintf("p%d%s-r%d-%s%s.parquet", partition, bucket, round, hex.EncodeToString(random[:]), kind)
}

// partitionOfName is the partition id that the name of a file of ours says; 0 when it
// says none.
func partitionOfName(file string) millrace.PartitionID {
	if m := ours.FindStringSubmatch(path.Base(file)); m != nil {
		if id, err := strconv.ParseUint(m[1], 10, 32); err == nil {
			return millrace.PartitionID(id)
		}
	}
	return 0
}

// bucketOfName is the bucket that the name of a file of ours says; lake.NoBucket when
// it says none.
func bucketOfName(file string) int {
	if m := ours.FindStringSubmatch(path.Base(file)); m != nil && m[2] != "" {
		if b, err := strconv.ParseUint(m[2], 10, 16); err == nil && b < millrace.MaxBuckets {
			return int(b)
		}
	}
	return lake.NoBucket
}
