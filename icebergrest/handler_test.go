package icebergrest

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/cockroachdb/pebble/v2/vfs"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
)

// inLake is a catalog of which the tables whose names do not begin with "plain" are
// kept in the lake.
type inLake struct{ *catalog.Catalog }

func tiered(t *millrace.Table) *millrace.Table {
	if strings.HasPrefix(t.Path.Table, "plain") {
		return t
	}
	c := *t
	c.Options.Lake = &millrace.LakeOptions{Enabled: true, Format: millrace.Iceberg}
	return &c
}

func (c inLake) Table(ctx context.Context, path millrace.TablePath) (*millrace.Table, error) {
	t, err := c.Catalog.Table(ctx, path)
	if err != nil {
		return nil, err
	}
	return tiered(t), nil
}

func (c inLake) Tables(ctx context.Context, db string, limit int, token string) ([]*millrace.Table, string, error) {
	page, next, err := c.Catalog.Tables(ctx, db, limit, token)
	page = slices.Clone(page)
	for i := range page {
		page[i] = tiered(page[i])
	}
	return page, next, err
}

// testLake holds metadata by table name; a text that begins with "!" is the code of an
// error.
type testLake map[string]string

func (l testLake) Metadata(_ context.Context, t *millrace.Table) (string, []byte, error) {
	m, ok := l[t.Path.Table]
	switch code, bad := strings.CutPrefix(m, "!"); {
	case !ok:
		m = `{"format-version":2}`
	case code == "panic":
		panic("a bug")
	case bad:
		return "", nil, errs.New(errs.Code(code), "the lake says %s", code)
	}
	return fmt.Sprintf("file:///lake/%d/metadata/v7.metadata.json", t.ID), []byte(m), nil
}

