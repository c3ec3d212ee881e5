package segment

import (
	"fmt"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row"
)

// Shows that columns of every type come back as they went in: whole and as slices
// at odd positions, without NULLs, with some and with nothing else, for each
// codec, from memory and from a file.
func TestColumnsRoundTrip(t *testing.T) {
	s := makeSchema(3, allTypes...)
	for _, codec := range codecs {
		for _, nulls := range []int{0, 3, 10} {
			for _, rows := range []int{0, 1, 7, 64, 1000} {
				t.Run(fmt.Sprintf("%s/%d of 10/%d", codec, nulls, rows), func(t *testing.T) {
					rng := newRand(uint64(rows*100 + nulls))
					whole := randomRecord(rng, s, rows+20, nulls)
					defer whole.Release()
					for _, from := range []int64{0, 1, 8, 13} {
						rec := whole.NewSlice(from, from+int64(rows))
						checkRoundTrip(t, s, rec, randomChanges(rng, rows), codec)
						rec.Release()
					}
				})
			}
		}
	}
}

func checkRoundTrip(t *testing.T, s *millrace.Schema, rec arrow.RecordBatch, changes []millrace.ChangeType, codec Codec) {
	t.Helper()
	b := encoded(t, s, rec, changes, codec)
	inMemory, err := OpenBytes(b)
	require.NoError(t, err)
	elsewhere, err := Open(&countingReader{b: append([]byte("xyz"), b...)}, 3, int64(len(b)))
	require.NoError(t, err)
	for _, p := range []*Payload{inMemory, elsewhere} {
		require.Equal(t, Columns, p.Encoding())
		require.Equal(t, int(rec.NumRows()), p.Rows())
		require.Equal(t, s.ID, p.SchemaID())
		require.Equal(t, codec, p.Codec())
		require.Equal(t, int64(len(b)), p.Size())
		mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
		got, err := p.Record(mem, only(s), s.Columns)
		require.NoError(t, err)
		requireSame(t, rec, got)
		require.True(t, got.Schema().Equal(row.ArrowSchema(s.Columns)))
		got.Release()
		mem.AssertSize(t, 0)
		cs, err := p.Changes()
		require.NoError(t, err)
		if p.HasChanges() {
			require.Equal(t, changes, cs)
		} else {
			require.Nil(t, cs)
			require.False(t, slices.ContainsFunc(changes, func(c millrace.ChangeType) bool { return c != millrace.Insert }))
		}
	}
	again := encoded(t, s, rec, changes, codec)
	require.Equal(t, b, again, "encoding the same rows twice")
}

// Shows that arrays whose children are slices themselves (as other code may build
// them) are written as the values they have.
func TestSlicedChildren(t *testing.T) {
	s := makeSchema(1, "ROW<a INT, b STRING, c BOOLEAN>", "ARRAY<ROW<a INT, b STRING, c BOOLEAN>>")
	rec := randomRecord(newRand(2), s, 100, 2)
	defer rec.Release()
	child := func(a arrow.Array, from, to int) arrow.ArrayData {
		d := array.NewSliceData(a.Data(), int64(from), int64(to))
		return d
	}
	st := rec.Column(0).(*array.Struct)
	var children []arrow.ArrayData
	for i := range st.NumField() {
		children = append(children, child(st.Field(i), 9, 80))
	}
	strct := array.MakeFromData(array.NewData(st.DataType(), 60, []*memory.Buffer{nil}, children, 0, 3))
	offsets := memory.NewBufferBytes(arrow.Int32Traits.CastToBytes([]int32{2, 5, 5, 20}))
	list := array.MakeFromData(array.NewData(rec.Column(1).DataType(), 3, []*memory.Buffer{nil, offsets}, []arrow.ArrayData{child(st, 11, 70)}, 0, 0))
	for i, a := range []arrow.Array{strct, list} {
		want := makeSchema(1, allTypes...)
		want.Columns = s.Columns[i : i+1]
		checkRoundTrip(t, want, array.NewRecordBatch(row.ArrowSchema(want.Columns), []arrow.Array{a}, int64(a.Len())), nil, LZ4)
	}
}

// Shows that any choice of columns, in any order and with repeats, is what the
// whole record has.
func TestRecordProjects(t *testing.T) {
	s := makeSchema(1, allTypes...)
	rng := newRand(5)
	rec := randomRecord(rng, s, 100, 2)
	defer rec.Release()
	for _, codec := range codecs {
		b := encoded(t, s, rec, nil, codec)
		for range 200 {
			p, err := Open(&countingReader{b: b}, 0, int64(len(b)))
			require.NoError(t, err)
			var want []millrace.Column
			var arrays []arrow.Array
			at := rng.IntN(len(s.Columns))
			for range rng.IntN(6) {
				want, arrays = append(want, s.Columns[at]), append(arrays, rec.Column(at))
				if at++; at == len(s.Columns) || rng.IntN(2) == 0 {
					at = rng.IntN(len(s.Columns)) // else the neighbour
				}
			}
			got, err := p.Record(memory.DefaultAllocator, only(s), want)
			require.NoError(t, err)
			requireSame(t, array.NewRecordBatch(row.ArrowSchema(want), arrays, rec.NumRows()), got)
			got.Release()
		}
	}
}

