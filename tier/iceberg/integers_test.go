package iceberg

import (
	"bytes"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/schema"
	"github.com/stretchr/testify/require"
)

// TestPlainIntegers writes integers without an annotation, nested ones too, and leaves
// those of other types.
func TestPlainIntegers(t *testing.T) {
	w := newWorld(t)
	d := testTable(1, nil, nil, 1, "a TINYINT", "b INT NOT NULL", "c BIGINT", "d ARRAY<INT>", "e DATE", "f TIMESTAMP(6)", "g DECIMAL(9,2)", "h STRING")
	_, err := w.append(w.f, d, noBucket, at(d, 1), `{"a":1,"b":2,"c":3,"d":[4],"e":"2026-11-29","f":"2026-11-29T00:00:00","g":"1.25","h":"x"}`)
	require.NoError(t, err)
	require.Len(t, w.scan(d), 1)
	seen := map[string]string{}
	for _, f := range w.dataFiles(d) {
		body, err := w.store.Get(t.Context(), strings.TrimPrefix(f.path, w.store.URI()+"/"))
		require.NoError(t, err)
		r, err := file.NewParquetReader(bytes.NewReader(body))
		require.NoError(t, err)
		for i := range r.MetaData().Schema.NumColumns() {
			c := r.MetaData().Schema.Column(i)
			_, integer := c.LogicalType().(schema.IntLogicalType)
			require.False(t, integer, c.Path())
			seen[strings.Split(c.Path(), ".")[0]] = c.PhysicalType().String() + " " + c.LogicalType().String()
		}
	}
	plain := func(p parquet.Type) string { return p.String() + " " + schema.NoLogicalType{}.String() }
	for name, want := range map[string]string{"a": plain(parquet.Types.Int32), "b": plain(parquet.Types.Int32), "c": plain(parquet.Types.Int64), "d": plain(parquet.Types.Int32)} {
		require.Equal(t, want, seen[name], name)
	}
	for name, want := range map[string]string{"e": "Date", "f": "Timestamp", "g": "Decimal", "h": "String"} {
		require.Contains(t, seen[name], want)
	}
}
