package row_test

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"pgregory.net/rapid"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row"
)

func column(id millrace.ColumnID, name, typ string) millrace.Column {
	return millrace.Column{ID: id, Name: name, Type: parse(typ), Nullable: true}
}

// Rows of an old and a new schema, read together as the new one: a column that
// was added is NULL in old rows, one that was dropped is not missed, a renamed or
// moved one is found by its id, and narrower types are widened, nested ones too.
func TestReaderVersions(t *testing.T) {
	v1 := &millrace.Schema{ID: 1, Columns: []millrace.Column{
		column(1, "id", "INT"),
		column(2, "dropped", "STRING"),
		column(3, "was", "STRING"),
		column(4, "f", "FLOAT"),
		column(5, "d", "DECIMAL(5,2)"),
		column(6, "list", "ARRAY<INT>"),
		column(7, "r", "ROW<a INT, b STRING>"),
		column(8, "m", "MAP<STRING, FLOAT>"),
	}}
	v1.Columns[6].Type.Children[0].ID, v1.Columns[6].Type.Children[1].ID = 11, 12
	v2 := &millrace.Schema{ID: 2, Columns: []millrace.Column{
		column(20, "added", "ARRAY<STRING>"),
		column(4, "f", "DOUBLE"),
		column(5, "d", "DECIMAL(38,2)"),
		column(3, "is", "STRING"),
		column(1, "id", "BIGINT"),
		column(6, "list", "ARRAY<BIGINT>"),
		column(7, "r", "ROW<b STRING, new BOOLEAN, a BIGINT>"),
		column(8, "m", "MAP<STRING, DOUBLE>"),
	}}
	for i, id := range []millrace.ColumnID{12, 21, 11} {
		v2.Columns[6].Type.Children[i].ID = id
	}
	old := fromJSON(t, v1.Columns, `[
		{"id": -2147483648, "dropped": "x", "was": "y", "f": -0.5, "d": "-1.25", "list": [-1, null], "r": {"a": -7, "b": "z"}, "m": [{"key": "k", "value": 1.5}]},
		{"id": null, "dropped": null, "was": null, "f": null, "d": null, "list": null, "r": null, "m": null}
	]`)
	defer old.Release()
	young := fromJSON(t, v2.Columns, `[
		{"added": ["n"], "f": 0.1, "d": "12345678901.00", "is": "q", "id": 9000000000, "list": [9000000000], "r": {"b": null, "new": true, "a": 5}, "m": []}
	]`)
	defer young.Release()
	schemas := func(id millrace.SchemaID) *millrace.Schema {
		return map[millrace.SchemaID]*millrace.Schema{1: v1, 2: v2}[id]
	}
	r := row.NewReader(memory.DefaultAllocator, schemas, v2.Columns)
	c1, c2 := row.NewCodec(v1), row.NewCodec(v2)
	for _, b := range [][]byte{c1.AppendRow(nil, old, 0), c2.AppendRow(nil, young, 0), c1.AppendRow(nil, old, 1)} {
		if err := r.Append(b); err != nil {
			t.Fatal(err)
		}
	}
	r.AppendNull()
	if r.Len() != 4 {
		t.Errorf("Len() = %d", r.Len())
	}
	got := r.Record()
	defer got.Release()
	null := `{"added": null, "f": null, "d": null, "is": null, "id": null, "list": null, "r": null, "m": null}`
	want := fromJSON(t, v2.Columns, `[
		{"added": null, "f": -0.5, "d": "-1.25", "is": "y", "id": -2147483648, "list": [-1, null], "r": {"b": "z", "new": null, "a": -7}, "m": [{"key": "k", "value": 1.5}]},
		{"added": ["n"], "f": 0.1, "d": "12345678901.00", "is": "q", "id": 9000000000, "list": [9000000000], "r": {"b": null, "new": true, "a": 5}, "m": []},
		`+null+`, `+null+`]`)
	defer want.Release()
	if err := equalRecords(want, got); err != nil {
		t.Fatal(err)
	}
}

