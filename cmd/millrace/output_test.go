package main

import (
	"bytes"
	"encoding/csv"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// What the CSV writer writes, the standard library's reader reads back, for any text.
func TestCSVReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(rapid.SliceOfN(rapid.StringOf(rapid.RuneFrom([]rune("ab ,\"\n;'\té"))), 3, 3), 1, 5).Draw(t, "rows")
		var b bytes.Buffer
		w := newCSVWriter(&b, "")
		w.header([]string{"x", "y", "z"}, nil)
		for _, r := range want {
			require.NoError(t, w.row([]cell{{text: r[0]}, {text: r[1]}, {text: r[2]}}))
		}
		require.NoError(t, w.close())
		got, err := csv.NewReader(&b).ReadAll()
		require.NoError(t, err)
		require.Equal(t, append([][]string{{"x", "y", "z"}}, want...), got)
	})
}

// No text puts a control character, or one that changes the direction of writing, on the terminal (M3).
func TestPrintable(t *testing.T) {
	require.Equal(t, `plain é 字`, printable("plain é 字"))
	require.Equal(t, `a\u001b[31mred\nb\tc\u202e`, printable("a\x1b[31mred\nb\tc\u202e"))
	rapid.Check(t, func(t *rapid.T) {
		for _, r := range printable(rapid.String().Draw(t, "text")) {
			require.False(t, unicode.IsControl(r) || isBidi(r))
		}
	})
}

// A table's widths come from its first rows; later, wider cells stick out, and on a terminal long cells are cut.
func TestTableWriter(t *testing.T) {
	var b bytes.Buffer
	w := newTableWriter(&b, true)
	w.header([]string{"n", "text"}, []bool{true, false})
	for range tableSample {
		require.NoError(t, w.row([]cell{{text: "7"}, {text: "é"}}))
	}
	require.NoError(t, w.row([]cell{{null: true}, {text: strings.Repeat("x", 100)}}))
	require.NoError(t, w.close())
	lines := strings.Split(b.String(), "\n")
	require.Equal(t, []string{"n  text", "─  ────", "7  é"}, lines[:3])
	require.Equal(t, "NULL  "+strings.Repeat("x", 59)+"…", lines[tableSample+2])
	b.Reset()
	w = newTableWriter(&b, false)
	w.header([]string{"a"}, nil)
	require.NoError(t, w.close())
	require.Equal(t, "a\n─\n", b.String())
}

// A scan to Parquet is a file that the Parquet reader reads back, rows and types.
func TestScanToParquet(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/vnd.apache.arrow.stream")
		say(w, arrowOf("id BIGINT, at TIMESTAMP_LTZ(3), tags ARRAY<STRING>\n{\"id\":9007199254740993,\"at\":\"2026-11-29T10:00:00.123Z\",\"tags\":[\"x\"]}\n{\"id\":2}"))
	}))
	defer s.Close()
	path := filepath.Join(t.TempDir(), "out.parquet")
	code, _, stderr := cliRun(t, s.URL, nil, "scan", "d.t", "--format", "parquet", "-o", path)
	require.Equal(t, 0, code, stderr)
	f, err := file.OpenParquetFile(path, false)
	require.NoError(t, err)
	defer f.Close()
	r, err := pqarrow.NewFileReader(f, pqarrow.ArrowReadProperties{}, memory.DefaultAllocator)
	require.NoError(t, err)
	tb, err := r.ReadTable(t.Context())
	require.NoError(t, err)
	defer tb.Release()
	require.Equal(t, int64(2), tb.NumRows())
	require.Equal(t, "timestamp[ms, tz=UTC]", tb.Column(1).DataType().String())
	require.Equal(t, "9007199254740993", tb.Column(0).Data().Chunk(0).ValueStr(0))
	require.True(t, tb.Column(2).Data().Chunk(0).IsNull(1))
}

// An Arrow scan is copied byte for byte, and a file that cannot be made is an error before anything is asked.
func TestScanToArrow(t *testing.T) {
	want := arrowOf("id BIGINT\n{\"id\":1}")
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		say(w, want)
	}))
	defer s.Close()
	code, stdout, _ := cliRun(t, s.URL, nil, "scan", "d.t", "--format", "arrow")
	require.Equal(t, 0, code)
	require.Equal(t, string(want), stdout)
	code, _, stderr := cliRun(t, s.URL, nil, "scan", "d.t", "--format", "arrow", "-o", filepath.Join(t.TempDir(), "no", "file"))
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "no such file")
	require.Equal(t, 1, asked)
}

// A tail shows what has come though nothing more comes, and an interrupt ends it well.
func TestTailShowsAtOnce(t *testing.T) {
	release := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		say(w, "id: c1.a\n\nevent: insert\ndata: {\"_change_type\":\"+I\",\"_log_offset\":0,\"id\":1}\nid: c1.b\n\n")
		w.(http.Flusher).Flush()
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	defer s.Close()
	defer close(release)
	for _, format := range []string{"table", "csv", "ndjson"} {
		ctx, interrupt := contextOf(t)
		pr, pw, err := os.Pipe()
		require.NoError(t, err)
		done := make(chan int)
		go func() {
			code := run(ctx, []string{"tail", "d.t", "--format", format}, nil, pw, io.Discard, []string{"MILLRACE_SERVER=" + s.URL})
			pw.Close()
			done <- code
		}()
		var got []byte
		for !strings.Contains(string(got), "+I") {
			b := make([]byte, 1000)
			n, err := pr.Read(b)
			require.NoError(t, err)
			got = append(got, b[:n]...)
		}
		interrupt()
		require.Equal(t, 0, <-done, format)
		pr.Close()
	}
}
