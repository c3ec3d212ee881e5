package arrowrow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/google/go-cmp/cmp"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/row/jsonrow"
)

// typeVector is one entry of e2e/testdata/types.json.
type typeVector struct {
	Type   string `json:"type"`
	Values []struct {
		JSON json.RawMessage `json:"json"`
	} `json:"values"`
	Casts []struct {
		ArrowType string          `json:"arrow_type"`
		JSON      json.RawMessage `json:"json"`
		Code      errs.Code       `json:"code"`
	} `json:"casts"`
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

// columnsOf reads "id BIGINT NOT NULL, name STRING" as columns.
func columnsOf(t testing.TB, list string) []millrace.Column {
	t.Helper()
	cols := typeOf(t, "ROW<"+list+">").Children
	for i := range cols {
		cols[i].ID = millrace.ColumnID(i + 1)
	}
	return cols
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

// rendered is rows as JSON, with their change types when given.
func rendered(rows row.Rows) []string {
	e := jsonrow.NewEncoder(rows.Columns, jsonrow.EncodeOptions{})
	e.Bind(rows.Record)
	var out []string
	for i := range rows.Len() {
		s := string(e.AppendObject(nil, i))
		if rows.Changes != nil {
			s = rows.Changes[i].String() + " " + s
		}
		out = append(out, s)
	}
	return out
}

// only is a batch of one column of another.
func only(rec arrow.RecordBatch, i int) arrow.RecordBatch {
	schema := arrow.NewSchema([]arrow.Field{{Name: "v", Type: rec.Column(i).DataType(), Nullable: true}}, nil)
	return array.NewRecordBatch(schema, []arrow.Array{rec.Column(i)}, rec.NumRows())
}

// TestVectorsFromPyarrow reads what pyarrow wrote of the vector file, plain and
// compressed: every value becomes the one that its JSON stands for, every cast that
// loses something is refused with its code.
func TestVectorsFromPyarrow(t *testing.T) {
	vectors := readVectors(t)
	for _, codec := range []string{"plain", "lz4", "zstd"} {
		b, err := os.ReadFile("testdata/pyarrow_" + codec + ".arrows")
		if err != nil {
			t.Fatal(err)
		}
		r, err := NewReader(bytes.NewReader(b), Limits{})
		if err != nil {
			t.Fatal(err)
		}
		rec, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		defer rec.Release()
		if err := array.ValidateRecordFull(rec); err != nil {
			t.Fatal(err)
		}
		at := 0
		// next is the next column as rows of one type.
		next := func(name, sql string) ([]any, error) {
			if got := rec.ColumnName(at); got != name {
				t.Fatalf("column %d is %s, not %s: run testdata/pyarrow_streams.py again", at, got, name)
			}
			batch := only(rec, at)
			at++
			defer batch.Release()
			plan, err := NewPlan(batch.Schema(), []millrace.Column{{ID: 1, Name: "v", Type: typeOf(t, sql), Nullable: true}}, Options{})
			if err != nil {
				return nil, err
			}
			rows, err := plan.Conform(batch)
			if err != nil {
				return nil, err
			}
			defer rows.Release()
			if err := array.ValidateRecordFull(rows.Record); err != nil {
				t.Fatalf("%s: %v", sql, err)
			}
			var out []any
			for _, s := range rendered(rows) {
				out = append(out, tree(t, []byte(s)).(map[string]any)["v"])
			}
			return out, nil
		}
		for i, v := range vectors {
			got, err := next(fmt.Sprint(i), v.Type)
			if err != nil {
				t.Errorf("%s: %v", v.Type, err)
			}
			var want []any
			for _, val := range v.Values {
				want = append(want, tree(t, val.JSON))
			}
			if err == nil && len(got) >= len(want) {
				got = got[:len(want)]
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", v.Type, diff)
			}
			for j, c := range v.Casts {
				got, err := next(fmt.Sprintf("%d.%d", i, j), v.Type)
				switch {
				case c.Code != "":
					if !errs.Is(err, c.Code) {
						t.Errorf("%s from %s: got %v %v, want %s", v.Type, c.ArrowType, got, err, c.Code)
					}
				case err != nil:
					t.Errorf("%s from %s: %v", v.Type, c.ArrowType, err)
				default:
					if diff := cmp.Diff(tree(t, c.JSON), got[0]); diff != "" {
						t.Errorf("%s from %s (-want +got):\n%s", v.Type, c.ArrowType, diff)
					}
				}
			}
		}
		if _, err := r.Next(); !errors.Is(err, io.EOF) {
			t.Errorf("at the end: %v", err)
		}
	}
}
