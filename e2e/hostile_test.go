package e2e

import (
	"bytes"
	"compress/gzip"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// bounded runs an attack and checks that the server works on it for a second at most, and that its memory hardly grows.
// What it works is counted in time of processors, which others on the machine do not make longer. Nor may it hang without
// work: an attack is one request, answered in half a minute however busy the machine is.
func bounded(t *testing.T, s *server, attack func()) {
	t.Helper()
	_, before := s.rssMB(t)
	start, worked := time.Now(), s.worked(t)
	attack()
	took := time.Since(start)
	worked = s.worked(t) - worked
	// The target is one second; a slow machine gets three.
	require.Less(t, worked, 3*time.Second)
	require.Less(t, took, 30*time.Second)
	_, peak := s.rssMB(t)
	t.Logf("%v, of which the server worked %v; memory from %d MB to %d at most", took.Round(time.Millisecond), worked, before, peak)
	require.Less(t, peak-before, 64, "memory grew from %d to %d MB", before, peak)
	require.Equal(t, 200, s.do(t, "GET", "/healthz", nil).status)
}

// endless is a body without end that repeats a text.
type endless struct {
	text string
	at   int
}

func (e *endless) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		copied := copy(p[n:], e.text[e.at:])
		n += copied
		e.at = (e.at + copied) % len(e.text)
	}
	return n, nil
}

func gzipped(t *testing.T, r io.Reader) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	require.NoError(t, err)
	_, err = io.Copy(w, r)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

// H2: hostile JSON is refused in bounded time and memory.
func TestHostileJSON(t *testing.T) {
	s := newServer(t)
	tb := create(t, s, newDB(t, s), "t", "id BIGINT, d DOUBLE, m DECIMAL(38,0), v STRING, xs ARRAY<INT>", "", 1)
	records := tb.path() + "/records"
	deep := strings.Repeat("[", 100_000)
	digits := strings.Repeat("9", 1_000_000)
	bomb := gzipped(t, io.LimitReader(&endless{text: strings.Repeat("x", 4096)}, 512<<20))
	lines := gzipped(t, io.LimitReader(&endless{text: strings.Repeat("{\"v\":true}\n", 400)}, 128<<20))
	for _, c := range []struct {
		name    string
		body    any
		headers []string
	}{
		{"deep array", recordsBody(`[{"xs":` + deep), nil},
		{"deep and closed", recordsBody(`[{"xs":` + deep + strings.Repeat("]", 100_000) + `}]`), nil},
		{"deep objects", recordsBody("[" + strings.Repeat(`{"xs":`, 100_000)), nil},
		{"deep document", deep, nil},
		{"deep line", deep, []string{"Content-Type", mediaNDJSON}},
		{"digits of an integer", recordsBody(`[{"id":` + digits + `}]`), nil},
		{"digits of a decimal", recordsBody(`[{"m":"` + digits + `"}]`), nil},
		{"huge exponent", recordsBody(`[{"m":1e1000000000}]`), nil},
		{"tiny exponent of an integer", recordsBody(`[{"id":1e-1000000000}]`), nil},
		{"huge exponent of a float", recordsBody(`[{"d":1e1000000000}]`), nil},
		{"a field twice", recordsBody(`[{"id":1,"id":2}]`), nil},
		{"ten thousand unknown fields", recordsBody(`[{` + strings.Repeat(`"u":1,`, 10_000) + `"u":1}]`), nil},
		{"a line without end", io.LimitReader(&endless{text: strings.Repeat("x", 4096)}, 64<<20), []string{"Content-Type", mediaNDJSON}},
		{"gzip bomb", bomb, []string{"Content-Encoding", "gzip"}},
		{"gzip bomb of one line", bomb, []string{"Content-Encoding", "gzip", "Content-Type", mediaNDJSON}},
		{"gzip bomb of bad lines", lines, []string{"Content-Encoding", "gzip", "Content-Type", mediaNDJSON}},
		{"gzip bomb as Arrow", bomb, []string{"Content-Encoding", "gzip", "Content-Type", mediaArrow}},
		{"broken text", recordsBody("[{\"v\":\"\xff\xfe\"}]"), nil},
		{"lone surrogate", recordsBody(`[{"v":"\ud800"}]`), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			bounded(t, s, func() {
				a, err := s.send("POST", records, c.body, c.headers...)
				if err != nil {
					return // the server hung up on a body it had refused
				}
				require.GreaterOrEqual(t, a.status, 400, "%.200s", a.body)
				require.Less(t, a.status, 500, "%.200s", a.body)
				require.Less(t, len(a.body), 64<<10, "a refusal is short")
			})
		})
	}
	for name, filter := range map[string]string{
		"deep filter": strings.Repeat("(", 10_000) + "id = 1" + strings.Repeat(")", 10_000),
		"long filter": "id IN (" + strings.Repeat("1,", 20_000) + "1)",
		"many NOTs":   strings.Repeat("NOT ", 10_000) + "id = 1",
		"digits":      "m = " + strings.Repeat("9", 60_000),
	} {
		t.Run(name, func(t *testing.T) {
			bounded(t, s, func() {
				a := s.do(t, "POST", tb.path()+"/scan", obj{"filter": filter})
				// A number of any length may be compared; what it may not do is cost much.
				require.True(t, a.status/100 == 4 || name == "digits" && a.status == 200, "%d %.200s", a.status, a.body)
			})
		})
	}
	require.Equal(t, "0", tb.count(t, ""))
}

