package e2e

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
)

// Fifty callers, through both doors, that look up keys which nobody has written yet get the same rows: each is inserted
// once, with NULLs and a number of the server's, and the changelog has one +I of it.
func TestInsertIfAbsentConverges(t *testing.T) {
	t.Parallel()
	s := shared(t)
	tb := table{s, newDB(t, s), "users"}
	s.ok(t, "POST", "/v1/databases/"+tb.db+"/tables", obj{
		"name": tb.name, "buckets": 3, "primary_key": []string{"name"},
		"columns": []obj{{"name": "name", "type": "STRING"}, {"name": "id", "type": "BIGINT", "auto_increment": true}, {"name": "note", "type": "STRING"}},
	})
	tb.write(t, `[{"name":"u3","note":"was there"}]`)
	c := s.dial(t)
	const callers, keys = 50, 4
	answers := make([]string, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			if i%2 == 0 {
				a, err := s.send("POST", tb.path()+"/lookup", `{"keys":[{"name":"u0"},{"name":"u1"},{"name":"u0"},{"name":"u3"},{"name":"u2"}],"columns":["name","id","note"],"insert_if_absent":true}`)
				if err == nil {
					answers[i] = fmt.Sprint(a.status, string(a.body))
				}
				return
			}
			got, err := c.exchange(t, obj{"op": "lookup", "table": tb.full(), "insert_if_absent": true, "columns": []string{"name", "id"}},
				batch(t, schemaOf("name string"), `[{"name":"u0"},{"name":"u1"},{"name":"u2"},{"name":"u3"}]`))
			answers[i] = fmt.Sprint(got, err)
		})
	}
	wg.Wait()
	for i := range callers {
		require.Equal(t, answers[i%2], answers[i])
	}
	require.Regexp(t, `^200\{"rows":\[\{"name":"u0","id":\d+,"note":null\},\{"name":"u1","id":\d+,"note":null\},\{"name":"u0","id":\d+,"note":null\},\{"name":"u3","id":\d+,"note":"was there"\},\{"name":"u2","id":\d+,"note":null\}\]\}\n$`, answers[0])
	require.Regexp(t, `^\[\[true\|u0\|\d+ true\|u1\|\d+ true\|u2\|\d+ true\|u3\|\d+\]\] <nil>$`, answers[1])
	require.Len(t, tb.allChanges(t, "earliest"), keys, "one +I a key")
	require.Equal(t, fmt.Sprint(keys), tb.count(t, ""))
}

// Without the wish nothing is inserted; with it, what cannot be a row of a key alone is refused, and nothing is written.
func TestInsertIfAbsentThatIsRefused(t *testing.T) {
	t.Parallel()
	s := shared(t)
	db := newDB(t, s)
	tb := create(t, s, db, "t", "id BIGINT, v STRING", "id", 2)
	strict := create(t, s, db, "strict", "id BIGINT, v STRING NOT NULL", "id", 2)
	log := create(t, s, db, "log", "id BIGINT", "", 1)
	require.Equal(t, []string{"null"}, tb.lookup(t, `[{"id":1}]`))
	s.ok(t, "POST", tb.path()+"/lookup", `{"keys":[{"id":1}],"insert_if_absent":false}`)
	p := s.fails(t, 422, "missing_column", "POST", strict.path()+"/lookup", `{"keys":[{"id":1}],"insert_if_absent":true}`)
	require.Contains(t, p.Detail, `"v"`)
	s.fails(t, 422, "wrong_table_kind", "POST", log.path()+"/lookup", `{"keys":[{"id":1}],"insert_if_absent":true}`)
	s.fails(t, 422, "unknown_field", "POST", tb.path()+"/lookup", `{"keys":[{"id":1},{"id":2,"v":"x"}],"insert_if_absent":true}`)
	s.fails(t, 422, "missing_key", "POST", tb.path()+"/lookup", `{"keys":[{"id":1},{}],"insert_if_absent":true}`)
	s.fails(t, 422, "invalid_value", "POST", tb.path()+"/lookup", `{"keys":[{"id":1}],"insert_if_absent":"yes"}`)
	s.fails(t, 422, "unknown_column", "POST", tb.path()+"/lookup", `{"keys":[{"id":1}],"columns":["x"],"insert_if_absent":true}`)
	_, err := s.dial(t).exchange(t, obj{"op": "lookup", "table": strict.full(), "insert_if_absent": true}, batch(t, schemaOf("id long"), `[{"id":1}]`))
	refused(t, err, codes.InvalidArgument, "missing_column")
	for _, tb := range []table{tb, strict} {
		require.Equal(t, "0", tb.count(t, ""))
	}
	s.ok(t, "POST", strict.path()+"/lookup", `{"keys":[],"insert_if_absent":true}`)
}

