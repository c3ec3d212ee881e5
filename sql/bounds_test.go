package sql_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/errs"
)

// What a query holds is bounded, and the bound is told: groups, and rows to sort. What needs less goes on working: an
// aggregate without groups, few groups of many rows, the first rows of many, and rows that come sorted.
func TestBounds(t *testing.T) {
	w := newWorld(t)
	w.exec("CREATE TABLE t (id INT, g STRING, few INT, PRIMARY KEY (id)) WITH ('bucket.num' = '3')")
	w.exec("CREATE TABLE one (id INT, g STRING, PRIMARY KEY (id))")
	const n = 40_000
	for from := 0; from < n; from += 10_000 {
		values := make([]string, 10_000)
		for i := range values {
			id := (from + i) * 7919 % n // not in their order
			values[i] = fmt.Sprintf("(%d, 'group %d', %d)", id, id, id%10)
		}
		w.exec("INSERT INTO t VALUES " + strings.Join(values, ","))
		w.exec("INSERT INTO one (id) VALUES (" + fmt.Sprint(from) + "), (" + fmt.Sprint(-from-1) + ")")
	}
	sum := "[" + fmt.Sprint(n) + "," + fmt.Sprint(n*(n-1)/2) + ",\"group 0\",\"group 9999\"]"
	w.is("SELECT COUNT(*), SUM(id), MIN(g), MAX(g) FROM t", sum)
	require.Equal(t, n, strings.Count(w.exec("SELECT g, COUNT(*) FROM t GROUP BY g ORDER BY g"), "\n"))
	require.Equal(t, n, strings.Count(w.exec("SELECT g FROM t ORDER BY id DESC"), "\n"))

	w.engine.SetHeldBytes(1 << 20)
	w.fails("SELECT g, COUNT(*) FROM t GROUP BY g", errs.TooLarge, "GROUP BY has met", "groups, which take more than 1 MiB", "Flink, Spark or DuckDB")
	w.fails("SELECT id, few, COUNT(*) FROM t GROUP BY few, id", errs.TooLarge)
	w.fails("SELECT id, g FROM t ORDER BY id", errs.TooLarge, "the rows to sort take more than 1 MiB")
	w.is("SELECT COUNT(*), SUM(id), MIN(g), MAX(g) FROM t", sum)
	few := w.exec("SELECT few, COUNT(*), MIN(id) FROM t GROUP BY few ORDER BY few")
	require.Equal(t, 10, strings.Count(few, "\n"))
	require.Contains(t, few, "[9,4000,9]\n")
	w.is("SELECT id, g FROM t ORDER BY id LIMIT 3", `[0,"group 0"]`, `[1,"group 1"]`, `[2,"group 2"]`)
	w.is("SELECT id FROM t ORDER BY id DESC LIMIT 2", "[39999]", "[39998]")
	require.Equal(t, n, strings.Count(w.exec("SELECT g FROM t"), "\n"))
	first := w.exec("SELECT id FROM one ORDER BY id")
	require.True(t, strings.HasPrefix(first, "[-30001]\n[-20001]\n") && strings.HasSuffix(first, "[20000]\n[30000]\n"), first)
}