// Shows that columns of a payload in memory that are not compressed are not copied: reading a
// record of them takes no more than a few hundred bytes, however many they are.
func TestRecordInMemoryIsNoCopy(t *testing.T) {
	s := makeSchema(1, "BIGINT", "STRING")
	rec := randomRecord(newRand(3), s, 50_000, 0)
	defer rec.Release()
	p := must(OpenBytes(encoded(t, s, rec, nil, None)))
	mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
	got, err := p.Record(mem, only(s), s.Columns)
	require.NoError(t, err)
	requireSame(t, rec, got)
	require.Zero(t, mem.CurrentAlloc())
	got.Release()
}

// Shows that two of forty equally wide columns cost at most 8 % of the bytes, in
// one read when they are neighbours; that opening costs one read; and that the
// directory of forty columns fits in the first 4 KiB.
func TestProjectionReadsItsBytesOnly(t *testing.T) {
	types := slices.Repeat([]string{"BIGINT", "DOUBLE", "STRING", "TIMESTAMP(6)"}, 10)
	s := makeSchema(1, types...)
	rec := randomRecord(newRand(1), s, 4000, 1)
	defer rec.Release()
	for _, codec := range codecs {
		b := encoded(t, s, rec, randomChanges(newRand(2), 4000), codec)
		for _, read := range []func(*Payload, []millrace.Column) error{
			func(p *Payload, want []millrace.Column) error {
				rec, err := p.Record(memory.DefaultAllocator, only(s), want)
				if err == nil {
					rec.Release()
				}
				return err
			},
			func(p *Payload, want []millrace.Column) error {
				_, err := p.Message(only(s), want, nil, Stored)
				return err
			},
			func(p *Payload, want []millrace.Column) error {
				_, err := p.Message(only(s), want, nil, None)
				return err
			},
		} {
			src := &countingReader{b: b}
			p, err := Open(src, 0, int64(len(b)))
			require.NoError(t, err)
			require.Equal(t, 1, src.reads, "reads to open %d columns", len(types))
			require.LessOrEqual(t, p.head.metaLen, metaGuess)
			require.NoError(t, read(p, s.Columns[20:22]))
			require.Equal(t, 2, src.reads)
			require.Equal(t, int64(src.bytes), p.BytesRead())
			require.LessOrEqual(t, float64(src.bytes), 0.08*float64(len(b)), "%s: %d of %d bytes", codec, src.bytes, len(b))
		}
	}
}

// Shows that a meta part longer than the first guess is read whole.
func TestLongDirectory(t *testing.T) {
	s := makeSchema(1, slices.Repeat([]string{"STRING"}, 300)...)
	rec := randomRecord(newRand(1), s, 50, 1)
	defer rec.Release()
	checkRoundTrip(t, s, rec, nil, LZ4)
}

// Shows that a reader with an older or newer schema gets what it asks for: columns
// found by id under any name, widened columns cast, absent columns NULL; and that
// a message says the same as a record.
func TestOtherSchemas(t *testing.T) {
	s := makeSchema(1, "TINYINT", "SMALLINT", "INT", "INT", "FLOAT", "DECIMAL(5,1)", "CHAR(5)", "STRING")
	rec := randomRecord(newRand(3), s, 500, 2)
	defer rec.Release()
	later := makeSchema(2, "SMALLINT", "INT", "BIGINT", "INT", "DOUBLE", "DECIMAL(30,1)", "STRING", "STRING", "ROW<a ARRAY<INT>>", "BINARY(4)")
	for i := range later.Columns {
		later.Columns[i].Name = fmt.Sprintf("renamed_%d", i)
	}
	want := []millrace.Column{later.Columns[9]}
	for i := len(later.Columns) - 2; i >= 0; i-- {
		want = append(want, later.Columns[i])
	}
	for _, codec := range codecs {
		b := encoded(t, s, rec, nil, codec)
		p, err := Open(&countingReader{b: b}, 0, int64(len(b)))
		require.NoError(t, err)
		got, err := p.Record(memory.DefaultAllocator, only(s), want)
		require.NoError(t, err)
		for i, w := range want {
			a := got.Column(i)
			require.True(t, arrow.TypeEqual(row.ArrowType(w.Type), a.DataType()))
			k := s.IndexID(w.ID)
			if k < 0 {
				require.Equal(t, a.Len(), a.NullN())
				continue
			}
			old := rec.Column(k)
			for r := range 500 {
				require.Equal(t, old.IsNull(r), a.IsNull(r))
				if !old.IsNull(r) {
					require.Equal(t, fmt.Sprint(asWide(old, r)), fmt.Sprint(asWide(a, r)))
				}
			}
		}
		for _, target := range []Codec{Stored, None, LZ4, ZSTD} {
			m, err := p.Message(only(s), want, nil, target)
			require.NoError(t, err)
			requireSame(t, got, stock(t, row.ArrowSchema(want), m)[0])
		}
		got.Release()
	}
}

