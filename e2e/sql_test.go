package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
)

// sql runs a statement that must succeed, in a database, and returns the answer's text.
func (s *server) sql(t testing.TB, db, text string, params ...any) string {
	t.Helper()
	body := obj{"sql": text, "database": db}
	if len(params) > 0 {
		body["params"] = params
	}
	a := s.do(t, "POST", "/v1/sql", body)
	require.Equal(t, 200, a.status, "%s: %s", text, a.body)
	return strings.TrimSpace(string(a.body))
}

// SQL says what the operations say: tables made by one are seen by the other, an INSERT is a write, a DELETE a
// delete, and a SELECT gives what a scan gives.
func TestSQL(t *testing.T) {
	t.Parallel()
	s := shared(t)
	db := newDB(t, s)
	require.Equal(t, `{"rows_affected":0}`, s.sql(t, db, `CREATE TABLE customers (
		cust_id BIGINT, name STRING COMMENT 'as it is spoken', credit DECIMAL(10,2), PRIMARY KEY (cust_id) NOT ENFORCED
	) COMMENT 'who buys' WITH ('bucket.num' = '3', 'owner' = 'sales')`))
	made := s.ok(t, "GET", "/v1/databases/"+db+"/tables/customers", nil)
	require.Equal(t, "keyed", made["kind"])
	require.Equal(t, "who buys", made["comment"])
	require.Equal(t, json.Number("3"), made["buckets"])
	require.Equal(t, obj{"owner": "sales"}, made["properties"])
	tb := table{s, db, "customers"}

	require.Equal(t, `{"rows_affected":3}`, s.sql(t, db, "INSERT INTO customers VALUES (1, 'Ann', 10), (2, NULL, 2.50), (?, ?, ?)", 3, "O'Hara", "0.01"))
	require.Equal(t, `{"rows_affected":1}`, s.sql(t, db, "INSERT INTO customers (cust_id, name) VALUES (2, 'Bob')"))
	require.ElementsMatch(t, []string{
		`{"cust_id":1,"name":"Ann","credit":"10.00"}`, `{"cust_id":2,"name":"Bob","credit":"2.50"}`, `{"cust_id":3,"name":"O'Hara","credit":"0.01"}`,
	}, tb.scan(t, nil))
	require.Equal(t, `{"columns":[{"name":"cust_id","type":"BIGINT"},{"name":"credit","type":"DECIMAL(10,2)"}],"rows":[[3,"0.01"],[2,"2.50"]]}`,
		s.sql(t, db, "SELECT cust_id, credit FROM customers WHERE credit < 5 ORDER BY cust_id DESC"))
	require.Equal(t, `{"columns":[{"name":"n","type":"BIGINT"},{"name":"SUM(credit)","type":"DECIMAL(38,2)"}],"rows":[[3,"12.51"]]}`,
		s.sql(t, "", "SELECT COUNT(*) AS n, SUM(credit) FROM "+db+".customers"))
	a := s.do(t, "POST", "/v1/sql?int64=string", obj{"sql": "SELECT cust_id FROM customers WHERE cust_id = 1", "database": db})
	require.JSONEq(t, `{"columns":[{"name":"cust_id","type":"BIGINT"}],"rows":[["1"]]}`, string(a.body))
	require.Contains(t, a.header.Get("X-Millrace-Stats"), `"rows_read":1`)
	require.Equal(t, `{"rows_affected":1}`, s.sql(t, db, "DELETE FROM customers WHERE cust_id IN (2, 9)"))
	require.Equal(t, "2", tb.count(t, ""))
	require.Contains(t, s.sql(t, db, "SELECT * FROM customers$changelog WHERE cust_id = 2"), `["-D",`)

	c := s.dial(t)
	got, err := c.action(t, "millrace.execute_sql", obj{"sql": "SELECT name FROM customers WHERE cust_id = ?", "params": []int{1}, "database": db})
	require.NoError(t, err)
	require.JSONEq(t, `{"columns":[{"name":"name","type":"STRING"}],"rows":[["Ann"]]}`, string(got))
	_, err = c.action(t, "millrace.execute_sql", obj{"sql": "SELECT name FROM customers c", "database": db})
	refused(t, err, codes.Unimplemented, "unsupported_sql")
	_, err = c.action(t, "millrace.execute_sql", obj{"sql": "SELECT nam FROM customers", "database": db})
	refused(t, err, codes.InvalidArgument, "unknown_column")
}

