package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/stretchr/testify/require"
)

const twoColumns = `{"id":7,"name":"t","database":"d","kind":"log","columns":[{"id":1,"name":"id","type":"BIGINT","nullable":true},{"id":2,"name":"name","type":"STRING","nullable":true}],
	"primary_key":[],"partition_by":[],"bucket_key":[],"buckets":1,"properties":{},"comment":"","schema_id":1,"version":1,"created_at":"2026-11-29T10:00:00Z"}`

// loadServer describes a table of two columns and gives written rows to take.
func loadServer(t *testing.T, take func(w http.ResponseWriter, r *http.Request)) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodGet {
			say(w, twoColumns)
			return
		}
		take(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// cliRun runs a command line in process.
func cliRun(t *testing.T, server string, stdin io.Reader, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errOut bytes.Buffer
	code = run(t.Context(), args, stdin, &out, &errOut, []string{"MILLRACE_SERVER=" + server})
	return code, out.String(), errOut.String()
}

// sampleBatches are n rows of other Arrow types than the table's, a dictionary among them, in batches of 10,000.
func sampleBatches(n int) (*arrow.Schema, []arrow.RecordBatch) {
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "key", Type: arrow.PrimitiveTypes.Int32},
		{Name: "name", Type: &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}, Nullable: true},
		{Name: "__index_level_0__", Type: arrow.PrimitiveTypes.Int64},
	}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	var out []arrow.RecordBatch
	for begin := 0; begin < n; begin += 10_000 {
		for i := begin; i < min(n, begin+10_000); i++ {
			b.Field(0).(*array.Int32Builder).Append(int32(i))
			if i%3 == 0 {
				b.Field(1).AppendNull()
			} else if err := b.Field(1).(*array.BinaryDictionaryBuilder).AppendString(fmt.Sprint("name ", i%5)); err != nil {
				panic(err)
			}
			b.Field(2).(*array.Int64Builder).Append(int64(i))
		}
		out = append(out, b.NewRecordBatch())
	}
	return schema, out
}

