package arrowrow

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

func field(name string, typ arrow.DataType) arrow.Field {
	return arrow.Field{Name: name, Type: typ, Nullable: true}
}

func schemaOf(fields ...arrow.Field) *arrow.Schema { return arrow.NewSchema(fields, nil) }

var (
	i32      = arrow.PrimitiveTypes.Int32
	i64      = arrow.PrimitiveTypes.Int64
	utf8Type = arrow.BinaryTypes.String
)

// faultsOf renders the faults of an error: "row column code".
func faultsOf(err error) []string {
	e, ok := errors.AsType[*errs.Error](err)
	if !ok {
		return []string{fmt.Sprint(err)}
	}
	var out []string
	for _, f := range e.Fields {
		out = append(out, renderFault(f))
	}
	return out
}

func renderFault(f errs.FieldError) string {
	if f.Index == nil {
		return fmt.Sprintf("%s %s", f.Field, f.Code)
	}
	return fmt.Sprintf("%d %s %s", *f.Index, f.Field, f.Code)
}

// TestPlan shows how columns are matched, and that all that are at fault are named.
func TestPlan(t *testing.T) {
	cols := columnsOf(t, "id BIGINT NOT NULL, name STRING NOT NULL, note STRING, r ROW<a INT NOT NULL, b STRING>, tags ARRAY<INT>")
	cols = append(cols, millrace.Column{ID: 9, Name: "seq", Type: typeOf(t, "BIGINT"), AutoIncrement: true})
	key := []string{"id"}
	tests := []struct {
		name   string
		schema *arrow.Schema
		opts   Options
		want   string // columns of the rows, or faults
	}{
		{"any order", schemaOf(field("note", utf8Type), field("name", utf8Type), field("id", i64)), Options{Key: key}, "id name note r tags seq"},
		{"pandas index", schemaOf(field("id", i64), field("name", utf8Type), field("__index_level_0__", arrow.FixedWidthTypes.Date32), field("__index_level_12__", i64)), Options{Key: key}, "id name note r tags seq"},
		{"no key, no name", schemaOf(field("note", utf8Type)), Options{Key: key}, "id missing_key; name missing_column"},
		{"unknown, twice, mismatch", schemaOf(field("id", i64), field("x", i64), field("id", i64), field("name", i64)), Options{Key: key}, "x unknown_column; id duplicate_field; name type_mismatch"},
		{"other case", schemaOf(field("ID", i64), field("name", utf8Type)), Options{Key: key}, "ID unknown_column; id missing_key"},
		{"not an index", schemaOf(field("id", i64), field("name", utf8Type), field("__index_level_x__", i64), field("__index_level___", i64)), Options{Key: key}, "__index_level_x__ unknown_column; __index_level___ unknown_column"},
		{"system column", schemaOf(field("id", i64), field("name", utf8Type), field("_log_offset", i64)), Options{Key: key}, "_log_offset unknown_column"},
		{"change type not allowed", schemaOf(field("id", i64), field("name", utf8Type), field("_change_type", utf8Type)), Options{Key: key}, "_change_type unknown_column"},
		{"change type", schemaOf(field("_change_type", utf8Type), field("id", i64)), Options{Key: key, AllowChangeType: true}, "id name note r tags seq"},
		{"change type of numbers", schemaOf(field("_change_type", i64), field("id", i64)), Options{Key: key, AllowChangeType: true}, "_change_type type_mismatch"},
		{"partial", schemaOf(field("note", utf8Type), field("id", i64)), Options{Key: key, Partial: true}, "id note"},
		{"partial, no key", schemaOf(field("note", utf8Type)), Options{Key: key, Partial: true}, "id missing_key"},
		{"key only", schemaOf(field("id", i32)), Options{Key: key, KeyOnly: true}, "id"},
		{"struct lacks a field", schemaOf(field("id", i64), field("name", utf8Type), field("r", arrow.StructOf(field("b", utf8Type)))), Options{Key: key}, "r.a missing_column"},
		{"struct has a field", schemaOf(field("id", i64), field("name", utf8Type), field("r", arrow.StructOf(field("a", i32), field("z", utf8Type)))), Options{Key: key}, "r.z unknown_field"},
		{"struct of another type", schemaOf(field("id", i64), field("name", utf8Type), field("r", arrow.StructOf(field("a", utf8Type)))), Options{Key: key}, "r.a type_mismatch"},
		{"list of another type", schemaOf(field("id", i64), field("name", utf8Type), field("tags", arrow.ListOf(arrow.ListOf(i32)))), Options{Key: key}, "tags[] type_mismatch"},
	}
	for _, tt := range tests {
		p, err := NewPlan(tt.schema, cols, tt.opts)
		got := strings.Join(faultsOf(err), "; ")
		if err == nil {
			var names []string
			for _, c := range p.Columns() {
				names = append(names, c.Name)
			}
			got = strings.Join(names, " ")
		}
		if got != tt.want {
			t.Errorf("%s: got  %s\nwant %s (%v)", tt.name, got, tt.want, err)
		}
	}
	_, err := NewPlan(schemaOf(field("id", arrow.ListOf(i64)), field("name", utf8Type)), cols, Options{})
	if err == nil || err.Error() != `column "id": Arrow type list<item: int64, nullable> cannot be cast to BIGINT` {
		t.Error(err)
	}
}