// A stored type that is not the wanted one, nor a wider or narrower one of its
// kind, is refused as schema_changed, not read wrongly.
func TestReaderOtherType(t *testing.T) {
	for _, tc := range []struct{ stored, wanted string }{
		{"BIGINT", "DOUBLE"},
		{"DECIMAL(10,2)", "DECIMAL(12,3)"},
		{"TIMESTAMP(3)", "TIMESTAMP(6)"},
		{"TIME(0)", "TIME(6)"},
		{"BINARY(3)", "BINARY(4)"},
		{"STRING", "BYTES"},
		{"DATE", "INT"},
		{"ARRAY<BIGINT>", "ARRAY<DOUBLE>"},
		{"MAP<STRING, BIGINT>", "MAP<STRING, STRING>"},
		{"ROW<a BIGINT>", "ROW<a DATE>"},
		{"INT", "ARRAY<INT>"},
	} {
		s := &millrace.Schema{ID: 1, Columns: []millrace.Column{column(1, "c0", tc.stored)}}
		nulls := row.BuildNulls(memory.DefaultAllocator, s.Columns[0].Type, 1)
		rec := array.NewRecordBatch(row.ArrowSchema(s.Columns), []arrow.Array{nulls}, 1)
		r := row.NewReader(memory.DefaultAllocator, oneSchema(s), []millrace.Column{column(1, "c0", tc.wanted)})
		err := r.Append(row.NewCodec(s).AppendRow(nil, rec, 0))
		if !errs.Is(err, errs.SchemaChanged) || !strings.Contains(err.Error(), "column c0: ") {
			t.Errorf("%s as %s: %v", tc.stored, tc.wanted, err)
		}
	}
}

// Who asks for the type that a column had before it was widened gets the values that
// fit, as they are, and schema_changed at one that does not.
func TestReaderNarrower(t *testing.T) {
	for _, tc := range []struct{ stored, wanted, fit, over string }{
		{"SMALLINT", "TINYINT", `-128`, `128`},
		{"BIGINT", "TINYINT", `127`, `-129`},
		{"INT", "SMALLINT", `-32768`, `32768`},
		{"BIGINT", "INT", `-2147483648`, `2147483648`},
		{"DOUBLE", "FLOAT", `0.25`, `0.1`},
		{"DOUBLE", "FLOAT", `"NaN"`, `1e300`},
		{"DOUBLE", "FLOAT", `"-Infinity"`, `16777217`},
		{"DECIMAL(10,2)", "DECIMAL(4,2)", `"-99.99"`, `"100.00"`},
		{"DECIMAL(38,0)", "DECIMAL(20,0)", `"99999999999999999999"`, `"-100000000000000000000"`},
		{"ARRAY<BIGINT>", "ARRAY<INT>", `[1, null]`, `[1, 4294967296]`},
		{"MAP<STRING, BIGINT>", "MAP<STRING, INT>", `[{"key": "a", "value": 1}]`, `[{"key": "a", "value": 4294967296}]`},
		{"ROW<a BIGINT>", "ROW<a INT>", `{"a": 1}`, `{"a": 4294967296}`},
	} {
		s := &millrace.Schema{ID: 1, Columns: []millrace.Column{column(1, "c0", tc.stored)}}
		want := []millrace.Column{column(1, "c0", tc.wanted)}
		rec := fromJSON(t, s.Columns, fmt.Sprintf(`[{"c0": %s}, {"c0": null}, {"c0": %s}]`, tc.fit, tc.over))
		fits := fromJSON(t, want, fmt.Sprintf(`[{"c0": %s}, {"c0": null}]`, tc.fit))
		rows := encodeAll(row.NewCodec(s), rec)
		r := row.NewReader(memory.DefaultAllocator, oneSchema(s), want)
		for _, b := range rows[:2] {
			if err := r.Append(b); err != nil {
				t.Fatalf("%s as %s: %v", tc.stored, tc.wanted, err)
			}
		}
		if err := equalRecords(fits, r.Record()); err != nil {
			t.Errorf("%s as %s: %v", tc.stored, tc.wanted, err)
		}
		if err := r.Append(rows[2]); !errs.Is(err, errs.SchemaChanged) {
			t.Errorf("%s as %s: %s: %v", tc.stored, tc.wanted, tc.over, err)
		}
	}
}

// Every NaN becomes the same bytes and every other float keeps its bits, so that
// rows are equal exactly when their bytes are.
func TestCanonicalFloats(t *testing.T) {
	s := &millrace.Schema{ID: 1, Columns: columnsOf(parse("FLOAT"), parse("DOUBLE"), parse("ARRAY<DOUBLE>"))}
	encode := func(f32 uint32, f64 uint64) string {
		b := array.NewRecordBuilder(memory.DefaultAllocator, row.ArrowSchema(s.Columns))
		defer b.Release()
		b.Field(0).(*array.Float32Builder).Append(math.Float32frombits(f32))
		b.Field(1).(*array.Float64Builder).Append(math.Float64frombits(f64))
		b.Field(2).(*array.ListBuilder).Append(true)
		b.Field(2).(*array.ListBuilder).ValueBuilder().(*array.Float64Builder).Append(math.Float64frombits(f64))
		rec := b.NewRecordBatch()
		defer rec.Release()
		return hex.EncodeToString(row.NewCodec(s).AppendRow(nil, rec, 0))
	}
	nan := encode(0x7fc00000, 0x7ff8000000000000)
	if got := encode(0xffc00001, 0xfff0000000000001); got != nan {
		t.Errorf("another NaN is\n%s, and the first\n%s", got, nan)
	}
	if encode(0, 0) == encode(1<<31, 1<<63) {
		t.Error("0.0 and -0.0 have the same bytes")
	}
}

