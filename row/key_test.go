package row_test

import (
	"bytes"
	"cmp"
	"encoding/hex"
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

// compareValues is the SQL order of two values of a column, by Arrow's accessors
// and Go's own comparison.
func compareValues(arr arrow.Array, i, j int) int {
	switch a := arr.(type) {
	case *array.Boolean:
		n := map[bool]int{true: 1}
		return n[a.Value(i)] - n[a.Value(j)]
	case *array.Int8:
		return cmp.Compare(a.Value(i), a.Value(j))
	case *array.Int16:
		return cmp.Compare(a.Value(i), a.Value(j))
	case *array.Int32:
		return cmp.Compare(a.Value(i), a.Value(j))
	case *array.Int64:
		return cmp.Compare(a.Value(i), a.Value(j))
	case *array.Date32:
		return cmp.Compare(a.Value(i), a.Value(j))
	case *array.Time32:
		return cmp.Compare(a.Value(i), a.Value(j))
	case *array.Time64:
		return cmp.Compare(a.Value(i), a.Value(j))
	case *array.Timestamp:
		return cmp.Compare(a.Value(i), a.Value(j))
	case *array.Decimal128:
		return a.Value(i).BigInt().Cmp(a.Value(j).BigInt())
	case *array.String:
		return strings.Compare(a.Value(i), a.Value(j))
	case *array.Binary:
		return bytes.Compare(a.Value(i), a.Value(j))
	case *array.FixedSizeBinary:
		return bytes.Compare(a.Value(i), a.Value(j))
	}
	panic(arr.DataType())
}

func compareTuples(rec arrow.RecordBatch, cols []int, i, j int) int {
	for _, c := range cols {
		if n := compareValues(rec.Column(c), i, j); n != 0 {
			return n
		}
	}
	return 0
}

func drawKeyColumns(t *rapid.T) []millrace.Column {
	var types []millrace.DataType
	for range rapid.IntRange(1, 4).Draw(t, "columns") {
		types = append(types, parse(rapid.SampledFrom(keyTypes).Draw(t, "type")))
	}
	return columnsOf(types...)
}

// Keys of random columns compare as the tuples of values do; the key of a prefix
// of the columns is a prefix of the key; a key made from a compact row is the one
// made from the record; and a key decodes to the values it was made of.
func TestKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &millrace.Schema{ID: 1, Columns: drawKeyColumns(t)}
		rec := drawRecord(t, s.Columns, false)
		defer rec.Release()
		c := row.NewCodec(s)
		order := rapid.Permutation(indexes(len(s.Columns))).Draw(t, "order")
		keyCols := make([]millrace.Column, len(order))
		for i, col := range order {
			keyCols[i] = s.Columns[col]
		}
		builders := row.NewBuilders(memory.DefaultAllocator, keyCols)
		keys := make([][]byte, rec.NumRows())
		for i := range keys {
			keys[i] = row.AppendKey([]byte("p"), rec, order, i)
			ofRow, err := c.AppendKeyOfRow([]byte("p"), c.AppendRow(nil, rec, i), order)
			if err != nil || !bytes.Equal(ofRow, keys[i]) {
				t.Fatalf("of the row %x (%v), of the record %x", ofRow, err, keys[i])
			}
			for n := range order {
				if p := row.AppendKey([]byte("p"), rec, order[:n], i); !bytes.HasPrefix(keys[i], p) {
					t.Fatalf("%x of %d columns is not a prefix of %x", p, n, keys[i])
				}
			}
			if err := row.DecodeKey(keys[i][1:], keyCols, builders); err != nil {
				t.Fatalf("DecodeKey(%x): %v", keys[i], err)
			}
		}
		for i := range keys {
			for j := range keys {
				if got, want := bytes.Compare(keys[i], keys[j]), compareTuples(rec, order, i, j); got != cmp.Compare(want, 0) {
					t.Fatalf("keys %x and %x compare %d, values %d", keys[i], keys[j], got, want)
				}
			}
		}
		arrs := make([]arrow.Array, len(builders))
		for i, b := range builders {
			arrs[i] = b.NewArray()
			b.Release()
		}
		want := row.Project(rec, order)
		defer want.Release()
		if err := equalRecords(want, array.NewRecordBatch(row.ArrowSchema(keyCols), arrs, rec.NumRows())); err != nil {
			t.Fatal(err)
		}
	})
}

