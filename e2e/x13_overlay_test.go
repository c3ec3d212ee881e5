package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// X13 at a size and width where the lake is the cheaper half: a narrow read of a bucket of 30,000 wide rows, of which some hundred have changed since,
// is made from its files with the changes on top, and gives what its state gives, whole, filtered, counted and page by page.
func TestX13Overlay(t *testing.T) {
	t.Parallel()
	s := shared(t)
	columns := customerColumns
	for i := range 30 {
		columns += fmt.Sprintf(", attribute_%d STRING", i)
	}
	tb := create(t, s, newDB(t, s), "cust_dim", columns, "cust_id", 1, tiered())
	want := map[int]string{}
	put := func(from, to, step int, tag string) {
		for from < to {
			var rows []string
			for ; from < to && len(rows) < 10_000; from += step {
				row := fmt.Sprintf(`{"cust_id":%d,"name":"%s %d"`, from, tag, from)
				want[from] = row + "}"
				rows = append(rows, row+fmt.Sprintf(`,"tier":"t%d"}`, from%5))
			}
			tb.write(t, "["+strings.Join(rows, ",")+"]")
		}
	}
	put(0, 30_000, 1, "first")
	tb.tier(t)
	put(0, 30_000, 331, "second")
	tb.tier(t)
	put(7, 30_000, 211, "third")
	put(40_000, 40_050, 1, "new")
	var gone []string
	for id := 5; id < 30_000; id += 401 {
		delete(want, id)
		gone = append(gone, fmt.Sprintf(`{"cust_id":%d}`, id))
	}
	tb.write(t, "["+strings.Join(gone, ",")+"]", `"mode":"delete"`)

	lines := func(pass func(id int) bool) []string {
		var out []string
		for id, r := range want {
			if pass(id) {
				out = append(out, r)
			}
		}
		slices.Sort(out)
		return out
	}
	names := []string{"cust_id", "name"}
	for _, c := range []struct {
		filter string
		pass   func(id int) bool
	}{
		{"", func(int) bool { return true }},
		{"tier = 't3'", func(id int) bool { return id%5 == 3 }},
		{"cust_id >= 29000", func(id int) bool { return id >= 29_000 }},
	} {
		a := s.do(t, "POST", tb.path()+"/scan", obj{"filter": c.filter, "columns": names}, "Accept", mediaNDJSON)
		require.Equal(t, 200, a.status)
		got := strings.Split(strings.TrimSpace(string(a.body)), "\n")
		slices.Sort(got)
		require.Equal(t, lines(c.pass), got, c.filter)
		var stats struct {
			Files int `json:"lake_files"`
		}
		require.NoError(t, json.Unmarshal([]byte(a.trailer("X-Millrace-Stats")), &stats))
		require.Positive(t, stats.Files, "it was read from the lake")
		require.Equal(t, fmt.Sprint(len(lines(c.pass))), tb.count(t, c.filter))
		pages := tb.scan(t, obj{"filter": c.filter, "columns": names, "page_size": 7000})
		slices.Sort(pages)
		require.Equal(t, lines(c.pass), pages)
	}
	f := s.dial(t)
	_, rows := f.scan(t, command(t, scanCommand(tb, obj{"columns": []string{"name"}})))
	require.Len(t, rows, len(want))
	require.Equal(t, fmt.Sprint(len(want)), tb.count(t, ""))
}
