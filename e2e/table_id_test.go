package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// A request that says which table it means is refused when the name belongs to another one now: reads, writes,
// lookups and row addresses alike.
func TestTableIDOfADroppedTable(t *testing.T) {
	t.Parallel()
	s := shared(t)
	db := newDB(t, s)
	tb := create(t, s, db, "t", "id INT, v STRING", "id", 1)
	old := fmt.Sprint(s.ok(t, "GET", tb.path(), nil)["id"])
	require.Equal(t, 204, s.do(t, "DELETE", tb.path(), nil).status)
	tb = create(t, s, db, "t", "id INT, v STRING", "id", 1)
	tb.write(t, `[{"id":1,"v":"a"}]`)
	at := "?table_id=" + old
	for _, r := range []struct {
		method, path string
		body         any
	}{
		{"GET", "/rows/1" + at, nil},
		{"PUT", "/rows/1" + at, `{"v":"b"}`},
		{"PATCH", "/rows/1" + at, `{"v":"b"}`},
		{"DELETE", "/rows/1" + at, nil},
		{"GET", "/rows" + at + "&pk.id=1", nil},
		{"PUT", "/rows" + at + "&pk.id=1", `{"v":"b"}`},
		{"DELETE", "/rows" + at + "&pk.id=1", nil},
		{"POST", "/lookup" + at, `{"keys":[{"id":1}]}`},
		{"POST", "/records" + at, recordsBody(`[{"id":1,"v":"b"}]`)},
		{"POST", "/scan", obj{"table_id": 1 << 20}},
		{"GET", "/scan" + at, nil},
		{"GET", "/count" + at, nil},
		{"GET", "/offsets" + at, nil},
		{"GET", "/changelog" + at, nil},
	} {
		s.do(t, r.method, tb.path()+r.path, r.body).problem(t, 409, "table_recreated")
	}
	require.Equal(t, []string{`{"id":1,"v":"a"}`}, tb.scan(t, obj{}), "nothing was written")
}

// A poll that waits on a table that nothing was ever written to tells of its drop.
func TestPollOfADroppedEmptyTable(t *testing.T) {
	t.Parallel()
	s := shared(t)
	tb := create(t, s, newDB(t, s), "t", "id INT", "id", 2)
	polled := make(chan answer, 1)
	go func() { polled <- s.do(t, "GET", tb.path()+"/changelog?wait=2s", nil) }()
	require.Equal(t, 204, s.do(t, "DELETE", tb.path(), nil).status)
	a := <-polled
	require.Equal(t, 404, a.status, "%s", a.body)
}

// HEAD is GET without its body, and a refused method says which are not.
func TestHeadAndAllow(t *testing.T) {
	t.Parallel()
	s := shared(t)
	tb := create(t, s, newDB(t, s), "t", "id INT", "id", 1)
	a := s.do(t, "HEAD", tb.path(), nil)
	require.Equal(t, 200, a.status)
	require.NotEmpty(t, a.header.Get("ETag"))
	a = s.do(t, "POST", tb.path(), `{}`)
	a.problem(t, 405, "method_not_allowed")
	require.Contains(t, a.header.Values("Allow"), "GET")
	require.Contains(t, a.header.Values("Allow"), "DELETE")
}
