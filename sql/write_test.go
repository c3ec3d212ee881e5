package sql_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/sql"
)

// INSERT is an upsert on a keyed table, a partial update with a list of columns, and an append to a log table.
func TestInsert(t *testing.T) {
	w := withOrders(t)
	require.Equal(t, "affected 2", w.exec("INSERT INTO orders VALUES (1, 'Bergen', 4, 0, 0), (6, 'Köln', NULL, NULL, NULL)"))
	w.is("SELECT * FROM orders WHERE id IN (1, 6)", `[1,"Bergen",4,"0.00",0]`, `[6,"Köln",null,null,null]`)
	require.Equal(t, "affected 2", w.exec("INSERT INTO orders (city, id) VALUES ('Oslo', 1), (NULL, 7)"))
	w.is("SELECT * FROM orders WHERE id IN (1, 7)", `[1,"Oslo",4,"0.00",0]`, `[7,null,null,null,null]`)
	w.exec("INSERT INTO orders (d, amount, n, city, id) VALUES (+1.25e0, .5, -3, 'all', 8)")
	w.is("SELECT * FROM orders WHERE id = 8", `[8,"all",-3,"0.50",1.25]`)
	require.Equal(t, "affected 2", w.exec("INSERT INTO orders VALUES (?, ?, ?, ?, ?), (10, 'x', ?, 1, 'Infinity')", 9, "a\"b\\\n", nil, "7.25", 1e300, 5))
	w.is("SELECT * FROM orders WHERE id IN (9, 10)", `[9,"a\"b\\\n",null,"7.25",1e+300]`, `[10,"x",5,"1.00","Infinity"]`)
	w.exec("CREATE TABLE log (a STRING NOT NULL, b INT)")
	w.exec("INSERT INTO TABLE log VALUES ('x', 007)")
	w.exec("INSERT INTO log (b, a) VALUES (2, 'y')")
	w.exec("INSERT INTO log (a) VALUES ('z')")
	w.is("SELECT * FROM log", `["x",7]`, `["y",2]`, `["z",null]`)
	w.fails("INSERT INTO log (b) VALUES (1)", errs.MissingColumn)
	w.exec("CREATE TABLE strict (id INT, v INT NOT NULL, x INT, PRIMARY KEY (id))")
	w.fails("INSERT INTO strict (id, x) VALUES (1, 1)", errs.MissingColumn, "v")
}

// ARRAY, MAP and ROW are written as SQL writes them, in one another; so are the values that JSON has in other forms.
func TestNestedValues(t *testing.T) {
	w := newWorld(t)
	w.exec("CREATE TABLE n (a ARRAY<INT>, m MAP<STRING, BIGINT>, k MAP<INT, STRING>, r ROW<x INT, `not` ARRAY<ROW<y BYTES, z DATE>>>)")
	w.exec(`INSERT INTO n VALUES
		(ARRAY[1, NULL, -3], MAP['a', 1, 'b"', ?], MAP[1, 'x', 2, NULL], ROW(1, ARRAY[ROW(X'ff', DATE '2026-01-02'), NULL])),
		(ARRAY[], MAP[], NULL, ROW(NULL, ARRAY[])), (?, ?, ?, ?)`, 5, []int{7}, map[string]int{"c": 1}, nil, map[string]any{"x": 2})
	w.is("SELECT * FROM n",
		`[[1,null,-3],{"a":1,"b\"":5},[{"key":1,"value":"x"},{"key":2,"value":null}],{"x":1,"not":[{"y":"/w==","z":"2026-01-02"},null]}]`,
		`[[],{},null,{"x":null,"not":[]}]`, `[[7],{"c":1},null,{"x":2,"not":null}]`)
	for text, words := range map[string]string{
		"INSERT INTO n (m) VALUES (MAP['a'])":                                                       "line 1, column 27: MAP[…] lists keys and values in turn",
		"INSERT INTO n (r) VALUES (ROW(1))":                                                         "line 1, column 27: ROW(…) has 1 values, and the type",
		"INSERT INTO n (a) VALUES (ARRAY[1, 2)":                                                     `expected "]" or a comma`,
		"INSERT INTO n (a) VALUES (ARRAY[1 + 1])":                                                   "an expression in VALUES",
		"INSERT INTO n (a) VALUES (ARRAY['x'])":                                                     `line 1, column 27: row 0, field "a[0]"`,
		"INSERT INTO n (r) VALUES (ROW(1, ARRAY[ROW('?', 'x')]))":                                   `line 1, column 27: row 0, field "r.not[0].y"`,
		"INSERT INTO n (m) VALUES (ARRAY[1])":                                                       "a value of ARRAY for a column or field of type MAP",
		"INSERT INTO n (a) VALUES (" + strings.Repeat("ARRAY[", 30) + strings.Repeat("]", 30) + ")": "nested more than 16 deep",
	} {
		_, err := w.run(text)
		require.Error(t, err, text)
		require.Contains(t, err.Error(), words, text)
	}
	w.is("SELECT COUNT(*) FROM n", "[3]")
}

