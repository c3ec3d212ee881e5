package iceberg

import (
	"slices"

	ice "github.com/apache/iceberg-go"

	millrace "github.com/millrace/millrace"
)

// System columns of lake tables, whose ids are far above those of columns of ours
// and below those that Iceberg reserves.
const (
	bucketFieldID    = 2_000_000_001
	offsetFieldID    = 2_000_000_002
	timestampFieldID = 2_000_000_003
)

// systemColumns are __bucket, __offset and __timestamp, in the order in which
// lake.Appender gets them.
var systemColumns = []millrace.Column{
	{ID: bucketFieldID, Name: "__bucket", Type: millrace.DataType{Kind: millrace.Int}, Nullable: true},
	{ID: offsetFieldID, Name: "__offset", Type: millrace.DataType{Kind: millrace.BigInt}, Nullable: true},
	{ID: timestampFieldID, Name: "__timestamp", Type: millrace.DataType{Kind: millrace.TimestampLTZ, Precision: maxPrecision}, Nullable: true},
}

// lakeColumns are the columns of a table's lake table.
func lakeColumns(t *millrace.Table) []millrace.Column {
	if t.Options.Lake != nil && t.Options.Lake.SystemColumns {
		return slices.Concat(t.Schema.Columns, systemColumns)
	}
	return t.Schema.Columns
}

// schemaOf is the Iceberg schema of a table: our column ids, NOT NULL as required,
// the primary key as identifier.
func schemaOf(t *millrace.Table) (*ice.Schema, error) {
	fields, err := nestedFields(lakeColumns(t))
	if err != nil {
		return nil, err
	}
	ids := make([]int, 0, len(t.PrimaryKey))
	for _, id := range t.PrimaryKey {
		ids = append(ids, int(id))
	}
	return ice.NewSchemaWithIdentifiers(0, ids, fields...), nil
}

// bucketField is the name of the partition field of buckets; columns of ours cannot
// begin with "__".
const bucketField = "__lake_bucket"

// byBucket is the column whose bucket transform is the table's bucket; nil when the
// lake table is not partitioned by bucket.
func byBucket(t *millrace.Table) *millrace.Column {
	if len(t.BucketKey) != 1 || t.Buckets < 2 {
		return nil
	}
	return &t.Columns(t.BucketKey)[0]
}

// specOf is the partition spec of a table: the partition columns, then the bucket.
func specOf(t *millrace.Table) ice.PartitionSpec {
	var fields []ice.PartitionField
	add := func(c *millrace.Column, name string, tr ice.Transform) {
		fields = append(fields, ice.PartitionField{SourceIDs: []int{int(c.ID)}, FieldID: ice.PartitionDataIDStart + len(fields), Name: name, Transform: tr})
	}
	for _, c := range t.Columns(t.PartitionBy) {
		add(&c, c.Name, ice.IdentityTransform{})
	}
	if c := byBucket(t); c != nil {
		add(c, bucketField, ice.BucketTransform{NumBuckets: t.Buckets})
	}
	return ice.NewPartitionSpec(fields...)
}
