package filter

import (
	"fmt"
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"pgregory.net/rapid"

	millrace "github.com/millrace/millrace"
)

const boundBytes = 32

// statsOf computes statistics as a writer does: bounds leave out NULL and NaN,
// long strings are cut, an upper one raised.
func statsOf(t millrace.DataType, cells []cell) Stats {
	st := Stats{Rows: int64(len(cells))}
	var least, most cell
	for _, c := range cells {
		if c == nil {
			st.Nulls++
			continue
		}
		if f, ok := c.(float64); ok && math.IsNaN(f) {
			st.NaNs++
			continue
		}
		if least == nil || refCompare(refCell(t, c), refCell(t, least)) < 0 {
			least = c
		}
		if most == nil || refCompare(refCell(t, c), refCell(t, most)) > 0 {
			most = c
		}
	}
	if least == nil {
		return st
	}
	st.Min, st.HasMin = boundOf(least), true
	st.Max, st.HasMax = boundOf(most), true
	if len(st.Min.Bytes) > boundBytes {
		st.Min.Bytes = st.Min.Bytes[:boundBytes]
	}
	if upper := st.Max.Bytes; len(upper) > boundBytes {
		upper = upper[:boundBytes]
		for len(upper) > 0 && upper[len(upper)-1] == 0xff {
			upper = upper[:len(upper)-1]
		}
		if st.HasMax = len(upper) > 0; st.HasMax {
			upper[len(upper)-1]++
		}
		st.Max.Bytes = upper
	}
	return st
}

func boundOf(c cell) (b Bound) {
	switch v := c.(type) {
	case bool:
		if v {
			b.Int = 1
		}
	case int64:
		b.Int = v
	case float64:
		b.Float = v
	case *big.Int:
		b.Dec = decimal128.FromBigInt(v)
	case string:
		b.Bytes = []byte(v)
	}
	return b
}

// MayMatch never says no to data that holds a row for which the reference finds
// the filter TRUE; statistics are whole, or lack a bound, or are missing.
func TestMayMatchNeverSkipsAMatch(t *testing.T) {
	skipped, total := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		g := newGenerator(rt)
		lack := map[string]int{}
		for _, c := range g.cols {
			lack[c.Name] = g.n("lack", 0, 9)
		}
		for range 3 {
			g.params = nil
			e := g.expr(2)
			f := g.compile(e)
			may := f.MayMatch(func(name string) (Stats, bool) {
				for i, c := range g.cols {
					if c.Name != name || c.Type.Nested() {
						continue
					}
					var cells []cell
					for _, r := range g.rows {
						cells = append(cells, r[i])
					}
					st := statsOf(c.Type, cells)
					st.HasMin = st.HasMin && lack[name] != 0
					st.HasMax = st.HasMax && lack[name] != 1
					return st, lack[name] != 2
				}
				return Stats{}, false
			})
			total++
			if !may {
				skipped++
			}
			if rows := g.matching(e); !may && len(rows) > 0 {
				rt.Fatalf("%s %s\nwould skip rows %v of %v", e.text, g.params, rows, g.rows)
			}
		}
	})
	if skipped < total/10 {
		t.Errorf("only %d of %d were skipped", skipped, total)
	}
}

