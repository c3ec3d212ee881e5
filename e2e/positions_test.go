package e2e

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// at asks which offsets a position stands for.
func (tb table) at(t *testing.T, position string) string {
	t.Helper()
	b, err := json.Marshal(tb.s.ok(t, "GET", tb.path()+"/offsets?at="+url.QueryEscape(position), nil)["offsets"])
	require.NoError(t, err)
	return string(b)
}

// Each form of a position means the offsets that contract.md says, on a table of one bucket with four records.
func TestPositions(t *testing.T) {
	t.Parallel()
	s := shared(t)
	tb := create(t, s, newDB(t, s), "t", "id BIGINT, v BIGINT", "id", 1)
	tb.write(t, `[{"id":1,"v":1}]`)
	time.Sleep(5 * time.Millisecond)
	tb.write(t, `[{"id":1,"v":2}]`)
	time.Sleep(5 * time.Millisecond)
	tb.write(t, `[{"id":2,"v":1}]`)
	all := tb.allChanges(t, "earliest")
	require.Len(t, all, 4)
	times := make([]time.Time, len(all))
	for i, c := range all {
		at, err := time.Parse(time.RFC3339Nano, c.Time)
		require.NoError(t, err)
		require.False(t, i > 0 && at.Before(times[i-1]), "times do not go back within a bucket")
		times[i] = at
	}
	epoch := func(at time.Time) string { return strconv.FormatInt(at.UnixMilli(), 10) }
	cursor := tb.changelog(t, "from=earliest&limit=1").next
	for _, c := range []struct{ position, offsets string }{
		{"earliest", `{"0":0}`},
		{"latest", `{"0":4}`},
		{"full", `{"0":4}`}, // the state stands for all four
		{`{"0":2}`, `{"0":2}`},
		{`{}`, `{"0":0}`}, // a bucket that is not named is read from its earliest
		{cursor, `{"0":1}`},
		{times[3].Format(time.RFC3339Nano), `{"0":3}`},
		{times[1].Format(time.RFC3339Nano), `{"0":1}`},
		{epoch(times[3].Truncate(time.Millisecond)), `{"0":3}`},
		{times[0].Add(-time.Hour).Format(time.RFC3339), `{"0":0}`},
		{time.Now().Add(30 * time.Second).UTC().Format(time.RFC3339), `{"0":4}`}, // a clock that is a little ahead
	} {
		require.Equal(t, c.offsets, tb.at(t, c.position), c.position)
	}
	s.fails(t, 422, "timestamp_in_future", "GET", tb.path()+"/offsets?at="+time.Now().Add(2*time.Minute).UTC().Format(time.RFC3339), nil)
	s.fails(t, 410, "offset_out_of_range", "GET", tb.path()+"/offsets?at="+url.QueryEscape(`{"0":5}`), nil)

	require.Equal(t, lines(all[1:3]), lines(tb.changelog(t, "from="+url.QueryEscape(`{"0":1}`)+"&until="+url.QueryEscape(`{"0":3}`)).changes))
	require.Equal(t, lines(all[3:]), lines(tb.allChanges(t, times[3].Format(time.RFC3339Nano))))
	require.Equal(t, "map[0:4]", fmt.Sprint(tb.changelog(t, "from=latest").high))
}

// An update is one group: a limit between -U and +U gives one row more, and no cursor stands between them.
func TestPairsAreNotSplit(t *testing.T) {
	t.Parallel()
	s := shared(t)
	tb := create(t, s, newDB(t, s), "t", "id BIGINT, v BIGINT", "id", 1)
	for v := range 5 {
		tb.write(t, fmt.Sprintf(`[{"id":1,"v":%d}]`, v))
	}
	from, total := "earliest", 0
	for _, want := range []int{1, 2, 2, 2, 2, 0} {
		p := tb.changelog(t, "limit=1&from="+url.QueryEscape(from))
		require.Len(t, p.changes, want)
		if want == 2 {
			require.Equal(t, "-U", p.changes[0].Type)
			require.Equal(t, "+U", p.changes[1].Type)
		}
		from, total = p.next, total+want
	}
	require.Equal(t, 9, total)
}

// A long poll answers as soon as there is a row, and after its wait with none.
func TestLongPoll(t *testing.T) {
	t.Parallel()
	s := shared(t)
	tb := create(t, s, newDB(t, s), "t", "id BIGINT", "", 1)
	start := time.Now()
	p := tb.changelog(t, "from=latest&wait=300ms")
	require.Empty(t, p.changes)
	require.GreaterOrEqual(t, time.Since(start), 290*time.Millisecond)

	done := make(chan error, 1)
	go func() {
		time.Sleep(100 * time.Millisecond)
		done <- tb.tryWrite(`[{"id":7}]`)
	}()
	start = time.Now()
	p = tb.changelog(t, "wait=110s&timeout=2min&from="+url.QueryEscape(p.next))
	require.NoError(t, <-done)
	require.Equal(t, []string{`+I 0 {"id":7}`}, lines(p.changes))
	require.Less(t, time.Since(start), 60*time.Second)
}

// A cursor knows its table: after a drop and a new table of the same name it is refused, and so is the old id.
func TestRecreatedTable(t *testing.T) {
	t.Parallel()
	s := shared(t)
	db := newDB(t, s)
	tb := create(t, s, db, "t", "id BIGINT", "id", 1)
	tb.write(t, `[{"id":1}]`)
	cursor := tb.changelog(t, "from=earliest").next
	id := fmt.Sprint(s.ok(t, "GET", tb.path(), nil)["id"])
	s.ok(t, "DELETE", tb.path(), nil)
	s.fails(t, 404, "table_not_found", "GET", tb.path()+"/changelog?from="+url.QueryEscape(cursor), nil)

	tb = create(t, s, db, "t", "id BIGINT", "id", 1)
	s.fails(t, 409, "table_recreated", "GET", tb.path()+"/changelog?from="+url.QueryEscape(cursor), nil)
	s.fails(t, 409, "table_recreated", "GET", tb.path()+"/scan?table_id="+id, nil)
	s.fails(t, 409, "table_recreated", "POST", tb.path()+"/records?table_id="+id, recordsBody(`[{"id":1}]`))
	require.Equal(t, []string{"null"}, tb.lookup(t, `[{"id":1}]`), "nothing of the old table shows")
	require.Empty(t, tb.allChanges(t, "earliest"))
}

// 64-bit integers are exact as numbers, and strings on request.
func TestInt64AsString(t *testing.T) {
	t.Parallel()
	s := shared(t)
	tb := create(t, s, newDB(t, s), "t", "id BIGINT, n INT, xs ARRAY<BIGINT>", "id", 1)
	tb.write(t, `[{"id":9223372036854775807,"n":5,"xs":[-9223372036854775808,"9007199254740993"]}]`)
	number := `{"id":9223372036854775807,"n":5,"xs":[-9223372036854775808,9007199254740993]}`
	text := `{"id":"9223372036854775807","n":5,"xs":["-9223372036854775808","9007199254740993"]}`
	require.Equal(t, []string{number}, tb.scan(t, nil))
	a := s.do(t, "GET", tb.path()+"/scan?int64=string", nil, "Accept", mediaJSON)
	require.Equal(t, []string{text}, rowsOf(t, a.body, "rows"))
	a = s.do(t, "POST", tb.path()+"/lookup?int64=string", `{"keys":[{"id":"9223372036854775807"}]}`)
	require.Equal(t, []string{text}, rowsOf(t, a.body, "rows"))
}