// DELETE takes whole keys, in any form that says them, and tells how many rows there were.
func TestDelete(t *testing.T) {
	w := withOrders(t)
	require.Equal(t, "affected 1", w.exec("DELETE FROM orders WHERE id = 1"))
	require.Equal(t, "affected 0", w.exec("DELETE FROM orders WHERE id = 1"))
	require.Equal(t, "affected 2", w.exec("DELETE FROM orders WHERE id IN (2, 3, 99) AND id <> 99"))
	require.Equal(t, "affected 0", w.exec("DELETE FROM orders WHERE id = 4 AND id = 5"))
	require.Equal(t, "affected 1", w.exec("DELETE FROM orders WHERE id = ?", 5))
	w.is("SELECT id FROM orders", "[4]")
	w.exec("CREATE TABLE two (a INT, b STRING, v INT, PRIMARY KEY (a, b)) WITH ('bucket.num' = '3')")
	w.exec("INSERT INTO two VALUES (1, 'x', 1), (1, 'y', 2), (2, 'x', 3), (2, 'y', 4)")
	w.fails("DELETE FROM two WHERE a = 1", errs.UnsupportedSQL, "names each of a, b")
	w.fails("DELETE FROM two WHERE a = 1 OR b = 'x'", errs.UnsupportedSQL)
	require.Equal(t, "affected 2", w.exec("DELETE FROM two WHERE (a = 1 AND b = 'y') OR (a = 2 AND b = 'x')"))
	w.is("SELECT v FROM two ORDER BY a", "[1]", "[4]")
	w.exec("CREATE TABLE log (a STRING)")
	w.fails("DELETE FROM log WHERE a = 'x'", errs.WrongTableKind)
}

// One INSERT writes a batch of at most 10,000 rows, and holds no tree of its values.
func TestInsertBounds(t *testing.T) {
	w := newWorld(t)
	w.exec("CREATE TABLE t (a INT, b STRING)")
	rows := func(n int) string {
		return "INSERT INTO t VALUES " + strings.Repeat("(1, 'x'), ", n-1) + "(2, 'y')"
	}
	require.Equal(t, "affected 10000", w.exec(rows(sql.MaxRows)))
	w.fails(rows(sql.MaxRows+1), errs.TooLarge, "more than 10000 rows")
	w.fails("SELECT a FROM t WHERE b = '"+strings.Repeat("x", sql.MaxTextBytes)+"'", errs.TooLarge, "at most 16777216")
	w.fails("SELECT a FROM t WHERE b = '"+strings.Repeat("x", 70_000)+"'", errs.InvalidFilter, "at most 65536")
	w.fails("INSERT INTO t VALUES (1, '"+strings.Repeat("x", 2<<20)+"')", errs.TooLarge)
	w.is("SELECT COUNT(*) FROM t", "[10000]")
	wide := "INSERT INTO t VALUES (" + strings.Repeat("1,", 512<<10) + "1)"
	_, err := w.run(wide)
	require.Error(t, err)
	allocated := testing.AllocsPerRun(1, func() { _, err = w.run(wide) })
	require.Less(t, allocated, 1000.0)
}

