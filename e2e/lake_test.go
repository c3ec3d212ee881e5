package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// inLake are properties of a table that is kept in the lake; more are pairs.
func inLake(freshness string, more ...string) obj {
	p := obj{"table.datalake.enabled": "true", "table.datalake.freshness": freshness}
	for i := 0; i < len(more); i += 2 {
		p[more[i]] = more[i+1]
	}
	return obj{"properties": p}
}

// tier takes what there is to the lake, and returns how the lake is then.
func (tb table) tier(t testing.TB) obj {
	t.Helper()
	return tb.s.ok(t, "POST", tb.path()+"/lake/tier?timeout=2min", nil)
}

// lake is how far the table is in the lake.
func (tb table) lake(t testing.TB) obj {
	t.Helper()
	return tb.s.ok(t, "GET", tb.path()+"/lake", nil)
}

// sorted are rows of a scan, in the order of their text.
func (tb table) sorted(t testing.TB, request obj) []string {
	t.Helper()
	rows := tb.scan(t, request)
	slices.Sort(rows)
	return rows
}

// of is a read request of one tier.
func of(tier string, more ...obj) obj {
	r := obj{"tier": tier}
	for _, m := range more {
		maps.Copy(r, m)
	}
	return r
}

// numbers reads one BIGINT column of a table as a stream, and returns how often each
// value is there.
func (tb table) numbers(t testing.TB, column string, request obj) map[int64]int {
	t.Helper()
	maps.Copy(request, obj{"columns": []string{column}})
	a := tb.s.do(t, "POST", tb.path()+"/scan", request, "Accept", mediaNDJSON)
	require.Equal(t, 200, a.status, "%s", a.body)
	out := map[int64]int{}
	for line := range bytes.Lines(a.body) {
		var row map[string]*int64
		require.NoError(t, json.Unmarshal(line, &row), "%s", line)
		require.NotNil(t, row[column], "%s", line)
		out[*row[column]]++
	}
	return out
}

// oneRow is the only row of a SQL answer, as numbers.
func (s *server) oneRow(t testing.TB, db, text string) []int64 {
	t.Helper()
	var a struct{ Rows [][]json.Number }
	require.NoError(t, json.Unmarshal([]byte(s.sql(t, db, text)), &a))
	require.Len(t, a.Rows, 1)
	var out []int64
	for _, n := range a.Rows[0] {
		v, err := n.Int64()
		require.NoError(t, err)
		out = append(out, v)
	}
	return out
}

// filesBelow are the files in a folder and all below it.
func filesBelow(t testing.TB, dir string) (files []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, path)
		}
		return err
	}))
	return files
}

// The lake of a table is enabled and disabled by ALTER, shown by REST, Flight and the command line, refused where the
// table is not in it, and its files go with the table only when they are to.
func TestLake(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	db := newDB(t, s)
	tb := create(t, s, db, "t", "id BIGINT, v STRING, at TIMESTAMP(9)", "id", 2)
	enable := obj{"op": "set_properties", "properties": obj{"table.datalake.enabled": "true", "table.datalake.freshness": "1h"}}
	says := s.fails(t, 422, "invalid_value", "GET", tb.path()+"/lake", nil).Detail
	require.Contains(t, says, "table.datalake.enabled")
	s.fails(t, 422, "invalid_value", "POST", tb.path()+"/lake/tier", nil)
	s.fails(t, 422, "unsupported_by_lake", "PATCH", tb.path(), obj{"ops": []obj{enable}})
	tb.write(t, `[{"id":1,"v":"a"},{"id":2,"v":"b"}]`)
	tb.write(t, `[{"id":2}]`, `"mode":"delete"`)
	tb.alter(t, obj{"op": "drop_column", "name": "at"}, enable)
	s.fails(t, 422, "unsupported_by_lake", "PATCH", tb.path(), obj{"ops": []obj{{"op": "add_column", "column": obj{"name": "at", "type": "TIME(9)"}}}})

	st := tb.lake(t)
	require.Equal(t, "empty", st["state"], "%v", st)
	st = tb.tier(t)
	require.Equal(t, "ok", st["state"])
	require.Equal(t, json.Number("1"), st["rows_tiered"])
	require.Equal(t, json.Number("1"), st["totals"].(map[string]any)["rows"])
	require.Equal(t, []string{`{"id":1,"v":"a"}`}, tb.sorted(t, of("lake")))
	require.Equal(t, []string{`{"id":1,"v":"a"}`}, tb.suffixed("$lake").sorted(t, obj{}))
	tb.write(t, `[{"id":3,"v":"c"}]`)
	require.Equal(t, json.Number("1"), tb.lake(t)["pending_rows"])
	require.Equal(t, []string{`{"id":1,"v":"a"}`}, tb.sorted(t, of("lake")))
	require.Equal(t, []string{`{"id":1,"v":"a"}`, `{"id":3,"v":"c"}`}, tb.sorted(t, obj{}))

	var byFlight map[string]any
	body, err := s.dial(t).action(t, "millrace.tier_lake", obj{"database": db, "table": "t"})
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(body, &byFlight))
	require.EqualValues(t, 1, byFlight["rows_tiered"])
	lines := s.cliOK(t, "lake", "status", tb.full())
	require.Contains(t, lines, "state:    ok")
	require.Contains(t, lines, "rows:     2")

	location := strings.TrimPrefix(fmt.Sprint(tb.lake(t)["location"]), "file://")
	require.DirExists(t, location)
	require.True(t, strings.HasPrefix(location, s.dir), location)
	tb.alter(t, obj{"op": "reset_properties", "keys": []string{"table.datalake.enabled"}})
	st = tb.lake(t)
	require.Equal(t, false, st["enabled"])
	s.fails(t, 422, "invalid_value", "POST", tb.path()+"/lake/tier", nil)
	tb.write(t, `[{"id":4,"v":"d"}]`)
	require.Len(t, tb.scan(t, of("lake")), 2)
	require.Len(t, tb.scan(t, obj{}), 3)
	tb.alter(t, enable)
	tb.tier(t)
	require.Len(t, tb.scan(t, of("lake")), 3)

	s.kill()
	s.restart(t)
	require.Equal(t, tb.sorted(t, of("hot")), tb.sorted(t, of("lake")))
	s.ok(t, "DELETE", tb.path(), nil)
	require.DirExists(t, location)
	again := create(t, s, db, "t", "id BIGINT", "", 1, inLake("1s"))
	again.write(t, `[{"id":9}]`)
	require.Eventually(t, func() bool { return len(again.scan(t, of("lake"))) == 1 }, patience, 50*time.Millisecond)
	location = strings.TrimPrefix(fmt.Sprint(again.lake(t)["location"]), "file://")
	s.ok(t, "DELETE", again.path()+"?purge=true", nil)
	require.Empty(t, filesBelow(t, location))
}
