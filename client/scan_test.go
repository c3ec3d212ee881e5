package client

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/openapi"
)

// A scan sends the read request as body, follows the page tokens, and keeps every digit.
func TestScanPages(t *testing.T) {
	withStats := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(statsHeader, `{"rows_read":9}`)
		answer(200, `{"table_id":7,"rows":[{"id":9007199254740993}],"next_page_token":"p2","offsets":{"0":3}}`)(w, r)
	}
	f, c := newFake(t, withStats, answer(200, `{"table_id":7,"rows":[{"id":2}]}`), withStats)
	tb := table(t, c, "retail.cust_dim$changelog")
	req := ReadRequest{Columns: []string{"id"}, Filter: "id > ?", Params: []json.RawMessage{json.RawMessage("1")}, From: Earliest, Limit: 10, Buckets: []int{0, 2}}
	var rows []string
	for r, err := range tb.Scan(t.Context(), req) {
		require.NoError(t, err)
		rows = append(rows, string(r))
	}
	require.Equal(t, []string{`{"id":9007199254740993}`, `{"id":2}`}, rows)
	a, b := f.all()[0], f.all()[1]
	require.Equal(t, "POST /v1/databases/retail/tables/cust_dim$changelog/scan", a.method+" "+a.path)
	require.Equal(t, mediaJSON, a.header.Get("Accept"))
	require.JSONEq(t, `{"columns":["id"],"filter":"id > ?","params":[1],"from":"earliest","limit":10,"buckets":[0,2]}`, a.body)
	require.JSONEq(t, `{"columns":["id"],"filter":"id > ?","params":[1],"from":"earliest","limit":10,"buckets":[0,2],"page_token":"p2"}`, b.body)
	page, err := tb.ScanPage(t.Context(), ReadRequest{})
	require.NoError(t, err)
	require.Equal(t, openapi.Offsets{"0": 3}, page.Offsets)
	require.Equal(t, int64(9), page.Stats.RowsRead)
}

// An error between pages ends the scan with it.
func TestScanFailsBetweenPages(t *testing.T) {
	_, c := newFake(t, answer(200, `{"table_id":7,"rows":[{"id":1}],"next_page_token":"p2"}`), problem(404, "table_not_found", "gone", nil))
	var rows int
	var last error
	for _, err := range table(t, c, "a.b").Scan(t.Context(), ReadRequest{}) {
		if err != nil {
			last = err
			continue
		}
		rows++
	}
	require.Equal(t, 1, rows)
	require.True(t, errs.Is(last, errs.TableNotFound))
}

func collect(tb *Table, t *testing.T) (rows []string, err error) {
	for r, e := range tb.ScanRows(t.Context(), ReadRequest{}) {
		if e != nil {
			return rows, e
		}
		rows = append(rows, string(r))
	}
	return rows, nil
}

// NDJSON is read to its end; an error line and a broken connection are errors after the rows that came (C2).
func TestScanNDJSON(t *testing.T) {
	f, c := newFake(t,
		stream(mediaNDJSON, "{\"id\":1}\n\n{\"id\":2}\n"),
		stream(mediaNDJSON, "{\"id\":1}\n{\"__error\":{\"code\":\"corrupt_data\",\"detail\":\"bucket 3\",\"status\":500,\"title\":\"T\",\"type\":\"t\",\"request_id\":\"r\"}}\n"),
		stream(mediaNDJSON, "{\"__error\":17}\n"),
		cut(mediaNDJSON, "{\"id\":1}\n"))
	tb := table(t, c, "a.b")
	rows, err := collect(tb, t)
	require.NoError(t, err)
	require.Equal(t, []string{`{"id":1}`, `{"id":2}`}, rows)
	require.Equal(t, mediaNDJSON, f.only(t).header.Get("Accept"))
	require.Equal(t, "identity", f.only(t).header.Get("Accept-Encoding"))
	rows, err = collect(tb, t)
	require.Equal(t, []string{`{"id":1}`}, rows)
	require.True(t, errs.Is(err, errs.CorruptData), "%v", err)
	_, err = collect(tb, t)
	require.True(t, errs.Is(err, errs.Internal), "%v", err)
	rows, err = collect(tb, t)
	require.Equal(t, []string{`{"id":1}`}, rows)
	require.True(t, errs.Is(err, errs.Unavailable), "%v", err)
}

