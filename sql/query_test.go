package sql_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/errs"
)

const orders = `CREATE TABLE orders (id BIGINT, city STRING, n INT, amount DECIMAL(10,2), d DOUBLE, PRIMARY KEY (id)) WITH ('bucket.num' = '4')`

func withOrders(t *testing.T) *world {
	w := newWorld(t)
	w.exec(orders)
	require.Equal(t, "affected 5", w.exec(`INSERT INTO orders VALUES
		(1, 'Oslo', 3, 12.50, 1.5), (2, 'Rome', NULL, 0.05, 2), (3, NULL, 7, -1, NULL),
		(4, 'Oslo', 1, 1e1, 0), (5, 'It''s', -2, .5, -0.25)`))
	return w
}

// Rows come with the columns asked for, in the order asked for, in the order of the key where that is asked for,
// whatever bucket they are in; hand-computed.
func TestSelect(t *testing.T) {
	w := withOrders(t)
	w.is("SELECT * FROM orders ORDER BY id",
		`[1,"Oslo",3,"12.50",1.5]`, `[2,"Rome",null,"0.05",2]`, `[3,null,7,"-1.00",null]`, `[4,"Oslo",1,"10.00",0]`, `[5,"It's",-2,"0.50",-0.25]`)
	w.is("select n, id AS k, city as `where` from shop.orders order by k desc limit 2;", `[-2,5,"It's"]`, `[1,4,"Oslo"]`)
	w.is("SELECT city FROM orders WHERE id >= 2 AND (city = 'Oslo' OR city IS NULL) ORDER BY id", `[null]`, `["Oslo"]`)
	w.is("SELECT id FROM orders ORDER BY id LIMIT 0")
	w.is("SELECT id FROM orders -- all of them\n /* ; */ WHERE id = /* which? */ 3", `[3]`)
	w.is(`SELECT id, _bucket, _partition FROM orders WHERE id = 3`, `[3,3,null]`)
	w.is(`SELECT _change_type, id FROM orders$changelog WHERE id = 3`, `["+I",3]`)
	w.is("SELECT id AS a, id AS b FROM `orders$changelog` WHERE id = 3", `[3,3]`)
	require.Equal(t, "[1]\n[4]\n", w.exec("SELECT id FROM orders WHERE city = ? ORDER BY id LIMIT ?", "Oslo", 10))
	w.exec("CREATE TABLE log (a STRING, b INT)")
	w.is("SELECT * FROM log")
	w.exec("INSERT INTO log VALUES ('x', 1), ('y', 2)")
	w.is("SELECT b, a FROM log LIMIT 1", `[1,"x"]`)
}

// Sorting by several columns of the key, each way, is right for keys whose order as bytes is not obvious, and a limit
// takes the first of all buckets.
func TestOrderBy(t *testing.T) {
	w := newWorld(t)
	w.exec(`CREATE TABLE k (a STRING, b INT, c DECIMAL(5,1), v INT, PRIMARY KEY (a, b, c)) WITH ('bucket.num' = '3')`)
	w.exec(`INSERT INTO k VALUES ('', -1, 0, 1), ('', 2, -3.5, 2), ('a', 0, 1, 3), ('a', 0, -1, 4), ('ab', -5, 2, 5), ('b', 7, 10, 6), ('b', -7, 9, 7)`)
	w.is("SELECT v FROM k ORDER BY a, b, c", "[1]", "[2]", "[4]", "[3]", "[5]", "[7]", "[6]")
	w.is("SELECT v FROM k ORDER BY a DESC, b, c DESC", "[7]", "[6]", "[5]", "[3]", "[4]", "[1]", "[2]")
	w.is("SELECT v FROM k ORDER BY c LIMIT 3", "[2]", "[4]", "[1]")
	w.is("SELECT v FROM k ORDER BY b DESC, a LIMIT 2", "[6]", "[2]")
	w.is("SELECT v FROM k WHERE a = 'a' AND b = 0 AND c IN (1, -1) ORDER BY c DESC", "[3]", "[4]")
	w.fails("SELECT v FROM k ORDER BY v", errs.UnsupportedSQL, "line 1, column 26", "ORDER BY v, which is not in the primary key (a, b, c)", "Flink, Spark or DuckDB")
	w.fails("SELECT v FROM k ORDER BY nix", errs.UnknownColumn, "line 1, column 26")
}

