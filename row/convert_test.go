package row_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row"
)

// drawLater draws what ALTER TABLE may make of columns: some dropped, added, renamed,
// widened, moved; nested fields too. keep says that there must be one left.
func drawLater(t *rapid.T, cols []millrace.Column, next *millrace.ColumnID, keep bool) []millrace.Column {
	var out []millrace.Column
	for i, c := range cols {
		if rapid.IntRange(0, 5).Draw(t, "drop") == 0 && (!keep || len(out) > 0 || i < len(cols)-1) {
			continue
		}
		if rapid.IntRange(0, 3).Draw(t, "rename") == 0 {
			c.Name += "_"
		}
		c.Type = drawWider(t, c.Type, next)
		out = append(out, c)
	}
	for range rapid.IntRange(0, 2).Draw(t, "adds") {
		c := millrace.Column{Name: "a" + string(rune('a'+*next)), Type: drawType(t, 1), Nullable: true}
		c.ID = *next
		*next = numberColumns(c.Type.Children, *next+1)
		out = slices.Insert(out, rapid.IntRange(0, len(out)).Draw(t, "at"), c)
	}
	return out
}

func drawWider(t *rapid.T, typ millrace.DataType, next *millrace.ColumnID) millrace.DataType {
	switch typ.Kind {
	case millrace.TinyInt, millrace.SmallInt, millrace.Int:
		typ.Kind = millrace.Kind(rapid.IntRange(int(typ.Kind), int(millrace.BigInt)).Draw(t, "width"))
	case millrace.Float:
		typ.Kind = rapid.SampledFrom([]millrace.Kind{millrace.Float, millrace.Double}).Draw(t, "float")
	case millrace.Decimal:
		typ.Precision = rapid.IntRange(typ.Precision, millrace.MaxDecimalPrecision).Draw(t, "precision")
	case millrace.Row:
		typ.Children = drawLater(t, typ.Children, next, true)
	case millrace.Array, millrace.Map:
		typ.Children = slices.Clone(typ.Children)
		for i := range typ.Children {
			typ.Children[i].Type = drawWider(t, typ.Children[i].Type, next)
		}
	default:
	}
	return typ
}

// A rewritten row is, byte for byte, the row that the later schema's codec makes of
// what a reader of the later columns reads from the first; and who wants the first
// columns still reads what was not dropped.
func TestConvert(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from := &millrace.Schema{ID: 1, Columns: drawColumns(t, 3)}
		next := millrace.ColumnID(1000)
		to := &millrace.Schema{ID: 2, Columns: drawLater(t, from.Columns, &next, true)}
		rec := drawRecord(t, from.Columns, true)
		defer rec.Release()
		c, err := row.NewConverter(from, to)
		if err != nil {
			t.Fatal(err)
		}
		rows := encodeAll(row.NewCodec(from), rec)
		aligned := mustRead(t, from, to.Columns, rows)
		want := encodeAll(row.NewCodec(to), aligned)
		for i, r := range rows {
			got, err := c.Append([]byte("before"), r)
			if err != nil {
				t.Fatal(err)
			}
			if !row.Equal(got[len("before"):], want[i]) {
				t.Fatalf("row %d is rewritten as\n%x, not\n%x", i, got, want[i])
			}
		}
		var left []millrace.Column
		for _, col := range from.Columns {
			if to.IndexID(col.ID) >= 0 && !col.Type.Nested() {
				left = append(left, col)
			}
		}
		back := mustRead(t, to, left, want)
		straight := mustRead(t, from, left, rows)
		if err := equalRecords(straight, back); err != nil {
			t.Fatal(err)
		}
	})
}

// Damage never makes rewriting panic: it is corrupt_data, or another row.
func TestConvertDamaged(t *testing.T) {
	from := &millrace.Schema{ID: 1, Columns: columnsOf(parse("INT"), parse("STRING"), parse("ARRAY<ROW<a INT, b STRING>>"), parse("MAP<INT, ARRAY<TINYINT>>"))}
	to := &millrace.Schema{ID: 2, Columns: columnsOf(parse("BIGINT"), parse("STRING"), parse("ARRAY<ROW<a BIGINT, b STRING>>"), parse("MAP<BIGINT, ARRAY<INT>>"))}
	rec := fromJSON(t, from.Columns, `[{"c0": 5, "c1": "ab", "c2": [{"a": 1, "b": "x"}, null], "c3": [{"key": 1, "value": [1, 2, null]}]}]`)
	defer rec.Release()
	c, err := row.NewConverter(from, to)
	if err != nil {
		t.Fatal(err)
	}
	good := encodeAll(row.NewCodec(from), rec)[0]
	for i := range good {
		for _, bit := range []byte{1, 2, 64, 128, 255} {
			bad := slices.Clone(good)
			bad[i] ^= bit
			if _, err := c.Append(nil, bad); err != nil && !errs.Is(err, errs.CorruptData) {
				t.Fatalf("byte %d: %v", i, err)
			}
		}
		if _, err := c.Append(nil, good[:i]); !errs.Is(err, errs.CorruptData) {
			t.Fatalf("cut at %d: %v", i, err)
		}
	}
}

// What is not a widening is refused before a row is touched.
func TestConvertRefuses(t *testing.T) {
	for _, tc := range []struct{ from, to string }{
		{"BIGINT", "INT"}, {"DOUBLE", "FLOAT"}, {"DECIMAL(10,2)", "DECIMAL(9,2)"}, {"STRING", "BYTES"}, {"ARRAY<BIGINT>", "ARRAY<INT>"},
	} {
		from := &millrace.Schema{ID: 1, Columns: columnsOf(parse(tc.from))}
		to := &millrace.Schema{ID: 2, Columns: columnsOf(parse(tc.to))}
		if _, err := row.NewConverter(from, to); !errs.Is(err, errs.SchemaChanged) {
			t.Errorf("%s to %s: %v", tc.from, tc.to, err)
		}
	}
}
