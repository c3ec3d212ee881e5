package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/row/jsonrow"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"millrace": func() {
			os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ()))
		},
	})
}

// The scripts run the command line against a server that answers what the script's file fake.txt says and writes what it was asked
// into requests.log: so they show what each command sends and prints, and how it exits.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"),
		Setup: func(env *testscript.Env) error {
			f := &fake{dir: env.WorkDir}
			if err := f.load(); err != nil {
				return err
			}
			s := httptest.NewServer(f)
			env.Defer(s.Close)
			env.Setenv("MILLRACE_SERVER", s.URL)
			env.Setenv("SERVER", strings.TrimPrefix(s.URL, "http://"))
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			// gzip FILE: compress it to FILE.gz.
			"gzip": func(ts *testscript.TestScript, _ bool, args []string) {
				var b bytes.Buffer
				z := gzip.NewWriter(&b)
				_, err := z.Write([]byte(ts.ReadFile(args[0])))
				ts.Check(errors.Join(err, z.Close(), os.WriteFile(ts.MkAbs(args[0]+".gz"), b.Bytes(), 0o644)))
			},
			// exits CODE PROGRAM [ARGS…]: the program ends with this exit code.
			"exits": func(ts *testscript.TestScript, _ bool, args []string) {
				err := ts.Exec(args[1], args[2:]...)
				got := "0"
				if err != nil {
					got = strings.TrimPrefix(err.Error(), "exit status ")
				}
				if got != args[0] {
					ts.Fatalf("exit code %s, want %s", got, args[0])
				}
			},
		},
	})
}

// fake answers requests from a list of blocks: "METHOD address", "status media", body. A body of media "arrow" is a line of columns
// and rows of JSON. A request that stands there several times gets the answers in order, the last one for ever.
type fake struct {
	dir     string
	mu      sync.Mutex
	answers map[string][]fakeAnswer
}

type fakeAnswer struct {
	status int
	media  string
	body   string
}

func (f *fake) load() error {
	f.answers = map[string][]fakeAnswer{}
	text, err := os.ReadFile(filepath.Join(f.dir, "fake.txt"))
	if errors.Is(err, os.ErrNotExist) {
		return nil // a script that needs no server has none
	}
	if err != nil {
		return err
	}
	for block := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
		lines := strings.SplitN(strings.TrimSpace(block), "\n", 3)
		status, media, _ := strings.Cut(lines[1], " ")
		code, err := strconv.Atoi(status)
		if err != nil {
			return fmt.Errorf("fake.txt: %q", lines[1])
		}
		a := fakeAnswer{status: code, media: media}
		if len(lines) == 3 {
			a.body = strings.ReplaceAll(lines[2]+"\n", "\n.\n", "\n\n") // a dot stands for a blank line
		}
		f.answers[lines[0]] = append(f.answers[lines[0]], a)
	}
	return nil
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	f.mu.Lock()
	defer f.mu.Unlock()
	what := r.Method + " " + r.URL.RequestURI()
	f.log(what, r.Header, body, err)
	list := f.answers[what]
	if len(list) == 0 {
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprintf(w, "fake.txt does not answer %s", what)
		return
	}
	if len(list) > 1 {
		f.answers[what] = list[1:]
	}
	a := list[0]
	switch {
	case a.media == "problem":
		w.Header().Set("Content-Type", "application/problem+json")
	case a.media == "arrow":
		w.Header().Set("Content-Type", "application/vnd.apache.arrow.stream")
		w.Header().Set("Trailer", "X-Millrace-Stats")
		say(w, arrowOf(a.body))
		w.Header().Set("X-Millrace-Stats", `{"rows_read":1000,"rows_skipped":9000,"rows_shipped":2,"bytes_read":65536,"bytes_skipped":1048576,"bytes_shipped":80}`)
		return
	case a.media != "":
		w.Header().Set("Content-Type", a.media)
	}
	w.WriteHeader(a.status)
	say(w, a.body)
	if a.media == "text/event-stream" || a.media == "application/x-ndjson" {
		say(w, "\n\n")
	}
}

