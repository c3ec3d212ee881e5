package e2e

import (
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What is under way when a table is altered goes on: an upload in the columns that it
// began with, where what it holds of a dropped column is discarded; an event stream in
// its columns, as long as none of them was dropped. One that reads a dropped column is
// told so where the change lies, and goes on from there with the new ones when it comes
// again.
func TestAlterUnderWay(t *testing.T) {
	t.Parallel()
	s := shared(t)
	tb := create(t, s, newDB(t, s), "t", "id BIGINT, v STRING, n INT", "id", 1)
	r, w := io.Pipe()
	answered := make(chan answer, 1)
	go func() {
		a, err := s.send("POST", tb.path()+"/records", io.Reader(r), "Content-Type", mediaNDJSON)
		if err != nil {
			t.Errorf("the upload was cut off: %v", err)
		}
		answered <- a
	}()
	lines := func(from, to int) {
		var b strings.Builder
		for i := from; i < to; i++ {
			fmt.Fprintf(&b, "{\"id\":%d,\"v\":\"v%d\",\"n\":%d}\n", i, i, i)
		}
		_, err := io.WriteString(w, b.String())
		require.NoError(t, err)
	}
	lines(0, 12_000)
	require.Eventually(t, func() bool { return tb.count(t, "") == "10000" }, patience, 10*time.Millisecond)
	latest := url.Values{"from": {"latest"}}
	all, err := tb.subscribe(within(t, patience), latest, "")
	require.NoError(t, err)
	defer all.close()
	latest.Set("columns", "n")
	narrow, err := tb.subscribe(within(t, patience), latest, "")
	require.NoError(t, err)
	defer narrow.close()
	tb.write(t, `[{"id":-2,"v":"before"}]`)
	for _, sub := range []*subscription{all, narrow} {
		require.Equal(t, "+I", sub.take(t, 1)[0].Type)
	}

	tb.alter(t, obj{"op": "drop_column", "name": "v"}, obj{"op": "add_column", "column": obj{"name": "w", "type": "STRING"}}, obj{"op": "alter_type", "name": "n", "type": "BIGINT"})
	tb.write(t, `[{"id":-1,"w":"after","n":7}]`)
	lines(12_000, 12_001)
	require.NoError(t, w.Close())
	a := <-answered
	require.Equal(t, 200, a.status, "%s", a.body)
	require.Equal(t, "12001", fmt.Sprint(a.object(t)["accepted"]))
	require.Equal(t, []string{`{"id":-1,"n":7,"w":"after"}`, `{"id":11999,"n":11999,"w":null}`}, tb.lookup(t, `[{"id":-1},{"id":11999}]`))

	require.Equal(t, "+I", narrow.take(t, 1)[0].Type)
	_, err = all.change(t)
	require.ErrorContains(t, err, "schema_changed")
	again, err := tb.subscribe(within(t, patience), url.Values{}, all.lastID)
	require.NoError(t, err)
	defer again.close()
	got := again.take(t, 1)[0]
	require.Equal(t, `{"id":-1,"n":7,"w":"after"}`, got.Row)
	s.fails(t, 422, "unknown_field", "POST", tb.path()+"/records", `{"rows":[{"id":1,"v":"gone"}]}`)
}
