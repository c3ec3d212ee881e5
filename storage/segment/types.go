package segment

import (
	"github.com/apache/arrow-go/v18/arrow"

	millrace "github.com/millrace/millrace"
)

// holds says whether dt is the Arrow type of t, as row.ArrowType would make it,
// names and nullability aside.
func holds(dt arrow.DataType, t *millrace.DataType) bool {
	switch dt := dt.(type) {
	case *arrow.BooleanType:
		return t.Kind == millrace.Boolean
	case *arrow.Int8Type:
		return t.Kind == millrace.TinyInt
	case *arrow.Int16Type:
		return t.Kind == millrace.SmallInt
	case *arrow.Int32Type:
		return t.Kind == millrace.Int
	case *arrow.Int64Type:
		return t.Kind == millrace.BigInt
	case *arrow.Float32Type:
		return t.Kind == millrace.Float
	case *arrow.Float64Type:
		return t.Kind == millrace.Double
	case *arrow.Decimal128Type:
		return t.Kind == millrace.Decimal && int(dt.Precision) == t.Precision && int(dt.Scale) == t.Scale
	case *arrow.StringType:
		return t.Kind == millrace.Char || t.Kind == millrace.String
	case *arrow.BinaryType:
		return t.Kind == millrace.Bytes
	case *arrow.FixedSizeBinaryType:
		return t.Kind == millrace.Binary && dt.ByteWidth == t.Length
	case *arrow.Date32Type:
		return t.Kind == millrace.Date
	case *arrow.Time32Type:
		return t.Kind == millrace.Time && t.Precision <= 3 && dt.Unit == arrow.Millisecond
	case *arrow.Time64Type:
		return t.Kind == millrace.Time && t.Precision > 3 && dt.Unit == unitOf(t)
	case *arrow.TimestampType:
		zone := ""
		if t.Kind == millrace.TimestampLTZ {
			zone = "UTC"
		}
		return (t.Kind == millrace.Timestamp || t.Kind == millrace.TimestampLTZ) && dt.Unit == unitOf(t) && dt.TimeZone == zone
	case *arrow.ListType:
		return t.Kind == millrace.Array && holds(dt.Elem(), &t.Children[0].Type)
	case *arrow.MapType:
		return t.Kind == millrace.Map && holds(dt.KeyType(), &t.Children[0].Type) && holds(dt.ItemType(), &t.Children[1].Type)
	case *arrow.StructType:
		if t.Kind != millrace.Row || dt.NumFields() != len(t.Children) {
			return false
		}
		for i := range t.Children {
			if !holds(dt.Field(i).Type, &t.Children[i].Type) {
				return false
			}
		}
		return true
	}
	return false
}

// unitOf is the Arrow unit of a TIME or TIMESTAMP.
func unitOf(t *millrace.DataType) arrow.TimeUnit {
	switch {
	case t.Precision == 0 && t.Kind != millrace.Time:
		return arrow.Second
	case t.Precision <= 3:
		return arrow.Millisecond
	case t.Precision <= 6:
		return arrow.Microsecond
	}
	return arrow.Nanosecond
}

// sameLayout says whether values of type a are, byte for byte, values of type b.
func sameLayout(a, b *millrace.DataType) bool {
	switch {
	case a.Kind == millrace.Char && b.Kind == millrace.String || a.Kind == millrace.String && b.Kind == millrace.Char:
		return true
	case a.Kind != b.Kind:
		return false
	}
	switch a.Kind {
	case millrace.Decimal:
		// A wider precision is the same number in the same 16 bytes.
		return a.Scale == b.Scale && a.Precision <= b.Precision
	case millrace.Binary:
		return a.Length == b.Length
	case millrace.Time, millrace.Timestamp, millrace.TimestampLTZ:
		return unitOf(a) == unitOf(b)
	case millrace.Array, millrace.Map, millrace.Row:
		if len(a.Children) != len(b.Children) {
			return false
		}
		for i := range a.Children {
			if a.Kind == millrace.Row && fieldOf(a, b, i) != i || !sameLayout(&a.Children[i].Type, &b.Children[i].Type) {
				return false
			}
		}
	default:
		// A kind without parameters has one layout.
	}
	return true
}

// fieldOf is which field of the ROW type stored holds field i of the ROW type want;
// -1 when none does. Fields are matched by id, or by position in types that were only
// parsed and have no ids.
func fieldOf(stored, want *millrace.DataType, i int) int {
	id := want.Children[i].ID
	if id == 0 {
		if i < len(stored.Children) {
			return i
		}
		return -1
	}
	for j := range stored.Children {
		if stored.Children[j].ID == id {
			return j
		}
	}
	return -1
}

// nullBytes is about how much a column of n NULLs takes.
func nullBytes(t *millrace.DataType, n int) int {
	width := 8
	switch t.Kind {
	case millrace.Binary:
		width = t.Length
	case millrace.Decimal:
		width = 16
	case millrace.Row:
		for i := range t.Children {
			width += nullBytes(&t.Children[i].Type, 1)
		}
	default:
		// No other kind takes more for a NULL.
	}
	return n * width
}