// Rows come as a JSON document up to a bound that is told, and as NDJSON and Arrow without one; a statement without rows says there, too,
// how many it changed.
func TestSQLMedia(t *testing.T) {
	t.Parallel()
	s := shared(t)
	db := newDB(t, s)
	s.sql(t, db, "CREATE TABLE t (id INT, v STRING, PRIMARY KEY (id)) WITH ('bucket.num' = '2')")
	insert := func(from, n int) string {
		rows := make([]string, n)
		for i := range rows {
			rows[i] = fmt.Sprintf("(%d, 'v%d')", from+i, from+i)
		}
		return "INSERT INTO t VALUES " + strings.Join(rows, ", ")
	}
	s.sql(t, db, insert(0, 10_000))
	a := s.do(t, "POST", "/v1/sql", obj{"sql": "SELECT id FROM t", "database": db})
	require.Equal(t, 200, a.status)
	require.Equal(t, 10_000, bytes.Count(a.body, []byte("],["))+1)
	a = s.do(t, "POST", "/v1/sql", obj{"sql": insert(10_000, 1), "database": db}, "Accept", mediaNDJSON)
	require.Equal(t, `{"rows_affected":1}`, strings.TrimSpace(string(a.body)))
	p := s.fails(t, 413, "too_large", "POST", "/v1/sql", obj{"sql": "SELECT id FROM t", "database": db})
	require.Contains(t, p.Detail, "more than 10000 rows")
	s.fails(t, 413, "too_large", "POST", "/v1/sql", obj{"sql": insert(20_000, 10_001), "database": db})
	require.Contains(t, s.sql(t, db, "SELECT id FROM t ORDER BY id DESC LIMIT 1"), "[10000]")

	a = s.do(t, "POST", "/v1/sql", obj{"sql": "SELECT v, id FROM t WHERE id > 9997 ORDER BY id", "database": db}, "Accept", mediaNDJSON)
	require.Equal(t, "{\"v\":\"v9998\",\"id\":9998}\n{\"v\":\"v9999\",\"id\":9999}\n{\"v\":\"v10000\",\"id\":10000}\n", string(a.body))
	require.Contains(t, a.trailer("X-Millrace-Stats"), `"rows_read":10001`)
	a = s.do(t, "POST", "/v1/sql", obj{"sql": "SELECT COUNT(*) AS n, MAX(v) FROM t", "database": db}, "Accept", mediaArrow)
	r, err := ipc.NewReader(bytes.NewReader(a.body))
	require.NoError(t, err)
	defer r.Release()
	require.True(t, r.Next())
	text, err := r.RecordBatch().MarshalJSON()
	require.NoError(t, err)
	require.JSONEq(t, `[{"n":10001,"MAX(v)":"v9999"}]`, string(text))
	require.False(t, r.Next())
	require.NoError(t, r.Err())
	a = s.do(t, "POST", "/v1/sql", obj{"sql": "SELECT id, v FROM t", "database": db}, "Accept", mediaArrow)
	all, err := ipc.NewReader(bytes.NewReader(a.body))
	require.NoError(t, err)
	defer all.Release()
	rows := int64(0)
	for all.Next() {
		rows += all.RecordBatch().NumRows()
	}
	require.NoError(t, all.Err())
	require.EqualValues(t, 10_001, rows)
	require.True(t, bytes.HasSuffix(a.body, []byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}))
}

