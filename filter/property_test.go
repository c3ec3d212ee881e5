package filter

import (
	"flag"
	"os"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/row"
)

// The properties are tried on more examples than rapid's default, which are too
// few to meet, say, NaN as a bound of a range; -rapid.checks overrides it.
func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	if !given {
		if err := flag.Set("rapid.checks", "3000"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// matching is the rows for which the reference finds the expression TRUE.
func (g *generator) matching(e refExpr) []int32 {
	rows := []int32{}
	for i, r := range g.rows {
		if e.truth(r) == isTrue {
			rows = append(rows, int32(i))
		}
	}
	return rows
}

func (g *generator) compile(e refExpr) *Filter {
	f, err := Compile(e.text, g.params, g.cols, g.now)
	if err != nil {
		g.Fatalf("%s\n%s\n%v", e.text, g.params, err)
	}
	return f
}

// Select is compared with the reference evaluator on random schemas, data and
// expressions, over arrays with and without an offset.
func TestSelectMatchesReference(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		g := newGenerator(rt)
		rec := record(t, g.cols, g.rows, g.n("offset", 0, 9))
		for range 3 {
			g.params = nil
			e := g.expr(3)
			f := g.compile(e)
			got, err := f.Select(rec)
			if err != nil {
				rt.Fatal(err)
			}
			if want := g.matching(e); !slices.Equal(got, want) {
				rt.Fatalf("%s %s\nof rows %v\nselected %v, should be %v", e.text, g.params, g.rows, got, want)
			}
		}
	})
}

// In every row that matches, a pinned column has one of the pinned values.
func TestPinnedCoversMatches(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		g := newGenerator(rt)
		e := g.expr(2)
		f := g.compile(e)
		rows := g.matching(e)
		for i, c := range g.cols {
			vals, ok := f.Pinned(c.Name)
			if !ok {
				continue
			}
			if len(vals) == 0 {
				if len(rows) > 0 {
					rt.Fatalf("%s: nothing pinned for %s, but rows %v match", e.text, c.Name, rows)
				}
				continue
			}
			b := array.NewBuilder(memory.DefaultAllocator, row.ArrowType(c.Type))
			for _, v := range vals {
				if err := v.AppendTo(b); err != nil {
					rt.Fatal(err)
				}
			}
			arr := b.NewArray()
			var pinned []*refValue
			for j := range arr.Len() {
				pinned = append(pinned, refCell(c.Type, cellOf(arr, j)))
			}
			for _, r := range rows {
				v := refCell(c.Type, g.rows[r][i])
				if v == nil || !slices.ContainsFunc(pinned, func(p *refValue) bool { return refCompare(p, v) == 0 }) {
					rt.Fatalf("%s: row %d matches with %s = %v, which is not pinned", e.text, r, c.Name, g.rows[r][i])
				}
			}
		}
	})
}