// With a key of the request, a row that was inserted and deleted since is not inserted again.
func TestInsertIfAbsentWithAKey(t *testing.T) {
	t.Parallel()
	s := shared(t)
	tb := create(t, s, newDB(t, s), "t", "id BIGINT, v STRING", "id", 1)
	ask := func(ids string, headers ...string) string {
		a := s.do(t, "POST", tb.path()+"/lookup", `{"keys":[`+ids+`],"columns":["id"],"insert_if_absent":true}`, headers...)
		return fmt.Sprint(a.status, " ", string(a.body))
	}
	const inserted, gone = "200 {\"rows\":[{\"id\":1}]}\n", "200 {\"rows\":[null]}\n"
	require.Equal(t, inserted, ask(`{"id":1}`, key("k")...))
	require.Equal(t, inserted, ask(`{"id":1}`, key("k")...))
	require.Len(t, tb.allChanges(t, "earliest"), 1)
	s.ok(t, "DELETE", tb.path()+"/rows/1", nil)
	require.Equal(t, gone, ask(`{"id":1}`, key("k")...))
	require.Contains(t, ask(`{"id":2}`, key("k")...), "idempotency_key_reused")
	require.Contains(t, ask(`{"id":2}`, key("")...), "invalid_value")
	require.Equal(t, inserted, ask(`{"id":1}`))
	require.Equal(t, "1", tb.count(t, ""))
}

// Keys of a partitioned table are looked up in their partitions, whole or by prefix, through every door; what is absent
// makes the partition it belongs to.
func TestLookupsInPartitions(t *testing.T) {
	t.Parallel()
	s := shared(t)
	tb := create(t, s, newDB(t, s), "t", "id BIGINT, day DATE, shop STRING, v STRING", "shop,day,id", 3, obj{"partition_by": []string{"day"}, "bucket_key": []string{"shop"}})
	tb.write(t, `[{"id":1,"day":"2026-08-26","shop":"a","v":"x"},{"id":1,"day":"2026-08-27","shop":"a","v":"y"},{"id":2,"day":"2026-08-27","shop":"a","v":"z"},{"id":3,"day":"2026-08-27","shop":"b","v":"w"}]`)
	require.Equal(t, []string{`{"id":2,"day":"2026-08-27","shop":"a","v":"z"}`, "null", "null", `{"id":1,"day":"2026-08-26","shop":"a","v":"x"}`},
		tb.lookup(t, `[{"id":2,"day":"2026-08-27","shop":"a"},{"id":2,"day":"2026-08-26","shop":"a"},{"id":2,"day":"2026-08-01","shop":"a"},{"id":1,"day":"2026-08-26","shop":"a"}]`))
	o := s.ok(t, "GET", tb.path()+"/rows?pk.id=1&pk.day=2026-08-27&pk.shop=a", nil)
	require.Equal(t, "y", o["v"])
	vs, _ := tb.prefixPages(t, `{"prefix":{"shop":"a","day":"2026-08-27"}}`, nil)
	require.Equal(t, []string{"y", "z"}, vs)
	vs, _ = tb.prefixPages(t, `{"prefix":{"shop":"a","day":"2026-08-01"}}`, nil)
	require.Empty(t, vs)
	vs, pages := tb.prefixPages(t, `{"prefix":{"shop":"a","day":"2026-08-27"},"limit":1}`, nil)
	require.Equal(t, []string{"y", "z"}, vs)
	require.Equal(t, 2, pages)
	p := s.fails(t, 422, "prefix_too_short", "POST", tb.path()+"/prefix-lookup", `{"prefix":{"shop":"a"}}`)
	require.Contains(t, p.Detail, "the prefix lacks day: it begins with day, shop")
	require.Equal(t, []string{"id,v", "1,y", "2,z"}, s.cliOK(t, "get", tb.full(), "--prefix", "shop=a", "day=2026-08-27", "--columns", "id,v", "--format", "csv"))

	c := s.dial(t)
	got, err := c.exchange(t, obj{"op": "lookup", "table": tb.full(), "columns": []string{"v"}},
		batch(t, schemaOf("shop string, id long, day date"), `[{"id":3,"day":"2026-08-27","shop":"b"},{"id":3,"day":"2026-08-01","shop":"b"}]`))
	require.NoError(t, err)
	require.Equal(t, [][]string{{"true|w", "false|null"}}, got)
	got, err = c.exchange(t, obj{"op": "prefix_lookup", "table": tb.full(), "columns": []string{"v"}},
		batch(t, schemaOf("shop string, day date"), `[{"day":"2026-08-27","shop":"a"},{"day":"2026-08-01","shop":"a"},{"day":"2026-08-27","shop":"b"},{"day":"2026-08-26","shop":"a"}]`))
	require.NoError(t, err)
	require.Equal(t, [][]string{{"0|y", "0|z", "2|w", "3|x"}}, got)

	require.Equal(t, "2", fmt.Sprint(len(s.ok(t, "GET", tb.path()+"/partitions", nil)["partitions"].([]any))))
	o = s.ok(t, "POST", tb.path()+"/lookup", `{"keys":[{"id":9,"day":"2026-09-01","shop":"c"},{"id":1,"day":"2026-08-26","shop":"a"}],"insert_if_absent":true}`)
	require.Len(t, o["rows"], 2)
	require.Equal(t, map[string]any{"id": "9", "day": "2026-09-01", "shop": "c", "v": nil}, s.ok(t, "GET", tb.path()+"/rows?pk.id=9&pk.day=2026-09-01&pk.shop=c&int64=string", nil))
	require.Equal(t, "3", fmt.Sprint(len(s.ok(t, "GET", tb.path()+"/partitions", nil)["partitions"].([]any))))
	require.Equal(t, "5", tb.count(t, ""))
}
