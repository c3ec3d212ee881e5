package jsonrow

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row"
)

// typeVector is one entry of e2e/testdata/types.json.
type typeVector struct {
	Type   string `json:"type"`
	Values []struct {
		JSON json.RawMessage   `json:"json"`
		Also []json.RawMessage `json:"also"`
	} `json:"values"`
	Bad []struct {
		JSON json.RawMessage `json:"json"`
		Code errs.Code       `json:"code"`
	} `json:"bad"`
}

func readVectors(t testing.TB) []typeVector {
	t.Helper()
	b, err := os.ReadFile("../../e2e/testdata/types.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Vectors []typeVector `json:"vectors"`
	}
	if err := json.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	return file.Vectors
}

func typeOf(t testing.TB, sql string) millrace.DataType {
	t.Helper()
	typ, err := millrace.ParseType(sql)
	if err != nil {
		t.Fatal(err)
	}
	return typ
}

// column1 is the nullable column v.
func column1(t testing.TB, sql string) []millrace.Column {
	return []millrace.Column{{ID: 1, Name: "v", Type: typeOf(t, sql), Nullable: true}}
}

func object1(value []byte) []byte {
	return append(append([]byte(`{"v":`), value...), '}')
}

// tree reads JSON with the text of its numbers kept.
func tree(t testing.TB, b []byte) any {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	return v
}

func encodeAll(rows row.Rows, opts EncodeOptions) [][]byte {
	e := NewEncoder(rows.Columns, opts)
	e.Bind(rows.Record)
	var out [][]byte
	for i := range rows.Len() {
		out = append(out, e.AppendObject(nil, i))
	}
	return out
}

// TestVectors runs the vector file: every canonical value and every accepted
// spelling of it comes back as the canonical text, and every bad value is refused
// with its code and leaves no trace.
func TestVectors(t *testing.T) {
	vectors := readVectors(t)
	if len(vectors) < 30 {
		t.Fatalf("only %d vectors", len(vectors))
	}
	for _, v := range vectors {
		t.Run(v.Type, func(t *testing.T) {
			cols := column1(t, v.Type)
			d := NewDecoder(cols, Options{})
			var want []any
			for _, val := range v.Values {
				for _, text := range append([]json.RawMessage{val.JSON}, val.Also...) {
					if err := d.AddObject(object1(text), 0); err != nil {
						t.Errorf("%s: %v", text, err)
						continue
					}
					want = append(want, tree(t, val.JSON))
				}
				for _, bad := range v.Bad {
					err := d.AddObject(object1(bad.JSON), 7)
					if !errs.Is(err, bad.Code) {
						t.Errorf("%s: got %v, want %s", bad.JSON, err, bad.Code)
					}
				}
			}
			rows := d.Finish()
			defer rows.Release()
			var got []any
			for _, text := range encodeAll(rows, EncodeOptions{}) {
				got = append(got, tree(t, text).(map[string]any)["v"])
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("not what went in (-want +got):\n%s", diff)
			}
		})
	}
}

// TestVectorsAsKeys shows that the text of a key in a path or query means the
// same as its JSON value, for all types that may be in a key.
func TestVectorsAsKeys(t *testing.T) {
	for _, v := range readVectors(t) {
		typ := typeOf(t, v.Type)
		if typ.Nested() || typ.Kind == millrace.Float || typ.Kind == millrace.Double {
			continue
		}
		t.Run(v.Type, func(t *testing.T) {
			d := NewDecoder(column1(t, v.Type), Options{Key: []string{"v"}, KeyOnly: true})
			var want []any
			for _, val := range v.Values {
				for _, text := range append([]json.RawMessage{val.JSON}, val.Also...) {
					var s string
					switch err := json.Unmarshal(text, &s); {
					case string(text) == "null":
						continue
					case err != nil:
						s = string(text)
					}
					if err := d.AddTexts([]string{"v"}, []string{s}, 0); err != nil {
						t.Errorf("%s: %v", text, err)
						continue
					}
					want = append(want, tree(t, val.JSON))
				}
			}
			rows := d.Finish()
			defer rows.Release()
			var got []any
			for _, text := range encodeAll(rows, EncodeOptions{}) {
				got = append(got, tree(t, text).(map[string]any)["v"])
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("not what went in (-want +got):\n%s", diff)
			}
		})
	}
}