// SHOW CREATE TABLE gives a statement that creates an equal table.
func TestShowCreateTable(t *testing.T) {
	w := newWorld(t)
	for i, text := range []string{
		"CREATE TABLE %s (a INT)",
		"CREATE TABLE %s (a INT COMMENT 'it''s', b STRING NOT NULL, PRIMARY KEY (a)) COMMENT 'what it''s for'",
		"CREATE TABLE IF NOT EXISTS shop.%s (`order` BIGINT, \"key\" CHAR(3), `not` DECIMAL(38, 9), r ROW<`not` INT NOT NULL, m MAP<STRING, ARRAY<TIMESTAMP_LTZ(9)>>>, PRIMARY KEY (`order`, `key`) NOT ENFORCED) WITH ('bucket.num' = '7', 'bucket.key' = 'key', 'team' = 'it''s ours')",
		"CREATE TABLE %s (a BINARY(4) NOT NULL, b BYTES, t TIME(3), ts TIMESTAMP(3) WITH LOCAL TIME ZONE, d DOUBLE PRECISION, e TIMESTAMP WITHOUT TIME ZONE /* plain */) WITH ('bucket.key' = 'a,t', 'bucket.num' = '2')",
		"create table %s (a int primary key not enforced comment 'k', b boolean null)",
	} {
		one, two := fmt.Sprintf("one%d", i), fmt.Sprintf("two%d", i)
		w.exec(fmt.Sprintf(text, one))
		made := w.exec("SHOW CREATE TABLE " + one)
		var shown string
		require.Equal(t, 1, strings.Count(made, "\n"), made)
		shown = strings.NewReplacer(`\n`, "\n", `\"`, `"`, `\\`, `\`).Replace(strings.TrimSuffix(strings.TrimPrefix(made, `["`), "\"]\n"))
		other := strings.Replace(shown, "`"+one+"`", "`"+two+"`", 1)
		require.NotEqual(t, shown, other)
		w.exec(other)
		require.Equal(t, strings.Replace(made, one, two, 1), w.exec("SHOW CREATE TABLE "+two))
		require.Equal(t, w.exec("DESCRIBE "+one), w.exec("DESCRIBE "+two))
	}
	w.is("DESC TABLE one1", `["a","INT",false,1,null,false,"it's"]`, `["b","STRING",false,null,null,false,null]`)
	w.is("SHOW CREATE TABLE one2", "[\"CREATE TABLE `shop`.`one2` (\\n  `order` BIGINT NOT NULL,\\n  `key` CHAR(3) NOT NULL,\\n  `not` DECIMAL(38,9),\\n  `r` ROW<`not` INT NOT NULL, m MAP<STRING, ARRAY<TIMESTAMP_LTZ(9)>>>,\\n  PRIMARY KEY (`order`, `key`)\\n)\\nWITH (\\n  'bucket.key' = 'key',\\n  'bucket.num' = '7',\\n  'team' = 'it''s ours'\\n)\"]")
}

// Databases and tables are created, listed and dropped; IF (NOT) EXISTS makes it no error that they are there, or not.
func TestDDL(t *testing.T) {
	w := newWorld(t)
	w.exec("CREATE DATABASE IF NOT EXISTS shop")
	w.exec("CREATE DATABASE other COMMENT 'another'")
	w.is("SHOW DATABASES", `["other"]`, `["shop"]`)
	w.exec("CREATE TABLE other.t (a INT)")
	w.exec("CREATE TABLE IF NOT EXISTS other.t (b STRING)")
	w.is("SHOW TABLES")
	w.is("SHOW TABLES IN other", `["t"]`)
	w.is("SHOW TABLES FROM `other`;", `["t"]`)
	w.is("DESCRIBE other.t", `["a","INT",true,null,null,false,null]`)
	require.Equal(t, "affected 0", w.exec("DROP TABLE IF EXISTS other.nothing"))
	w.fails("DROP DATABASE other RESTRICT", errs.DatabaseNotEmpty)
	w.exec("DROP DATABASE other CASCADE")
	w.exec("DROP DATABASE IF EXISTS other")
	w.fails("DROP DATABASE other", errs.DatabaseNotFound)
	w.exec("CREATE TABLE t (a INT)")
	w.exec("INSERT INTO t VALUES (1)")
	w.exec("DROP TABLE t")
	w.exec("CREATE TABLE t (a INT)")
	w.is("SELECT COUNT(*) FROM t", "[0]")
}

// ALTER TABLE changes columns and properties, all of a statement or nothing of it.
func TestAlterTable(t *testing.T) {
	w := newWorld(t)
	w.exec("CREATE TABLE t (id INT, a INT, r ROW<x INT>, PRIMARY KEY (id))")
	w.exec("ALTER TABLE t ADD COLUMN b STRING COMMENT 'new' AFTER id")
	w.exec("ALTER TABLE t ADD (c INT FIRST, d DECIMAL(9, 2))")
	w.exec("ALTER TABLE shop.t RENAME a TO `order`")
	w.exec("ALTER TABLE t MODIFY `order` BIGINT COMMENT 'wider'")
	w.exec("ALTER TABLE t DROP c")
	w.exec("ALTER TABLE t ADD r.y STRING")
	w.is("DESCRIBE t", `["id","INT",false,1,null,false,null]`, `["b","STRING",true,null,null,false,"new"]`, `["order","BIGINT",true,null,null,false,"wider"]`,
		"[\"r\",\"ROW<x INT, y STRING>\",true,null,null,false,null]", `["d","DECIMAL(9,2)",true,null,null,false,null]`)
	w.exec("ALTER TABLE t SET ('table.log.ttl' = '1d', 'team' = 'ours')")
	w.exec("ALTER TABLE t COMMENT 'it''s all new'")
	made := w.exec("SHOW CREATE TABLE t")
	require.Contains(t, made, "'table.log.ttl' = '1d',\\n  'team' = 'ours'")
	require.Contains(t, made, "COMMENT 'it''s all new'")
	w.exec("ALTER TABLE t RESET ('team')")
	require.NotContains(t, w.exec("SHOW CREATE TABLE t"), "ours")
	before := w.exec("SHOW CREATE TABLE t")
	w.fails("ALTER TABLE t ADD (e INT, id INT)", errs.InvalidSchema)
	w.fails("ALTER TABLE t ADD e INT NOT NULL", errs.InvalidSchema)
	w.fails("ALTER TABLE t DROP id", errs.InvalidSchema)
	w.fails("ALTER TABLE t DROP (d, nothing)", errs.UnknownColumn)
	w.fails("ALTER TABLE t MODIFY `order` INT", errs.InvalidSchema)
	w.fails("ALTER TABLE t SET ('table.nothing' = '1')", errs.InvalidProperty)
	w.fails("ALTER TABLE nothing ADD x INT", errs.TableNotFound)
	require.Equal(t, before, w.exec("SHOW CREATE TABLE t"))
}

