package iceberg

import (
	"math"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/filter"
)

// Bounds of Iceberg's metadata, spelled by hand as its specification serialises single
// values, mean what our columns hold: in their units, of their width by now.
func TestIcebergBounds(t *testing.T) {
	le := func(b ...byte) []byte { return b }
	for _, c := range []struct {
		typ  string
		raw  []byte
		want filter.Bound
		none bool
	}{
		{typ: "BOOLEAN", raw: le(1), want: filter.Bound{Int: 1}},
		{typ: "TINYINT", raw: le(0xfe, 0xff, 0xff, 0xff), want: filter.Bound{Int: -2}},
		{typ: "BIGINT", raw: le(0xfe, 0xff, 0xff, 0xff), want: filter.Bound{Int: -2}}, // was INT
		{typ: "BIGINT", raw: le(1, 0, 0, 0, 0, 0, 0, 0x80), want: filter.Bound{Int: math.MinInt64 + 1}},
		{typ: "DATE", raw: le(0xff, 0xff, 0xff, 0xff), want: filter.Bound{Int: -1}},
		{typ: "TIME(6)", raw: le(0x40, 0x42, 0x0f, 0, 0, 0, 0, 0), want: filter.Bound{Int: 1_000_000}},
		{typ: "TIME(3)", raw: le(0x40, 0x42, 0x0f, 0, 0, 0, 0, 0), want: filter.Bound{Int: 1000}},
		{typ: "TIMESTAMP(0)", raw: le(0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), want: filter.Bound{Int: -1}},
		{typ: "TIMESTAMP_LTZ(3)", raw: le(0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), want: filter.Bound{Int: -1}},
		{typ: "FLOAT", raw: le(0, 0, 0xc0, 0x3f), want: filter.Bound{Float: 1.5}},
		{typ: "DOUBLE", raw: le(0, 0, 0xc0, 0x3f), want: filter.Bound{Float: 1.5}}, // was FLOAT
		{typ: "DOUBLE", raw: le(0, 0, 0, 0, 0, 0, 0xf8, 0x7f), none: true},         // NaN
		{typ: "DECIMAL(9,2)", raw: []byte{0xff}, want: filter.Bound{Dec: decimal128.FromI64(-1)}},
		{typ: "DECIMAL(38,2)", raw: []byte{1, 0}, want: filter.Bound{Dec: decimal128.FromI64(256)}},
		{typ: "STRING", raw: []byte("a"), want: filter.Bound{Bytes: []byte("a")}},
		{typ: "INT", raw: le(1, 2), none: true},
		{typ: "DECIMAL(9,2)", raw: nil, none: true},
		{typ: "STRING", raw: nil, none: true},
	} {
		st := newStats(parseType(c.typ), 10, 2, 3)
		setBounds(&st, parseType(c.typ), c.raw, c.raw)
		require.Equal(t, !c.none, st.HasMin, c.typ)
		require.Equal(t, !c.none, st.HasMax, c.typ)
		if !c.none {
			require.Equal(t, c.want, st.Min, c.typ)
			require.Equal(t, c.want, st.Max, c.typ)
		}
	}
}

// Numbers that metadata do not say leave room for NULL, NaN and other values.
func TestUnknownStats(t *testing.T) {
	st := newStats(parseType("DOUBLE"), 1, unknown, unknown)
	require.Positive(t, st.Nulls)
	require.Positive(t, st.NaNs)
	require.Positive(t, st.Rows-st.Nulls-st.NaNs)
	require.Zero(t, newStats(parseType("INT"), 1, 0, unknown).NaNs)
}
