package e2e

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

// numbered makes NDJSON lines {"id":i} and puts other lines in place of some.
func numbered(n int, instead map[int]string) string {
	var b strings.Builder
	for i := range n {
		if bad, ok := instead[i]; ok {
			b.WriteString(bad)
		} else {
			fmt.Fprintf(&b, `{"id":%d}`, i)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// A streamed body is applied in chunks of 10,000 lines: at the first bad chunk, abort stops and says what was accepted
// and which rows are bad; continue writes the good rows of every chunk and lists the bad.
func TestNDJSONChunks(t *testing.T) {
	t.Parallel()
	s := shared(t)
	db := newDB(t, s)
	bad := map[int]string{12_345: `{"id":"x"}`, 12_400: `{"idd":1}`, 24_999: `{"id":1`}
	body := numbered(25_000, bad)

	aborted := create(t, s, db, "aborted", "id BIGINT", "", 1)
	p := s.fails(t, 422, p422(t, s, aborted), "POST", aborted.path()+"/records", body, "Content-Type", mediaNDJSON)
	require.EqualValues(t, 10_000, *p.Accepted)
	require.Len(t, p.Errors, 2, "all bad rows of the chunk are named")
	require.EqualValues(t, 12_345, *p.Errors[0].Index)
	require.Equal(t, "id", p.Errors[0].Field)
	require.EqualValues(t, 12_400, *p.Errors[1].Index)
	require.Equal(t, "unknown_field", p.Errors[1].Code)
	require.Equal(t, "10000", aborted.count(t, ""), "the chunk before is written, the bad one not at all")

	continued := create(t, s, db, "continued", "id BIGINT", "", 1)
	o := s.ok(t, "POST", continued.path()+"/records?on_error=continue", body, "Content-Type", mediaNDJSON)
	require.Equal(t, "24997", fmt.Sprint(o["accepted"]))
	require.Equal(t, "3", fmt.Sprint(o["rejected"]))
	require.Len(t, o["errors"], 3)
	require.Equal(t, "24997", continued.count(t, ""))
	require.Equal(t, "0", continued.count(t, "id = 12345 OR id = 12400 OR id = 24999"))

	many := create(t, s, db, "many", "id BIGINT", "", 1)
	o = s.ok(t, "POST", many.path()+"/records?on_error=continue", strings.Repeat("{\"id\":true}\n", 500), "Content-Type", mediaNDJSON)
	require.Equal(t, "500", fmt.Sprint(o["rejected"]))
	require.Len(t, o["errors"], 100, "the list of errors is bounded")
}

// p422 is the code that a number written as another string has; the first error names the answer's code.
func p422(t *testing.T, s *server, tb table) string {
	t.Helper()
	p := s.do(t, "POST", tb.path()+"/records", recordsBody(`[{"id":"x"}]`))
	require.Equal(t, 422, p.status)
	return p.object(t)["code"].(string)
}

// Bodies may be gzip or zstd, JSON, NDJSON and Arrow alike, and count their limits after decompression.
func TestContentEncodings(t *testing.T) {
	t.Parallel()
	s := shared(t)
	tb := create(t, s, newDB(t, s), "t", "id BIGINT", "", 1)
	var gz, zs bytes.Buffer
	g := gzip.NewWriter(&gz)
	_, err := g.Write([]byte(numbered(20_000, nil)))
	require.NoError(t, err)
	require.NoError(t, g.Close())
	z, err := zstd.NewWriter(&zs)
	require.NoError(t, err)
	_, err = z.Write([]byte(recordsBody(`[{"id":-1}]`)))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	s.ok(t, "POST", tb.path()+"/records", gz.Bytes(), "Content-Type", mediaNDJSON, "Content-Encoding", "gzip")
	s.ok(t, "POST", tb.path()+"/records", zs.Bytes(), "Content-Encoding", "zstd")
	require.Equal(t, "20001", tb.count(t, ""))
}

// The last line needs no line end, \r\n is a line end, and empty lines are no rows.
func TestNDJSONLines(t *testing.T) {
	t.Parallel()
	s := shared(t)
	tb := create(t, s, newDB(t, s), "t", "id BIGINT", "", 1)
	o := s.ok(t, "POST", tb.path()+"/records", "{\"id\":1}\r\n\n  {\"id\":2}\n{\"id\":3}", "Content-Type", mediaNDJSON)
	require.Equal(t, "3", fmt.Sprint(o["accepted"]))
	require.Equal(t, []string{`{"id":1}`, `{"id":2}`, `{"id":3}`}, tb.scan(t, nil))
}

// One filter language: the same condition through a scan, a count, the changelog, Flight and the command line.
func TestFilters(t *testing.T) {
	t.Parallel()
	s := shared(t)
	tb := create(t, s, newDB(t, s), "t", "id INT, s STRING, n BIGINT, d DOUBLE, m DECIMAL(5,2), b BOOLEAN, ts TIMESTAMP(3), day DATE", "id", 2)
	tb.write(t, `[
		{"id":1,"s":"apple","n":10,"d":1.5,"m":"1.10","b":true,"ts":"2026-11-29T10:00:00.000","day":"2026-11-29"},
		{"id":2,"s":"banana","n":20,"d":"NaN","m":"2.20","b":false,"ts":"2026-11-29T10:00:00.500","day":"2026-11-28"},
		{"id":3,"s":"it's 100%","n":9007199254740993,"d":-0.0,"m":"-3.30","b":null,"ts":null,"day":null},
		{"id":4,"s":null,"n":null,"d":null,"m":null,"b":true,"ts":"2020-01-01T00:00:00.000","day":"1970-01-01"}]`)
	c := s.dial(t)
	for _, f := range []struct{ filter, ids string }{
		{"n = 10", "1"},
		{"n <> 10", "2 3"}, // NULL is neither
		{"NOT (n = 10)", "2 3"},
		{"n = 9007199254740993", "3"}, // exact: a float would also match …992
		{"n = 9007199254740992", ""},
		{"n >= 10 AND n < 21", "1 2"},
		{"n IS NULL OR s = 'apple'", "1 4"},
		{"s IN ('apple', 'banana', NULL)", "1 2"},
		{"s NOT IN ('apple', NULL)", ""},
		{"n NOT BETWEEN 15 AND 25", "1 3"},
		{"s LIKE '%an%'", "2"},
		{"s LIKE 'it''s 100!%' ESCAPE '!'", "3"},
		{"s NOT LIKE '_pple'", "2 3"},
		{"b", "1 4"},
		{"NOT b", "2"},
		{"b IS NOT NULL AND NOT b OR id = 3", "2 3"},
		{"d = 0", "3"},
		{"d > 1e308", "2"}, // NaN sorts last
		{"m > 1.1", "2"},
		{"m = 2.2", "2"},
		{"n > 19.5", "2 3"},
		{"ts > '2026-11-29T10:00:00'", "2"},
		{"ts = '2026-11-29T10:00:00.000'", "1"},
		{"day BETWEEN '2026-11-01' AND '2026-11-28'", "2"},
		{"ts < CURRENT_TIMESTAMP - INTERVAL '365' DAY", "4"},
		{`"id" = 1 OR ` + "`id` = 2", "1 2"},
		{"id != 1 AND (id = 2 OR id = 3) AND NOT id = 3", "2"},
	} {
		t.Run(f.filter, func(t *testing.T) {
			wantRows := []string{}
			for id := range strings.FieldsSeq(f.ids) {
				wantRows = append(wantRows, `{"id":`+id+`}`)
			}
			require.ElementsMatch(t, wantRows, tb.scan(t, obj{"columns": []string{"id"}, "filter": f.filter}))
			require.Equal(t, fmt.Sprint(len(wantRows)), tb.count(t, f.filter))
			p := tb.changelog(t, "from=earliest&columns=id&filter="+url.QueryEscape(f.filter))
			require.Len(t, p.changes, len(wantRows))
			_, got := c.scan(t, command(t, scanCommand(tb, obj{"columns": []string{"id"}, "filter": f.filter})))
			require.ElementsMatch(t, strings.Fields(f.ids), got)
		})
	}
	require.Len(t, s.cliOK(t, "scan", tb.full(), "--filter", "s LIKE '%an%'", "--format", "ndjson"), 1)
	require.Equal(t, []string{`{"id":2}`}, tb.scan(t, obj{"columns": []string{"id"}, "filter": "s = ? AND n = ?", "params": []any{"banana", 20}}))
	a := s.do(t, "GET", tb.path()+"/scan?columns=id&filter="+url.QueryEscape("s = ?")+"&params="+url.QueryEscape(`["it's 100%"]`), nil, "Accept", mediaJSON)
	require.Equal(t, []string{`{"id":3}`}, rowsOf(t, a.body, "rows"))
	require.Len(t, tb.scan(t, obj{"limit": 3}), 3)
}