// Partitions are added by the values of their columns, and listed by name.
func TestPartitions(t *testing.T) {
	w := newWorld(t)
	w.exec("CREATE TABLE p (id INT, dt DATE, hour INT, PRIMARY KEY (id, dt, hour)) PARTITIONED BY (dt, hour)")
	w.is("SHOW PARTITIONS p")
	w.exec("ALTER TABLE p ADD PARTITION (dt = DATE '2026-08-26', hour = 7)")
	w.exec("ALTER TABLE p ADD IF NOT EXISTS PARTITION (hour = 7, dt = '2026-08-26')")
	w.exec("ALTER TABLE p ADD PARTITION (dt = '2026-08-27', hour = -1)")
	w.is("SHOW PARTITIONS p", `["dt=2026-08-26/hour=7","open"]`, `["dt=2026-08-27/hour=-1","open"]`)
	w.fails("ALTER TABLE p ADD PARTITION (dt = '2026-08-26', hour = 7)", errs.PartitionAlreadyExists, "dt=2026-08-26/hour=7")
	w.fails("ALTER TABLE p ADD PARTITION (dt = '2026-08-26')", errs.MissingColumn, "line 1, column 29")
	w.fails("ALTER TABLE p ADD PARTITION (dt = '2026-08-26', hour = 'x')", errs.InvalidValue, "line 1, column 29")
	w.fails("ALTER TABLE p ADD PARTITION (dt = '2026-08-26', id = 1)", errs.UnknownField, "line 1, column 29")
	w.fails("ALTER TABLE p ADD PARTITION (dt '2026-08-26')", errs.InvalidRequest, `expected "="`)
	require.Contains(t, w.exec("SHOW CREATE TABLE p"), "PARTITIONED BY (`dt`, `hour`)")
	w.exec("INSERT INTO p VALUES (1, '2026-08-26', 7), (2, '2026-08-26', 7), (1, '2026-08-27', -1), (3, '2026-08-28', 0)")
	w.is("SELECT id, _partition FROM p WHERE dt = DATE '2026-08-26' ORDER BY id DESC", `[2,"dt=2026-08-26/hour=7"]`, `[1,"dt=2026-08-26/hour=7"]`)
	w.is("SELECT id FROM p WHERE id = 1 AND hour = -1 AND dt = '2026-08-27'", "[1]")
	w.is("SELECT id FROM p WHERE id = 9 AND hour = -1 AND dt IN ('2026-08-27', '2020-01-01')")
	w.is("SELECT dt, COUNT(*) AS n FROM p GROUP BY dt ORDER BY dt", `["2026-08-26",2]`, `["2026-08-27",1]`, `["2026-08-28",1]`)
	w.is("SELECT id, dt FROM p ORDER BY id, dt DESC LIMIT 2", `[1,"2026-08-27"]`, `[1,"2026-08-26"]`)
	w.is("SELECT COUNT(*) FROM p", "[4]")
	require.Equal(t, "affected 1", w.exec("DELETE FROM p WHERE id IN (1, 2) AND dt = '2026-08-27' AND hour IN (-1, 5)"))
	w.fails("DELETE FROM p WHERE id = 1 AND dt = '2026-08-26'", errs.UnsupportedSQL, "names each of id, dt, hour")
	w.exec("ALTER TABLE p DROP PARTITION (dt = '2026-08-26', hour = 7)")
	w.fails("ALTER TABLE p DROP PARTITION (dt = '2026-08-26', hour = 7)", errs.PartitionNotFound)
	w.exec("ALTER TABLE p DROP IF EXISTS PARTITION (dt = '2026-08-26', hour = 7)")
	w.is("SHOW PARTITIONS p", `["dt=2026-08-27/hour=-1","open"]`, `["dt=2026-08-28/hour=0","open"]`)
	w.is("SELECT id FROM p", "[3]")
	w.exec("CREATE TABLE q (id INT)")
	w.fails("ALTER TABLE q ADD PARTITION (id = 1)", errs.WrongTableKind)
}