// conformed runs batches through a plan.
func conformed(t *testing.T, cols []millrace.Column, opts Options, recs ...arrow.RecordBatch) ([]string, error) {
	t.Helper()
	p, err := NewPlan(recs[0].Schema(), cols, opts)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, rec := range recs {
		rows, err := p.Conform(rec)
		if err != nil {
			return out, err
		}
		if err := array.ValidateRecordFull(rows.Record); err != nil {
			t.Fatal(err)
		}
		out = append(out, rendered(rows)...)
		rows.Release()
	}
	return out, nil
}

// TestFaultsOfRows shows that values at fault are found wherever they are, each row
// once, numbered from the beginning of the stream, with the path to the value; and
// that what lies below a NULL, where Arrow allows anything, is of no matter.
func TestFaultsOfRows(t *testing.T) {
	cols := columnsOf(t, "id TINYINT NOT NULL, name CHAR(2), r ROW<a TINYINT NOT NULL, b ARRAY<CHAR(1) NOT NULL>>, m MAP<STRING, TINYINT NOT NULL>, t TIMESTAMP(0)")
	schema := schemaOf(field("id", i64), field("name", utf8Type),
		field("r", arrow.StructOf(field("a", i64), field("b", arrow.ListOf(utf8Type)))),
		field("m", arrow.MapOf(utf8Type, i64)), field("t", &arrow.TimestampType{Unit: arrow.Millisecond}))
	good := record(t, schema, `[{"id":1,"name":"ab","r":{"a":1,"b":["x","é"]},"m":[{"key":"k","value":1}],"t":"2026-11-29T10:00:00"},{"id":2}]`)
	bad := record(t, schema, `[
		{"id":3},
		{"id":128,"name":"toolong"},
		{"name":"ab"},
		{"id":4,"r":{"a":1,"b":["x","toolong"]}},
		{"id":5,"r":{"a":1,"b":[null]}},
		{"id":6,"r":{"a":null}},
		{"id":7,"r":{"a":1000}},
		{"id":8,"m":[{"key":"a","value":1},{"key":"b","value":null}]},
		{"id":9,"m":[{"key":"a","value":1},{"key":"b","value":1},{"key":"a","value":2}]},
		{"id":10,"t":"2026-11-29T10:00:00.5"},
		{"id":11,"name":"é€"}]`)
	got, err := conformed(t, cols, Options{Key: []string{"id"}}, good)
	want := []string{
		`{"id":1,"name":"ab","r":{"a":1,"b":["x","é"]},"m":{"k":1},"t":"2026-11-29T10:00:00"}`,
		`{"id":2,"name":null,"r":null,"m":null,"t":null}`,
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Fatal(err, diff)
	}
	_, err = conformed(t, cols, Options{Key: []string{"id"}}, good, bad)
	if diff := cmp.Diff([]string{
		"3 id value_out_of_range", "4 id null_not_allowed", "5 r.b[1] value_out_of_range", "6 r.b[0] null_not_allowed", "7 r.a null_not_allowed",
		"8 r.a value_out_of_range", "9 m[1].value null_not_allowed", "10 m duplicate_field", "11 t value_out_of_range",
	}, faultsOf(err)); diff != "" {
		t.Error(diff)
	}
	if errs.CodeOf(err) != errs.ValueOutOfRange || !strings.HasPrefix(err.Error(), `row 3, column "id": 128 does not fit TINYINT; and 8 more rows at fault`) {
		t.Error(err)
	}

	p, err := NewPlan(schema, cols, Options{Key: []string{"id"}})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		rows, rejected, err := p.Sift(bad)
		if err != nil {
			t.Fatal(err)
		}
		if err := array.ValidateRecordFull(rows.Record); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{`{"id":3,"name":null,"r":null,"m":null,"t":null}`, `{"id":11,"name":"é€","r":null,"m":null,"t":null}`}, rendered(rows)); diff != "" {
			t.Error(diff)
		}
		if rejected.Rows != 9 || len(rejected.Errors) != 9 {
			t.Errorf("%d rejected, %d listed", rejected.Rows, len(rejected.Errors))
		}
		rows.Release()
	}
	_, rejected, _ := p.Sift(bad)
	if got := renderFault(rejected.Errors[0]); got != "23 id value_out_of_range" {
		t.Errorf("in the third batch: %s", got)
	}
}

