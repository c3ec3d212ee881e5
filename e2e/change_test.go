package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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
	for deadline := time.Now().Add(patience); ; {
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

// firstRow is some columns of the first change.
func firstRow(t testing.TB, cs []change, columns ...string) string {
	t.Helper()
	require.NotEmpty(t, cs)
	row := map[string]json.RawMessage{}
	require.NoError(t, json.Unmarshal([]byte(cs[0].Row), &row))
	out := "{"
	for i, c := range columns {
		if i > 0 {
			out += ","
		}
		out += `"` + c + `":` + string(row[c])
	}
	return out + "}"
}
