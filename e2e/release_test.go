package e2e

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// unpack makes the files of a .tar.gz in a folder.
func unpack(t testing.TB, archive, dir string) {
	t.Helper()
	f, err := os.Open(archive)
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		if h.FileInfo().IsDir() {
			require.NoError(t, os.MkdirAll(path, 0o755))
			continue
		}
		b, err := io.ReadAll(r)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, b, 0o644))
	}
}

// lines are the rows of a read as NDJSON, sorted.
func (tb table) lines(t testing.TB) []string {
	t.Helper()
	a := tb.s.do(t, "GET", tb.path()+"/scan", nil, "Accept", "application/x-ndjson")
	require.Equal(t, 200, a.status, "%s", a.body)
	out := strings.Split(strings.TrimSuffix(string(a.body), "\n"), "\n")
	slices.Sort(out)
	return out
}

// A data directory of the first release, left by kill -9, opens: this release answers
// what that one did, to the byte, takes up its writers, and goes on with its tables,
// whose columns and nested fields change under the old rows.
func TestFirstReleaseIsReadAndAltered(t *testing.T) {
	dir := t.TempDir()
	unpack(t, "testdata/release-1/data.tar.gz", dir)
	s := &server{dir: filepath.Join(dir, "data"), log: &tailBuffer{}}
	require.NoError(t, s.launch())
	t.Cleanup(func() {
		s.showLog(t)
		s.kill()
	})
	events, customers := table{s, "shop", "events"}, table{s, "shop", "customers"}
	answered := func(name string) []string {
		b, err := os.ReadFile(filepath.Join(dir, "answers", name))
		require.NoError(t, err)
		out := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
		slices.Sort(out)
		return out
	}
	require.Equal(t, answered("events.ndjson"), events.lines(t))
	require.Equal(t, answered("customers.ndjson"), customers.lines(t))
	require.Equal(t, answered("customers_changelog.ndjson"), customers.suffixed("$changelog").lines(t))
	for _, tb := range []table{events, customers} {
		var was obj
		require.NoError(t, json.Unmarshal([]byte(answered(tb.name + ".json")[0]), &was))
		is := s.ok(t, "GET", tb.path(), nil)
		for k, v := range was {
			require.Equal(t, fmt.Sprint(v), fmt.Sprint(is[k]), k)
		}
	}
	require.Equal(t, []string{`{"id":7,"name":"again","n":null,"home":null}`, "null"}, customers.lookup(t, `[{"id":7},{"id":5}]`))
	again := s.ok(t, "POST", customers.path()+"/records", `{"rows":[{"id":2,"name":"numbered too"}]}`, "X-Writer-Id", "loader", "X-Writer-Seq", "2")
	require.Equal(t, "map[0:map[end:1507 start:1505]]", fmt.Sprint(again["offsets"]), "it was taken before")
	require.Equal(t, answered("customers.ndjson"), customers.lines(t))

	events.alter(t,
		obj{"op": "add_column", "column": obj{"name": "note", "type": "STRING"}, "first": true}, obj{"op": "drop_column", "name": "str"},
		obj{"op": "alter_type", "name": "i", "type": "BIGINT"}, obj{"op": "rename_column", "name": "d", "to": "double"},
		obj{"op": "alter_type", "name": "dec", "type": "DECIMAL(20,2)"}, obj{"op": "alter_type", "name": "deep.element.x", "type": "DOUBLE"},
		obj{"op": "add_column", "column": obj{"name": "deep.element.y.value.w", "type": "INT"}, "first": true})
	customers.alter(t,
		obj{"op": "rename_column", "name": "name", "to": "full_name"}, obj{"op": "alter_type", "name": "n", "type": "BIGINT"},
		obj{"op": "drop_column", "name": "home.zip"}, obj{"op": "add_column", "column": obj{"name": "home.city", "type": "STRING"}})
	events.write(t, `[{"id":5000,"note":"new","i":9000000000,"double":0.1,"dec":"123456789012345678.25","deep":[{"x":0.1,"y":{"q":{"w":1,"z":2}}}]}]`)
	customers.write(t, `[{"id":8,"n":9000000000}]`, `"columns":["id","n"]`)
	customers.write(t, `[{"id":9}]`, `"mode":"delete"`)

	check := func() {
		t.Helper()
		require.Equal(t, "4021", events.count(t, ""))
		require.Equal(t, "4020", events.count(t, "note IS NULL"))
		require.Equal(t, []string{
			`{"id":12,"double":1.5,"i":12000,"dec":"12.12","deep":[{"x":0.5,"y":{"q":{"w":null,"z":12}}},null]}`,
			`{"id":4011,"double":501.375,"i":4011000,"dec":"4011.11","deep":[{"x":0.5,"y":{"q":{"w":null,"z":4011}}},null]}`,
			`{"id":4018,"double":502.25,"i":4018000,"dec":"4018.18","deep":[{"x":0.5,"y":{"q":{"w":null,"z":4018}}},null]}`,
			`{"id":5000,"double":0.1,"i":9000000000,"dec":"123456789012345678.25","deep":[{"x":0.1,"y":{"q":{"w":1,"z":2}}}]}`,
		}, sorted(events.scan(t, obj{"columns": []string{"id", "double", "i", "dec", "deep"}, "filter": "id IN (12, 4011, 4018) OR i > 4100000"})))
		require.Equal(t, "2999", customers.count(t, ""))
		require.Equal(t, []string{
			`{"id":8,"full_name":"customer 8","n":9000000000,"home":{"street":"s8","city":null}}`, "null",
			`{"id":10,"full_name":"customer 10","n":10,"home":{"street":"s10","city":null}}`,
		}, customers.lookup(t, `[{"id":8},{"id":9},{"id":10}]`))
		tail := customers.suffixed("$changelog").scan(t, obj{"columns": []string{"id", "n"}, "filter": "id = 8 AND _log_offset > 1000"})
		require.Len(t, tail, 2)
		require.Contains(t, tail[0], `"_change_type":"-U"`)
		require.Contains(t, tail[1], `"id":8,"n":9000000000`)
	}
	check()
	s.kill()
	s.restart(t)
	check()
	require.Zero(t, s.drain(t))
	s.restart(t)
	check()
}

func sorted(in []string) []string {
	slices.Sort(in)
	return in
}