// A WHERE that says the whole key is a point lookup, however it says it, and takes exactly the rows for which it is
// true; one that does not is a read.
func TestPointLookup(t *testing.T) {
	w := withOrders(t)
	lookups := func() float64 {
		n := 0.0
		families, err := w.reg.Gather()
		require.NoError(t, err)
		for _, f := range families {
			if f.GetName() == "millrace_router_lookup_keys_total" {
				n = f.GetMetric()[0].GetCounter().GetValue()
			}
		}
		return n
	}
	for _, c := range []struct {
		where string
		keys  float64
		want  []string
	}{
		{"id = 4", 1, []string{"[4]"}},
		{"4 = id", 1, []string{"[4]"}},
		{"id IN (4, 1, 99)", 3, []string{"[1]", "[4]"}},
		{"id = 1 OR id = 2", 2, []string{"[1]", "[2]"}},
		{"id = 1 AND city = 'Rome'", 1, nil},
		{"id IN (1, 2) AND city = 'Rome'", 2, []string{"[2]"}},
		{"id = 1 AND id = 2", 0, nil},
		{"id = 1.5", 0, nil},
		{"id = 99", 1, nil},
		{"id > 4", 0, []string{"[5]"}},
		{"city = 'Rome'", 0, []string{"[2]"}},
		{"id = 1 OR city = 'Rome'", 0, []string{"[1]", "[2]"}},
		{"id = 3 AND _bucket = 3", 0, []string{"[3]"}},
	} {
		before := lookups()
		w.is("SELECT id FROM orders WHERE "+c.where+" ORDER BY id", c.want...)
		require.Equal(t, c.keys, lookups()-before, c.where)
	}
	before := lookups()
	w.is("SELECT COUNT(*), SUM(n) FROM orders WHERE id IN (1, 4, 77)", "[2,4]")
	w.is("SELECT COUNT(*) FROM orders WHERE id IN (1, 4, 77)", "[2]")
	require.Equal(t, 6.0, lookups()-before)
}

// Aggregates, with SQL's treatment of NULL, hand-computed.
func TestAggregates(t *testing.T) {
	w := withOrders(t)
	w.is("SELECT COUNT(*), COUNT(n), SUM(n), MIN(n), MAX(n), AVG(n) FROM orders", "[5,4,9,-2,7,2.25]")
	w.is("SELECT SUM(amount), AVG(amount), MIN(amount), MAX(amount) FROM orders", `["22.05","4.410000","-1.00","12.50"]`)
	w.is("SELECT SUM(d), AVG(d), MIN(d), MAX(d), MIN(city), MAX(city) FROM orders", `[3.25,0.8125,-0.25,2,"It's","Rome"]`)
	w.is("SELECT city, COUNT(*) AS n, SUM(amount) FROM orders GROUP BY city ORDER BY city",
		`[null,1,"-1.00"]`, `["It's",1,"0.50"]`, `["Oslo",2,"22.50"]`, `["Rome",1,"0.05"]`)
	w.is("SELECT COUNT(*) AS n, city FROM orders WHERE id < 5 GROUP BY city ORDER BY n DESC, city DESC LIMIT 2", `[2,"Oslo"]`, `[1,"Rome"]`)
	w.is("SELECT city FROM orders GROUP BY city ORDER BY city DESC", `["Rome"]`, `["Oslo"]`, `["It's"]`, `[null]`)
	w.is("SELECT city AS a, city AS b, n, COUNT(*) FROM orders GROUP BY n, city ORDER BY n LIMIT 2", `["Rome","Rome",null,1]`, `["It's","It's",-2,1]`)
	w.is("SELECT COUNT(*), SUM(n), AVG(amount), MIN(city) FROM orders WHERE id > 100", "[0,null,null,null]")
	w.is("SELECT city, COUNT(*) FROM orders WHERE id > 100 GROUP BY city")
	w.is("SELECT COUNT(*) FROM orders", "[5]")
	w.is("SELECT COUNT(*), COUNT(id), COUNT(*) AS again FROM orders", "[5,5,5]")
	w.is("SELECT COUNT(*) FROM orders LIMIT 0")
	w.exec("INSERT INTO orders (id, n) VALUES (1, 4)")
	w.is("SELECT COUNT(*), SUM(n), MAX(id) FROM orders$changelog WHERE _change_type <> '-U'", "[6,13,5]")
	w.is("SELECT n, city, COUNT(*) AS c FROM orders$changelog WHERE id = 1 GROUP BY city, n ORDER BY n", `[3,"Oslo",2]`, `[4,"Oslo",1]`)
	w.is("SELECT after, before FROM orders$binlog WHERE id = 1 LIMIT 1", `[{"id":1,"city":"Oslo","n":3,"amount":"12.50","d":1.5},null]`)
	w.is("SELECT COUNT(*), COUNT(before), MIN(_change_type) FROM orders$binlog", `[6,1,"insert"]`)
	w.exec("INSERT INTO orders (id, n) VALUES (1, 3)")
	w.is("SELECT _change_type, COUNT(*) AS n FROM orders$changelog GROUP BY _change_type ORDER BY n DESC, _change_type", `["+I",5]`, `["+U",2]`, `["-U",2]`)
}