// What is wrong with a request is told by its code; nothing is done by it.
func TestSQLRefusals(t *testing.T) {
	t.Parallel()
	s := shared(t)
	db := newDB(t, s)
	s.sql(t, db, "CREATE TABLE t (id INT, v STRING, PRIMARY KEY (id))")
	for _, c := range []struct {
		status     int
		code, body string
	}{
		{400, "invalid_request", `{"sql":`},
		{400, "invalid_request", `{"database":"` + db + `"}`},
		{422, "invalid_value", `{"sql":5}`},
		{422, "invalid_value", `{"sql":"SHOW TABLES","database":null}`},
		{422, "unknown_field", `{"sql":"SHOW DATABASES","query":"x"}`},
		{422, "duplicate_field", `{"sql":"SHOW DATABASES","sql":"x"}`},
		{422, "type_mismatch", `{"sql":"SHOW DATABASES","params":{}}`},
		{400, "invalid_request", `{"sql":"SELECT id FROM t WHERE id = ?","params":[tru],"database":"` + db + `"}`},
		{400, "invalid_request", `{"sql":"SELECT id FROM t WHERE id = ?","params":[1,2],"database":"` + db + `"}`},
		{400, "invalid_request", "{\"sql\":\"SELECT id FROM t WHERE v = '\xff'\",\"database\":\"" + db + "\"}"},
		{400, "invalid_request", `{"sql":"SELECT id FROM t; SELECT id FROM t","database":"` + db + `"}`},
		{400, "invalid_request", `{"sql":"USE x"}`},
		{400, "invalid_request", `{"sql":"SHOW TABLES"}`},
		{422, "invalid_name", `{"sql":"SHOW TABLES","database":"a b"}`},
		{404, "database_not_found", `{"sql":"SHOW TABLES","database":"nothing"}`},
		{422, "unsupported_sql", `{"sql":"SELECT 1"}`},
		{422, "missing_key", `{"sql":"INSERT INTO t (v) VALUES ('x')","database":"` + db + `"}`},
		{422, "type_mismatch", `{"sql":"INSERT INTO t VALUES (1, 'a'), (2, 3)","database":"` + db + `"}`},
	} {
		p := s.fails(t, c.status, c.code, "POST", "/v1/sql", c.body)
		require.NotEmpty(t, p.Detail)
	}
	s.fails(t, 422, "unknown_field", "POST", "/v1/sql?db=x", obj{"sql": "SHOW DATABASES"})
	s.fails(t, 415, "unsupported_media_type", "POST", "/v1/sql", "SHOW DATABASES", "Content-Type", "text/plain")
	s.fails(t, 406, "not_acceptable", "POST", "/v1/sql", obj{"sql": "SHOW DATABASES"}, "Accept", "text/html")
	a := s.do(t, "POST", "/v1/sql", obj{"sql": "SELECT id\nFROM t\nWHERE v = 1", "database": db})
	require.Contains(t, string(a.body), `"line":3`)
	require.Contains(t, string(a.body), `"column":11`)
	require.Equal(t, "0", table{s, db, "t"}.count(t, ""))
}

// An INSERT or DELETE that is sent again under its key is not done again, and says so; another one under the same key is refused.
func TestSQLRetries(t *testing.T) {
	t.Parallel()
	s := shared(t)
	db := newDB(t, s)
	s.sql(t, db, "CREATE TABLE t (id INT, v STRING)")
	s.sql(t, db, "CREATE TABLE k (id INT, v STRING, PRIMARY KEY (id))")
	send := func(key, text string, params ...any) answer {
		return s.do(t, "POST", "/v1/sql", obj{"sql": text, "params": append([]any{}, params...), "database": db}, "Idempotency-Key", key)
	}
	for i := range 3 {
		a := send("one", "INSERT INTO t VALUES (1, ?), (2, 'b')", "a")
		require.Equal(t, `{"rows_affected":2}`, strings.TrimSpace(string(a.body)))
		require.Equal(t, i > 0, a.header.Get("Idempotent-Replayed") == "true")
	}
	require.Equal(t, "2", table{s, db, "t"}.count(t, ""))
	send("one", "INSERT INTO t VALUES (1, ?), (2, 'b')", "other").problem(t, 422, "idempotency_key_reused")
	s.sql(t, db, "INSERT INTO k VALUES (1, 'a'), (2, 'b')")
	require.Equal(t, `{"rows_affected":1}`, strings.TrimSpace(string(send("two", "DELETE FROM k WHERE id IN (1, 9)").body)))
	s.sql(t, db, "INSERT INTO k VALUES (1, 'again')")
	require.Equal(t, `{"rows_affected":1}`, strings.TrimSpace(string(send("two", "DELETE FROM k WHERE id IN (1, 9)").body)))
	require.Equal(t, "2", table{s, db, "k"}.count(t, ""))
	send("three", "CREATE TABLE x (a INT)").problem(t, 400, "invalid_request")
	send("", "INSERT INTO t VALUES (1, 'a')").problem(t, 422, "invalid_value")
	require.Contains(t, s.sql(t, db, "SELECT COUNT(*) FROM t"), "[2]")
	s.fails(t, 400, "invalid_request", "POST", "/v1/sql", obj{"sql": "INSERT INTO t VALUES (1, 'a')", "database": db}, "X-Writer-Id", "w", "X-Writer-Seq", "1")
}

