package segment

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
)

func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b) // never fails
	return b
}

// Shows that long buffers in which compressors find nothing are kept as they are, that
// what compresses somewhere is compressed, and that both are read as they were.
func TestIncompressible(t *testing.T) {
	long := noise(300 << 10)
	half := append(bytes.Clone(long[:150<<10]), make([]byte, 150<<10)...)
	c := new(compressor)
	for _, codec := range []Codec{LZ4, ZSTD} {
		for name, b := range map[string]struct {
			raw    []byte
			stored bool
		}{
			"noise": {long, true}, "a short one": {long[:1000], true}, "noise, then zeros": {half, false},
			"zeros": {make([]byte, 300<<10), false}, "text": {[]byte(strings.Repeat("to be or not to be ", 20_000)), false},
		} {
			dst := c.appendBuffer([]byte("before"), b.raw, codec)[len("before"):]
			require.Equal(t, b.stored, int64(le.Uint64(dst)) == storedRaw, "%s %s", codec, name)
			back := make([]byte, len(b.raw))
			require.NoError(t, c.decode(back, dst, codec))
			require.True(t, bytes.Equal(b.raw, back))
		}
	}
}

// Shows that a payload for which room is made beforehand is the one that AppendColumns
// makes, in about its own length, whether it compresses or not.
func TestEncodeColumns(t *testing.T) {
	schema := &millrace.Schema{ID: 1, Columns: []millrace.Column{
		{ID: 1, Name: "n", Type: millrace.DataType{Kind: millrace.BigInt}},
		{ID: 2, Name: "b", Type: millrace.DataType{Kind: millrace.Bytes}, Nullable: true},
		{ID: 3, Name: "s", Type: millrace.DataType{Kind: millrace.String}, Nullable: true},
	}}
	random := noise(1 << 20)
	for rows, body := range map[int]func(i int) []byte{
		200: func(i int) []byte { return random[1000*i:][:1000] },
		201: func(i int) []byte { return bytes.Repeat([]byte{byte(i)}, 1000) },
		7:   func(int) []byte { return random[:10] },
		0:   nil,
	} {
		b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{
			{Name: "n", Type: arrow.PrimitiveTypes.Int64}, {Name: "b", Type: arrow.BinaryTypes.Binary, Nullable: true}, {Name: "s", Type: arrow.BinaryTypes.String, Nullable: true},
		}, nil))
		for i := range rows {
			b.Field(0).(*array.Int64Builder).Append(int64(i))
			b.Field(1).(*array.BinaryBuilder).Append(body(i))
			if i%3 == 0 {
				b.Field(2).(*array.StringBuilder).AppendNull()
			} else {
				b.Field(2).(*array.StringBuilder).Append(fmt.Sprint("text ", i))
			}
		}
		rec := b.NewRecordBatch()
		for _, codec := range []Codec{LZ4, ZSTD, None} {
			want, err := AppendColumns(nil, schema, rec, nil, EncodeOptions{Codec: codec})
			require.NoError(t, err)
			got, err := EncodeColumns(schema, rec, nil, EncodeOptions{Codec: codec})
			require.NoError(t, err)
			require.True(t, bytes.Equal(want, got), "%d rows, %s", rows, codec)
			require.LessOrEqual(t, cap(got), len(got)+len(got)/16+2000, "%d rows, %s", rows, codec)
		}
		rec.Release()
		b.Release()
	}
}
