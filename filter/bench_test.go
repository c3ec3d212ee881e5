package filter

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	millrace "github.com/millrace/millrace"
)

// Select over 64k rows; the metric is ns/row.
func BenchmarkSelect(b *testing.B) {
	const n = 64 << 10
	cols := []millrace.Column{
		column("i", "BIGINT"), column("n", "BIGINT"), column("s", "STRING"), column("d", "DOUBLE"), column("t", "TIMESTAMP(6)"), column("m", "DECIMAL(10,2)"),
	}
	rng := rand.New(rand.NewPCG(1, 2))
	rows := make([][]cell, n)
	for r := range rows {
		i := rng.Int64N(1_000_000)
		rows[r] = []cell{i, i, fmt.Sprintf("customer-%06d", i), float64(i) / 7, i, big.NewInt(i)}
		if r%10 == 0 {
			rows[r][1] = nil
		}
	}
	rec := record(b, cols, rows, 0)
	var ints, texts []string
	for range 1000 {
		i := rng.Int64N(1_000_000)
		ints = append(ints, fmt.Sprint(i))
		texts = append(texts, fmt.Sprintf("'customer-%06d'", i))
	}
	for _, c := range []struct{ name, text string }{
		{"int64_greater", "i > 500000"},
		{"int64_greater_nulls", "n > 500000"},
		{"int64_equal", "i = 500000"},
		{"double_between", "d BETWEEN 1000 AND 5000"},
		{"decimal_less", "m < 123.456"},
		{"string_equal", "s = 'customer-500000'"},
		{"string_less", "s < 'customer-500000'"},
		{"in_1000_int64", "i IN (" + strings.Join(ints, ",") + ")"},
		{"in_1000_string", "s IN (" + strings.Join(texts, ",") + ")"},
		{"like_prefix", "s LIKE 'customer-12%'"},
		{"like_contains", "s LIKE '%-123%'"},
		{"like_general", "s LIKE '%r-1_3%'"},
		{"and_of_two", "i > 500000 AND d < 100000"},
		{"range_of_one_column", "i >= 200000 AND i < 300000"},
		{"or_of_two", "i < 100000 OR s LIKE 'customer-9%'"},
		{"columns", "i < d"},
		{"is_null", "n IS NULL"},
	} {
		f, err := Compile(c.text, nil, cols, time.Time{})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := f.Select(rec); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/row")
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	long := "i IN (1" + strings.Repeat(", 12345", 9000-1) + ")"
	for name, text := range map[string]string{
		"short": "i > 500000 AND s = 'x' AND t > '2026-11-29'", "in_9000": long,
	} {
		cols := []millrace.Column{column("i", "BIGINT"), column("s", "STRING"), column("t", "TIMESTAMP(6)")}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Compile(text, nil, cols, time.Time{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
