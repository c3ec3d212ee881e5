package iceberg

import (
	"testing"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/lake"
)

// Names that we make are known as ours, and say their bucket; others say nothing.
func TestNames(t *testing.T) {
	p := &millrace.Partition{ID: 7}
	for _, name := range []string{dataName(lake.Slice{Partition: p, Bucket: 3}, 12), deletesName(lake.Slice{Partition: p, Bucket: 3}, 12)} {
		require.Regexp(t, `^p7-b3-r12-[0-9a-f]{16}(-deletes)?\.parquet$`, name)
		require.True(t, isSealed("1/2/data/"+name))
		require.Equal(t, 3, bucketOfName("mem://lake/1/2/data/"+name))
	}
	several := dataName(lake.Slice{Bucket: lake.NoBucket}, 12)
	require.True(t, isSealed(several))
	require.Equal(t, lake.NoBucket, bucketOfName(several))
	for _, foreign := range []string{"00000-0-8f3c.parquet", "p7-b3-r12-0123456789abcdef.parquet.crc", "p7-b4096-r1-0123456789abcdef.parquet", "x-p7-b3-r12-0123456789abcdef.parquet"} {
		require.Equal(t, lake.NoBucket, bucketOfName(foreign), foreign)
	}
}