// The bytes of keys, worked out by hand from docs/formats/row.md.
func TestKeyBytes(t *testing.T) {
	for _, tc := range []struct{ typ, value, want string }{
		{"BOOLEAN", "true", "01"},
		{"TINYINT", "-128", "00"},
		{"SMALLINT", "1", "8001"},
		{"INT", "-1", "7fffffff"},
		{"BIGINT", "0", "8000000000000000"},
		{"DECIMAL(10,2)", `"-0.01"`, "7fffffffffffffffffffffffffffffff"},
		{"STRING", `"a"`, "610000"},
		{"STRING", `"a\u0000b"`, "6100ff620000"},
		{"STRING", `""`, "0000"},
		{"BYTES", `"AAA="`, "00ff00ff0000"},
		{"BINARY(2)", `"AAA="`, "0000"},
		{"DATE", `"1970-01-02"`, "80000001"},
		{"TIME(0)", `"00:00:01"`, "800003e8"},
		{"TIMESTAMP(6)", `"1970-01-01 00:00:00.000001"`, "8000000000000001"},
	} {
		rec := fromJSON(t, columnsOf(parse(tc.typ)), `[{"c0": `+tc.value+`}]`)
		if got := hex.EncodeToString(row.AppendKey(nil, rec, []int{0}, 0)); got != tc.want {
			t.Errorf("%s %s: %s, want %s", tc.typ, tc.value, got, tc.want)
		}
		rec.Release()
	}
}

func fromJSON(t testing.TB, cols []millrace.Column, text string) arrow.RecordBatch {
	t.Helper()
	rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, row.ArrowSchema(cols), strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// Bytes that are no key are refused, and nothing is appended for them.
func TestDecodeKeyRefuses(t *testing.T) {
	cols := columnsOf(parse("STRING"), parse("BOOLEAN"), parse("INT"))
	for name, key := range map[string]string{
		"empty":           "",
		"no terminator":   "6161",
		"half terminator": "616100",
		"bad escape":      "6100016100000180000000",
		"bad boolean":     "6100000280000000",
		"short":           "61000001800000",
		"long":            "610000018000000000",
	} {
		b, err := hex.DecodeString(key)
		if err != nil {
			t.Fatal(err)
		}
		builders := row.NewBuilders(memory.DefaultAllocator, cols)
		if err := row.DecodeKey(b, cols, builders); !errs.Is(err, errs.CorruptData) {
			t.Errorf("%s: %v", name, err)
		}
		for _, b := range builders {
			if b.Len() != 0 {
				t.Errorf("%s: a value was appended", name)
			}
			b.Release()
		}
	}
}

// No bytes make DecodeKey panic, and what it takes is a key: encoding the values
// gives the bytes again.
func FuzzDecodeKey(f *testing.F) {
	var types []millrace.DataType
	for _, s := range keyTypes {
		types = append(types, parse(s))
	}
	cols := columnsOf(types...)
	f.Add([]byte{})
	f.Add([]byte("a\x00\x00"))
	f.Add([]byte("\x00\xff\x00\x00\x01"))
	f.Fuzz(func(t *testing.T, key []byte) {
		for i := range cols {
			// Two columns: the one under test and one of any length after it.
			pair := []millrace.Column{cols[i], {ID: 99, Name: "last", Type: parse("BYTES")}}
			builders := row.NewBuilders(memory.DefaultAllocator, pair)
			err := row.DecodeKey(key, pair, builders)
			if err != nil && !errs.Is(err, errs.CorruptData) {
				t.Fatal(err)
			}
			arrs := []arrow.Array{builders[0].NewArray(), builders[1].NewArray()}
			if err != nil {
				if arrs[0].Len() != 0 || arrs[1].Len() != 0 {
					t.Fatal("a value was appended")
				}
				continue
			}
			rec := array.NewRecordBatch(row.ArrowSchema(pair), arrs, 1)
			if again := row.AppendKey(nil, rec, []int{0, 1}, 0); !bytes.Equal(again, key) {
				t.Fatalf("%x decodes to values whose key is %x", key, again)
			}
		}
	})
}