// A script runs in order with its own database, stops where it fails, and says the line; what ran before stays.
func TestSQLScript(t *testing.T) {
	t.Parallel()
	s := shared(t)
	db := newDB(t, s)
	script := tempFile(t, "script.sql", `
-- The shop; all of it
USE `+db+`;
CREATE TABLE t (id INT, v STRING, PRIMARY KEY (id)); /* ; */
INSERT INTO t VALUES (1, 'a;b'), (2, '--');

SELECT v, id FROM t ORDER BY id;
SELECT COUNT(*) AS n FROM t
`)
	require.Equal(t, []string{"done", "2 rows written", "v    id", "───  ──", "a;b   1", "--    2", "", "n", "─", "2"}, s.cliOK(t, "sql", "-f", script))
	require.Equal(t, []string{"v,id", "a;b,1", "--,2"}, s.cliOK(t, "sql", "-d", db, "--format", "csv", "SELECT v, id FROM t ORDER BY id"))
	require.Equal(t, []string{`{"id":2}`}, s.cliOK(t, "sql", "-d", db, "--format", "ndjson", "--params", `["--"]`, "SELECT id FROM t WHERE v = ?"))
	o := s.cli(t, "USE "+db+";\nDELETE FROM t WHERE id = 1;\n  DELETE FROM t WHERE v = 'x';\nDROP TABLE t", "sql", "-f", "-")
	require.Equal(t, 1, o.code)
	require.Equal(t, "1 row deleted\n", o.stdout)
	require.Contains(t, o.stderr, "millrace: line 3, column 23: DELETE by a column that is not in the primary key (v)")
	require.Contains(t, o.stderr, "(unsupported_sql)")
	require.Equal(t, []string{"id", "──", " 2"}, s.cliOK(t, "sql", "-d", db, "SELECT id FROM t"))

	file := tempFile(t, "table.sql", "CREATE TABLE orders (id BIGINT, at TIMESTAMP_LTZ(3), PRIMARY KEY (id)) WITH ('bucket.num' = '2');\n")
	require.Equal(t, []string{"keyed table " + db + ".orders, 2 buckets"}, s.cliOK(t, "table", "create", db+".orders", "--file", file))
	shown := strings.Join(s.cliOK(t, "sql", "-d", db, "SHOW CREATE TABLE orders"), "\n")
	require.Equal(t, "CREATE TABLE `"+db+"`.`orders` (\n  `id` BIGINT NOT NULL,\n  `at` TIMESTAMP_LTZ(3),\n  PRIMARY KEY (`id`)\n)\nWITH (\n  'bucket.key' = 'id',\n  'bucket.num' = '2'\n)", shown)
	s.cliOK(t, "sql", strings.Replace(shown, "orders", "copy", 1))
	require.Equal(t, []string{"table", "──────", "copy", "orders", "t"}, s.cliOK(t, "sql", "SHOW TABLES IN "+db))
}

// A query with groups is answered while others write, and sees no batch in part: each writes a key twice, so that in between it would be
// in group 0.
func TestSQLUnderWrites(t *testing.T) {
	t.Parallel()
	s := shared(t)
	db := newDB(t, s)
	s.sql(t, db, "CREATE TABLE t (id INT, g INT, n BIGINT, PRIMARY KEY (id)) WITH ('bucket.num' = '4')")
	done := make(chan error, 1)
	stop := make(chan struct{})
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			a, err := s.send("POST", "/v1/sql", obj{"sql": fmt.Sprintf("INSERT INTO t VALUES (%d, 0, 7), (%d, 1, -7)", i%50, i%50), "database": db})
			if err == nil && a.status != 200 {
				err = fmt.Errorf("%d %s", a.status, a.body)
			}
			if err != nil {
				done <- err
				return
			}
		}
	}()
	until := time.Now().Add(2 * time.Second)
	for time.Now().Before(until) {
		var r struct{ Rows [][]int64 }
		require.NoError(t, json.Unmarshal([]byte(s.sql(t, db, "SELECT g, SUM(n), COUNT(*) FROM t GROUP BY g")), &r))
		for _, row := range r.Rows {
			require.EqualValues(t, 1, row[0], "a batch was seen in part")
			require.Equal(t, -7*row[2], row[1])
		}
	}
	close(stop)
	require.NoError(t, <-done)
}