// say sends a body or a part of one; where that breaks off, so does the answer.
func say[T string | []byte](w io.Writer, body T) {
	if _, err := w.Write([]byte(body)); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// log writes the request down; an Arrow body as its columns and rows.
func (f *fake) log(what string, h http.Header, body []byte, err error) {
	log, openErr := os.OpenFile(filepath.Join(f.dir, "requests.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if openErr != nil {
		panic(openErr)
	}
	defer log.Close()
	fmt.Fprintln(log, what)
	if t := h.Get("Authorization"); t != "" {
		fmt.Fprintln(log, t)
	}
	if err != nil {
		fmt.Fprintln(log, "broken body")
		return
	}
	if !strings.Contains(h.Get("Content-Type"), "arrow") {
		fmt.Fprint(log, string(bytes.TrimRight(body, "\n")), "\n")
		return
	}
	r, err := ipc.NewReader(bytes.NewReader(body))
	if err != nil {
		fmt.Fprintln(log, "bad arrow:", err)
		return
	}
	defer r.Release()
	var cols []string
	for _, fd := range r.Schema().Fields() {
		cols = append(cols, fd.Name+" "+fd.Type.String())
	}
	fmt.Fprintf(log, "arrow %s\n", strings.Join(cols, ", "))
	for r.Next() {
		b, err := r.RecordBatch().MarshalJSON()
		fmt.Fprintf(log, "%s %v\n", bytes.TrimRight(bytes.ReplaceAll(b, []byte("\n,"), []byte(",\n")), "\n"), err)
	}
	fmt.Fprintln(log, "end", r.Err())
}

// arrowOf makes an Arrow stream of "name TYPE, …" and rows of JSON.
func arrowOf(text string) []byte {
	head, rows, _ := strings.Cut(text, "\n")
	var cols []millrace.Column
	for def := range strings.SplitSeq(head, ", ") {
		name, typ, _ := strings.Cut(def, " ")
		t, err := millrace.ParseType(typ)
		if err != nil {
			panic(err)
		}
		cols = append(cols, millrace.Column{Name: name, Type: t, Nullable: true})
	}
	dec := jsonrow.NewDecoder(cols, jsonrow.Options{})
	for line := range strings.SplitSeq(strings.TrimSpace(rows), "\n") {
		if line != "" {
			if err := dec.AddObject([]byte(line), 0); err != nil {
				panic(err)
			}
		}
	}
	got := dec.Finish()
	defer got.Release()
	var b bytes.Buffer
	w := ipc.NewWriter(&b, ipc.WithSchema(row.ArrowSchema(cols)))
	if err := w.Write(got.Record); err != nil {
		panic(err)
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// A whole command line in process: nothing is read but what run is given (M1).
func TestRunReadsOnlyItsArguments(t *testing.T) {
	t.Setenv("MILLRACE_SERVER", "http://wrong.invalid")
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, "Bearer t0ken", r.Header.Get("Authorization"))
		w.Header().Set("Content-Type", "application/json")
		say(w, `{"databases":[{"id":1,"name":"retail","comment":"c","created_at":"2026-11-29T10:00:00Z"}]}`)
	}))
	defer s.Close()
	var out, errOut bytes.Buffer
	code := run(t.Context(), []string{"db", "list", "--format", "ndjson"}, nil, &out, &errOut, []string{"MILLRACE_SERVER=" + s.URL, "MILLRACE_TOKEN=t0ken"})
	require.Equal(t, 0, code, errOut.String())
	require.Equal(t, `{"id":1,"name":"retail","comment":"c","created_at":"2026-11-29T10:00:00Z"}`+"\n", out.String())
}

// A server over https is believed when its authority is named, and else said not to be, in words.
func TestHTTPS(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		say(w, `{"databases":[]}`)
	}))
	defer s.Close()
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600))
	try := func(args, env []string) (int, string) {
		var out, errOut bytes.Buffer
		return run(t.Context(), append([]string{"db", "list", "--format", "ndjson"}, args...), nil, &out, &errOut, env), errOut.String()
	}
	for name, c := range map[string]struct {
		args, env []string
		code      int
		says      string
	}{
		"flag":         {args: []string{"--server", s.URL, "--ca", ca}},
		"environment":  {env: []string{"MILLRACE_SERVER=" + s.URL, "MILLRACE_CA=" + ca}},
		"unknown":      {args: []string{"--server", s.URL}, code: 1, says: "signed by an authority that this machine does not know"},
		"how":          {args: []string{"--server", s.URL}, code: 1, says: "--ca or MILLRACE_CA"},
		"no file":      {args: []string{"--server", s.URL, "--ca", ca + "x"}, code: 2, says: "no such file"},
		"not a file":   {args: []string{"--server", s.URL, "--ca", os.Args[0]}, code: 2, says: "no certificate in PEM form"},
		"other name":   {args: []string{"--server", strings.Replace(s.URL, "127.0.0.1", "localhost", 1), "--ca", ca}, code: 1, says: "localhost"},
		"plain server": {args: []string{"--server", strings.Replace(s.URL, "https", "http", 1)}, code: 1, says: "HTTP request to an HTTPS server"},
	} {
		code, said := try(c.args, c.env)
		require.Equal(t, c.code, code, "%s: %s", name, said)
		require.Contains(t, said, c.says, name)
	}
	plain := httptest.NewServer(s.Config.Handler)
	defer plain.Close()
	code, said := try([]string{"--server", strings.Replace(plain.URL, "http", "https", 1)}, nil)
	require.Equal(t, 1, code)
	require.Contains(t, said, "speaks plain HTTP")
}
