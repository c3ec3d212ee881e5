package segment

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/row"
)

// extras makes columns that a read adds to those of the table.
func extras(rows int, positions ...int) ([]ExtraColumn, []arrow.Field) {
	var out []ExtraColumn
	var fields []arrow.Field
	for i, pos := range positions {
		if i%2 == 0 {
			b := array.NewInt64Builder(memory.DefaultAllocator)
			for r := range rows {
				b.Append(int64(r + 1000*i))
			}
			out = append(out, ExtraColumn{pos, b.NewArray()})
		} else {
			b := array.NewStringBuilder(memory.DefaultAllocator)
			for r := range rows {
				if r%3 == 0 {
					b.AppendNull()
				} else {
					b.Append("+U")
				}
			}
			out = append(out, ExtraColumn{pos, b.NewArray()})
		}
		fields = append(fields, arrow.Field{Name: fmt.Sprintf("extra%d", i), Type: out[i].Array.DataType(), Nullable: true})
	}
	return out, fields
}

// Shows that messages of any projection, codec and target, with extra columns at
// the front, in between and at the end, are read by arrow-go's stock reader, and
// hold what Record gives.
func TestMessagesAreReadByTheStockReader(t *testing.T) {
	s := makeSchema(1, allTypes...)
	rng := newRand(11)
	for _, rows := range []int{1, 200} {
		rec := randomRecord(rng, s, rows, 2)
		for _, codec := range codecs {
			b := encoded(t, s, rec, nil, codec)
			for _, target := range []Codec{Stored, None, LZ4, ZSTD} {
				for trial := range 30 {
					var want []millrace.Column
					if trial == 0 {
						want = s.Columns
					} else {
						for range rng.IntN(5) {
							want = append(want, s.Columns[rng.IntN(len(s.Columns))])
						}
					}
					checkMessage(t, b, s, want, rows, target, rng.IntN(4), trial%2 == 0)
				}
			}
		}
		rec.Release()
	}
}

func checkMessage(t *testing.T, b []byte, s *millrace.Schema, want []millrace.Column, rows int, target Codec, extra int, inMemory bool) {
	t.Helper()
	var positions []int
	for i := range extra {
		positions = append(positions, i*(len(want)+extra)/extra)
	}
	ex, exFields := extras(rows, positions...)
	p, err := Open(&countingReader{b: b}, 0, int64(len(b)))
	if inMemory {
		p, err = OpenBytes(b)
	}
	require.NoError(t, err)
	m, err := p.Message(only(s), want, ex, target)
	require.NoError(t, err)
	require.Equal(t, rows, m.Rows)
	if target == Stored {
		require.Equal(t, p.Codec(), m.Codec)
	}
	require.Zero(t, len(m.Body)%8)

	rec, err := p.Record(memory.DefaultAllocator, only(s), want)
	require.NoError(t, err)
	fields, arrays := row.ArrowSchema(want).Fields(), rec.Columns()
	for i, e := range ex {
		fields = append(fields[:e.Position:e.Position], append([]arrow.Field{exFields[i]}, fields[e.Position:]...)...)
		arrays = append(arrays[:e.Position:e.Position], append([]arrow.Array{e.Array}, arrays[e.Position:]...)...)
	}
	schema := arrow.NewSchema(fields, nil)
	requireSame(t, array.NewRecordBatch(schema, arrays, int64(rows)), stock(t, schema, m)[0])
	m.Release()
}

// Shows that chunks go into a message as they lie: the body of a projection of
// neighbours is the payload's own bytes.
func TestStoredMessageIsTheStoredBytes(t *testing.T) {
	s := makeSchema(1, allTypes...)
	rec := randomRecord(newRand(4), s, 300, 1)
	defer rec.Release()
	b := encoded(t, s, rec, nil, LZ4)
	p, err := OpenBytes(b)
	require.NoError(t, err)
	m, err := p.Message(only(s), s.Columns[4:9], nil, Stored)
	require.NoError(t, err)
	first, last := entryAt(p.meta, 4), entryAt(p.meta, 8)
	require.Equal(t, b[first.pos:last.pos+last.len], m.Body)
}

// Shows that EncodeMessage writes slices of records so that the stock reader
// gives them back, and that several messages make one stream.
func TestEncodeMessage(t *testing.T) {
	s := makeSchema(1, allTypes...)
	rec := randomRecord(newRand(9), s, 500, 2)
	defer rec.Release()
	for _, codec := range codecs {
		var messages []*Message
		var want []arrow.RecordBatch
		for _, r := range []RowRange{{0, 500}, {3, 4}, {0, 0}, {11, 300}} {
			want = append(want, rec.NewSlice(int64(r.Start), int64(r.End)))
			m, err := EncodeMessage(want[len(want)-1], codec)
			require.NoError(t, err)
			messages = append(messages, m)
		}
		for i, got := range stock(t, rec.Schema(), messages...) {
			requireSame(t, want[i], got)
		}
	}
}

// Shows that what does not compress is stored as it is, behind the length -1, and
// read by the stock reader all the same.
func TestIncompressibleBuffers(t *testing.T) {
	s := makeSchema(1, "BINARY(16)", "DOUBLE", "BIGINT")
	b := array.NewRecordBuilder(memory.DefaultAllocator, row.ArrowSchema(s.Columns))
	defer b.Release()
	rng := newRand(1)
	for range 20_000 {
		v := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, rng.Uint64()), rng.Uint64())
		b.Field(0).(*array.FixedSizeBinaryBuilder).Append(v)
		b.Field(1).(*array.Float64Builder).Append(rng.Float64())
		b.Field(2).(*array.Int64Builder).Append(7)
	}
	rec := b.NewRecordBatch()
	defer rec.Release()
	for _, codec := range []Codec{LZ4, ZSTD} {
		p, err := OpenBytes(encoded(t, s, rec, nil, codec))
		require.NoError(t, err)
		e := entryAt(p.meta, 0)
		require.Equal(t, int64(storedRaw), int64(le.Uint64(p.whole[e.pos:])))
		m, err := p.Message(only(s), s.Columns, nil, Stored)
		require.NoError(t, err)
		requireSame(t, rec, stock(t, rec.Schema(), m)[0])
	}
}

// Shows that offsets are written for arrays without values too: some readers take
// a compressed buffer of no bytes for a damaged one.
func TestOffsetsOfNothing(t *testing.T) {
	s := makeSchema(1, "STRING", "BYTES", "ARRAY<STRING>", "MAP<STRING, ARRAY<INT>>")
	b := array.NewRecordBuilder(memory.DefaultAllocator, row.ArrowSchema(s.Columns))
	defer b.Release()
	for _, rows := range []int{0, 1} {
		for i := range rows * len(s.Columns) {
			b.Field(i).AppendEmptyValue()
		}
		rec := b.NewRecordBatch()
		for _, codec := range codecs {
			p, err := OpenBytes(encoded(t, s, rec, nil, codec))
			require.NoError(t, err)
			for i, offsets := range [][]int{{1}, {1}, {1, 3}, {1, 4, 7}} {
				e := entryAt(p.meta, i)
				for _, n := range offsets {
					require.NotZero(t, e.buffer(p.meta, n), "column %d, buffer %d", i, n)
				}
			}
			m, err := p.Message(only(s), s.Columns, nil, Stored)
			require.NoError(t, err)
			requireSame(t, rec, stock(t, rec.Schema(), m)[0])
		}
		rec.Release()
	}
}
