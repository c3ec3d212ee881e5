package client

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/openapi"
)

// A long poll sends the position, the wait and the limit, and answers rows with a cursor.
func TestChangelogPage(t *testing.T) {
	f, c := newFake(t, answer(200, `{"table_id":7,"rows":[{"_change_type":"+I","_log_offset":0}],"next":"c1.x","high_watermark":{"0":1}}`))
	page, err := table(t, c, "a.b").ChangelogPage(t.Context(), ReadRequest{From: AtCursor("c1.w"), Limit: 5, Columns: []string{"id"}, View: openapi.ViewRows}, 20*time.Second)
	require.NoError(t, err)
	require.Equal(t, "c1.x", page.Next)
	require.Equal(t, openapi.Offsets{"0": 1}, page.HighWatermark)
	q, err := url.ParseQuery(f.only(t).query)
	require.NoError(t, err)
	require.Equal(t, url.Values{"from": {"c1.w"}, "limit": {"5"}, "wait": {"20000ms"}, "columns": {"id"}}, q)
}

// block is one server-sent event of a change of row 1, at an offset.
func block(id, change string, offset int) string {
	names := map[string]string{"+I": "insert", "-U": "update_before", "+U": "update_after", "-D": "delete"}
	s := fmt.Sprintf("event: %s\ndata: {\"_change_type\":%q,\"_log_offset\":%d,\"_commit_timestamp\":\"2026-11-29T10:00:00.123Z\",\"id\":1,\"_bucket\":2}\n", names[change], change, offset)
	if id != "" {
		s += "id: " + id + "\n"
	}
	return s + "\n"
}

const hello = "retry: 1\nid: c1.start\n\n: a comment\n\n"

func follow(t *testing.T, tb *Table, r ReadRequest) (got []string, last error) {
	t.Helper()
	for c, err := range tb.Changes(t.Context(), r) {
		if err != nil {
			return got, err
		}
		got = append(got, fmt.Sprintf("%s %d %s", c.Type, c.Offset, c.Cursor))
	}
	return got, nil
}

// Changes come with type, offset, time and bucket, and with a cursor at the end of each group.
func TestChanges(t *testing.T) {
	f, c := newFake(t, stream(mediaEvents, hello+block("c1.a", "+I", 0)+block("", "-U", 1)+block("c1.b", "+U", 2)+block("c1.c", "-D", 3)))
	tb := table(t, c, "a.b")
	var first *Change
	for ch, err := range tb.Changes(t.Context(), ReadRequest{From: Earliest, Until: Latest}) {
		require.NoError(t, err)
		first = &ch
		break
	}
	require.Equal(t, millrace.Insert, first.Type)
	require.Equal(t, millrace.Offset(0), first.Offset)
	require.Equal(t, 2, first.Bucket)
	require.Equal(t, time.Date(2026, 11, 29, 10, 0, 0, 123e6, time.UTC), first.Time.UTC())
	require.Contains(t, string(first.Row), `"id":1`)
	got, err := follow(t, tb, ReadRequest{From: Earliest, Until: Latest})
	require.NoError(t, err)
	require.Equal(t, []string{"+I 0 c1.a", "-U 1 ", "+U 2 c1.b", "-D 3 c1.c"}, got)
	require.Equal(t, mediaEvents, f.all()[1].header.Get("Accept"))
	require.Equal(t, "from=earliest&until=latest", f.all()[1].query)
}

// Wherever the stream breaks, Changes goes on from the last whole group: nothing twice, nothing lost, no -U without its +U (C3).
func TestChangesResume(t *testing.T) {
	whole := hello + block("c1.a", "+I", 0) + block("", "-U", 1) + block("c1.b", "+U", 2) + block("c1.c", "-D", 3)
	rest := map[string]string{
		"": whole, "c1.start": whole,
		"c1.a": hello + block("", "-U", 1) + block("c1.b", "+U", 2) + block("c1.c", "-D", 3),
		"c1.b": hello + block("c1.c", "-D", 3), "c1.c": "retry: 1\nid: c1.c\n\n",
	}
	want := []string{"+I 0 c1.a", "-U 1 ", "+U 2 c1.b", "-D 3 c1.c"}
	for at := 0; at <= len(whole); at += 17 {
		f, c := newFake(t, cut(mediaEvents, whole[:at]), func(w http.ResponseWriter, r *http.Request) {
			stream(mediaEvents, rest[r.Header.Get("Last-Event-ID")])(w, r)
		})
		got, err := follow(t, table(t, c, "a.b"), ReadRequest{From: Earliest, Until: Latest})
		require.NoError(t, err, "broken at byte %d", at)
		require.Equal(t, want, got, "broken at byte %d", at)
		require.Equal(t, "from=earliest&until=latest", f.all()[1].query)
	}
}

