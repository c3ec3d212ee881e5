package filter

import (
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"pgregory.net/rapid"

	millrace "github.com/millrace/millrace"
)

// Every pair of extreme decimals, integers and floats compares as the rationals do.
func TestComparisonsAcrossTypesAreExact(t *testing.T) {
	most := new(big.Int).Sub(pow10(38), big.NewInt(1))
	unscaled := []*big.Int{
		new(big.Int), big.NewInt(1), big.NewInt(-1), big.NewInt(10), big.NewInt(1 << 53), big.NewInt(1<<53 + 1), big.NewInt(math.MaxInt64),
		new(big.Int).Lsh(big.NewInt(1), 64), new(big.Int).Lsh(big.NewInt(-1), 64), pow10(19), pow10(37), most, new(big.Int).Neg(most),
	}
	floats := []float64{
		0, math.Copysign(0, -1), 1, -1, 0.1, 1e-38, 1 << 53, 1<<53 + 2, 1e18, 1e19, -1e19, 1 << 63, -1 << 63, 1e37, 1e38, -1e38, math.MaxFloat64,
		math.SmallestNonzeroFloat64, math.Inf(1), math.Inf(-1), math.NaN(), 9223372036854774784, 0.5, -0.5,
	}
	type decimal struct {
		n     decimal128.Num
		scale int
		ref   *refValue
	}
	var decimals []decimal
	for _, u := range unscaled {
		for _, scale := range []int{0, 1, 19, 37, 38} {
			decimals = append(decimals, decimal{decimal128.FromBigInt(u), scale, refCell(millrace.DataType{Kind: millrace.Decimal, Scale: scale}, u)})
		}
	}
	for _, a := range decimals {
		for _, b := range decimals {
			if got, want := compareDecimals(a.n, a.scale, b.n, b.scale), refCompare(a.ref, b.ref); got != want {
				t.Errorf("%s with %s: %d", a.ref.rat, b.ref.rat, got)
			}
		}
		for _, f := range floats {
			if got, want := compareDecimalFloat(a.n, a.scale, f), refCompare(a.ref, refFloat(f)); got != want {
				t.Errorf("%s with %g: %d", a.ref.rat, f, got)
			}
		}
	}
	for _, i := range []int64{0, 1, -1, 1 << 53, 1<<53 + 1, -1<<53 - 1, math.MaxInt64, math.MinInt64, math.MaxInt64 - 1023, 1e18} {
		for _, f := range floats {
			if got, want := compareIntFloat(i, f), refCompare(refInt(i), refFloat(f)); got != want {
				t.Errorf("%d with %g: %d", i, f, got)
			}
		}
	}
}

// Counts of any two units compare as the times they stand for.
func TestUnitsCompareExactly(t *testing.T) {
	types := []string{"DATE", "TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(9)"}
	rapid.Check(t, func(t *rapid.T) {
		x := column("x", rapid.SampledFrom(types).Draw(t, "x type")).Type
		y := column("y", rapid.SampledFrom(types).Draw(t, "y type")).Type
		nanos := rapid.Int64Range(-3, 3).Draw(t, "half days") * int64(12*time.Hour)
		a := (nanos + rapid.Int64Range(-2, 2).Draw(t, "more")*500) / refUnit(x)
		b := nanos / refUnit(y)
		constant := func(n int64) func(int) int64 { return func(int) int64 { return n } }
		got := unitComparator(constant(a), unitNanos(x), constant(b), unitNanos(y))(0)
		if want := refCompare(refCell(x, a), refCell(y, b)); got != want {
			t.Fatalf("%d %s with %d %s: %d", a, x, b, y, got)
		}
	})
}

// LIKE on patterns of every shape, over texts of few letters that lie one behind
// the other in memory: also hits across their borders.
func TestLikeMatchesReference(t *testing.T) {
	cols := []millrace.Column{column("s", "STRING")}
	rapid.Check(t, func(rt *rapid.T) {
		letters := rapid.SampledFrom([]string{"ab", "aé", "a"}).Draw(rt, "letters")
		texts := rapid.SliceOfN(rapid.StringOfN(rapid.RuneFrom([]rune(letters)), 0, 6, -1), 1, 20).Draw(rt, "texts")
		written := rapid.StringOfN(rapid.RuneFrom([]rune(letters+"%_")), 0, 6, -1).Draw(rt, "pattern")
		if rapid.Bool().Draw(rt, "inside") {
			written = "%" + written + "%"
		}
		var rows [][]cell
		for _, s := range texts {
			rows = append(rows, []cell{s})
		}
		rows = append(rows, []cell{nil})
		var pattern []rune
		for _, c := range written {
			switch c {
			case '%':
				c = -1
			case '_':
				c = -2
			}
			pattern = append(pattern, c)
		}
		for _, not := range []string{"", "NOT "} {
			f, err := Compile("s "+not+"LIKE "+sqlText(written), nil, cols, time.Time{})
			if err != nil {
				rt.Fatal(err)
			}
			got, err := f.Select(record(t, cols, rows, 2))
			if err != nil {
				rt.Fatal(err)
			}
			selected := map[int32]bool{}
			for _, i := range got {
				selected[i] = true
			}
			for i, s := range texts {
				if want := refLike([]rune(s), pattern) == (not == ""); selected[int32(i)] != want {
					rt.Fatalf("%q %sLIKE %q among %q: %v", s, not, written, texts, !want)
				}
			}
			if selected[int32(len(texts))] {
				rt.Fatalf("NULL %sLIKE %q", not, written)
			}
		}
	})
}