// The same rows come out of an Arrow stream, an Arrow file and a Parquet file: renamed, without the index of pandas, in messages
// of bounded size, one after the other.
func TestPutArrowAndParquet(t *testing.T) {
	const n = 25_000
	schema, batches := sampleBatches(n)
	dir := t.TempDir()
	create := func(name string, fill func(f *os.File) error) string {
		f, err := os.Create(filepath.Join(dir, name))
		require.NoError(t, err)
		require.NoError(t, fill(f))
		return f.Name()
	}
	files := map[string]string{
		"stream": create("a.arrows", func(f *os.File) error {
			w := ipc.NewWriter(f, ipc.WithSchema(schema))
			for _, b := range batches {
				if err := w.Write(b); err != nil {
					return err
				}
			}
			return w.Close()
		}),
		"file": create("a.arrow", func(f *os.File) error {
			w, err := ipc.NewFileWriter(f, ipc.WithSchema(schema))
			if err != nil {
				return err
			}
			for _, b := range batches {
				if err := w.Write(b); err != nil {
					return err
				}
			}
			return w.Close()
		}),
		"parquet": create("a.parquet", func(f *os.File) error {
			w, err := pqarrow.NewFileWriter(schema, f, parquet.NewWriterProperties(parquet.WithMaxRowGroupLength(7000)), pqarrow.DefaultWriterProps())
			if err != nil {
				return err
			}
			for _, b := range batches {
				if err := w.WriteBuffered(b); err != nil {
					return err
				}
			}
			return w.Close()
		}),
	}
	for kind, path := range files {
		rows, largest := 0, int64(0)
		server := loadServer(t, func(w http.ResponseWriter, r *http.Request) {
			in, err := ipc.NewReader(r.Body)
			if !errorsNil(t, err) {
				return
			}
			defer in.Release()
			for in.Next() {
				rec := in.RecordBatch()
				largest = max(largest, rec.NumRows())
				for i := range int(rec.NumRows()) {
					want := fmt.Sprint("name ", (rows+i)%5)
					if (rows+i)%3 == 0 {
						want = array.NullValueStr
					}
					if got := rec.Column(0).ValueStr(i) + rec.Column(1).ValueStr(i); got != fmt.Sprint(rows+i)+want {
						t.Errorf("%s: row %d is %s", kind, rows+i, got)
						return
					}
				}
				rows += int(rec.NumRows())
			}
			errorsNil(t, in.Err())
			if s := in.Schema(); s.NumFields() != 2 || s.Field(0).Name != "id" || s.Field(1).Name != "name" {
				t.Errorf("%s: %v", kind, s)
			}
			fmt.Fprintf(w, `{"accepted":%d,"rejected":0,"errors":[],"offsets":{}}`, rows)
		})
		code, stdout, stderr := cliRun(t, server, nil, "put", "d.t", "--file", path, "--rename", "key=id")
		require.Equal(t, 0, code, "%s: %s", kind, stderr)
		require.Contains(t, stdout, "25,000 rows into d.t in ", kind)
		require.Equal(t, n, rows, kind)
		require.LessOrEqual(t, largest, int64(messageRows), kind)
	}

	// Damaged files are errors that name the file, never a crash; Parquet cannot come through a pipe.
	for kind, path := range files {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		server := loadServer(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
		for _, cut := range []int{8, len(b) / 2, len(b) - 3} {
			bad := filepath.Join(dir, "bad")
			require.NoError(t, os.WriteFile(bad, b[:cut], 0o600))
			code, _, stderr := cliRun(t, server, nil, "put", "d.t", "--file", bad, "--rename", "key=id")
			require.Equal(t, 1, code, "%s cut to %d: %s", kind, cut, stderr)
			require.Contains(t, stderr, "millrace: ", kind)
		}
		if kind != "stream" {
			code, _, stderr := cliRun(t, server, bytes.NewReader(b), "put", "d.t", "--file", "-", "--rename", "key=id")
			require.Equal(t, 2, code, "%s: %s", kind, stderr)
			require.Contains(t, stderr, "plain file")
		}
	}
}

// errorsNil is require.NoError for handlers, which run in goroutines of their own.
func errorsNil(t *testing.T, err error) bool {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
	return err == nil
}

// A server that refuses early ends the load, whatever is left of the file, and its words are what is printed.
func TestPutIsAnsweredEarly(t *testing.T) {
	server := loadServer(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.CopyN(io.Discard, r.Body, 100_000)
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusUnprocessableEntity)
		say(w, `{"type":"t","title":"T","status":422,"code":"value_out_of_range","detail":"row 10001, field \"id\": too large","accepted":10000,"request_id":"r"}`)
	})
	endless := io.MultiReader(strings.NewReader("id,name\n"), &repeat{text: "1,abcdefghijklmnopqrstuvwxyz\n", left: 1 << 40})
	code, _, stderr := cliRun(t, server, endless, "put", "d.t", "--file", "-", "--input-format", "csv")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, `stopped after 10,000 rows: row 10001, field "id": too large (value_out_of_range)`)
}