// For one comparison over a TINYINT or BOOLEAN column, MayMatch is exactly
// whether some value between the bounds, or a NULL if there is one, makes it
// TRUE: it skips whatever can be skipped.
func TestMayMatchIsExactForOneComparison(t *testing.T) {
	texts := []string{
		"a = 3", "a <> 3", "a < 3", "a <= 3", "a > 3", "a >= 3", "a < 2.5", "a >= 2.5", "a = 2.5", "a <> 2.5",
		"a < 1000", "a > 1000", "a = -129", "a IN (1, 4, 6)", "a NOT IN (1)", "a BETWEEN 2 AND 4",
		"a NOT BETWEEN 2 AND 4", "NOT a BETWEEN 2 AND 4", "NOT (a < 3)", "NOT (a = 3)", "a IS NULL", "a IS NOT NULL",
		"NOT a IS NULL", "a = NULL", "NOT (a = NULL)", "a NOT IN (1, NULL)", "a IN (1, NULL)", "NOT a > 127", "a <= 127",
	}
	cols := []millrace.Column{column("a", "TINYINT")}
	for _, text := range texts {
		f, err := Compile(text, nil, cols, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		for lo := range int64(8) {
			for hi := lo; hi < 8; hi++ {
				for nulls := range int64(2) {
					possible := [][]cell{}
					for v := lo; v <= hi; v++ {
						possible = append(possible, []cell{v})
					}
					if nulls > 0 {
						possible = append(possible, []cell{nil})
					}
					rows, err := f.Select(record(t, cols, possible, 0))
					if err != nil {
						t.Fatal(err)
					}
					st := Stats{Rows: 10, Nulls: nulls, HasMin: true, HasMax: true, Min: Bound{Int: lo}, Max: Bound{Int: hi}}
					may := f.MayMatch(func(string) (Stats, bool) { return st, true })
					if may != (len(rows) > 0) {
						t.Errorf("%s with values %d to %d and %d NULL: MayMatch %v, rows %v", text, lo, hi, nulls, may, rows)
					}
				}
			}
		}
	}
}

// What statistics decide for the kinds of columns, by hand.
func TestMayMatchByHand(t *testing.T) {
	text := func(lo, hi string) Stats {
		return Stats{Rows: 5, HasMin: true, HasMax: true, Min: Bound{Bytes: []byte(lo)}, Max: Bound{Bytes: []byte(hi)}}
	}
	double := func(lo, hi float64, nans int64) Stats {
		return Stats{Rows: 5, NaNs: nans, HasMin: true, HasMax: true, Min: Bound{Float: lo}, Max: Bound{Float: hi}}
	}
	decimal := func(lo, hi int64) Stats {
		return Stats{Rows: 5, HasMin: true, HasMax: true, Min: Bound{Dec: decimal128.FromI64(lo)}, Max: Bound{Dec: decimal128.FromI64(hi)}}
	}
	bools := func(lo, hi, nulls int64) Stats {
		return Stats{Rows: 5, Nulls: nulls, HasMin: true, HasMax: true, Min: Bound{Int: lo}, Max: Bound{Int: hi}}
	}
	long := "0123456789012345678901234567890123456789" // cut to …0 and raised to …2 at byte 32
	for _, c := range []struct {
		typ, filter string
		stats       Stats
		want        bool
	}{
		{"STRING", "a = 'm'", text("b", "f"), false},
		{"STRING", "a = 'c'", text("b", "f"), true},
		{"STRING", "a <> 'c'", text("c", "c"), false},
		{"STRING", "a <> 'c'", text("c", "d"), true},
		{"STRING", "a > 'f'", text("b", "f"), false},
		{"STRING", "a >= 'f'", text("b", "f"), true},
		{"STRING", "a < 'b'", text("b", "f"), false},
		{"STRING", "a <= 'b'", text("b", "f"), true},
		{"STRING", "a IN ('a', 'g')", text("b", "f"), false},
		{"STRING", "a IN ('a', 'd')", text("b", "f"), true},
		{"STRING", "a NOT IN ('b', 'd')", text("b", "b"), false},
		{"STRING", "a = '" + long + "'", statsOf(column("a", "STRING").Type, []cell{long}), true},
		{"STRING", "a <> '" + long + "'", statsOf(column("a", "STRING").Type, []cell{long}), true},
		{"STRING", "a > '" + long[:31] + "2'", statsOf(column("a", "STRING").Type, []cell{long}), false},
		{"STRING", "a LIKE 'abc%'", text("abb", "abd"), true},
		{"STRING", "a LIKE 'abc%'", text("abd", "x"), false},
		{"STRING", "a LIKE 'abc%'", text("a", "abb"), false},
		{"STRING", "a LIKE 'abc%'", text("abcd", "abcd"), true},
		{"STRING", "a LIKE '%c'", text("a", "b"), true},
		{"STRING", "a LIKE '%c'", text("ab", "ab"), false},
		{"STRING", "a LIKE '%b'", text("ab", "ab"), true},
		{"STRING", "a NOT LIKE '%b'", text("ab", "ab"), false},
		{"STRING", "a NOT LIKE '%c'", text("ab", "ab"), true},
		{"STRING", "a LIKE 'a_c%'", text("b", "c"), false},
		{"STRING", "a NOT LIKE 'abc%'", text("abca", "abcz"), false},
		{"STRING", "a NOT LIKE 'abc%'", text("abca", "abd"), true},
		{"STRING", "a NOT LIKE 'abc%z'", text("abca", "abcz"), true},
		{"STRING", "a LIKE '%'", Stats{Rows: 5, Nulls: 5}, false},
		{"STRING", "a = 'x'", Stats{Rows: 5, HasMin: true, Min: Bound{Bytes: []byte("a")}}, true},
		{"BYTES", "a < X'10'", text("\x10", "\xff"), false},
		{"DOUBLE", "a > 5", double(0, 4, 0), false},
		{"DOUBLE", "a > 5", double(0, 4, 1), true},
		{"DOUBLE", "a <> 4", double(4, 4, 0), false},
		{"DOUBLE", "a <> 4", double(4, 4, 1), true},
		{"DOUBLE", "a < 0", double(0, 4, 1), false},
		{"DOUBLE", "a < 0", double(math.Copysign(0, -1), 4, 0), false},
		{"DOUBLE", "a = 'NaN'", double(0, 4, 0), false},
		{"DOUBLE", "a = 'NaN'", double(0, 4, 1), true},
		{"DOUBLE", "a < 'NaN'", Stats{Rows: 5, NaNs: 5}, false},
		{"DOUBLE", "a IN (7, 'NaN')", double(0, 4, 1), true},
		{"DOUBLE", "a IN (7, 9)", double(0, 4, 1), false},
		{"DOUBLE", "a NOT IN (7, 9)", double(7, 7, 1), true},
		{"FLOAT", "a >= 0.1", double(0, float64(float32(0.1)), 0), true},
		{"DECIMAL(10,2)", "a > 9.99", decimal(0, 999), false},
		{"DECIMAL(10,2)", "a > 9.985", decimal(0, 999), true},
		{"DECIMAL(10,2)", "a <> 9.99", decimal(999, 999), false},
		{"DECIMAL(10,2)", "a IN (1, 3)", decimal(101, 299), false},
		{"DECIMAL(10,2)", "a IN (1, 2)", decimal(101, 299), true},
		{"DECIMAL(10,2)", "a NOT IN (1, 3)", decimal(300, 300), false},
		{"BOOLEAN", "a", bools(0, 0, 0), false},
		{"BOOLEAN", "NOT a", bools(0, 0, 0), true},
		{"BOOLEAN", "NOT a", bools(1, 1, 3), false},
		{"BOOLEAN", "a", bools(0, 1, 5), false},
		{"TIMESTAMP_LTZ(3)", "a > CURRENT_TIMESTAMP", bools(0, 1000, 0), true},
		{"TIMESTAMP_LTZ(3)", "a > CURRENT_TIMESTAMP + INTERVAL '1' SECOND", bools(0, 1000, 0), false},
		{"DATE", "a >= '1970-01-03'", bools(0, 1, 0), false},
		{"DATE", "a >= '1970-01-02' AND (a < '1970-01-01' OR a = '1970-02-02')", bools(0, 1, 0), false},
		{"DATE", "a >= '1970-01-02' AND (a < '1970-01-01' OR a <> '1970-02-02')", bools(0, 1, 0), true},
		{"DATE", "a > '1970-01-01'", Stats{}, true}, // of no rows: they say nothing
	} {
		f, err := Compile(c.filter, nil, []millrace.Column{column("a", c.typ)}, time.Unix(0, 0))
		if err != nil {
			t.Fatal(err)
		}
		if got := f.MayMatch(func(string) (Stats, bool) { return c.stats, true }); got != c.want {
			t.Errorf("%s, %s: %v", c.typ, c.filter, got)
		}
		if !f.MayMatch(func(string) (Stats, bool) { return Stats{}, false }) {
			t.Errorf("%s: skips without statistics", c.filter)
		}
	}
}

// On data sorted by the column, a range skips every batch but those it falls in.
func TestMayMatchSkipsSortedBatches(t *testing.T) {
	cols := []millrace.Column{column("ts", "TIMESTAMP(6)"), column("s", "STRING")}
	f, err := Compile("ts >= '1970-01-01 00:00:00.42' AND ts < '1970-01-01 00:00:00.43' AND s LIKE '00042%'", nil, cols, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	var read []int64
	for batch := range int64(100) {
		lo, hi := batch*10_000, batch*10_000+9_999 // µs
		may := f.MayMatch(func(name string) (Stats, bool) {
			if name == "s" {
				return Stats{
					Rows: 1, HasMin: true, HasMax: true,
					Min: Bound{Bytes: fmt.Appendf(nil, "%05d", batch)}, Max: Bound{Bytes: fmt.Appendf(nil, "%05d", batch)},
				}, true
			}
			return Stats{Rows: 10_000, HasMin: true, HasMax: true, Min: Bound{Int: lo}, Max: Bound{Int: hi}}, true
		})
		if may {
			read = append(read, batch)
		}
	}
	if len(read) != 1 || read[0] != 42 {
		t.Errorf("reads batches %v", read)
	}
}