// What lies under NULLs in Arrow buffers does not reach a row.
func TestCanonicalNulls(t *testing.T) {
	s := &millrace.Schema{ID: 1, Columns: columnsOf(parse("BIGINT"), parse("STRING"), parse("ROW<a INT>"), parse("ARRAY<INT>"))}
	clean := fromJSON(t, s.Columns, `[{"c0": null, "c1": null, "c2": null, "c3": null}]`)
	defer clean.Release()
	full := fromJSON(t, s.Columns, `[{"c0": 7, "c1": "x", "c2": {"a": 1}, "c3": [1]}]`)
	defer full.Release()
	dirty := make([]arrow.Array, full.NumCols())
	for i := range dirty {
		d := full.Column(i).Data().(*array.Data).Copy()
		bufs := append([]*memory.Buffer{memory.NewBufferBytes([]byte{0})}, d.Buffers()[1:]...)
		dirty[i] = array.MakeFromData(array.NewData(d.DataType(), 1, bufs, d.Children(), 1, 0))
	}
	c := row.NewCodec(s)
	a := c.AppendRow(nil, clean, 0)
	b := c.AppendRow(nil, array.NewRecordBatch(full.Schema(), dirty, 1), 0)
	if !row.Equal(a, b) {
		t.Errorf("%x and %x", a, b)
	}
}

// Damage of each kind is CorruptData, and the reader works on afterwards.
func TestReaderRefuses(t *testing.T) {
	s := &millrace.Schema{ID: 1, Columns: columnsOf(parse("BOOLEAN"), parse("STRING"), parse("ARRAY<STRING>"), parse("MAP<INT, INT>"))}
	rec := fromJSON(t, s.Columns, `[{"c0": true, "c1": "ab", "c2": ["x", null], "c3": [{"key": 1, "value": 2}]}]`)
	defer rec.Release()
	c := row.NewCodec(s)
	good := c.AppendRow(nil, rec, 0)
	// header 4, bitmap 1, slots 1+4+4+4, then "ab", the array (4+1+8+1), the map (4+1+4+1+4).
	const text, list, mapAt = 18, 20, 34
	change := func(at int, to byte) []byte {
		b := append([]byte(nil), good...)
		b[at] = to
		return b
	}
	for name, b := range map[string][]byte{
		"empty":             nil,
		"header only":       good[:4],
		"later format":      change(3, 1),
		"unknown schema":    change(0, 2),
		"short":             good[:len(good)-1],
		"long":              append(slices.Clip(good), 0),
		"boolean":           change(5, 2),
		"end beyond":        change(6, 200),
		"end before":        change(10, 1),
		"element count":     change(list, 200),
		"element end":       change(list+5, 9),
		"element order":     change(list+9, 0),
		"null key":          change(mapAt+4, 1),
		"map count":         change(mapAt, 2),
		"bytes after array": change(list, 1),
	} {
		r := row.NewReader(memory.DefaultAllocator, oneSchema(s), s.Columns)
		if err := r.Append(good); err != nil {
			t.Fatal(err)
		}
		if err := r.Append(b); !errs.Is(err, errs.CorruptData) {
			t.Errorf("%s: %v", name, err)
		}
		if r.Len() != 0 {
			t.Errorf("%s: %d rows are left", name, r.Len())
		}
		if err := r.Append(good); err != nil {
			t.Errorf("%s, after it: %v", name, err)
		}
		got := r.Record()
		if err := equalRecords(rec, got); err != nil {
			t.Errorf("%s, after it: %v", name, err)
		}
		got.Release()
	}
}

// A few bytes that stand for gigabytes of Arrow NULLs are refused before any
// memory is taken.
func TestReaderBoundsMemory(t *testing.T) {
	for _, typ := range []string{"ARRAY<BINARY(1048576)>", "ARRAY<ROW<a BINARY(1048576), b INT>>", "MAP<INT, BINARY(1048576)>"} {
		s := &millrace.Schema{ID: 1, Columns: []millrace.Column{column(1, "c0", typ)}}
		n := 1000
		value := binary.LittleEndian.AppendUint32(nil, uint32(n))
		if strings.HasPrefix(typ, "MAP") {
			value = append(value, make([]byte, n/8+n*4)...)
		}
		value = append(value, []byte(strings.Repeat("\xff", n/8))...)
		value = append(value, make([]byte, n*4)...)
		b := binary.LittleEndian.AppendUint32([]byte{1, 0, 0, 0, 0}, uint32(len(value)))
		b = append(b, value...)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r := row.NewReader(memory.DefaultAllocator, oneSchema(s), s.Columns)
		if err := r.Append(b); !errs.Is(err, errs.TooLarge) {
			t.Errorf("%s: %v", typ, err)
		}
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
			t.Errorf("%s: took %d bytes", typ, got)
		}
	}
}