// A file whose load breaks off is sent again from its beginning, under the same key; when that does not help, how to go on later is said.
func TestPutIsSentAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.csv")
	var text strings.Builder
	text.WriteString("id,name\n")
	for i := range 100_000 {
		fmt.Fprintf(&text, "%d,abcdefghijklmnop\n", i)
	}
	require.NoError(t, os.WriteFile(path, []byte(text.String()), 0o600))
	var keys []string
	helps := 3 // the request that is taken
	server := loadServer(t, func(w http.ResponseWriter, r *http.Request) {
		keys = append(keys, r.Header.Get("Idempotency-Key"))
		if len(keys) < helps {
			_, _ = io.CopyN(io.Discard, r.Body, 100_000)
			panic(http.ErrAbortHandler)
		}
		in, err := ipc.NewReader(r.Body)
		if !errorsNil(t, err) {
			return
		}
		defer in.Release()
		rows := int64(0)
		for in.Next() {
			rows += in.RecordBatch().NumRows()
		}
		errorsNil(t, in.Err())
		fmt.Fprintf(w, `{"accepted":%d,"rejected":0,"errors":[],"offsets":{},"replayed":20000}`, rows)
	})
	code, stdout, stderr := cliRun(t, server, nil, "put", "d.t", "--file", path)
	require.Equal(t, 0, code, stderr)
	require.Contains(t, stdout, "100,000 rows into d.t in ")
	require.Contains(t, stdout, "20,000 of them had been loaded before")
	require.Len(t, keys, 3)
	require.NotEmpty(t, keys[0])
	require.Equal(t, []string{keys[0], keys[0], keys[0]}, keys)

	keys, helps = nil, 100
	code, _, stderr = cliRun(t, server, nil, "put", "d.t", "--file", path, "--idempotency-key", "mine")
	require.Equal(t, 1, code)
	require.Equal(t, []string{"mine", "mine", "mine", "mine", "mine"}, keys)
	require.Contains(t, stderr, "(unknown_outcome)\n  to go on from there, load the same again with --idempotency-key mine\n")

	// What comes through a pipe cannot be read again.
	keys = nil
	code, _, _ = cliRun(t, server, strings.NewReader(text.String()), "put", "d.t", "--file", "-", "--input-format", "csv")
	require.Equal(t, 1, code)
	require.Equal(t, []string{""}, keys)
}

// repeat is a text over and over.
type repeat struct {
	text string
	at   int
	left int64
}

func (r *repeat) Read(p []byte) (n int, err error) {
	if r.left <= 0 {
		return 0, io.EOF
	}
	for n < len(p) && int64(n) < r.left {
		c := copy(p[n:min(int64(len(p)), r.left)], r.text[r.at:])
		n, r.at = n+c, (r.at+c)%len(r.text)
	}
	r.left -= int64(n)
	return n, nil
}

// Loading takes bounded memory, whatever the size of the file (M2): 200 MB of CSV and 100 of JSON with less than 64 MB of heap.
func TestPutMemoryIsBounded(t *testing.T) {
	server := loadServer(t, func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		errorsNil(t, err)
		say(w, `{"accepted":1,"rejected":0,"errors":[],"offsets":{}}`)
	})
	times := func(text string, n int64) io.Reader { return &repeat{text: text, left: n * int64(len(text))} }
	inputs := map[string]io.Reader{
		"csv":  io.MultiReader(strings.NewReader("id,name\n"), times("1,abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz\n", 3_600_000)),
		"json": io.MultiReader(strings.NewReader("["), times(`{"id":1,"name":"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz"},`, 1_400_000), strings.NewReader("{}]")),
	}
	for format, in := range inputs {
		ctx, stop := context.WithCancel(t.Context())
		var peak atomic.Uint64
		watched := make(chan struct{})
		go func() {
			defer close(watched)
			for ctx.Err() == nil {
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				peak.Store(max(peak.Load(), m.HeapAlloc))
				time.Sleep(10 * time.Millisecond)
			}
		}()
		code, _, stderr := cliRun(t, server, in, "put", "d.t", "--file", "-", "--input-format", format)
		stop()
		<-watched
		require.Equal(t, 0, code, stderr)
		require.Less(t, peak.Load(), uint64(64<<20), format)
	}
}

// BenchmarkPutCSV is how fast CSV of two columns becomes an Arrow stream that a server throws away.
func BenchmarkPutCSV(b *testing.B) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodGet {
			say(w, twoColumns)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		say(w, `{"accepted":1,"rejected":0,"errors":[],"offsets":{}}`)
	}))
	defer s.Close()
	const text = "1,abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz\n"
	b.SetBytes(int64(len(text)))
	in := io.MultiReader(strings.NewReader("id,name\n"), &repeat{text: text, left: int64(b.N) * int64(len(text))})
	b.ResetTimer()
	var errOut bytes.Buffer
	if code := run(b.Context(), []string{"put", "d.t", "--file", "-", "--input-format", "csv"}, in, io.Discard, &errOut, []string{"MILLRACE_SERVER=" + s.URL}); code != 0 {
		b.Fatal(errOut.String())
	}
}
