package arrowrow

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	flatbuffers "github.com/google/flatbuffers/go"

	"github.com/millrace/millrace/errs"
)

// record makes a batch of n rows from arrow-go's JSON.
func record(t testing.TB, schema *arrow.Schema, rows string) arrow.RecordBatch {
	t.Helper()
	rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader(rows))
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// stream is what arrow-go's writer makes of batches.
func stream(t testing.TB, opts []ipc.Option, recs ...arrow.RecordBatch) []byte {
	t.Helper()
	var b bytes.Buffer
	w := ipc.NewWriter(&b, append(opts, ipc.WithSchema(recs[0].Schema()))...)
	for _, rec := range recs {
		if err := w.Write(rec); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// readAll reads a whole stream.
func readAll(in []byte, limits Limits) (recs []arrow.RecordBatch, err error) {
	r, err := NewReader(bytes.NewReader(in), limits)
	if err != nil {
		return nil, err
	}
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return recs, nil
		}
		if err != nil {
			return recs, err
		}
		recs = append(recs, rec)
	}
}

// sound is arrow-go's full check without that of UTF-8, which is left to the plan.
func sound(rec arrow.RecordBatch) error {
	err := array.ValidateRecordFull(rec)
	if err != nil && strings.Contains(err.Error(), "not valid utf8") {
		return nil
	}
	return err
}

// sample has a column of every layout that is taken.
func sample(t testing.TB) []arrow.RecordBatch {
	field := func(name string, typ arrow.DataType) arrow.Field {
		return arrow.Field{Name: name, Type: typ, Nullable: true}
	}
	entry := arrow.StructOf(field("a", arrow.PrimitiveTypes.Int64), field("b", arrow.BinaryTypes.String))
	schema := arrow.NewSchema([]arrow.Field{
		field("null", arrow.Null),
		field("bool", arrow.FixedWidthTypes.Boolean),
		field("i8", arrow.PrimitiveTypes.Int8),
		field("u64", arrow.PrimitiveTypes.Uint64),
		field("f64", arrow.PrimitiveTypes.Float64),
		field("text", arrow.BinaryTypes.String),
		field("large", arrow.BinaryTypes.LargeString),
		field("bin", arrow.BinaryTypes.Binary),
		field("fixed", &arrow.FixedSizeBinaryType{ByteWidth: 3}),
		field("date", arrow.FixedWidthTypes.Date32),
		field("ts", arrow.FixedWidthTypes.Timestamp_us),
		field("dec", &arrow.Decimal128Type{Precision: 10, Scale: 2}),
		field("list", arrow.ListOf(arrow.PrimitiveTypes.Int32)),
		field("largelist", arrow.LargeListOf(arrow.BinaryTypes.String)),
		field("fixedlist", arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Int16)),
		field("map", arrow.MapOf(arrow.BinaryTypes.String, arrow.ListOf(entry))),
		field("struct", entry),
		field("dict", &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}),
	}, nil)
	return []arrow.RecordBatch{
		record(t, schema, `[
			{"bool":true,"i8":1,"u64":5,"f64":0.5,"text":"x","large":"yy","bin":"AQI=","fixed":"AQID","date":"2026-11-29","ts":"2026-11-29T10:00:00Z","dec":"1.25","list":[1,null,3],"largelist":["a",null],"fixedlist":[1,2],"map":[{"key":"k","value":[{"a":1,"b":"z"},null]}],"struct":{"a":7,"b":null},"dict":"red"},
			{},
			{"bool":false,"i8":-1,"text":"a longer text than fits into a view","list":[],"map":[],"struct":{},"dict":"blue"}]`),
		record(t, schema, `[]`),
		record(t, schema, `[{"dict":"red","list":[4],"text":""}]`),
	}
}

// viewSample has the layouts that arrow-go's JSON does not read.
func viewSample() arrow.RecordBatch {
	mem := memory.DefaultAllocator
	sv := array.NewStringViewBuilder(mem)
	sv.AppendValues([]string{"short", "a text that does not fit into the header", "", "another one that is longer than twelve"}, []bool{true, true, false, true})
	lv := array.NewListViewBuilder(mem, arrow.PrimitiveTypes.Int32)
	for i := range 4 {
		lv.AppendWithSize(i != 2, i)
		for j := range i {
			lv.ValueBuilder().(*array.Int32Builder).Append(int32(10*i + j))
		}
	}
	cols := []arrow.Array{sv.NewArray(), lv.NewArray()}
	return array.NewRecordBatch(arrow.NewSchema([]arrow.Field{
		{Name: "sv", Type: arrow.BinaryTypes.StringView, Nullable: true},
		{Name: "lv", Type: arrow.ListViewOf(arrow.PrimitiveTypes.Int32), Nullable: true},
	}, nil), cols, 4)
}

