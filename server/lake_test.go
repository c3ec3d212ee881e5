package server

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
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

// A lake-uri that is none ends the start with an error that names the setting.
func TestLakeURI(t *testing.T) {
	for uri, says := range map[string]string{
		"lake": "file:///folder or s3://bucket/prefix", "file://lake": "three slashes", "http://host/lake": "file:// and s3://",
		"s3://": "bucket", "s3://b/p": "3 to 63", "s3://bucket/p": "region",
	} {
		for _, name := range []string{"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"} {
			t.Setenv(name, "")
		}
		t.Setenv("AWS_CONFIG_FILE", "/nowhere")
		settings := testSettings(t, filepath.Join(t.TempDir(), "data"))
		settings.LakeURI = uri
		err := Run(context.Background(), Options{Settings: settings, Version: "test", Log: &logBuffer{}})
		if err == nil || !strings.Contains(err.Error(), "lake-uri") || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", uri, err)
		}
	}
}

// Stock readers are told how to reach an S3 lake, and nothing of one in a folder.
func TestFileIO(t *testing.T) {
	s := &Server{settings: &Settings{S3Endpoint: "http://127.0.0.1:9000", S3Region: "eu-north-1", S3PathStyle: true}, lakeLocation: "file:///lake"}
	if got := s.fileIO(); len(got) != 0 {
		t.Error(got)
	}
	s.lakeLocation = "s3://bucket/p"
	want := map[string]string{"s3.endpoint": "http://127.0.0.1:9000", "s3.region": "eu-north-1", "client.region": "eu-north-1", "s3.path-style-access": "true"}
	if got := s.fileIO(); !maps.Equal(got, want) {
		t.Error(got)
	}
}

// Tables go to the folder in the data directory. Where that cannot be an address, the
// server runs all the same, and the tables of the lake say what is wrong.
func TestLakeInTheDataDirectory(t *testing.T) {
	for name, works := range map[string]bool{"data": true, "my data": false} {
		r := startServer(t, filepath.Join(t.TempDir(), name))
		r.call(t, "POST", "/v1/databases", `{"name":"d"}`)
		r.call(t, "POST", "/v1/databases/d/tables", `{"name":"t","columns":[{"name":"a","type":"INT"}],"properties":{"table.datalake.enabled":"true"}}`)
		r.call(t, "POST", "/v1/databases/d/tables/t/records", `{"rows":[{"a":1}]}`)
		status, _, got := r.request(t, "POST", "/v1/databases/d/tables/t/lake/tier", "")
		files, err := filepath.Glob(filepath.Join(r.dir, "lake", "*", "1", "data", "*.parquet"))
		if err != nil {
			t.Fatal(err)
		}
		info := r.call(t, "GET", "/v1/info", "")
		switch {
		case works && (status != http.StatusOK || !strings.Contains(got, `"rows_tiered":1`) || len(files) != 1 || !strings.Contains(info, `"lake_location":"file://`) || !strings.Contains(info, `"iceberg_address":"/iceberg"`)):
			t.Errorf("%s: %d %s, files %v, %s", name, status, got, files, info)
		case !works && (status != http.StatusServiceUnavailable || !strings.Contains(got, "lake-uri") || !strings.Contains(r.log.String(), "there is no lake") || !strings.Contains(info, `"lake_location":""`) || !strings.Contains(info, `"iceberg_address":""`)):
			t.Errorf("%s: %d %s\n%s\n%s", name, status, got, info, r.log)
		}
		r.call(t, "GET", "/readyz", "")
		r.call(t, "DELETE", "/v1/databases/d/tables/t?purge=true", "")
		r.stop(t)
	}
}