func asWide(a arrow.Array, i int) any {
	switch a := a.(type) {
	case *array.Float32:
		return float64(a.Value(i))
	case *array.Decimal128:
		return a.Value(i)
	}
	return a.ValueStr(i)
}

// Shows that what cannot be read as asked is refused: a narrower type, a schema
// that is not known or has other columns, NULLs that would not fit in memory.
func TestRefusedSchemas(t *testing.T) {
	s := makeSchema(1, "BIGINT", "STRING")
	rec := randomRecord(newRand(3), s, 1000, 0)
	defer rec.Release()
	p, err := OpenBytes(encoded(t, s, rec, nil, LZ4))
	require.NoError(t, err)
	read := func(code errs.Code, schemas Schemas, want ...millrace.Column) {
		t.Helper()
		_, err := p.Record(memory.DefaultAllocator, schemas, want)
		require.Equal(t, code, errs.CodeOf(err), "%v", err)
		_, err = p.Message(schemas, want, nil, Stored)
		require.Equal(t, code, errs.CodeOf(err), "%v", err)
	}
	read(errs.SchemaChanged, only(s), makeSchema(2, "INT").Columns...) // some are beyond it
	read(errs.SchemaChanged, only(s), makeSchema(2, "DOUBLE").Columns...)
	decimals := makeSchema(3, "DECIMAL(10,2)")
	d, err := OpenBytes(encoded(t, decimals, randomRecord(newRand(3), decimals, 100, 0), nil, LZ4))
	require.NoError(t, err)
	_, err = d.Record(memory.DefaultAllocator, only(decimals), makeSchema(4, "DECIMAL(2,2)").Columns)
	require.Equal(t, errs.SchemaChanged, errs.CodeOf(err), "%v", err)
	read(errs.SchemaChanged, only(s), makeSchema(2, "BIGINT", "DATE").Columns[1])
	read(errs.CorruptData, only(makeSchema(9, "BIGINT", "STRING")), s.Columns...)
	read(errs.CorruptData, only(makeSchema(1, "BIGINT")), s.Columns...)
	read(errs.CorruptData, only(makeSchema(1, "BIGINT", "DATE")), s.Columns...)
	read(errs.TooLarge, only(s), makeSchema(2, "BIGINT", "STRING", "BINARY(1048576)").Columns[2])
}

// Shows that a batch beyond the limits is refused, not written.
func TestTooLarge(t *testing.T) {
	s := makeSchema(1, "BINARY(1048576)")
	rec := randomRecord(newRand(1), s, 65, 0)
	defer rec.Release()
	b, err := AppendColumns([]byte("x"), s, rec, nil, EncodeOptions{})
	require.True(t, errs.Is(err, errs.TooLarge), "%v", err)
	require.Equal(t, "x", string(b))
	_, err = EncodeMessage(rec, None)
	require.True(t, errs.Is(err, errs.TooLarge), "%v", err)
}

// Shows that SplitRows covers all rows in order, in even pieces that keep to the
// target as long as a row does.
func TestSplitRows(t *testing.T) {
	s := makeSchema(1, allTypes...)
	rec := randomRecord(newRand(8), s, 3000, 2)
	defer rec.Release()
	for _, target := range []int{1, 500, 10_000, 300_000, 1 << 30} {
		ranges := SplitRows(rec, target)
		at, smallest := 0, 1<<30
		for _, r := range ranges {
			require.Equal(t, at, r.Start)
			require.Greater(t, r.End, r.Start)
			at = r.End
			size := recordBytes(rec, r.Start, r.End)
			require.True(t, size <= target || r.End == r.Start+1, "%d rows of %d bytes", r.End-r.Start, size)
			smallest = min(smallest, size)
		}
		require.Equal(t, 3000, at)
		if target >= 10_000 {
			least := min(target, recordBytes(rec, 0, 3000)) / 2
			require.Greater(t, smallest, least, "pieces of %d bytes", target)
		}
	}
	require.Empty(t, SplitRows(rec.NewSlice(5, 5), 100))
}
