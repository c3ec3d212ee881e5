package iceberg

import (
	"encoding/binary"
	"math"
	"math/big"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/arrow-go/v18/parquet/schema"
	ice "github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/table"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/filter"
	"github.com/millrace/millrace/row"
)

// unknown stands for a number that statistics do not say.
const unknown = -1

// newStats are statistics without bounds. What is not known counts as one more row
// that may be NULL or NaN, so that nothing follows from it.
func newStats(t millrace.DataType, rows, nulls, nans int64) filter.Stats {
	st := filter.Stats{Rows: rows, Nulls: nulls, NaNs: nans}
	if t.Kind != millrace.Float && t.Kind != millrace.Double {
		st.NaNs = 0
	}
	if st.Nulls == unknown {
		st.Rows, st.Nulls = st.Rows+1, 1
	}
	if st.NaNs == unknown {
		st.Rows, st.NaNs = st.Rows+1, 1
	}
	return st
}

// setBounds adds bounds in Iceberg's single-value serialisation, whose type may be
// narrower than t by now; what cannot be read is no bound.
func setBounds(st *filter.Stats, t millrace.DataType, lower, upper []byte) {
	st.Min, st.HasMin = icebergBound(t, lower)
	st.Max, st.HasMax = icebergBound(t, upper)
}

// icebergBound reads a bound of Iceberg's metadata as one of a column of type t.
func icebergBound(t millrace.DataType, b []byte) (filter.Bound, bool) {
	switch t.Kind {
	case millrace.Char, millrace.String, millrace.Bytes, millrace.Binary:
		return filter.Bound{Bytes: b}, b != nil
	case millrace.Decimal:
		return bigEndianDecimal(b)
	case millrace.Boolean:
		if len(b) != 1 {
			return filter.Bound{}, false
		}
		return filter.Bound{Int: int64(min(b[0], 1))}, true
	case millrace.Time, millrace.Timestamp, millrace.TimestampLTZ:
		v, ok := littleEndianInt(b)
		return filter.Bound{Int: inUnit(v, 1e6, t)}, ok
	case millrace.Float, millrace.Double:
		return littleEndianFloat(b)
	default: // integers and dates
		v, ok := littleEndianInt(b)
		return filter.Bound{Int: v}, ok
	}
}

func littleEndianInt(b []byte) (int64, bool) {
	switch len(b) {
	case 4:
		return int64(int32(binary.LittleEndian.Uint32(b))), true
	case 8:
		return int64(binary.LittleEndian.Uint64(b)), true
	}
	return 0, false
}

// littleEndianFloat reads a float or double; NaN is no bound.
func littleEndianFloat(b []byte) (filter.Bound, bool) {
	var v float64
	switch len(b) {
	case 4:
		v = float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case 8:
		v = math.Float64frombits(binary.LittleEndian.Uint64(b))
	default:
		return filter.Bound{}, false
	}
	return filter.Bound{Float: v}, !math.IsNaN(v)
}