// Bytes() is near the size of the Arrow buffers, so that batches can be cut by it.
func TestReaderBytes(t *testing.T) {
	s := &millrace.Schema{ID: 1, Columns: columnsOf(parse("BIGINT"), parse("STRING"), parse("DOUBLE"), parse("BYTES"))}
	rapid.Check(t, func(t *rapid.T) {
		rec := drawRecord(t, s.Columns, false)
		defer rec.Release()
		b := row.NewCodec(s).AppendRow(nil, rec, 0)
		r := row.NewReader(memory.DefaultAllocator, oneSchema(s), s.Columns)
		const n = 1000
		for range n {
			if err := r.Append(b); err != nil {
				t.Fatal(err)
			}
		}
		about := r.Bytes()
		got := r.Record()
		defer got.Release()
		size := 0
		for _, c := range got.Columns() {
			size += int(c.Data().SizeInBytes())
		}
		if about < size*8/10 || about > size*12/10 {
			t.Fatalf("Bytes() = %d for %d", about, size)
		}
		if r.Bytes() != 0 || r.Len() != 0 {
			t.Fatalf("%d bytes and %d rows after Record", r.Bytes(), r.Len())
		}
	})
}

// No bytes make the reader, Check or AppendKeyOfRow panic or take much memory;
// errors have the codes they should; and what is read, written and read again is
// the same.
func FuzzReader(f *testing.F) {
	types := make([]millrace.DataType, 0, len(scalarTypes)+4)
	for _, s := range scalarTypes {
		types = append(types, parse(s))
	}
	types = append(types, parse("ARRAY<ARRAY<STRING>>"), parse("MAP<STRING, ROW<a INT, b ARRAY<BOOLEAN>>>"),
		parse("ROW<a DECIMAL(10,2), b MAP<INT, BYTES>, c BINARY(20)>"), parse("ARRAY<BINARY(40)>"))
	s := &millrace.Schema{ID: 1, Columns: columnsOf(types...)}
	c := row.NewCodec(s)
	keyed := &millrace.Schema{ID: 1, Columns: columnsOf(parse("STRING"), parse("BINARY(17)"), parse("INT"))}
	keys := row.NewCodec(keyed)
	example := rapid.Custom(func(t *rapid.T) []byte { return c.AppendRow(nil, drawRecord(t, s.Columns, true), 0) })
	for i := range 20 {
		f.Add(example.Example(i))
	}
	f.Add(keys.AppendPartial(nil, row.Project(exampleRecord(keyed), []int{0}), []int{0}, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<20 {
			t.Skip("rows are at most 1 MiB")
		}
		r := row.NewReader(memory.DefaultAllocator, oneSchema(s), s.Columns)
		err := r.Append(b)
		if err != nil && !errs.Is(err, errs.CorruptData) && !errs.Is(err, errs.TooLarge) {
			t.Fatal(err)
		}
		if err == nil {
			rec := r.Record()
			defer rec.Release()
			for _, col := range rec.Columns() {
				if v, ok := col.(interface{ ValidateFull() error }); ok && !strings.Contains(col.DataType().String(), "utf8") {
					if err := v.ValidateFull(); err != nil {
						t.Fatalf("%v: %v", col.DataType(), err)
					}
				}
			}
			// What was read is written so that it reads the same.
			again := c.AppendRow(nil, rec, 0)
			rec2 := mustRead(t, s, s.Columns, [][]byte{again})
			defer rec2.Release()
			if err := equalRecords(rec, rec2); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := keys.AppendKeyOfRow(nil, b, []int{2, 0, 1}); err != nil && !errs.Is(err, errs.CorruptData) {
			t.Fatal(err)
		}
		if err := keys.Check(b); err == nil {
			keys.AppendMerged(nil, b, b, []bool{true, false, true})
			keys.IsNull(b, 2)
		} else if !errs.Is(err, errs.CorruptData) {
			t.Fatal(err)
		}
	})
}

func exampleRecord(s *millrace.Schema) arrow.RecordBatch {
	return rapid.Custom(func(t *rapid.T) arrow.RecordBatch { return drawRecord(t, s.Columns, false) }).Example(1)
}