// A server that drains sends a problem that says try again, and the reader goes on elsewhere; so does an endless stream that just ends.
func TestChangesSurviveDrain(t *testing.T) {
	f, c := newFake(t,
		stream(mediaEvents, hello+block("c1.a", "+I", 0)+"event: problem\ndata: {\"code\":\"draining\",\"status\":503,\"title\":\"T\",\"type\":\"t\",\"request_id\":\"r\"}\n\n"),
		stream(mediaEvents, hello+block("c1.b", "+I", 1)),
		stream(mediaEvents, hello+block("c1.c", "+I", 2)+"event: problem\ndata: {\"code\":\"schema_changed\",\"status\":409,\"title\":\"T\",\"type\":\"t\",\"request_id\":\"r\"}\n\n"))
	got, err := follow(t, table(t, c, "a.b"), ReadRequest{})
	require.True(t, errs.Is(err, errs.SchemaChanged), "%v", err)
	require.Equal(t, []string{"+I 0 c1.a", "+I 1 c1.b", "+I 2 c1.c"}, got)
	require.Equal(t, "c1.a", f.all()[1].header.Get("Last-Event-ID"))
	require.Equal(t, "c1.b", f.all()[2].header.Get("Last-Event-ID"))
}

// Rows of keyed state come at once, without a cursor; a break amid them cannot be resumed and says so.
func TestChangesFull(t *testing.T) {
	state := "event: insert\ndata: {\"_change_type\":\"+I\",\"_log_offset\":null,\"_commit_timestamp\":null,\"id\":1,\"_bucket\":0}\n\n"
	_, c := newFake(t, stream(mediaEvents, "id: c1.s\n\n"+state+state+block("c1.a", "+U", 7)), cut(mediaEvents, hello+state), stream(mediaEvents, hello+state))
	tb := table(t, c, "a.b")
	got, err := follow(t, tb, ReadRequest{From: Full, Until: Latest})
	require.NoError(t, err)
	require.Equal(t, []string{"+I -1 ", "+I -1 ", "+U 7 c1.a"}, got)
	for range 2 {
		got, err = follow(t, tb, ReadRequest{From: Full, Until: Latest})
		require.True(t, errs.Is(err, errs.SnapshotGone), "%v", err)
		require.Equal(t, []string{"+I -1 "}, got)
	}
}

// A position that is gone, and a server that stays away, end the reader with an error; a limit ends it well.
func TestChangesEnd(t *testing.T) {
	_, c := newFake(t, problem(410, "offset_out_of_range", "expired", map[string]any{"offsets": map[string]any{"0": map[string]any{"start": 5, "end": 9}}}))
	_, err := follow(t, table(t, c, "a.b"), ReadRequest{From: AtOffsets(openapi.Offsets{"0": 1})})
	require.True(t, errs.Is(err, errs.OffsetOutOfRange), "%v", err)
	e, _ := errors.AsType[*errs.Error](err)
	require.Equal(t, openapi.OffsetRanges{"0": {Start: 5, End: 9}}, e.Extra["offsets"])

	f, c := newFake(t, stream(mediaEvents, hello+block("c1.a", "+I", 0)), stream(mediaEvents, hello+block("c1.b", "+I", 1)))
	got, err := follow(t, table(t, c, "a.b"), ReadRequest{Limit: 1})
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Equal(t, "limit=1", f.only(t).query)
}

// The streams of changes go out with their media types.
func TestChangelogStreams(t *testing.T) {
	f, c := newFake(t, stream(mediaNDJSON, "{}\n"), stream(mediaArrow, string(arrowEnd[:])))
	tb := table(t, c, "a.b")
	s, err := tb.ChangelogNDJSON(t.Context(), ReadRequest{Until: Latest})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	s, err = tb.ChangelogArrow(t.Context(), ReadRequest{Until: Latest, Compression: openapi.CompressionLz4})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.Equal(t, mediaNDJSON, f.all()[0].header.Get("Accept"))
	require.Equal(t, "until=latest&compression=lz4", f.all()[1].query)
}