// TestBelowNull shows that children of NULL structs, lists and maps may hold
// anything, as other writers leave there.
func TestBelowNull(t *testing.T) {
	mem := memory.DefaultAllocator
	ints := func(json string) arrow.ArrayData {
		a, _, err := array.FromJSON(mem, i64, strings.NewReader(json))
		if err != nil {
			t.Fatal(err)
		}
		return a.Data()
	}
	texts, _, err := array.FromJSON(mem, utf8Type, strings.NewReader(`["a","a",null]`))
	if err != nil {
		t.Fatal(err)
	}
	bitmap := memory.NewBufferBytes([]byte{0b101})
	offsets := memory.NewBufferBytes(arrow.Int32Traits.CastToBytes([]int32{0, 0, 3, 3}))
	structType := arrow.StructOf(field("a", i64))
	listType := arrow.ListOf(i64)
	entries := array.NewData(arrow.StructOf(arrow.Field{Name: "key", Type: utf8Type}, field("value", i64)), 3, []*memory.Buffer{nil}, []arrow.ArrayData{texts.Data(), ints(`[1,2,3]`)}, 0, 0)
	pairs := arrow.ListOf(entries.DataType())
	arrays := []arrow.Array{
		array.MakeFromData(array.NewData(structType, 3, []*memory.Buffer{bitmap}, []arrow.ArrayData{ints(`[1,null,3]`)}, 1, 0)),
		array.MakeFromData(array.NewData(structType, 3, []*memory.Buffer{bitmap}, []arrow.ArrayData{ints(`[1,1000,3]`)}, 1, 0)),
		array.MakeFromData(array.NewData(listType, 3, []*memory.Buffer{bitmap, offsets}, []arrow.ArrayData{ints(`[1,1000,null]`)}, 1, 0)),
		array.MakeFromData(array.NewData(pairs, 3, []*memory.Buffer{bitmap, offsets}, []arrow.ArrayData{entries}, 1, 0)),
	}
	schema := schemaOf(field("s", structType), field("t", structType), field("l", listType), field("m", pairs))
	got, err := conformed(t, columnsOf(t, "s ROW<a TINYINT NOT NULL>, t ROW<a TINYINT NOT NULL>, l ARRAY<TINYINT NOT NULL>, m MAP<STRING, TINYINT>"), Options{}, array.NewRecordBatch(schema, arrays, 3))
	want := []string{`{"s":{"a":1},"t":{"a":1},"l":[],"m":{}}`, `{"s":null,"t":null,"l":null,"m":null}`, `{"s":{"a":3},"t":{"a":3},"l":[],"m":{}}`}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

// TestChangeTypes shows that change types are read from text and dictionaries, and
// that rows which delete need only their key.
func TestChangeTypes(t *testing.T) {
	cols := columnsOf(t, "id INT NOT NULL, name STRING NOT NULL")
	opts := Options{Key: []string{"id"}, AllowChangeType: true}
	for _, typ := range []arrow.DataType{utf8Type, arrow.BinaryTypes.LargeString, &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: utf8Type}} {
		schema := schemaOf(field("id", i32), field("_change_type", typ), field("name", utf8Type))
		got, err := conformed(t, cols, opts, record(t, schema, `[{"id":1,"_change_type":"+I","name":"a"},{"id":1,"_change_type":"-U"},{"id":1,"_change_type":"+U","name":"b"},{"id":1,"_change_type":"-D"}]`))
		want := []string{`+I {"id":1,"name":"a"}`, `-U {"id":1,"name":null}`, `+U {"id":1,"name":"b"}`, `-D {"id":1,"name":null}`}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Error(typ, err, diff)
		}
		_, err = conformed(t, cols, opts, record(t, schema, `[{"id":1,"_change_type":"+U"},{"_change_type":"-D"},{"id":1,"name":"x"},{"id":1,"_change_type":"+X","name":"x"}]`))
		if diff := cmp.Diff([]string{"0 name null_not_allowed", "1 id null_not_allowed", "2 _change_type null_not_allowed", "3 _change_type invalid_value"}, faultsOf(err)); diff != "" {
			t.Error(diff)
		}
	}
	noName := schemaOf(field("id", i32), field("_change_type", utf8Type))
	got, err := conformed(t, cols, opts, record(t, noName, `[{"id":1,"_change_type":"-D"}]`))
	if diff := cmp.Diff([]string{`-D {"id":1,"name":null}`}, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	_, err = conformed(t, cols, opts, record(t, noName, `[{"id":1,"_change_type":"-D"},{"id":1,"_change_type":"+U"}]`))
	if diff := cmp.Diff([]string{"1 name missing_column"}, faultsOf(err)); diff != "" {
		t.Error(diff)
	}
	got, err = conformed(t, cols, Options{Key: []string{"id"}, KeyOnly: true}, record(t, schemaOf(field("name", utf8Type), field("id", i32)), `[{"id":1}]`))
	if diff := cmp.Diff([]string{`{"id":1,"name":null}`}, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

// TestNumbered shows that rows give no value to a column that the server numbers,
// unless they delete or only their key counts.
func TestNumbered(t *testing.T) {
	cols := columnsOf(t, "id BIGINT NOT NULL, seq BIGINT NOT NULL")
	cols[1].AutoIncrement = true
	schema := schemaOf(field("id", i64), field("seq", i64), field("_change_type", utf8Type))
	rec := record(t, schema, `[{"id":1,"seq":5,"_change_type":"+I"},{"id":2,"_change_type":"+I"},{"id":3,"seq":6,"_change_type":"-D"},{"id":4,"seq":7,"_change_type":"-U"},{"id":5,"seq":8,"_change_type":"+U"}]`)
	_, err := conformed(t, cols, Options{Key: []string{"id"}, AllowChangeType: true}, rec)
	if diff := cmp.Diff([]string{"0 seq invalid_value", "4 seq invalid_value"}, faultsOf(err)); diff != "" {
		t.Error(diff)
	}
	schema = schemaOf(field("id", i64), field("seq", i64))
	rec = record(t, schema, `[{"id":1},{"id":2,"seq":5}]`)
	for _, o := range []Options{{Key: []string{"id"}}, {Key: []string{"id"}, Partial: true}} {
		_, err = conformed(t, cols, o, rec)
		if diff := cmp.Diff([]string{"1 seq invalid_value"}, faultsOf(err)); diff != "" {
			t.Error(diff)
		}
	}
	got, err := conformed(t, cols, Options{Key: []string{"id"}, KeyOnly: true}, rec)
	if diff := cmp.Diff([]string{`{"id":1,"seq":null}`, `{"id":2,"seq":5}`}, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

// TestNoCopy shows that values of the right type are taken as they lie.
func TestNoCopy(t *testing.T) {
	cols := columnsOf(t, "a BIGINT, b STRING, c ARRAY<DOUBLE>, d BINARY(3), e TIMESTAMP(6), f DECIMAL(10,2), g BOOLEAN, h ROW<x DATE>")
	rec := record(t, schemaOf(field("a", i64), field("b", utf8Type), field("c", arrow.ListOf(arrow.PrimitiveTypes.Float64)), field("d", &arrow.FixedSizeBinaryType{ByteWidth: 3}),
		field("e", &arrow.TimestampType{Unit: arrow.Microsecond}), field("f", &arrow.Decimal128Type{Precision: 10, Scale: 2}), field("g", arrow.FixedWidthTypes.Boolean), field("h", arrow.StructOf(field("x", arrow.FixedWidthTypes.Date32)))),
		`[{"a":1,"b":"x","c":[0.5],"d":"AQID","e":"2026-11-29T10:00:00","f":"1.25","g":true,"h":{"x":"2026-11-29"}}]`)
	p, err := NewPlan(rec.Schema(), cols, Options{})
	if err != nil {
		t.Fatal(err)
	}
	rows, err := p.Conform(rec)
	if err != nil {
		t.Fatal(err)
	}
	var same func(name string, a, b arrow.ArrayData)
	same = func(name string, a, b arrow.ArrayData) {
		for i, buf := range a.Buffers() {
			if buf != nil && buf.Len() > 0 && (b.Buffers()[i] == nil || &buf.Bytes()[0] != &b.Buffers()[i].Bytes()[0]) {
				t.Errorf("column %s: buffer %d was copied", name, i)
			}
		}
		for i := range a.Children() {
			same(name, a.Children()[i], b.Children()[i])
		}
	}
	for i, c := range cols {
		same(c.Name, rec.Column(i).Data(), rows.Record.Column(i).Data())
	}
}

// TestText shows that text which is not UTF-8 is found, also where the bytes as a
// whole are and a text begins inside a character.
func TestText(t *testing.T) {
	make3 := func(data string, offsets ...int32) arrow.Array {
		return array.MakeFromData(array.NewData(utf8Type, len(offsets)-1, []*memory.Buffer{nil, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(offsets)), memory.NewBufferBytes([]byte(data))}, nil, 0, 0))
	}
	for _, tt := range []struct {
		arr  arrow.Array
		want []string
	}{
		{make3("aéb", 0, 1, 3, 4), nil},
		{make3("aéb", 0, 1, 1, 4), nil},
		{make3("aéb", 0, 2, 3, 4), []string{"0 v invalid_value", "1 v invalid_value"}},
		{make3("a\xffb", 0, 1, 2, 3), []string{"1 v invalid_value"}},
		{make3("\xffab\xff", 1, 2, 2, 3), nil}, // what no text refers to is of no matter
	} {
		_, err := conformed(t, columnsOf(t, "v STRING"), Options{}, array.NewRecordBatch(schemaOf(field("v", utf8Type)), []arrow.Array{tt.arr}, 3))
		if diff := cmp.Diff(tt.want, faultsOf(err)); err == nil && tt.want != nil || err != nil && diff != "" {
			t.Error(err, diff)
		}
	}
}

// TestUnfolding shows that what a small message would unfold into is known before
// it is: dictionaries, views, list views and columns of NULL.
func TestUnfolding(t *testing.T) {
	mem := memory.DefaultAllocator
	const n = 1 << 20
	long := strings.Repeat("x", 1<<20)
	bytesOf := func(n int) *memory.Buffer { return memory.NewBufferBytes(make([]byte, n)) }
	texts := array.NewStringBuilder(mem)
	texts.Append(long)
	dictType := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: utf8Type}
	dict := array.MakeFromData(array.NewDataWithDictionary(dictType, n, []*memory.Buffer{nil, bytesOf(n)}, 0, 0, texts.NewArray().Data().(*array.Data)))

	header := arrow.ViewHeader{}
	header.SetString(long)
	header.SetIndexOffset(0, 0)
	views := make([]arrow.ViewHeader, n)
	for i := range views {
		views[i] = header
	}
	view := array.MakeFromData(array.NewData(arrow.BinaryTypes.StringView, n, []*memory.Buffer{nil, memory.NewBufferBytes(arrow.ViewHeaderTraits.CastToBytes(views)), memory.NewBufferBytes([]byte(long))}, nil, 0, 0))

	child := array.MakeFromData(array.NewData(arrow.PrimitiveTypes.Int8, n, []*memory.Buffer{nil, bytesOf(n)}, nil, 0, 0))
	sizes := make([]int32, n)
	for i := range sizes {
		sizes[i] = n
	}
	lists := array.MakeFromData(array.NewData(arrow.ListViewOf(child.DataType()), n, []*memory.Buffer{nil, bytesOf(4 * n), memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(sizes))}, []arrow.ArrayData{child.Data()}, 0, 0))
	fewer := array.MakeFromData(array.NewData(lists.DataType(), 1<<10, lists.Data().Buffers(), lists.Data().Children(), 0, 0))
	nulls := array.NewNull(n)
	nullLists := array.MakeFromData(array.NewData(arrow.FixedSizeListOf(400, arrow.Null), n, []*memory.Buffer{nil}, []arrow.ArrayData{array.NewNull(400 * n).Data()}, 0, 0))
	for name, tt := range map[string]struct {
		arr arrow.Array
		sql string
	}{
		"dictionary":       {dict, "STRING"},
		"view":             {view, "STRING"},
		"list view":        {lists, "ARRAY<TINYINT>"},
		"fewer list views": {fewer, "ARRAY<TINYINT>"},
		"null":             {nulls, "BINARY(1000)"},
		"null rows":        {nulls, "ROW<a ROW<b BINARY(1000), c DOUBLE>>"},
		"lists of null":    {nullLists, "ARRAY<BIGINT>"},
		"wider decimals":   {array.MakeFromData(array.NewData(arrow.PrimitiveTypes.Int8, 8*n, []*memory.Buffer{nil, bytesOf(8 * n)}, nil, 0, 0)), "DECIMAL(10,2)"},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := conformed(t, columnsOf(t, "v "+tt.sql), Options{}, array.NewRecordBatch(schemaOf(field("v", tt.arr.DataType())), []arrow.Array{tt.arr}, int64(tt.arr.Len())))
			runtime.ReadMemStats(&after)
			if !errs.Is(err, errs.TooLarge) {
				t.Error(err)
			}
			if mb := (after.TotalAlloc - before.TotalAlloc) >> 20; mb > 64 {
				t.Errorf("%d MiB were allocated", mb)
			}
			if took := time.Since(start); took > hang {
				t.Errorf("took %v", took)
			}
		})
	}
}

