package iceberg

import (
	ice "github.com/apache/iceberg-go"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// maxPrecision is that of times and timestamps in format version 2: microseconds.
const maxPrecision = 6

// Type is the Iceberg type of a column's type, with our ids on nested fields;
// errs.UnsupportedByLake when format version 2 has none.
func Type(t millrace.DataType) (ice.Type, error) {
	switch t.Kind {
	case millrace.Boolean:
		return ice.PrimitiveTypes.Bool, nil
	case millrace.TinyInt, millrace.SmallInt, millrace.Int:
		return ice.PrimitiveTypes.Int32, nil
	case millrace.BigInt:
		return ice.PrimitiveTypes.Int64, nil
	case millrace.Float:
		return ice.PrimitiveTypes.Float32, nil
	case millrace.Double:
		return ice.PrimitiveTypes.Float64, nil
	case millrace.Decimal:
		return ice.DecimalTypeOf(t.Precision, t.Scale), nil
	case millrace.Char, millrace.String:
		return ice.PrimitiveTypes.String, nil
	case millrace.Binary:
		return ice.FixedTypeOf(t.Length), nil
	case millrace.Bytes:
		return ice.PrimitiveTypes.Binary, nil
	case millrace.Date:
		return ice.PrimitiveTypes.Date, nil
	case millrace.Time, millrace.Timestamp, millrace.TimestampLTZ:
		if t.Precision > maxPrecision {
			return nil, errs.New(errs.UnsupportedByLake, "%s has more than microseconds, which Iceberg's format 2 cannot hold: use a precision of at most %d", t, maxPrecision)
		}
		switch t.Kind {
		case millrace.Time:
			return ice.PrimitiveTypes.Time, nil
		case millrace.Timestamp:
			return ice.PrimitiveTypes.Timestamp, nil
		default:
			return ice.PrimitiveTypes.TimestampTz, nil
		}
	case millrace.Array:
		e := t.Children[0]
		et, err := Type(e.Type)
		if err != nil {
			return nil, err
		}
		return &ice.ListType{ElementID: int(e.ID), Element: et, ElementRequired: !e.Nullable}, nil
	case millrace.Map:
		k, v := t.Children[0], t.Children[1]
		kt, err := Type(k.Type)
		if err != nil {
			return nil, err
		}
		vt, err := Type(v.Type)
		if err != nil {
			return nil, err
		}
		return &ice.MapType{KeyID: int(k.ID), KeyType: kt, ValueID: int(v.ID), ValueType: vt, ValueRequired: !v.Nullable}, nil
	case millrace.Row:
		fields, err := nestedFields(t.Children)
		if err != nil {
			return nil, err
		}
		return &ice.StructType{FieldList: fields}, nil
	}
	return nil, errs.New(errs.UnsupportedByLake, "Iceberg has no type for %s", t)
}

// nestedFields are the Iceberg fields of columns.
func nestedFields(cols []millrace.Column) ([]ice.NestedField, error) {
	out := make([]ice.NestedField, len(cols))
	for i, c := range cols {
		t, err := Type(c.Type)
		if err != nil {
			return nil, err
		}
		out[i] = ice.NestedField{ID: int(c.ID), Name: c.Name, Type: t, Required: !c.Nullable, Doc: c.Comment}
	}
	return out, nil
}