func bigEndianDecimal(b []byte) (filter.Bound, bool) {
	if len(b) == 0 || len(b) > arrowDecimalBytes {
		return filter.Bound{}, false
	}
	v := new(big.Int).SetBytes(b)
	if b[0]&0x80 != 0 {
		v.Sub(v, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	return filter.Bound{Dec: decimal128.FromBigInt(v)}, true
}

const arrowDecimalBytes = 16

// inUnit is a time or timestamp in the unit of t's Arrow type, of which from are a second.
func inUnit(v, from int64, t millrace.DataType) int64 {
	to := perSecond(row.ArrowType(t))
	if from >= to {
		return floorDiv(v, from/to)
	}
	if w := v * (to / from); w/(to/from) == v {
		return w
	}
	if v < 0 {
		return math.MinInt64
	}
	return math.MaxInt64
}

// groupStats are the statistics of a leaf in a row group as those of a column of
// type t; false when there are none that we trust.
func groupStats(md *metadata.FileMetaData, group, leaf int, t millrace.DataType) (filter.Stats, bool) {
	c, err := md.RowGroup(group).ColumnChunk(leaf)
	if err != nil {
		return filter.Stats{}, false
	}
	if ts, err := c.Statistics(); err != nil || ts == nil {
		return filter.Stats{}, false // absent, or by a writer that is known to write wrong ones
	}
	raw, known := md.RowGroups[group].Columns[leaf].MetaData.Statistics, int64(unknown)
	if raw.IsSetNullCount() {
		known = raw.GetNullCount()
	}
	st := newStats(t, md.RowGroups[group].NumRows, known, unknown)
	// What arrow-go makes of them has both bounds or none: of a file with one, the other
	// would be a zero.
	if d := md.Schema.Column(leaf); d.ColumnOrder() == parquet.ColumnOrders.TypeDefinedOrder {
		if raw.IsSetMinValue() {
			st.Min, st.HasMin = parquetBound(d, t, raw.GetMinValue())
		}
		if raw.IsSetMaxValue() {
			st.Max, st.HasMax = parquetBound(d, t, raw.GetMaxValue())
		}
	}
	return st, true
}

// boundless are the properties that keep columns of a file without bounds in its
// manifest: those with values in a row group whose statistics lack a bound, since it is
// too long. iceberg-go would take an empty text for it, or forget about the group.
func boundless(md *metadata.FileMetaData, s *ice.Schema) ice.Properties {
	out := ice.Properties{}
	for leaf := range md.Schema.NumColumns() {
		id := int(md.Schema.Column(leaf).SchemaNode().FieldID())
		name, ok := s.FindColumnName(id)
		for g := range md.RowGroups {
			c := md.RowGroups[g].Columns[leaf].MetaData
			st := c.Statistics
			if ok && st != nil && c.NumValues > st.GetNullCount() && (!st.IsSetMinValue() || !st.IsSetMaxValue()) {
				out[table.MetricsModeColumnConfPrefix+"."+name] = "counts"
			}
		}
	}
	return out
}

// parquetBound reads a bound in Parquet's plain encoding as one of a column of type t.
func parquetBound(d *schema.Column, t millrace.DataType, b []byte) (filter.Bound, bool) {
	switch physical := d.PhysicalType(); t.Kind {
	case millrace.Char, millrace.String, millrace.Bytes, millrace.Binary:
		return filter.Bound{Bytes: b}, physical == parquet.Types.ByteArray || physical == parquet.Types.FixedLenByteArray
	case millrace.Decimal:
		if physical == parquet.Types.FixedLenByteArray || physical == parquet.Types.ByteArray {
			return bigEndianDecimal(b)
		}
		v, ok := littleEndianInt(b)
		return filter.Bound{Dec: decimal128.FromI64(v)}, ok
	case millrace.Boolean:
		return icebergBound(t, b)
	case millrace.Time, millrace.Timestamp, millrace.TimestampLTZ:
		v, ok := littleEndianInt(b)
		unit := parquetUnit(d.LogicalType())
		if !ok || unit == 0 {
			return filter.Bound{}, false
		}
		return filter.Bound{Int: inUnit(v, unit, t)}, true
	case millrace.Float, millrace.Double:
		return littleEndianFloat(b)
	default: // integers and dates
		v, ok := littleEndianInt(b)
		return filter.Bound{Int: v}, ok && (physical == parquet.Types.Int32 || physical == parquet.Types.Int64)
	}
}

// parquetUnit is how many units of a time or timestamp are a second; 0: it is neither.
func parquetUnit(l schema.LogicalType) int64 {
	var unit schema.TimeUnitType
	switch l := l.(type) {
	case schema.TimestampLogicalType:
		unit = l.TimeUnit()
	case schema.TimeLogicalType:
		unit = l.TimeUnit()
	default:
		return 0
	}
	switch unit {
	case schema.TimeUnitMillis:
		return 1e3
	case schema.TimeUnitMicros:
		return 1e6
	case schema.TimeUnitNanos:
		return 1e9
	default:
		return 0
	}
}