// TestReader shows that every layout comes out as arrow-go's own writer put it in,
// with each compression, through the stream reader in small reads and through the
// decoder of single messages, and that the arrays are sound.
func TestReader(t *testing.T) {
	for name, opts := range map[string][]ipc.Option{"plain": nil, "lz4": {ipc.WithLZ4()}, "zstd": {ipc.WithZstd()}} {
		for _, recs := range [][]arrow.RecordBatch{sample(t), {viewSample()}} {
			in := stream(t, opts, recs...)
			for _, how := range []func([]byte, Limits) ([]arrow.RecordBatch, error){readAll, decodeAll} {
				got, err := how(in, Limits{})
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if len(got) != len(recs) {
					t.Fatalf("%s: %d batches, want %d", name, len(got), len(recs))
				}
				for i := range recs {
					if !array.RecordEqual(recs[i], got[i]) {
						t.Errorf("%s: batch %d\n%v\nwant\n%v", name, i, got[i], recs[i])
					}
					if err := array.ValidateRecordFull(got[i]); err != nil {
						t.Errorf("%s: batch %d: %v", name, i, err)
					}
				}
			}
		}
	}
}

// messages cuts a stream into headers and bodies.
func messages(in []byte) (headers, bodies [][]byte) {
	for len(in) >= 8 {
		n := int(binary.LittleEndian.Uint32(in[4:]))
		if n == 0 {
			break
		}
		header := in[8 : 8+n]
		f := &fbuf{b: header}
		body := int(f.root().i64(3))
		headers, bodies = append(headers, header), append(bodies, in[8+n:8+n+body])
		in = in[8+n+body:]
	}
	return headers, bodies
}

// decodeAll reads a whole stream as Flight does, from bodies that are not aligned.
func decodeAll(in []byte, limits Limits) (recs []arrow.RecordBatch, err error) {
	headers, bodies := messages(in)
	d, err := NewDecoder(headers[0], limits)
	if err != nil {
		return nil, err
	}
	for i := 1; i < len(headers); i++ {
		shifted := append([]byte{0}, bodies[i]...)[1:]
		rec, err := d.Decode(headers[i], shifted)
		if err != nil {
			return recs, err
		}
		if rec != nil {
			recs = append(recs, rec)
		}
	}
	return recs, nil
}

// TestDictionaries shows that dictionaries are replaced, grown by deltas and
// shared as the sender says, and how much they may take.
func TestDictionaries(t *testing.T) {
	typ := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: arrow.BinaryTypes.String}
	schema := arrow.NewSchema([]arrow.Field{{Name: "d", Type: typ, Nullable: true}}, nil)
	batch := func(dict, indices string) arrow.RecordBatch {
		d, _, err := array.FromJSON(memory.DefaultAllocator, arrow.BinaryTypes.String, strings.NewReader(dict))
		if err != nil {
			t.Fatal(err)
		}
		i, _, err := array.FromJSON(memory.DefaultAllocator, arrow.PrimitiveTypes.Int32, strings.NewReader(indices))
		if err != nil {
			t.Fatal(err)
		}
		return array.NewRecordBatch(schema, []arrow.Array{array.NewDictionaryArray(typ, i, d)}, int64(i.Len()))
	}
	recs := []arrow.RecordBatch{batch(`["a","b"]`, `[0,1,null]`), batch(`["a","b","c"]`, `[2,0]`), batch(`["x"]`, `[0]`)}
	for name, opts := range map[string][]ipc.Option{"replaced": nil, "deltas": {ipc.WithDictionaryDeltas(true)}, "deltas, zstd": {ipc.WithDictionaryDeltas(true), ipc.WithZstd()}} {
		got, err := readAll(stream(t, opts, recs...), Limits{})
		if err != nil || len(got) != 3 {
			t.Fatalf("%s: %d batches: %v", name, len(got), err)
		}
		for i := range recs {
			if !array.RecordEqual(recs[i], got[i]) {
				t.Errorf("%s: batch %d is %v", name, i, got[i])
			}
		}
	}

	big := batch(`["`+strings.Repeat("x", 5000)+`"]`, `[0]`)
	if _, err := readAll(stream(t, nil, big), Limits{MaxMessageBytes: 6000}); err != nil {
		t.Error(err)
	}
	two := batch(`["`+strings.Repeat("x", 5000)+`","`+strings.Repeat("y", 5000)+`"]`, `[1]`)
	if _, err := readAll(stream(t, []ipc.Option{ipc.WithDictionaryDeltas(true)}, big, two), Limits{MaxMessageBytes: 6000}); !errs.Is(err, errs.TooLarge) {
		t.Errorf("a dictionary grew beyond the limit: %v", err)
	}
}

