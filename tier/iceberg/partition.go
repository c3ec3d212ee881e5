package iceberg

import (
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
	ice "github.com/apache/iceberg-go"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/row/jsonrow"
)

// partitionValues are the values of a slice's partition tuple, by the ids of the fields
// of the table's spec.
func partitionValues(t *millrace.Table, spec *ice.PartitionSpec, s lake.Slice) (map[int]any, error) {
	out := make(map[int]any, spec.NumFields())
	if t.Partitioned() {
		if s.Partition == nil {
			return nil, errs.New(errs.Internal, "table %s is partitioned, yet rows for its lake table have no partition", t.Path)
		}
		rows, err := partitionRow(t, s.Partition.Values)
		if err != nil {
			return nil, err
		}
		defer rows.Release()
		for i, c := range t.Columns(t.PartitionBy) {
			out[spec.Field(i).FieldID] = icebergValue(c.Type, rows.Record.Column(i))
		}
	}
	if byBucket(t) != nil {
		if s.Bucket == lake.NoBucket {
			return nil, errs.New(errs.Internal, "the lake table of table %s is partitioned by bucket, yet rows for it have no bucket", t.Path)
		}
		out[spec.Field(spec.NumFields()-1).FieldID] = int32(s.Bucket)
	}
	return out, nil
}

// partitionRow reads the canonical texts of a partition's values as a row of one.
func partitionRow(t *millrace.Table, texts []string) (row.Rows, error) {
	d := jsonrow.NewDecoder(t.Columns(t.PartitionBy), jsonrow.Options{})
	if len(texts) != len(t.PartitionBy) {
		return row.Rows{}, errs.New(errs.Internal, "a partition of table %s has %d values", t.Path, len(texts))
	}
	if err := d.AddObject(jsonrow.AppendPartitionObject(nil, t, texts), 0); err != nil {
		return row.Rows{}, errs.New(errs.Internal, "partition %q of table %s: %v", texts, t.Path, err)
	}
	return d.Finish(), nil
}

// icebergValue is value 0 of an array as manifests hold values of a column's type.
func icebergValue(t millrace.DataType, arr arrow.Array) any {
	switch a := arr.(type) {
	case *array.Boolean:
		return a.Value(0)
	case *array.Int8:
		return int32(a.Value(0))
	case *array.Int16:
		return int32(a.Value(0))
	case *array.Int32:
		return a.Value(0)
	case *array.Int64:
		return a.Value(0)
	case *array.Decimal128:
		return ice.Decimal{Val: a.Value(0), Scale: t.Scale}
	case *array.String:
		return strings.Clone(a.Value(0))
	case *array.FixedSizeBinary:
		return append([]byte(nil), a.Value(0)...)
	case *array.Binary:
		return append([]byte(nil), a.Value(0)...)
	case *array.Date32:
		return ice.Date(a.Value(0))
	case *array.Time32:
		return ice.Time(int64(a.Value(0)) * 1000)
	case *array.Time64:
		return ice.Time(a.Value(0))
	case *array.Timestamp:
		unit := arr.DataType().(*arrow.TimestampType).Unit
		return ice.Timestamp(int64(a.Value(0)) * int64(unit.Multiplier()/arrow.Microsecond.Multiplier()))
	}
	panic(fmt.Sprintf("iceberg: a partition column of Arrow type %s", arr.DataType()))
}

// partitionTexts are the canonical texts of the values of a file's partition, as
// millrace.Partition has them; nil on a table without partitions.
func partitionTexts(t *millrace.Table, spec *ice.PartitionSpec, values map[int]any) ([]string, error) {
	var out []string
	for _, c := range t.Columns(t.PartitionBy) {
		fields := spec.FieldsBySourceID(int(c.ID))
		if len(fields) == 0 {
			return nil, errs.New(errs.CorruptData, "a file in the lake table of table %s is not partitioned by column %s", t.Path, c.Name)
		}
		text, err := partitionText(c, values[fields[0].FieldID])
		if err != nil {
			return nil, errs.New(errs.CorruptData, "a file in the lake table of table %s: %v", t.Path, err)
		}
		out = append(out, text)
	}
	return out, nil
}