// An Arrow stream without its end marker is an error however it ends, and one with it gives its statistics (C2).
func TestScanArrow(t *testing.T) {
	whole := "schema and batches" + string(arrowEnd[:])
	_, c := newFake(t, stream(mediaArrow, whole), stream(mediaArrow, "schema and batches"), cut(mediaArrow, "schema"), stream(mediaArrow, whole), problem(404, "table_not_found", "x", nil))
	tb := table(t, c, "a.b")
	for _, size := range []int{1, 3, 4096} {
		_, c := newFake(t, stream(mediaArrow, whole))
		s, err := table(t, c, "a.b").ScanArrow(t.Context(), ReadRequest{})
		require.NoError(t, err)
		got, err := io.ReadAll(io.LimitReader(readerOf(s, size), 1<<20))
		require.NoError(t, err)
		require.Equal(t, whole, string(got))
		stats, ok := s.Stats()
		require.True(t, ok)
		require.Equal(t, int64(2), stats.RowsShipped)
		require.Equal(t, int64(len(whole)), s.BytesRead())
		require.NoError(t, s.Close())
	}
	s, err := tb.ScanArrow(t.Context(), ReadRequest{})
	require.NoError(t, err)
	_, err = io.ReadFull(s, make([]byte, len(whole))) // as an Arrow reader does: not a byte past the marker
	require.NoError(t, err)
	require.NoError(t, s.Close())
	_, ok := s.Stats()
	require.True(t, ok)
	for range 2 {
		s, err := tb.ScanArrow(t.Context(), ReadRequest{})
		require.NoError(t, err)
		_, err = io.ReadAll(s)
		require.True(t, errs.Is(err, errs.Unavailable), "%v", err)
		_, ok := s.Stats()
		require.False(t, ok)
		require.NoError(t, s.Close())
	}
}

// readerOf reads at most size bytes at once.
func readerOf(r io.Reader, size int) io.Reader { return &small{r, size} }

type small struct {
	r    io.Reader
	size int
}

func (s *small) Read(p []byte) (int, error) { return s.r.Read(p[:min(len(p), s.size)]) }

// Count is a GET with the read request as parameters; partitions can only be names there.
func TestCount(t *testing.T) {
	f, c := newFake(t, answer(200, `{"count":9007199254740993}`))
	tb := table(t, c, "a.b")
	n, err := tb.Count(t.Context(), ReadRequest{
		Filter: "a = 'x,&y' AND b > ?", Params: []json.RawMessage{json.RawMessage("9007199254740993")}, Tier: openapi.TierHot,
		Partitions: []json.RawMessage{json.RawMessage(`"dt=a%2Cb"`), json.RawMessage(`"dt=c"`)}, Buckets: []int{1, 2}, Until: AtOffsets(openapi.Offsets{"0": 5}),
	})
	require.NoError(t, err)
	require.Equal(t, int64(9007199254740993), n)
	q, err := url.ParseQuery(f.only(t).query)
	require.NoError(t, err)
	require.Equal(t, url.Values{
		"filter": {"a = 'x,&y' AND b > ?"}, "params": {"[9007199254740993]"}, "tier": {"hot"},
		"partitions": {"dt=a%2Cb,dt=c"}, "buckets": {"1,2"}, "until": {`{"0":5}`},
	}, q)
	_, err = tb.Count(t.Context(), ReadRequest{Partitions: []json.RawMessage{json.RawMessage(`{"dt":"c"}`)}})
	require.True(t, errs.Is(err, errs.InvalidValue))
}

// Positions are written as people and machines spell them.
func TestPositions(t *testing.T) {
	for in, want := range map[string]string{
		"earliest": `"earliest"`, "2026-11-29T10:00:00Z": `"2026-11-29T10:00:00Z"`, "1764410400000": "1764410400000",
		`{"0":3}`: `{"0":3}`, "c1.AbC": `"c1.AbC"`, `{"0":`: `"{\"0\":"`,
	} {
		require.Equal(t, want, string(ParsePosition(in)), in)
	}
	require.Nil(t, ParsePosition(""))
	require.Nil(t, positionParam(nil))
	require.Equal(t, "latest", *positionParam(Latest))
	require.Equal(t, "17", *positionParam(ParsePosition("17")))
}