// TestListViews shows that list views become lists, in whatever order their values
// lie, and that a value at fault is one in each list that has it.
func TestListViews(t *testing.T) {
	values, _, err := array.FromJSON(memory.DefaultAllocator, arrow.ListOf(i64), strings.NewReader(`[[1],[2,3],[4,1000],null,[5]]`))
	if err != nil {
		t.Fatal(err)
	}
	ints := func(v ...int32) *memory.Buffer { return memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(v)) }
	view := func(offsets, sizes *memory.Buffer) arrow.RecordBatch {
		typ := arrow.ListViewOf(values.DataType())
		arr := array.MakeFromData(array.NewData(typ, 5, []*memory.Buffer{memory.NewBufferBytes([]byte{0b11101}), offsets, sizes}, []arrow.ArrayData{values.Data()}, 1, 0))
		return array.NewRecordBatch(schemaOf(field("v", typ)), []arrow.Array{arr}, 5)
	}
	cols := columnsOf(t, "v ARRAY<ARRAY<TINYINT>>")
	got, err := conformed(t, cols, Options{}, view(ints(3, 0, 0, 1, 4), ints(2, 5, 2, 1, 0)))
	want := []string{`{"v":[null,[5]]}`, `{"v":null}`, `{"v":[[1],[2,3]]}`, `{"v":[[2,3]]}`, `{"v":[]}`}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	_, err = conformed(t, cols, Options{}, view(ints(1, 0, 0, 4, 2), ints(2, 5, 4, 1, 1)))
	if diff := cmp.Diff([]string{"0 v[1][1] value_out_of_range", "2 v[2][1] value_out_of_range", "4 v[0][1] value_out_of_range"}, faultsOf(err)); diff != "" {
		t.Error(diff)
	}
}

