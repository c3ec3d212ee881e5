package row_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/row"
)

// The example of docs/formats/row.md, byte by byte.
func TestRowBytes(t *testing.T) {
	s := &millrace.Schema{ID: 7, Columns: []millrace.Column{
		column(1, "id", "BIGINT"), column(2, "name", "STRING"), column(3, "ok", "BOOLEAN"), column(4, "tags", "ARRAY<STRING>"),
	}}
	rec := fromJSON(t, s.Columns, `[
		{"id": 258, "name": "hi", "ok": null, "tags": ["a", null, "bc"]},
		{"id": null, "name": null, "ok": true, "tags": []}
	]`)
	defer rec.Release()
	c := row.NewCodec(s)
	for i, want := range []string{
		"07000000" + "04" + "0201000000000000" + "02000000" + "00" + "16000000" + "6869" + "03000000" + "02" + "01000000" + "01000000" + "03000000" + "616263",
		"07000000" + "03" + "0000000000000000" + "00000000" + "01" + "04000000" + "00000000",
	} {
		if got := hex.EncodeToString(c.AppendRow(nil, rec, i)); got != want {
			t.Errorf("row %d is\n%s, want\n%s", i, got, want)
		}
	}
}

// Rows and keys that version 1 wrote are read for ever; as long as it is the
// version that is written, the same bytes are written.
func TestGoldenV1(t *testing.T) {
	dir := filepath.Join("testdata", "formats", "row-v1")
	load := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	lines := func(name string) (out [][]byte) {
		for l := range strings.FieldsSeq(string(load(name))) {
			b, err := hex.DecodeString(l)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, b)
		}
		return out
	}
	var s millrace.Schema
	if err := json.Unmarshal(load("schema.json"), &s); err != nil {
		t.Fatal(err)
	}
	want := fromJSON(t, s.Columns, string(load("rows.json")))
	defer want.Release()
	rows := lines("rows.hex")
	got := mustRead(t, &s, s.Columns, rows)
	defer got.Release()
	if err := equalRecords(want, got); err != nil {
		t.Fatal(err)
	}
	c := row.NewCodec(&s)
	for i, b := range rows {
		if again := c.AppendRow(nil, want, i); !bytes.Equal(again, b) {
			t.Errorf("row %d is written as\n%x, and was\n%x", i, again, b)
		}
	}

	// The first row's columns that may be in a key, one key a line.
	keys := lines("keys.hex")
	for i, col := range s.Columns {
		switch col.Type.Kind {
		case millrace.Float, millrace.Double, millrace.Array, millrace.Map, millrace.Row:
			continue
		default:
		}
		key := keys[0]
		keys = keys[1:]
		if again := row.AppendKey(nil, want, []int{i}, 0); !bytes.Equal(again, key) {
			t.Errorf("column %s: key %x, was %x", col.Name, again, key)
		}
		b := row.NewBuilders(memory.DefaultAllocator, []millrace.Column{col})
		if err := row.DecodeKey(key, []millrace.Column{col}, b); err != nil {
			t.Fatal(err)
		}
		value := b[0].NewArray()
		if first := array.NewSlice(want.Column(i), 0, 1); !array.Equal(first, value) {
			t.Errorf("column %s: key %x reads as %v, want %v", col.Name, key, value, first)
		}
	}
	if len(keys) != 0 {
		t.Errorf("%d keys too many", len(keys))
	}
}
