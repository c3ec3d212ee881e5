package segment

import (
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/row"
)

// Shows that a payload tells how long its rows are before compression, however
// well they compress.
func TestRawBytes(t *testing.T) {
	s := makeSchema(1, "STRING", "ARRAY<BIGINT>")
	b := array.NewRecordBuilder(memory.DefaultAllocator, row.ArrowSchema(s.Columns))
	defer b.Release()
	for range 100 {
		b.Field(0).(*array.StringBuilder).Append(strings.Repeat("a", 10_000))
		b.Field(1).AppendNull()
	}
	rec := b.NewRecordBatch()
	defer rec.Release()
	for _, c := range []Codec{LZ4, ZSTD, None} {
		payload, err := AppendColumns(nil, s, rec, nil, EncodeOptions{Codec: c})
		require.NoError(t, err)
		p, err := OpenBytes(payload)
		require.NoError(t, err)
		require.InDelta(t, 1_000_000, p.RawBytes(), 5_000, "%v", c)
	}
}
