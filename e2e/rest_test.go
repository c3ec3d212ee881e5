package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Media types of bodies and answers.
const (
	mediaJSON    = "application/json"
	mediaNDJSON  = "application/x-ndjson"
	mediaArrow   = "application/vnd.apache.arrow.stream"
	mediaSSE     = "text/event-stream"
	mediaProblem = "application/problem+json"
)

// obj is a JSON object.
type obj = map[string]any

// answer is a whole HTTP answer.
type answer struct {
	status   int
	header   http.Header
	body     []byte
	trailers http.Header
}

// trailer is what was sent after the body under this name.
func (a answer) trailer(name string) string { return a.trailers.Get(name) }

// request makes a request; body is nil, a string, bytes, a reader, or anything that encodes as
// JSON. headers are name, value pairs; Content-Type is JSON unless they say otherwise.
func (s *server) request(method, path string, body any, headers ...string) (*http.Request, error) {
	var r io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		r = strings.NewReader(b)
	case []byte:
		r = bytes.NewReader(b)
	case io.Reader:
		r = b
	default:
		enc, err := json.Marshal(b)
		if err != nil {
			return nil, err
		}
		r = bytes.NewReader(enc)
	}
	req, err := http.NewRequest(method, s.base+path, r)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", mediaJSON)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return req, nil
}

// send makes a request and reads the whole answer.
func (s *server) send(method, path string, body any, headers ...string) (answer, error) {
	req, err := s.request(method, path, body, headers...)
	if err != nil {
		return answer{}, err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, b, resp.Trailer}, err
}

func (s *server) do(t testing.TB, method, path string, body any, headers ...string) answer {
	t.Helper()
	a, err := s.send(method, path, body, headers...)
	require.NoError(t, err, "%s %s", method, path)
	return a
}

// ok is do for what must succeed with JSON; an empty answer is an empty object.
func (s *server) ok(t testing.TB, method, path string, body any, headers ...string) obj {
	t.Helper()
	a := s.do(t, method, path, body, headers...)
	require.Truef(t, a.status >= 200 && a.status < 300, "%s %s: %d %s", method, path, a.status, a.body)
	if len(a.body) == 0 {
		return obj{}
	}
	return a.object(t)
}

// object reads the answer as one JSON object, numbers as json.Number.
func (a answer) object(t testing.TB) obj {
	t.Helper()
	var o obj
	dec := json.NewDecoder(bytes.NewReader(a.body))
	dec.UseNumber()
	require.NoError(t, dec.Decode(&o), "%s", a.body)
	return o
}

// problem is an RFC 9457 answer.
type problem struct {
	Type, Title, Detail, Instance, Code string
	Status                              int
	RequestID                           string `json:"request_id"`
	Errors                              []struct {
		Index   *int64
		Field   string
		Code    string
		Message string
	}
	Accepted *int64
	Rejected *int64
	Offsets  map[string]any
	Buckets  map[string]any
}

// fails sends what must be refused with this status and code, and checks the form of the refusal.
func (s *server) fails(t testing.TB, status int, code, method, path string, body any, headers ...string) problem {
	t.Helper()
	return s.do(t, method, path, body, headers...).problem(t, status, code)
}

func (a answer) problem(t testing.TB, status int, code string) problem {
	t.Helper()
	require.Equalf(t, status, a.status, "%s", a.body)
	require.True(t, strings.HasPrefix(a.header.Get("Content-Type"), mediaProblem), "Content-Type %q", a.header.Get("Content-Type"))
	var p problem
	require.NoError(t, json.Unmarshal(a.body, &p), "%s", a.body)
	require.Equalf(t, code, p.Code, "%s", a.body)
	require.Equal(t, status, p.Status)
	require.Contains(t, p.Type, "/docs/errors#"+code)
	require.NotEmpty(t, p.Title)
	require.NotEmpty(t, p.Detail)
	require.NotEmpty(t, p.RequestID)
	return p
}

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
		for k, v := range m {
			body[k] = v
		}
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
	for k, v := range request {
		req[k] = v
	}
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

// change is a changelog row.
type change struct {
	Type   string `json:"_change_type"`
	Offset int64  `json:"_log_offset"` // -1 for NULL: a row of keyed state
	Time   string `json:"_commit_timestamp"`
	Bucket int    `json:"_bucket"`
	// Row is the rest: the data columns, as compact JSON in the order of the answer.
	Row string `json:"-"`
}

func (c change) String() string { return fmt.Sprintf("%s %d %s", c.Type, c.Offset, c.Row) }

func parseChange(t testing.TB, text []byte) change {
	t.Helper()
	c := change{Offset: -1} // null leaves it so
	require.NoError(t, json.Unmarshal(text, &c), "%s", text)
	row, err := withoutSystem(text)
	require.NoError(t, err)
	c.Row = row
	return c
}

// withoutSystem drops the members that begin with "_" and keeps the order of the others.
func withoutSystem(text []byte) (string, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	if _, err := dec.Token(); err != nil {
		return "", err
	}
	var parts []string
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return "", err
		}
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			return "", err
		}
		if !strings.HasPrefix(fmt.Sprint(name), "_") {
			parts = append(parts, fmt.Sprintf("%q:%s", name, v))
		}
	}
	return "{" + strings.Join(parts, ",") + "}", nil
}

// page is an answer of the changelog.
type page struct {
	changes []change
	next    string
	high    obj
}

// changelog reads one page; query is everything after the question mark.
func (tb table) changelog(t testing.TB, query string) page {
	t.Helper()
	a := tb.s.do(t, "GET", tb.path()+"/changelog?"+query, nil, "Accept", mediaJSON)
	require.Equalf(t, 200, a.status, "%s", a.body)
	o := a.object(t)
	p := page{next: fmt.Sprint(o["next"])}
	p.high, _ = o["high_watermark"].(obj)
	var raw struct{ Rows []json.RawMessage }
	require.NoError(t, json.Unmarshal(a.body, &raw))
	for _, r := range raw.Rows {
		p.changes = append(p.changes, parseChange(t, r))
	}
	return p
}

// allChanges pages through the changelog from a position to its present end.
func (tb table) allChanges(t testing.TB, from string) []change {
	t.Helper()
	var out []change
	for deadline := time.Now().Add(time.Minute); ; {
		require.True(t, time.Now().Before(deadline), "the changelog does not end")
		p := tb.changelog(t, "from="+url.QueryEscape(from)+"&until=latest&limit=10000")
		if len(p.changes) == 0 {
			return out
		}
		out = append(out, p.changes...)
		from = p.next
	}
}

// lines renders changes one a line.
func lines(cs []change) []string {
	out := make([]string, len(cs))
	for i, c := range cs {
		out[i] = c.String()
	}
	return out
}
