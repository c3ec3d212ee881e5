package iceberg

import (
	"fmt"
	"testing"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// The catalog refuses, by LakeFormat.Holds, exactly the types that have no Iceberg
// type here: each kind, at each precision, alone and nested.
func TestHoldsWhatHasAType(t *testing.T) {
	types := []string{
		"BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(38,38)", "DECIMAL(1,0)",
		"CHAR(5)", "STRING", "BINARY(7)", "BYTES", "DATE", "ROW<a INT>",
	}
	for p := range millrace.MaxTimePrecision + 1 {
		for _, kind := range []string{"TIME", "TIMESTAMP", "TIMESTAMP_LTZ"} {
			types = append(types, fmt.Sprintf("%s(%d)", kind, p))
		}
	}
	held := 0
	for _, text := range types {
		for _, form := range []string{"%s", "ARRAY<%s>", "MAP<%s, INT>", "MAP<STRING, %s>", "ROW<a INT, b ARRAY<ROW<c %s>>>"} {
			typ, err := millrace.ParseType(fmt.Sprintf(form, text))
			if err != nil {
				t.Fatal(err)
			}
			_, err = Type(typ)
			if err != nil && !errs.Is(err, errs.UnsupportedByLake) {
				t.Error(err)
			}
			if millrace.Iceberg.Holds(typ) != (err == nil) {
				t.Errorf("%s: held is %t, and its Iceberg type: %v", typ, millrace.Iceberg.Holds(typ), err)
			}
			if err == nil {
				held++
			}
		}
	}
	if want := 5 * (len(types) - 9); held != want {
		t.Errorf("%d types are held, want %d", held, want)
	}
}
