package filter

import (
	"encoding/json"
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row"
)

var intColumn = []millrace.Column{column("a", "BIGINT")}

// Each limit holds at its value and refuses one more, with invalid_filter.
func TestLimits(t *testing.T) {
	list := func(n int) string { return "a IN (1" + strings.Repeat(", 1", n-1) + ")" }
	for _, c := range []struct {
		name, fits, not, says string
	}{
		{"bytes", "a = 1" + strings.Repeat(" ", MaxTextBytes-5), "a = 1" + strings.Repeat(" ", MaxTextBytes-4), "65536"},
		{"parentheses", strings.Repeat("(", 100) + "a" + strings.Repeat(")", 100) + " = 1", strings.Repeat("(", 101) + "a" + strings.Repeat(")", 101) + " = 1", "100 levels"},
		{"NOT", strings.Repeat("NOT ", 100) + "a = 1", strings.Repeat("NOT ", 101) + "a = 1", "100 levels"},
		{"both", strings.Repeat("NOT (", 50) + "a = 1" + strings.Repeat(")", 50), strings.Repeat("NOT (", 51) + "a = 1" + strings.Repeat(")", 51), "100 levels"},
		{"IN", list(MaxInList), list(MaxInList + 1), "more than 10000"},
	} {
		if _, err := Compile(c.fits, nil, intColumn, time.Time{}); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		_, err := Compile(c.not, nil, intColumn, time.Time{})
		if !errs.Is(err, errs.InvalidFilter) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	for _, text := range []string{"", " \n\t ", "a = '\xff'"} {
		if _, err := Compile(text, nil, intColumn, time.Time{}); !errs.Is(err, errs.InvalidFilter) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A chain of AND or OR is not depth, however long: the text limit alone bounds it.
func TestLongChains(t *testing.T) {
	for _, part := range []string{"a=1 OR ", "a=1 AND ", "(a=1) OR ", "NOT a<>1 AND "} {
		text := strings.Repeat(part, (MaxTextBytes-3)/len(part)) + "a=1"
		f, err := Compile(text, nil, intColumn, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := f.Select(record(t, intColumn, [][]cell{{int64(0)}, {int64(1)}}, 0))
		if err != nil || !slices.Equal(got, []int32{1}) {
			t.Errorf("%v, %v", got, err)
		}
	}
}

// A text that is nothing but depth is refused on a small stack, so before deep
// recursion.
func TestDeepTextIsRefusedShallowly(t *testing.T) {
	defer debug.SetMaxStack(debug.SetMaxStack(256 << 10))
	for _, text := range []string{strings.Repeat("(", MaxTextBytes), strings.Repeat("NOT ", MaxTextBytes/4), strings.Repeat("a IN (", MaxTextBytes/6)} {
		if _, err := Compile(text, nil, intColumn, time.Time{}); !errs.Is(err, errs.InvalidFilter) {
			t.Errorf("%v", err)
		}
	}
}

// Numbers of absurd size cost little: they are placed, not computed.
func TestAbsurdNumbers(t *testing.T) {
	cols := []millrace.Column{column("a", "BIGINT"), column("d", "DOUBLE"), column("m", "DECIMAL(38,5)")}
	rows := [][]cell{{int64(math.MaxInt64), math.MaxFloat64, pow10(37)}}
	digits := strings.Repeat("9", 20_000)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for text, want := range map[string]bool{
		"a < 1e999999999":           true,
		"d < 1e999999999":           true,
		"m < 1e999999999":           true,
		"a > -1e99999999999999":     true,
		"d > 1e-99999999999999":     true,
		"a < " + digits:             true,
		"d < " + digits:             true,
		"m < " + digits:             true,
		"d > 1." + digits:           true,
		"m > 0." + digits:           true,
		"a <= -0." + digits:         false,
		"1e99999999 > 1e99999998":   true,
		"-1e99999999 > -1e99999998": false,
	} {
		f, err := Compile(text, nil, cols, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := f.Select(record(t, cols, rows, 0))
		if err != nil {
			t.Fatal(err)
		}
		if (len(got) == 1) != want {
			t.Errorf("%.40s: %v", text, got)
		}
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 16<<20 {
		t.Errorf("used %d bytes", used)
	}
}

// Floats and keys map to each other, in order, with one zero and one NaN.
func TestFloatKeys(t *testing.T) {
	inOrder := []float64{
		math.Inf(-1), -math.MaxFloat64, -1, -math.SmallestNonzeroFloat64, 0,
		math.SmallestNonzeroFloat64, 0.1, 1, math.MaxFloat64, math.Inf(1), math.NaN(),
	}
	for i, f := range inOrder {
		back := keyFloat(floatKey(f))
		if back != f && !(math.IsNaN(back) && math.IsNaN(f)) {
			t.Errorf("%v comes back as %v", f, back)
		}
		if i > 0 && floatKey(inOrder[i-1]) >= floatKey(f) {
			t.Errorf("%v is not above %v", f, inOrder[i-1])
		}
	}
	if floatKey(math.Copysign(0, -1)) != floatKey(0) || floatKey(math.Float64frombits(0xfff8000000000001)) != nanKey {
		t.Error("a second zero or NaN")
	}
	if next := keyFloat(floatKey(-1) + 1); next != math.Nextafter(-1, 0) {
		t.Errorf("after -1 comes %v", next)
	}
}

// Columns come back in order of first mention, also those whose comparison was
// decided by its literal.
func TestColumnNames(t *testing.T) {
	cols := []millrace.Column{column("a", "INT"), column("b", "TINYINT"), column("c", "STRING"), column("d", "INT")}
	f, err := Compile("c = 'x' AND (b < 1000 OR a = NULL) AND c <> 'y'", nil, cols, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if got := f.ColumnNames(); !slices.Equal(got, []string{"c", "b", "a"}) {
		t.Error(got)
	}
}

// A batch that is not what was promised is an internal error, never a panic.
func TestSelectChecksTheBatch(t *testing.T) {
	f, err := Compile("a = 1", nil, intColumn, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []millrace.Column{column("b", "BIGINT"), column("a", "INT"), column("a", "TIMESTAMP(3)")} {
		cols := []millrace.Column{c}
		if _, err := f.Select(record(t, cols, nil, 0)); !errs.Is(err, errs.Internal) {
			t.Errorf("%v: %v", c, err)
		}
	}
	for typ, held := range map[string]string{
		"TIMESTAMP(3)": "TIMESTAMP(6)", "TIME(3)": "TIME(6)", "TIME(9)": "TIME(6)", "DECIMAL(5,2)": "DECIMAL(5,3)", "BINARY(2)": "BINARY(3)",
	} {
		if heldAs(row.ArrowType(column("a", held).Type), column("a", typ).Type) {
			t.Errorf("%s passes for %s", held, typ)
		}
	}
	for _, typ := range genTypes {
		if c := column("a", typ); !heldAs(row.ArrowType(c.Type), c.Type) {
			t.Errorf("%s is not held as %s", typ, row.ArrowType(c.Type))
		}
	}
}

// A pinned value goes into a builder of its column's type, and no other.
func TestLiteralAppendTo(t *testing.T) {
	for typ, want := range map[string]struct {
		filter string
		value  cell
	}{
		"BOOLEAN":          {"a", true},
		"TINYINT":          {"a = -128", int64(-128)},
		"SMALLINT":         {"a = 7", int64(7)},
		"INT":              {"a = 7", int64(7)},
		"BIGINT":           {"a = 9223372036854775807", int64(math.MaxInt64)},
		"FLOAT":            {"a = '0.1'", float64(float32(0.1))},
		"DOUBLE":           {"a = 1e-1", 0.1},
		"DECIMAL(38,0)":    {"a = -1e37", pow10(37).Neg(pow10(37))},
		"CHAR(3)":          {"a = 'äöü'", "äöü"},
		"STRING":           {"a = ''", ""},
		"BINARY(2)":        {"a = X'00ff'", "\x00\xff"},
		"BYTES":            {"a = 'AP8='", "\x00\xff"},
		"DATE":             {"a = '1969-12-31'", int64(-1)},
		"TIME(0)":          {"a = '00:00:01'", int64(1000)},
		"TIME(9)":          {"a = '00:00:01'", int64(1e9)},
		"TIMESTAMP(0)":     {"a = '1970-01-01 00:00:01'", int64(1)},
		"TIMESTAMP_LTZ(6)": {"a = '1970-01-01T01:00:00.5+01:00'", int64(500_000)},
	} {
		c := column("a", typ)
		f, err := Compile(want.filter, nil, []millrace.Column{c}, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		vals, ok := f.Pinned("a")
		if !ok || len(vals) != 1 {
			t.Fatalf("%s: %v %v", typ, vals, ok)
		}
		b := array.NewBuilder(memory.DefaultAllocator, row.ArrowType(c.Type))
		if err := vals[0].AppendTo(b); err != nil {
			t.Fatal(err)
		}
		if got := cellOf(b.NewArray(), 0); fmt.Sprint(got) != fmt.Sprint(want.value) {
			t.Errorf("%s: %v", typ, got)
		}
		if err := vals[0].AppendTo(array.NewNullBuilder(memory.DefaultAllocator)); err == nil {
			t.Errorf("%s: goes into a builder of nulls", typ)
		}
	}
}

// A filter may be used by many goroutines at once; the race detector watches.
func TestConcurrentUse(t *testing.T) {
	cols := []millrace.Column{column("a", "BIGINT"), column("s", "STRING")}
	f, err := Compile("a IN (1, 2, 3) OR s LIKE '%x%' OR NOT (a < 5)", nil, cols, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	rec := record(t, cols, [][]cell{{int64(1), "a"}, {nil, "xx"}, {int64(4), nil}, {int64(9), "y"}}, 0)
	done := make(chan []int32)
	for range 4 {
		go func() {
			var got []int32
			for range 100 {
				var err error
				if got, err = f.Select(rec); err != nil {
					t.Error(err)
				}
			}
			done <- got
		}()
	}
	for range 4 {
		if got := <-done; !slices.Equal(got, []int32{0, 1, 3}) {
			t.Error(got)
		}
	}
}

// Any text either compiles, and then runs over a batch and over statistics, or
// is refused with one of the three codes.
func FuzzCompile(f *testing.F) {
	cols := []millrace.Column{}
	cells := []cell{}
	for i, typ := range genTypes {
		cols = append(cols, column(string(rune('a'+i%26))+strings.Repeat("x", i/26), typ))
		cells = append(cells, nil)
	}
	for _, text := range []string{
		"a = TRUE", "b < 5 AND NOT (c IN (1, 2, ?) OR d IS NULL)", "n LIKE 'a!%_%' ESCAPE '!'", "y > CURRENT_TIMESTAMP - INTERVAL '1' DAY",
		"f = 1e400 OR g = 'NaN' OR h < -0.5", "q = DATE '2026-01-01'", "p = X'00ff' or \"m\" = `n`", "e BETWEEN 1 AND ?", "1 = 1.0 AND 'a' <> 'b'",
	} {
		f.Add(text, `1`)
		f.Add(text, `"x"`)
	}
	rec := record(f, cols, [][]cell{cells, cells}, 0)
	f.Fuzz(func(t *testing.T, text, param string) {
		params := slices.Repeat([]json.RawMessage{json.RawMessage(param)}, strings.Count(text, "?"))
		flt, err := Compile(text, params, cols, scriptNow)
		if err != nil {
			if c := errs.CodeOf(err); c != errs.InvalidFilter && c != errs.UnknownColumn && c != errs.TypeMismatch {
				t.Fatalf("%v", err)
			}
			return
		}
		if _, err := flt.Select(rec); err != nil {
			t.Fatal(err)
		}
		flt.MayMatch(func(string) (Stats, bool) { return Stats{Rows: 2, HasMin: true, HasMax: true}, true })
		for _, name := range flt.ColumnNames() {
			flt.Pinned(name)
		}
	})
}