// H3: hostile names are refused everywhere, and no path of the data directory comes from a name.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	db := newDB(t, s)
	tables := "/v1/databases/" + db + "/tables"
	for _, name := range []string{
		"", ".", "..", "../x", "a/b", `a\b`, "a\x00b", "*", ">", "a b", " ", "a.b", "é", "1a", "a-b", "a$changelog", "__x",
		"_log_offset", "_change_type", "%2e%2e", strings.Repeat("n", 201), strings.Repeat("n", 64<<10), "CON:", "-rf", "a\nb",
	} {
		s.fails(t, 422, "invalid_name", "POST", "/v1/databases", obj{"name": name})
		s.fails(t, 422, "invalid_name", "POST", tables, obj{"name": name, "columns": columnList("a INT")})
		s.fails(t, 422, "invalid_name", "POST", tables, obj{"name": "t", "columns": []obj{{"name": name, "type": "INT"}}})
		if name != "" && len(name) < 10_000 {
			a := s.do(t, "GET", "/v1/databases/"+url.PathEscape(name), nil)
			require.Equal(t, 4, a.status/100, "%q: %d", name, a.status)
		}
	}
	// Two names that differ only in case may not stand side by side.
	s.ok(t, "POST", tables, obj{"name": "Case", "columns": columnList("a INT")})
	s.fails(t, 409, "table_already_exists", "POST", tables, obj{"name": "cASE", "columns": columnList("a INT")})
	s.fails(t, 422, "invalid_schema", "POST", tables, obj{"name": "c", "columns": columnList("a INT, A INT")})

	// Values are not names: anything may be in a key.
	keyed := create(t, s, db, "keyed", "k STRING, v INT", "k", 4)
	for _, key := range []string{"../../etc/passwd", "a\x00b", strings.Repeat("k", 4000), "", ".", "*", ">"} {
		s.ok(t, "POST", keyed.path()+"/records", obj{"rows": []obj{{"k": key, "v": 1}}})
	}
	s.fails(t, 413, "too_large", "POST", keyed.path()+"/records", obj{"rows": []obj{{"k": strings.Repeat("k", 4097), "v": 1}}})
	require.Equal(t, "7", keyed.count(t, ""))

	s.drain(t)
	plain := regexp.MustCompile(`^[A-Za-z0-9._-]+$|^~tmp$`) // ~tmp: what an object store in a folder is writing
	require.NoError(t, filepath.WalkDir(s.dir, func(path string, _ fs.DirEntry, err error) error {
		require.NoError(t, err)
		require.Regexp(t, plain, filepath.Base(path))
		require.NotContains(t, filepath.Base(path), "keyed")
		return nil
	}))
	entries, err := os.ReadDir(filepath.Dir(s.dir))
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing beside the data directory")
}