// Sums are exact: beyond 64 and 128 bits on the way, and refused where the answer has no room; means are rounded once.
func TestExactSums(t *testing.T) {
	w := newWorld(t)
	w.exec("CREATE TABLE s (k INT, b BIGINT, d DECIMAL(38,2), f DOUBLE, g STRING)")
	w.exec(`INSERT INTO s VALUES
		(1, 9223372036854775807, 999999999999999999999999999999999999.99, 1e308, 'a'), (1, 9223372036854775807, 999999999999999999999999999999999999.99, 1, 'a'),
		(1, -9223372036854775808, -999999999999999999999999999999999999.99, -1e308, 'a'), (1, -9223372036854775807, -999999999999999999999999999999999999.98, 0.5, 'a'),
		(2, 9223372036854775807, 0.01, 0, 'b'), (2, 1, 0.02, 0, 'b'), (3, 1, 999999999999999999999999999999999999.99, 0, 'c'), (3, 2, 0.01, 0, 'c')`)
	w.is("SELECT SUM(b), SUM(d), SUM(f) FROM s WHERE k = 1", `[-1,"0.01",1.5]`)
	w.is("SELECT AVG(b), AVG(d) FROM s WHERE k = 1", `[-0.25,"0.002500"]`)
	w.is("SELECT AVG(b), AVG(d) FROM s WHERE k = 2", `[4611686018427388000,"0.015000"]`)
	w.fails("SELECT SUM(b) FROM s WHERE k = 2", errs.IntegerOverflow, "SUM(b) is 9223372036854775808, which is beyond BIGINT")
	w.fails("SELECT k, SUM(d) FROM s GROUP BY k", errs.IntegerOverflow, "SUM(d) has more than 38 digits")
	w.is("SELECT SUM(k), MAX(b), MIN(b), MAX(d) FROM s", `[14,9223372036854775807,-9223372036854775808,"999999999999999999999999999999999999.99"]`)
	w.exec("CREATE TABLE m (d DECIMAL(9,0))")
	w.exec("INSERT INTO m VALUES (1), (1), (0)")
	w.is("SELECT AVG(d) FROM m", `["0.666667"]`)
	w.exec("INSERT INTO m VALUES (-10), (-1), (0)")
	w.is("SELECT AVG(d), SUM(d) FROM m", `["-1.500000","-9"]`)
}