// partitionText is the canonical text of a value that a manifest holds.
func partitionText(c millrace.Column, v any) (string, error) {
	b := array.NewBuilder(memory.DefaultAllocator, row.ArrowType(c.Type))
	defer b.Release()
	ok := false
	switch b := b.(type) {
	case *array.BooleanBuilder:
		ok = appendAs(v, b.Append)
	case *array.Int8Builder:
		ok = appendInt(v, func(n int64) { b.Append(int8(n)) })
	case *array.Int16Builder:
		ok = appendInt(v, func(n int64) { b.Append(int16(n)) })
	case *array.Int32Builder:
		ok = appendInt(v, func(n int64) { b.Append(int32(n)) })
	case *array.Int64Builder:
		ok = appendInt(v, b.Append)
	case *array.Decimal128Builder:
		ok = appendAs(v, func(d ice.Decimal) { b.Append(d.Val) }) || appendAs(v, func(d ice.DecimalLiteral) { b.Append(d.Val) }) ||
			appendAs(v, func(d decimal128.Num) { b.Append(d) })
	case *array.StringBuilder:
		ok = appendAs(v, b.Append)
	case *array.FixedSizeBinaryBuilder:
		ok = appendAs(v, b.Append)
	case *array.BinaryBuilder:
		ok = appendAs(v, b.Append)
	case *array.Date32Builder:
		ok = appendInt(v, func(n int64) { b.Append(arrow.Date32(n)) })
	case *array.Time32Builder:
		ok = appendInt(v, func(n int64) { b.Append(arrow.Time32(n / 1000)) })
	case *array.Time64Builder:
		ok = appendInt(v, func(n int64) { b.Append(arrow.Time64(n)) })
	case *array.TimestampBuilder:
		per := int64(b.Type().(*arrow.TimestampType).Unit.Multiplier() / arrow.Microsecond.Multiplier())
		ok = appendInt(v, func(n int64) { b.Append(arrow.Timestamp(n / per)) })
	}
	if !ok {
		return "", fmt.Errorf("its value of partition column %s is %T(%v), not a %s", c.Name, v, v, c.Type)
	}
	arr := b.NewArray()
	defer arr.Release()
	return string(jsonrow.AppendPartitionText(nil, c.Type, arr, 0)), nil
}

// appendAs appends v if it is of the type that is appended.
func appendAs[T any](v any, add func(T)) bool {
	x, ok := v.(T)
	if ok {
		add(x)
	}
	return ok
}

// appendInt appends v if it is one of the types that are integers in manifests.
func appendInt(v any, add func(int64)) bool {
	switch v := v.(type) {
	case int32:
		add(int64(v))
	case int64:
		add(v)
	case int:
		add(int64(v))
	case ice.Date:
		add(int64(v))
	case ice.Time:
		add(int64(v))
	case ice.Timestamp:
		add(int64(v))
	default:
		return false
	}
	return true
}

// inSlice says whether a file holds rows of a slice: of a partition with these values, and
// of a bucket, as the file's partition tuple or else its name says it.
func (r *round) inSlice(f ice.DataFile, spec *ice.PartitionSpec, values []string, bucket int) (bool, error) {
	texts, err := partitionTexts(r.desc, spec, f.Partition())
	if err != nil || !slices.Equal(texts, values) {
		return false, err
	}
	return bucket == lake.NoBucket || bucketOf(r.desc, spec, f) == bucket, nil
}

// bucketOf is the bucket that all rows of a file are of; lake.NoBucket when there is no
// such one.
func bucketOf(t *millrace.Table, spec *ice.PartitionSpec, f ice.DataFile) int {
	if c := byBucket(t); c != nil {
		for _, field := range spec.FieldsBySourceID(int(c.ID)) {
			if tr, ok := field.Transform.(ice.BucketTransform); ok && tr.NumBuckets == t.Buckets {
				if n, ok := f.Partition()[field.FieldID].(int32); ok {
					return int(n)
				}
			}
		}
	}
	return bucketOfName(f.FilePath())
}
