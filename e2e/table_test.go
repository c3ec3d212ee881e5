package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// table is a table of the server, named by its REST path.
type table struct {
	s        *server
	db, name string
}

func (tb table) path() string                 { return "/v1/databases/" + tb.db + "/tables/" + tb.name }
func (tb table) full() string                 { return tb.db + "." + tb.name }
func (tb table) suffixed(suffix string) table { return table{tb.s, tb.db, tb.name + suffix} }

// newDB makes a database for one test, named after it.
func newDB(t testing.TB, s *server) string {
	t.Helper()
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, t.Name())
	if len(name) > 150 {
		name = name[:150]
	}
	s.ok(t, "POST", "/v1/databases", obj{"name": name})
	return name
}

// create makes a table from "name TYPE [NOT NULL], …", a comma-separated primary key ("" for a log table) and buckets.
func create(t testing.TB, s *server, db, name, columns, key string, buckets int, more ...obj) table {
	t.Helper()
	body := obj{"name": name, "columns": columnList(columns), "buckets": buckets}
	if key != "" {
		body["primary_key"] = strings.Split(key, ",")
	}
	for _, m := range more {
		maps.Copy(body, m)
	}
	s.ok(t, "POST", "/v1/databases/"+db+"/tables", body)
	return table{s, db, name}
}

// columnList splits at the commas that are in no brackets.
func columnList(columns string) []obj {
	var out []obj
	depth, start := 0, 0
	for i, r := range columns + "," {
		switch r {
		case '(', '<':
			depth++
		case ')', '>':
			depth--
		case ',':
			if depth > 0 {
				continue
			}
			name, typ, _ := strings.Cut(strings.TrimSpace(columns[start:min(i, len(columns))]), " ")
			c := obj{"name": name}
			if bare, ok := strings.CutSuffix(typ, " NOT NULL"); ok {
				typ = bare
				c["nullable"] = false
			}
			c["type"] = typ
			out = append(out, c)
			start = i + 1
		}
	}
	return out
}

// write posts rows (JSON text of an array) and returns the answer; more are further members of the body.
func (tb table) write(t testing.TB, rows string, more ...string) obj {
	t.Helper()
	return tb.s.ok(t, "POST", tb.path()+"/records", recordsBody(rows, more...))
}

// tryWrite is write for goroutines other than the test's own.
func (tb table) tryWrite(rows string, more ...string) error {
	a, err := tb.s.send("POST", tb.path()+"/records", recordsBody(rows, more...))
	if err != nil {
		return err
	}
	if a.status != http.StatusOK {
		return &statusError{a.status, string(a.body)}
	}
	return nil
}

// recordsBody is the JSON body of a write; more are members such as `"mode":"delete"`.
func recordsBody(rows string, more ...string) string {
	return `{"rows":` + rows + strings.Join(append([]string{""}, more...), ",") + `}`
}

// rows returns each row of a member of an answer as compact JSON, in the order of its fields.
func rowsOf(t testing.TB, body []byte, member string) []string {
	t.Helper()
	var all map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(body, &all), "%s", body)
	var raw []json.RawMessage
	require.NoError(t, json.Unmarshal(all[member], &raw), "%s", body)
	out := make([]string, len(raw))
	for i, r := range raw {
		var b bytes.Buffer
		require.NoError(t, json.Compact(&b, r))
		out[i] = b.String()
	}
	return out
}

// scan reads all pages of a scan; request is a read request.
func (tb table) scan(t testing.TB, request obj) []string {
	t.Helper()
	var out []string
	req := obj{}
	maps.Copy(req, request)
	for {
		a := tb.s.do(t, "POST", tb.path()+"/scan", req, "Accept", mediaJSON)
		require.Equalf(t, 200, a.status, "%s", a.body)
		out = append(out, rowsOf(t, a.body, "rows")...)
		token, _ := a.object(t)["next_page_token"].(string)
		if token == "" {
			return out
		}
		req["page_token"] = token
	}
}

// lookup answers each key (JSON text) with its row as compact JSON, or "null".
func (tb table) lookup(t testing.TB, keys string) []string {
	t.Helper()
	a := tb.s.do(t, "POST", tb.path()+"/lookup", `{"keys":`+keys+`}`)
	require.Equalf(t, 200, a.status, "%s", a.body)
	return rowsOf(t, a.body, "rows")
}

func (tb table) count(t testing.TB, filter string) string {
	t.Helper()
	q := ""
	if filter != "" {
		q = "?filter=" + url.QueryEscape(filter)
	}
	return fmt.Sprint(tb.s.ok(t, "GET", tb.path()+"/count"+q, nil)["count"])
}