// TestManyFaults shows that a batch of nothing but faults is answered in time, with
// a hundred of them listed, whether all rows are at fault or all values of a few.
func TestManyFaults(t *testing.T) {
	const n = 2 << 20
	b := bytes.Repeat([]byte{0x7f}, 2*n)
	arr := array.MakeFromData(array.NewData(arrow.PrimitiveTypes.Int16, n, []*memory.Buffer{nil, memory.NewBufferBytes(b)}, nil, 0, 0))
	lists := array.MakeFromData(array.NewData(arrow.FixedSizeListOf(n/256, arr.DataType()), 256, []*memory.Buffer{nil}, []arrow.ArrayData{arr.Data()}, 0, 0))
	for _, tt := range []struct {
		arr            arrow.Array
		sql, last, all string
	}{
		{arr, "TINYINT", "99 v value_out_of_range", "and 2097151 more rows"},
		{lists, "ARRAY<TINYINT>", "99 v[0] value_out_of_range", "more rows"},
	} {
		rec := array.NewRecordBatch(schemaOf(field("v", tt.arr.DataType())), []arrow.Array{tt.arr}, int64(tt.arr.Len()))
		start := time.Now()
		_, err := conformed(t, columnsOf(t, "v "+tt.sql), Options{}, rec)
		if got := faultsOf(err); len(got) != errs.MaxFieldErrors || got[99] != tt.last || !strings.Contains(err.Error(), tt.all) {
			t.Errorf("%d faults, the last %s: %v", len(got), got[len(got)-1], err)
		}
		if took := time.Since(start); took > hang {
			t.Errorf("took %v", took)
		}
	}
}