// TestStreamEnds shows what an end means: with the marker, without it, or inside a
// message, which is an error at every byte.
func TestStreamEnds(t *testing.T) {
	in := stream(t, nil, sample(t)...)
	ends := map[int]bool{} // after each message
	at := 0
	headers, bodies := messages(in)
	for i := range headers {
		at += 8 + len(headers[i]) + len(bodies[i])
		ends[at] = true
	}
	for n := range in {
		_, err := readAll(in[:n], Limits{})
		if whole := ends[n]; whole != (err == nil) || err != nil && !errs.Is(err, errs.InvalidRequest) {
			t.Fatalf("cut at byte %d of %d: %v", n, len(in), err)
		}
	}
	if _, err := readAll(append(in, "trailing"...), Limits{}); err != nil {
		t.Error(err)
	}
	for in, part := range map[string]string{"": "empty", "ARROW1\x00\x00": "an Arrow file", `{"rows":[]}`: "not an Arrow stream", "\xff\xff\xff\xff\xff\xff\xff\x7f": "metadata"} {
		if _, err := readAll([]byte(in), Limits{}); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%q: %v", in, err)
		}
	}
	boom := errors.New("boom")
	if _, err := NewReader(io.MultiReader(bytes.NewReader(in[:100]), errReader{boom}), Limits{}); !errors.Is(err, boom) {
		t.Errorf("the error of the reader below became %v", err)
	}
}

type errReader struct{ err error }

func (e errReader) Read([]byte) (int, error) { return 0, e.err }

// TestUnknownTypes shows that types which nothing can be cast from are refused by
// name, before any batch.
func TestUnknownTypes(t *testing.T) {
	for _, typ := range []arrow.DataType{
		arrow.FixedWidthTypes.Duration_s, arrow.FixedWidthTypes.MonthInterval,
		arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int32, arrow.BinaryTypes.String),
		arrow.SparseUnionOf([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int8}}, []arrow.UnionTypeCode{0}),
		&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.ListOf(arrow.PrimitiveTypes.Int8)},
	} {
		schema := arrow.NewSchema([]arrow.Field{{Name: "outer", Type: arrow.StructOf(arrow.Field{Name: "odd", Type: typ, Nullable: true}), Nullable: true}}, nil)
		var b bytes.Buffer
		if err := ipc.NewWriter(&b, ipc.WithSchema(schema)).Close(); err != nil {
			t.Fatal(err)
		}
		_, err := readAll(b.Bytes(), Limits{})
		if !errs.Is(err, errs.TypeMismatch) || !strings.Contains(err.Error(), `"outer.odd"`) {
			t.Errorf("%s: %v", typ, err)
		}
	}
	if _, err := readAll(bigEndian(), Limits{}); err == nil || !strings.Contains(err.Error(), "big-endian") {
		t.Errorf("big-endian: %v", err)
	}
}

func bigEndian() []byte {
	fb := flatbuffers.NewBuilder(0)
	fb.StartObject(4)
	fb.PrependInt16Slot(0, 1, 0)
	return frame(fb, messageSchema, fb.EndObject(), 0, nil)
}

// TestLimits shows that each limit is one.
func TestLimits(t *testing.T) {
	rec := record(t, arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.Null, Nullable: true}, {Name: "v", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, nil), `[`+strings.Repeat(`{"v":7},`, 999)+`{"v":7}]`)
	plain, zstd := stream(t, nil, rec), stream(t, []ipc.Option{ipc.WithZstd()}, rec)
	for _, tt := range []struct {
		in     []byte
		limits Limits
		ok     bool
	}{
		{plain, Limits{MaxMessageBytes: 8192}, true},
		{plain, Limits{MaxMessageBytes: 7999}, false},
		{zstd, Limits{MaxMessageBytes: 8192}, true},
		{zstd, Limits{MaxMessageBytes: 7999}, false},
		{plain, Limits{MaxRows: 1000}, true},
		{plain, Limits{MaxRows: 999}, false},
		{plain, Limits{MaxMetadataBytes: 1000}, true},
		{plain, Limits{MaxMetadataBytes: 100}, false},
	} {
		_, err := readAll(tt.in, tt.limits)
		if tt.ok && err != nil || !tt.ok && !errs.Is(err, errs.TooLarge) {
			t.Errorf("%+v: %v", tt.limits, err)
		}
	}
	if fmt.Sprint(Limits{}.withDefaults()) != "{67108864 4194304 16777216}" {
		t.Error(Limits{}.withDefaults())
	}
}