func newTest(t *testing.T, lake testLake, fileIO map[string]string) (*Handler, *catalog.Catalog) {
	t.Helper()
	c, err := catalog.Open(t.Context(), catalog.Options{
		Dir: "catalog", FS: vfs.NewMem(), Logger: slog.New(slog.DiscardHandler), Clock: func() time.Time { return time.Unix(1700000000, 0) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return New(Options{Catalog: inLake{c}, Lake: lake, FileIO: fileIO, Logger: slog.New(slog.DiscardHandler)}), c
}

func makeDatabase(t *testing.T, c *catalog.Catalog, name, comment string, tables ...string) {
	t.Helper()
	if _, err := c.CreateDatabase(t.Context(), name, comment); err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		if _, _, err := c.CreateTable(t.Context(), name, catalog.Spec{Name: table, Columns: []catalog.ColumnSpec{{Name: "a", Type: "INT"}}}, false); err != nil {
			t.Fatal(err)
		}
	}
}

func ask(t *testing.T, h http.Handler, method, target string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader("{}"))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// The operations answer as the specification has it, byte by byte.
func TestCatalog(t *testing.T) {
	metadata := `{"format-version": 2, "table-uuid": "00000000-0000-0000-0000-000000000001",
	  "current-snapshot-id": 9007199254740995,
	  "snapshots": [{"snapshot-id": 9007199254740993}, {"snapshot-id": 9007199254740994}, {"snapshot-id": 9007199254740995}],
	  "snapshot-log": [{"snapshot-id": 9007199254740993, "timestamp-ms": 1}, {"snapshot-id": 9007199254740995, "timestamp-ms": 2}],
	  "refs": {"main": {"snapshot-id": 9007199254740995, "type": "branch"}, "t": {"snapshot-id": 9007199254740993, "type": "tag"}}}`
	h, c := newTest(t, testLake{
		"orders": metadata, "empty": `{"format-version":2,"current-snapshot-id":-1,"snapshots":[]}`, "unborn": `{"current-snapshot-id":null,"refs":{},"snapshots":[{"snapshot-id":1}]}`,
		"torn": `{"format-version":`, "odd": `{"snapshots":7}`, "lost": "!corrupt_data", "far": "!unavailable", "busy": "!overloaded", "taken": "!invalid_value", "strange": "!internal", "bug": "!panic",
	}, map[string]string{"s3.endpoint": "http://127.0.0.1:9000", "client.region": "eu-1"})
	makeDatabase(t, c, "retail", "what is sold", "orders", "empty", "unborn", "torn", "odd", "lost", "far", "busy", "taken", "strange", "bug", "plain")
	makeDatabase(t, c, "void", "")
	datadriven.RunTest(t, "testdata/answers", func(t *testing.T, d *datadriven.TestData) string {
		target, headers, _ := strings.Cut(strings.TrimSpace(d.Input), "\n")
		var pairs []string
		for line := range strings.SplitSeq(headers, "\n") {
			if name, value, ok := strings.Cut(line, ": "); ok {
				pairs = append(pairs, name, value)
			}
		}
		method := strings.ToUpper(d.Cmd)
		w := ask(t, h, method, target, pairs...)
		var out strings.Builder
		fmt.Fprintln(&out, w.Code)
		for _, name := range []string{"Content-Type", "ETag", "Retry-After"} {
			if v := w.Header().Get(name); v != "" {
				fmt.Fprintf(&out, "%s: %s\n", name, v)
			}
		}
		if body := w.Body.String(); body != "" && method != http.MethodHead { // net/http leaves those out
			fmt.Fprintln(&out, body)
		}
		return out.String()
	})
}

// Pages put together are the whole list, whatever their size, and leave out tables that
// are not in the lake; a list without pageToken is whole.
func TestPages(t *testing.T) {
	h, c := newTest(t, nil, nil)
	var names []string
	var all []string
	for i := range 23 {
		name := fmt.Sprintf("t%02d", i)
		if i >= 5 && i < 15 {
			name = fmt.Sprintf("plain%02d", i)
		} else {
			names = append(names, name)
		}
		all = append(all, name)
		makeDatabase(t, c, fmt.Sprintf("db%02d", i), "")
	}
	makeDatabase(t, c, "many", "", all...)
	type answer struct {
		Namespaces  [][]string `json:"namespaces"`
		Identifiers []struct {
			Namespace []string `json:"namespace"`
			Name      string   `json:"name"`
		} `json:"identifiers"`
		Next *string `json:"next-page-token"`
	}
	get := func(target string) answer {
		t.Helper()
		w := ask(t, h, http.MethodGet, target)
		var a answer
		if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"next-page-token"`) {
			t.Fatalf("%s: %d %s", target, w.Code, w.Body)
		}
		return a
	}
	for _, size := range []int{1, 2, 3, 7, 13, 100, 1 << 30} {
		var got []string
		pages, token := 0, ""
		for {
			a := get(fmt.Sprintf("/iceberg/v1/namespaces/many/tables?pageToken=%s&pageSize=%d", token, size))
			if len(a.Identifiers) > size || a.Next != nil && len(a.Identifiers) == 0 {
				t.Fatalf("a page of %d has %d", size, len(a.Identifiers))
			}
			for _, id := range a.Identifiers {
				if !slices.Equal(id.Namespace, []string{"many"}) {
					t.Errorf("%v", id)
				}
				got = append(got, id.Name)
			}
			if pages++; a.Next == nil {
				break
			}
			token = *a.Next
		}
		if !slices.Equal(got, names) || pages > len(names)+1 {
			t.Errorf("pages of %d: %v", size, got)
		}
	}
	if a := get("/iceberg/v1/namespaces/many/tables?pageSize=2"); len(a.Identifiers) != len(names) || a.Next != nil {
		t.Errorf("without pageToken: %d", len(a.Identifiers))
	}
	if a := get("/iceberg/v1/namespaces?pageSize=2"); len(a.Namespaces) != 24 || a.Next != nil {
		t.Errorf("namespaces: %d", len(a.Namespaces))
	}
	if a := get("/iceberg/v1/namespaces?pageSize=20&pageToken="); len(a.Namespaces) != 20 || a.Next == nil || len(get("/iceberg/v1/namespaces?pageToken="+*a.Next).Namespaces) != 4 {
		t.Errorf("pages of namespaces: %d", len(a.Namespaces))
	}
}

// endless is a catalog with more databases than a list may have.
type endless struct{ Catalog }

func (endless) Databases(context.Context, int, string) ([]catalog.Database, string, error) {
	return make([]catalog.Database, catalog.MaxPage), "more", nil
}

// A whole list that would be too long is refused, not cut.
func TestListTooLong(t *testing.T) {
	h := New(Options{Catalog: endless{}, Logger: slog.New(slog.DiscardHandler)})
	if w := ask(t, h, http.MethodGet, "/iceberg/v1/namespaces"); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "pageToken") {
		t.Errorf("%d %.300s", w.Code, w.Body)
	}
	if w := ask(t, h, http.MethodGet, "/iceberg/v1/namespaces?pageToken="); w.Code != http.StatusOK {
		t.Errorf("%d %.300s", w.Code, w.Body)
	}
}

// A client that has an answer is told so, until another snapshot is there.
func TestEntityTags(t *testing.T) {
	lake := testLake{"orders": `{"v":1,"snapshots":[{"snapshot-id":1}]}`}
	h, c := newTest(t, lake, nil)
	makeDatabase(t, c, "db", "", "orders")
	const all, refs = "/iceberg/v1/namespaces/db/tables/orders", "/iceberg/v1/namespaces/db/tables/orders?snapshots=refs"
	tag := ask(t, h, http.MethodGet, all).Header().Get("ETag")
	if len(tag) < 10 || tag == ask(t, h, http.MethodGet, refs).Header().Get("ETag") {
		t.Errorf("tag %s", tag)
	}
	for _, given := range []string{tag, "W/" + tag, `"x", ` + tag, "*"} {
		if w := ask(t, h, http.MethodGet, all, "If-None-Match", given); w.Code != http.StatusNotModified || w.Body.Len() != 0 || w.Header().Get("ETag") != tag {
			t.Errorf("%s: %d %s", given, w.Code, w.Body)
		}
	}
	if w := ask(t, h, http.MethodGet, refs, "If-None-Match", tag); w.Code != http.StatusOK {
		t.Errorf("of another form: %d", w.Code)
	}
	lake["orders"] = `{"v":2,"snapshots":[{"snapshot-id":1}]}`
	if w := ask(t, h, http.MethodGet, all, "If-None-Match", tag); w.Code != http.StatusOK || w.Body.Len() == 0 {
		t.Errorf("of another snapshot: %d", w.Code)
	}
}

// Every operation that the list names is there, and no operation of the specification
// that would change something is.
func TestReadOnly(t *testing.T) {
	h, c := newTest(t, nil, nil)
	makeDatabase(t, c, "ns", "", "t")
	var config struct {
		Endpoints []string `json:"endpoints"`
	}
	if err := json.Unmarshal(ask(t, h, http.MethodGet, "/iceberg/v1/config?warehouse=any").Body.Bytes(), &config); err != nil {
		t.Fatal(err)
	}
	fill := strings.NewReplacer("/{prefix}", "", "{namespace}", "ns", "{table}", "t", "{view}", "v")
	for _, endpoint := range config.Endpoints {
		method, path, _ := strings.Cut(endpoint, " ")
		if w := ask(t, h, method, Root+fill.Replace(path)); w.Code >= 300 {
			t.Errorf("%s: %d %s", endpoint, w.Code, w.Body)
		}
	}
	for _, endpoint := range []string{
		"POST /v1/{prefix}/namespaces", "DELETE /v1/{prefix}/namespaces/{namespace}", "POST /v1/{prefix}/namespaces/{namespace}/properties",
		"POST /v1/{prefix}/namespaces/{namespace}/tables", "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}", "DELETE /v1/{prefix}/namespaces/{namespace}/tables/{table}",
		"POST /v1/{prefix}/namespaces/{namespace}/register", "POST /v1/{prefix}/tables/rename", "POST /v1/{prefix}/transactions/commit",
		"POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/plan", "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials",
		"POST /v1/{prefix}/namespaces/{namespace}/views", "POST /v1/{prefix}/namespaces/{namespace}/views/{view}", "DELETE /v1/{prefix}/namespaces/{namespace}/views/{view}",
		"POST /v1/{prefix}/views/rename", "POST /v1/oauth/tokens", "PUT /v1/{prefix}/namespaces/{namespace}", "PATCH /v1/config",
	} {
		method, path, _ := strings.Cut(endpoint, " ")
		w := ask(t, h, method, Root+fill.Replace(path))
		if w.Code != http.StatusNotAcceptable || !strings.Contains(w.Body.String(), `"type":"UnsupportedOperationException","code":406`) {
			t.Errorf("%s: %d %s", endpoint, w.Code, w.Body)
		}
	}
}

// Every code has a status and a type, and the body says both.
func TestRefuse(t *testing.T) {
	for _, k := range errs.Kinds() {
		w := httptest.NewRecorder()
		Refuse(w, httptest.NewRequest(http.MethodGet, Root+"/v1/config", nil), errs.New(k.Code, "because"))
		var body struct {
			Error struct {
				Message, Type string
				Code          int
			}
		}
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || body.Error.Code != w.Code || w.Code < 400 || body.Error.Type == "" || body.Error.Message != "because" {
			t.Errorf("%s: %d %s", k.Code, w.Code, w.Body)
		}
		if (w.Header().Get("Retry-After") != "") != (k.RetryAfterSeconds > 0) {
			t.Errorf("%s: Retry-After %q", k.Code, w.Header().Get("Retry-After"))
		}
	}
}

func TestServes(t *testing.T) {
	for path, want := range map[string]bool{"/iceberg": true, "/iceberg/": true, "/iceberg/v1/config": true, "/icebergs": false, "/v1/iceberg": false, "/": false} {
		if Serves(path) != want {
			t.Errorf("%s: %v", path, !want)
		}
	}
}
