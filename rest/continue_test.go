package rest_test

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
)

// answer is what a write says became of its rows.
type answer struct {
	Accepted, Rejected int64
	Errors             []struct {
		Index int64
		Code  string
	}
	Offsets map[string]struct{ Start, End int64 }
}

func (n *node) send(path, contentType string, body []byte) (*httptest.ResponseRecorder, answer) {
	r := n.request("POST", path, "application/json", string(body))
	r.Header.Set("Content-Type", contentType)
	w := httptest.NewRecorder()
	n.api.ServeHTTP(w, r)
	var a answer
	require.NoError(n.t, json.Unmarshal(w.Body.Bytes(), &a), "%s", w.Body)
	return w, a
}

// faults lists the rows at fault with their codes.
func (a answer) faults() map[int64]string {
	out := map[int64]string{}
	for _, e := range a.Errors {
		out[e.Index] = e.Code
	}
	return out
}

// Rows whose partition is not there are left out with on_error=continue, with their own
// numbers, also behind rows that could not be read; the others are written.
func TestContinueLeavesRowsOut(t *testing.T) {
	n := newNode(t)
	n.must("POST", "/v1/databases", `{"name":"db"}`)
	n.must("POST", "/v1/databases/db/tables", `{"name":"fixed","columns":[{"name":"id","type":"BIGINT"},{"name":"p","type":"STRING"}],
		"primary_key":["id","p"],"partition_by":["p"],"properties":{"table.partition.dynamic":"false"}}`)
	for _, p := range []string{"a", "b"} {
		n.must("POST", "/v1/databases/db/tables/fixed/partitions", `{"partition":{"p":"`+p+`"}}`)
	}
	lines := strings.Join([]string{
		`{"id":0,"p":"a"}`,
		`{"id":1`,
		`{"id":2,"p":"no such"}`,
		`{"id":3,"p":"b"}`,
		`{"id":4,"p":"nor that"}`,
		`{"id":5,"p":"nor this"}`,
		`{"id":6,"p":"a"}`,
		`{"id":7,"p":"no such"}`,
	}, "\n") + "\n"
	const path = "/v1/databases/db/tables/fixed/records"

	w, a := n.send(path+"?on_error=continue", "application/x-ndjson", []byte(lines))
	require.Equal(t, 200, w.Code, "%s", w.Body)
	require.Equal(t, map[int64]string{1: "invalid_request", 2: "partition_not_found", 4: "partition_not_found", 5: "partition_not_found", 7: "partition_not_found"}, a.faults())
	require.EqualValues(t, 3, a.Accepted)
	require.EqualValues(t, 5, a.Rejected)
	require.EqualValues(t, 2, a.Offsets["p=a/0"].End)
	require.EqualValues(t, 1, a.Offsets["p=b/0"].End)

	w, a = n.send(path, "application/x-ndjson", []byte(`{"id":8,"p":"a"}`+"\n"+`{"id":9,"p":"no"}`+"\n"+`{"id":10,"p":"no"}`+"\n"))
	require.Equal(t, 404, w.Code)
	require.Equal(t, map[int64]string{1: "partition_not_found", 2: "partition_not_found"}, a.faults(), "abort names all rows, and writes none")
	require.Equal(t, 404, n.do("GET", "/v1/databases/db/tables/fixed/rows?pk.id=8&pk.p=a", "").Code)

	schema := arrow.NewSchema([]arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Int64, Nullable: true}, {Name: "p", Type: arrow.BinaryTypes.String, Nullable: true}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	b.Field(0).(*array.Int64Builder).AppendValues([]int64{0, 11, 12, 13}, []bool{false, true, true, true})
	b.Field(1).(*array.StringBuilder).AppendValues([]string{"a", "a", "no", "b"}, nil)
	rec := b.NewRecordBatch()
	var body bytes.Buffer
	out := ipc.NewWriter(&body, ipc.WithSchema(schema))
	require.NoError(t, out.Write(rec))
	require.NoError(t, out.Close())
	w, a = n.send(path+"?on_error=continue", "application/vnd.apache.arrow.stream", body.Bytes())
	require.Equal(t, 200, w.Code, "%s", w.Body)
	require.Equal(t, map[int64]string{0: "null_not_allowed", 2: "partition_not_found"}, a.faults())
	require.EqualValues(t, 2, a.Accepted)
}

// A row whose key is too large is left out by itself.
func TestContinueLeavesLargeKeysOut(t *testing.T) {
	n := newNode(t)
	n.must("POST", "/v1/databases", `{"name":"db"}`)
	n.must("POST", "/v1/databases/db/tables", `{"name":"t","columns":[{"name":"k","type":"STRING"}],"primary_key":["k"],"buckets":3}`)
	rows := `{"rows":[{"k":"a"},{"k":"` + strings.Repeat("x", 5000) + `"},{"k":"b"},{"k":"` + strings.Repeat("y", 5000) + `"}]}`
	w, a := n.send("/v1/databases/db/tables/t/records?on_error=continue", "application/json", []byte(rows))
	require.Equal(t, 200, w.Code, "%s", w.Body)
	require.Equal(t, map[int64]string{1: "too_large", 3: "too_large"}, a.faults())
	require.EqualValues(t, 2, a.Accepted)
}

// A batch of which nothing is left is no error: the stream goes on.
func TestContinueWithNothingLeft(t *testing.T) {
	n := newNode(t)
	n.must("POST", "/v1/databases", `{"name":"db"}`)
	n.must("POST", "/v1/databases/db/tables", `{"name":"days","columns":[{"name":"id","type":"BIGINT"},{"name":"d","type":"DATE"}],"partition_by":["d"],
		"properties":{"table.auto-partition.enabled":"true","table.auto-partition.key":"d","table.auto-partition.num-retention":"1"}}`)
	w, a := n.send("/v1/databases/db/tables/days/records?on_error=continue", "application/x-ndjson", []byte(`{"id":1,"d":"1999-01-01"}`+"\n"+`{"id":2,"d":"1999-01-02"}`+"\n"))
	require.Equal(t, 200, w.Code, "%s", w.Body)
	require.Equal(t, map[int64]string{0: "partition_expired", 1: "partition_expired"}, a.faults())
	require.EqualValues(t, 0, a.Accepted)
}
