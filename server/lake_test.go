package server

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
)

// request asks a running server and gives status, content type and body.
func (r *running) request(t *testing.T, method, path, body string, headers ...string) (status int, media, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+r.addr.HTTP+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("Content-Type"), string(b)
}

// Stock readers find a table below /iceberg from its creation on, and are refused in
// their own form.
func TestCatalogOfReaders(t *testing.T) {
	r := startServer(t, t.TempDir())
	defer r.stop(t)
	if status, _, answer := r.request(t, http.MethodPost, "/v1/databases", `{"name":"retail"}`); status != http.StatusCreated {
		t.Fatalf("%d %s", status, answer)
	}
	for _, table := range []string{
		`{"name":"orders","columns":[{"name":"id","type":"BIGINT"}],"properties":{"table.datalake.enabled":"true"}}`,
		`{"name":"plain","columns":[{"name":"id","type":"BIGINT"}]}`,
	} {
		if status, _, answer := r.request(t, http.MethodPost, "/v1/databases/retail/tables", table); status != http.StatusCreated {
			t.Fatalf("%s: %d %s", table, status, answer)
		}
	}
	if _, _, answer := r.request(t, http.MethodGet, "/iceberg/v1/namespaces/retail/tables", ""); answer != `{"identifiers":[{"namespace":["retail"],"name":"orders"}],"next-page-token":null}` {
		t.Errorf("tables: %s", answer)
	}
	status, _, answer := r.request(t, http.MethodGet, "/iceberg/v1/namespaces/retail/tables/orders", "")
	var loaded struct {
		Location string `json:"metadata-location"`
		Metadata struct {
			Version int `json:"format-version"`
			Schemas []struct {
				Fields []struct{ Name, Type string } `json:"fields"`
			} `json:"schemas"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal([]byte(answer), &loaded); err != nil || status != http.StatusOK || loaded.Metadata.Version != 2 || len(loaded.Metadata.Schemas) != 1 ||
		len(loaded.Metadata.Schemas[0].Fields) != 1 || loaded.Metadata.Schemas[0].Fields[0].Type != "long" {
		t.Fatalf("table: %d %s", status, answer)
	}
	if _, err := os.Stat(strings.TrimPrefix(loaded.Location, "file://")); err != nil {
		t.Error(err)
	}
	status, media, answer := r.request(t, http.MethodGet, "/iceberg/v1/config", "", "Host", "evil.example")
	if status != http.StatusForbidden || media != "application/json" || !strings.Contains(answer, `"type":"ForbiddenException","code":403`) {
		t.Errorf("by a foreign name: %d %s %s", status, media, answer)
	}
	if status, media, _ := r.request(t, http.MethodGet, "/v1/nowhere", ""); status != http.StatusNotFound || media != "application/problem+json" {
		t.Errorf("beside it: %d %s", status, media)
	}
}
