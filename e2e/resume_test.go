package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An event stream that breaks again and again, at any event, and is resumed with Last-Event-ID, as a browser does it,
// loses nothing and repeats nothing but the open group at the break.
func TestSSEResume(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	tb := create(t, s, newDB(t, s), "t", "id BIGINT, v BIGINT", "id", 4)
	for v := range 40 {
		tb.write(t, fmt.Sprintf(`[{"id":1,"v":%d},{"id":2,"v":%d},{"id":%d,"v":0}]`, v, v, 100+v))
	}
	want := tb.allChanges(t, "earliest")
	require.Len(t, want, 2*(1+39*2)+40)

	random := rand.New(rand.NewPCG(1, 2))
	var got []change
	lastID, breaks := "", 0
	for len(got) < len(want) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		// from is there in every try, as in an EventSource's address; Last-Event-ID wins.
		sub, err := tb.subscribe(ctx, url.Values{"from": {"earliest"}}, lastID)
		require.NoError(t, err)
		var group []change
		for range 1 + random.IntN(20) {
			if len(got)+len(group) == len(want) {
				break
			}
			before := sub.lastID
			c, err := sub.change(t)
			require.NoError(t, err)
			group = append(group, c)
			if sub.lastID != before { // the id stands on the last event of a group
				got, group = append(got, group...), nil
			} else {
				require.Equal(t, "-U", c.Type, "only a -U comes without an id")
			}
		}
		lastID = sub.lastID
		cancel()
		sub.close()
		if breaks++; breaks == 5 {
			s.kill() // the cursor outlives the server
			s.restart(t)
		}
	}
	require.Greater(t, breaks, 5)
	byBucket := func(cs []change) map[int][]string {
		m := map[int][]string{}
		for _, c := range cs {
			m[c.Bucket] = append(m[c.Bucket], c.String())
		}
		return m
	}
	require.Equal(t, byBucket(want), byBucket(got))
}

// The stream's form: the first block has only an id, a browser is told to retry after 2 s, and a bad position is an
// ordinary refusal before the stream begins.
func TestSSEForm(t *testing.T) {
	t.Parallel()
	s := shared(t)
	tb := create(t, s, newDB(t, s), "t", "id BIGINT, v STRING", "id", 1)
	sub, err := tb.subscribe(within(t, patience), url.Values{}, "")
	require.NoError(t, err)
	defer sub.close()
	first, err := sub.next()
	require.NoError(t, err)
	require.NotEmpty(t, first.id)
	require.Empty(t, first.data)
	retry := first.retry
	tb.write(t, `[{"id":1,"v":"two\nlines"}]`)
	ev, err := sub.next()
	require.NoError(t, err)
	for ev.data == "" { // the retry hint may be a block of its own, and idle ids may pass
		retry += ev.retry
		ev, err = sub.next()
		require.NoError(t, err)
	}
	require.Equal(t, "2000", retry)
	require.Equal(t, "insert", ev.name)
	require.NotEmpty(t, ev.id)
	require.Equal(t, `+I 0 {"id":1,"v":"two\nlines"}`, parseChange(t, []byte(ev.data)).String())

	s.fails(t, 410, "offset_out_of_range", "GET", tb.path()+"/changelog?from=%7B%220%22:9%7D", nil, "Accept", mediaSSE)
	s.fails(t, 422, "unknown_column", "GET", tb.path()+"/changelog?columns=nothing", nil, "Accept", mediaSSE)

	bounded, err := tb.subscribe(within(t, patience), url.Values{"from": {"earliest"}, "until": {"latest"}}, "")
	require.NoError(t, err)
	defer bounded.close()
	require.Len(t, bounded.take(t, 1), 1)
	_, err = bounded.change(t)
	require.True(t, errors.Is(err, io.EOF), "until ends the stream: %v", err)
}

// Changelog streams take columns and a filter; the filter tests each record's own image.
func TestChangelogColumnsAndFilter(t *testing.T) {
	t.Parallel()
	s := shared(t)
	tb := create(t, s, newDB(t, s), "t", "id BIGINT, v STRING, n BIGINT", "id", 1)
	tb.write(t, `[{"id":1,"v":"a","n":1},{"id":2,"v":"b","n":20},{"id":1,"v":"c","n":30}]`)
	p := tb.changelog(t, "from=earliest&columns=n,id&filter="+url.QueryEscape("n >= 20"))
	require.Equal(t, []string{`+I 1 {"n":20,"id":2}`, `+U 3 {"n":30,"id":1}`}, lines(p.changes))
	sub, err := tb.subscribe(within(t, patience), url.Values{"from": {"earliest"}, "columns": {"v"}, "filter": {"v <> 'b'"}}, "")
	require.NoError(t, err)
	defer sub.close()
	require.Equal(t, []string{`+I 0 {"v":"a"}`, `-U 2 {"v":"a"}`, `+U 3 {"v":"c"}`}, lines(sub.take(t, 3)))
}
