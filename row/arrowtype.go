package row

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"

	millrace "github.com/millrace/millrace"
)

// Metadata keys of Arrow schemas and fields.
const (
	MetaTable       = "millrace.table"
	MetaTableID     = "millrace.table_id"
	MetaSchemaID    = "millrace.schema_id"
	MetaKind        = "millrace.kind"
	MetaPrimaryKey  = "millrace.primary_key"
	MetaPartitionBy = "millrace.partition_by"
	MetaBucketKey   = "millrace.bucket_key"
	MetaBuckets     = "millrace.buckets"
	MetaType        = "millrace.type"
	MetaFieldID     = "PARQUET:field_id"
)

// ArrowType is the one Arrow type in which values of t are held and sent.
func ArrowType(t millrace.DataType) arrow.DataType {
	switch t.Kind {
	case millrace.Boolean:
		return arrow.FixedWidthTypes.Boolean
	case millrace.TinyInt:
		return arrow.PrimitiveTypes.Int8
	case millrace.SmallInt:
		return arrow.PrimitiveTypes.Int16
	case millrace.Int:
		return arrow.PrimitiveTypes.Int32
	case millrace.BigInt:
		return arrow.PrimitiveTypes.Int64
	case millrace.Float:
		return arrow.PrimitiveTypes.Float32
	case millrace.Double:
		return arrow.PrimitiveTypes.Float64
	case millrace.Decimal:
		return &arrow.Decimal128Type{Precision: int32(t.Precision), Scale: int32(t.Scale)}
	case millrace.Char, millrace.String:
		return arrow.BinaryTypes.String
	case millrace.Binary:
		return &arrow.FixedSizeBinaryType{ByteWidth: t.Length}
	case millrace.Bytes:
		return arrow.BinaryTypes.Binary
	case millrace.Date:
		return arrow.FixedWidthTypes.Date32
	case millrace.Time:
		switch {
		case t.Precision <= 3:
			return arrow.FixedWidthTypes.Time32ms
		case t.Precision <= 6:
			return arrow.FixedWidthTypes.Time64us
		}
		return arrow.FixedWidthTypes.Time64ns
	case millrace.Timestamp:
		return &arrow.TimestampType{Unit: timeUnit(t.Precision)}
	case millrace.TimestampLTZ:
		return &arrow.TimestampType{Unit: timeUnit(t.Precision), TimeZone: "UTC"}
	case millrace.Array:
		return arrow.ListOfField(arrowField(t.Children[0]))
	case millrace.Map:
		k, v := arrowField(t.Children[0]), arrowField(t.Children[1])
		return arrow.MapOfFields(k, v)
	case millrace.Row:
		fs := make([]arrow.Field, len(t.Children))
		for i, c := range t.Children {
			fs[i] = arrowField(c)
		}
		return arrow.StructOf(fs...)
	}
	panic(fmt.Sprintf("row: no Arrow type for %v", t.Kind))
}

func timeUnit(precision int) arrow.TimeUnit {
	switch {
	case precision == 0:
		return arrow.Second
	case precision <= 3:
		return arrow.Millisecond
	case precision <= 6:
		return arrow.Microsecond
	}
	return arrow.Nanosecond
}

func arrowField(c millrace.Column) arrow.Field {
	return arrow.Field{Name: c.Name, Type: ArrowType(c.Type), Nullable: c.Nullable, Metadata: fieldMetadata(c)}
}

func fieldMetadata(c millrace.Column) arrow.Metadata {
	keys, vals := []string{MetaType}, []string{c.Type.String()}
	if c.ID != 0 {
		keys, vals = append(keys, MetaFieldID), append(vals, strconv.Itoa(int(c.ID)))
	}
	return arrow.NewMetadata(keys, vals)
}

// ArrowField is the Arrow field of a column, with its metadata.
func ArrowField(c millrace.Column) arrow.Field { return arrowField(c) }

// ArrowSchema is the Arrow schema of the given columns, without table metadata.
func ArrowSchema(cols []millrace.Column) *arrow.Schema {
	fs := make([]arrow.Field, len(cols))
	for i, c := range cols {
		fs[i] = arrowField(c)
	}
	return arrow.NewSchema(fs, nil)
}

// TableArrowSchema is the Arrow schema of some columns read from a table, with
// the metadata that clients expect.
func TableArrowSchema(t *millrace.Table, cols []millrace.Column) *arrow.Schema {
	list := func(ids []millrace.ColumnID) string {
		b, err := json.Marshal(t.Names(ids))
		if err != nil {
			panic(err) // a list of strings always encodes
		}
		return string(b)
	}
	md := arrow.NewMetadata(
		[]string{MetaTable, MetaTableID, MetaSchemaID, MetaKind, MetaPrimaryKey, MetaPartitionBy, MetaBucketKey, MetaBuckets},
		[]string{
			t.Path.String(), strconv.Itoa(int(t.ID)), strconv.Itoa(int(t.Schema.ID)), string(t.Kind),
			list(t.PrimaryKey), list(t.PartitionBy), list(t.BucketKey), strconv.Itoa(t.Buckets),
		})
	fs := ArrowSchema(cols).Fields()
	return arrow.NewSchema(fs, &md)
}
