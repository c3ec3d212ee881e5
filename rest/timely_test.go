package rest_test

import (
	"encoding/json"
	"io"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// drip is a body that goes on as long as it is read, a byte after each pause.
type drip struct{ read int }

func (d *drip) Read(p []byte) (int, error) {
	if d.read++; d.read > 10_000 {
		return 0, io.EOF
	}
	time.Sleep(2 * time.Millisecond)
	p[0] = ' '
	return 1, nil
}

// A body that comes slower than its request's deadline is not read to its end.
func TestBodyOfARequestWithDeadline(t *testing.T) {
	n := newNode(t)
	n.must("POST", "/v1/databases", `{"name":"db"}`)
	n.must("POST", "/v1/databases/db/tables", `{"name":"t","columns":[{"name":"k","type":"STRING"}],"primary_key":["k"]}`)
	for _, path := range []string{"/v1/databases", "/v1/databases/db/tables/t/records", "/v1/databases/db/tables/t/lookup", "/v1/databases/db/tables/t/scan", "/v1/sql"} {
		body := &drip{}
		r := n.request("POST", path+"?timeout=50ms", "application/json", "")
		r.Header.Set("Content-Type", "application/json")
		r.Body, r.ContentLength = io.NopCloser(body), -1
		w := httptest.NewRecorder()
		n.api.ServeHTTP(w, r)
		var p struct{ Code, Detail string }
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p), "%s: %s", path, w.Body)
		require.Equal(t, "invalid_request", p.Code, "%s: %s", path, w.Body)
		require.Contains(t, p.Detail, "within the request's time", path)
		require.Less(t, body.read, 10_000, path)
	}
}