// Every scalar type can be grouped by and has a lowest and a highest value; NaN is one value above the others, and both
// zeros are one.
func TestTypes(t *testing.T) {
	w := newWorld(t)
	w.exec(`CREATE TABLE t (b BOOLEAN, t TINYINT, s SMALLINT, i INT, l BIGINT, f FLOAT, d DOUBLE, n DECIMAL(20,3), c CHAR(3), x STRING, y BINARY(2), z BYTES,
		da DATE, ti TIME(3), tn TIME(9), ts TIMESTAMP(6), tz TIMESTAMP_LTZ(3))`)
	w.exec(`INSERT INTO t VALUES
		(TRUE, 1, 2, 3, 4, 1.5, 'NaN', 1.001, 'ab', 'x', X'0001', X'ff', DATE '2026-01-02', TIME '10:00:00.5', '10:00:00', TIMESTAMP '2026-01-02 03:04:05.000001', TIMESTAMP_LTZ '2026-01-02T03:04:05+01:00'),
		(FALSE, -1, -2, -3, -4, 'NaN', -0.0, -1.001, 'ä', '', X'00ff', X'', '0001-01-01', '23:59:59.999', '00:00:00.000000001', '9999-12-31T23:59:59.999999', 0),
		(FALSE, -1, -2, -3, -4, 'NaN', 0.0, -1.001, 'ä', '', X'00ff', X'', '0001-01-01', '23:59:59.999', '00:00:00.000000001', '9999-12-31T23:59:59.999999', '1970-01-01T00:00:00Z'),
		(NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)`)
	for col, want := range map[string]string{
		"b": "false true", "t": "-1 1", "s": "-2 2", "i": "-3 3", "l": "-4 4", "f": `1.5 "NaN"`, "d": `0 "NaN"`, "n": `"-1.001" "1.001"`, "c": `"ab" "ä"`, "x": `"" "x"`,
		"y": `"AAE=" "AP8="`, "z": `"" "/w=="`, "da": `"0001-01-01" "2026-01-02"`, "ti": `"10:00:00.500" "23:59:59.999"`, "tn": `"00:00:00.000000001" "10:00:00.000000000"`,
		"ts": `"2026-01-02T03:04:05.000001" "9999-12-31T23:59:59.999999"`, "tz": `"1970-01-01T00:00:00.000Z" "2026-01-02T02:04:05.000Z"`,
	} {
		low, high, _ := strings.Cut(want, " ")
		got := w.exec("SELECT MIN(" + col + "), MAX(" + col + "), COUNT(" + col + ") FROM t")
		if col == "d" {
			got = strings.Replace(got, "[-0,", "[0,", 1) // the first of two equal zeros
		}
		require.Equal(t, "["+low+","+high+",3]\n", got, col)
		counts := []string{"[null,1]", "[" + low + ",2]", "[" + high + ",1]"}
		if col == "f" {
			counts[1], counts[2] = "["+low+",1]", "["+high+",2]"
		}
		if col == "c" || col == "y" || col == "ti" || col == "tn" || col == "ts" || col == "tz" || col == "f" {
			a := w.exec("SELECT " + col + ", COUNT(*) FROM t GROUP BY " + col + " ORDER BY " + col)
			require.Equal(t, 3, strings.Count(a, "\n"), col)
			require.True(t, strings.HasPrefix(a, "[null,1]\n["+low+","), "%s: %s", col, a)
			continue
		}
		w.is("SELECT "+col+", COUNT(*) FROM t GROUP BY "+col+" ORDER BY "+col, counts...)
	}
	w.fails("SELECT SUM(x) FROM t", errs.TypeMismatch, "line 1, column 8", "SUM takes no STRING")
	w.fails("SELECT AVG(b) FROM t", errs.TypeMismatch)
	w.exec("CREATE TABLE nested (a ARRAY<INT>, r ROW<x INT>)")
	w.fails("SELECT MIN(a) FROM nested", errs.TypeMismatch, "MIN takes no ARRAY<INT>")
	w.fails("SELECT a FROM nested GROUP BY a", errs.UnsupportedSQL, "GROUP BY a column of type ARRAY")
	w.is("SELECT COUNT(a) FROM nested", "[0]")
}
