package e2e

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
)

// customers makes a batch of cust_dim for ids [from, from+n).
func customers(from, n int) arrow.RecordBatch {
	id := array.NewInt64Builder(memory.DefaultAllocator)
	name, tier := array.NewStringBuilder(memory.DefaultAllocator), array.NewStringBuilder(memory.DefaultAllocator)
	for i := range n {
		id.Append(int64(from + i))
		name.Append(fmt.Sprintf("customer %d", from+i))
		tier.Append([]string{"gold", "silver", "bronze"}[(from+i)%3])
	}
	return array.NewRecordBatch(schemaOf("cust_id long, name string, tier string"), []arrow.Array{id.NewArray(), name.NewArray(), tier.NewArray()}, int64(n))
}

const customerColumns = "cust_id BIGINT, name STRING, tier STRING"

// bucketsReadMetric counts the buckets that lookups touched.
const bucketsReadMetric = "millrace_router_lookup_buckets_total"

// metric sums a counter of /metrics over its labels.
func (s *server) metric(t testing.TB, name string) float64 {
	t.Helper()
	a := s.do(t, "GET", "/metrics", nil)
	require.Equal(t, 200, a.status)
	line := regexp.MustCompile(`(?m)^` + name + `(?:\{[^}]*\})? (\S+)$`)
	found := line.FindAllSubmatch(a.body, -1)
	require.NotEmpty(t, found, "no metric %s", name)
	sum := 0.0
	for _, m := range found {
		v, err := strconv.ParseFloat(string(m[1]), 64)
		require.NoError(t, err)
		sum += v
	}
	return sum
}

func median(n int, f func()) time.Duration {
	took := make([]time.Duration, n)
	for i := range took {
		start := time.Now()
		f()
		took[i] = time.Since(start)
	}
	slices.Sort(took)
	return took[n/2]
}

// X6: a lookup touches one bucket and its latency does not grow with the table; a scan for the key gives the same row.
// The server is the test's own, since its metrics are read.
func TestX6PointRead(t *testing.T) {
	s := newServer(t)
	tb := create(t, s, newDB(t, s), "cust_dim", customerColumns, "cust_id", 16)
	load := func(tb table, from, n int) {
		var recs []arrow.RecordBatch
		for i := 0; i < n; i += 10_000 {
			recs = append(recs, customers(from+i, min(10_000, n-i)))
		}
		s.ok(t, "POST", tb.path()+"/records", stream(t, recs), "Content-Type", mediaArrow)
	}
	const want = `{"cust_id":42,"name":"customer 42","tier":"gold"}`
	get := func(tb table) { require.Equal(t, []string{want}, tb.lookup(t, `[{"cust_id":42}]`)) }

	few := create(t, s, tb.db, "few", customerColumns, "cust_id", 16)
	load(few, 0, 1000)
	load(tb, 0, 200_000)
	// Others on the machine may slow it down for a while; what grows with the table would stay.
	require.Eventually(t, func() bool {
		small, large := median(101, func() { get(few) }), median(101, func() { get(tb) })
		t.Logf("median lookup: %v among 1,000 rows, %v among 200,000", small, large)
		return large < 4*small+2*time.Millisecond
	}, patience, time.Millisecond, "a lookup does not grow with the table")

	before := s.metric(t, bucketsReadMetric)
	get(tb)
	require.InDelta(t, before+1, s.metric(t, bucketsReadMetric), 0.1, "one bucket is read")

	require.Equal(t, []string{want}, tb.scan(t, obj{"filter": "cust_id = 42"}))
	require.Equal(t, "200000", tb.count(t, ""))
	require.Equal(t, want, strings.TrimSpace(string(s.do(t, "GET", tb.path()+"/rows/42", nil).body)))
	require.Equal(t, want, strings.TrimSpace(string(s.do(t, "GET", tb.path()+"/rows?pk.cust_id=42", nil).body)))
	s.fails(t, 404, "row_not_found", "GET", tb.path()+"/rows/1000000", nil)

	got, err := s.dial(t).exchange(t, obj{"op": "lookup", "table": tb.full(), "columns": []string{"tier", "name"}},
		batch(t, schemaOf("cust_id long"), `[{"cust_id":42},{"cust_id":-1},{"cust_id":43}]`), batch(t, schemaOf("cust_id long"), `[{"cust_id":42}]`))
	require.NoError(t, err)
	require.Equal(t, [][]string{{"true|gold|customer 42", "false|null|null", "true|silver|customer 43"}, {"true|gold|customer 42"}}, got)

	keys := tempFile(t, "keys.ndjson", "{\"cust_id\":42}\n{\"cust_id\":-1}\n")
	require.Equal(t, []string{want, "null"}, s.cliOK(t, "lookup", tb.full(), "--file", keys, "--format", "ndjson"))
	require.Contains(t, strings.Join(s.cliOK(t, "get", tb.full(), "cust_id=42"), " "), "customer 42")
}
