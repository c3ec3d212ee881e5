package client

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/openapi"
)

// A problem becomes an error with its code, detail, fields and further members.
func TestProblem(t *testing.T) {
	_, c := newFake(t, problem(422, "null_not_allowed", "row 3 has NULL", map[string]any{
		"errors":   []map[string]any{{"index": 3, "field": "id", "code": "null_not_allowed", "message": "NULL in a key column"}},
		"accepted": 2, "rejected": 1, "offsets": map[string]any{"0": map[string]any{"start": 1, "end": 3}},
		"buckets": map[string]any{"0": "accepted", "1": "unknown"}, "last_seq": 9,
	}))
	_, err := table(t, c, "a.b").Write(t.Context(), []any{map[string]any{"id": 1}}, WriteOptions{})
	e, ok := asErr(err)
	require.True(t, ok)
	require.Equal(t, errs.NullNotAllowed, e.Code)
	require.Equal(t, "row 3 has NULL", e.Message)
	require.Equal(t, int64(3), *e.Fields[0].Index)
	require.Equal(t, "id", e.Fields[0].Field)
	require.Equal(t, "r1", e.Extra["request_id"])
	r, ok := PartialResult(err)
	require.True(t, ok)
	require.Equal(t, WriteResult{
		Accepted: 2, Rejected: 1, LastSeq: 9, Errors: e.Fields,
		Offsets: openapi.OffsetRanges{"0": {Start: 1, End: 3}}, Buckets: openapi.BucketOutcomes{"0": "accepted", "1": "unknown"},
	}, r)
}

// A problem without such members has none, a code of the future keeps its name, and an error without detail has its title.
func TestProblemWithLess(t *testing.T) {
	_, c := newFake(t, problem(422, "code_of_the_future", "", nil))
	_, err := c.Info(t.Context())
	e, ok := asErr(err)
	require.True(t, ok)
	require.Equal(t, errs.Code("code_of_the_future"), e.Code)
	require.Equal(t, "T", e.Message)
	require.NotContains(t, e.Extra, "accepted")
	_, ok = PartialResult(err)
	require.False(t, ok)
}

// What is no problem+json, such as a proxy's page, gets a code from its status and shows its first line.
func TestForeignErrors(t *testing.T) {
	for status, code := range map[int]errs.Code{
		401: errs.Unauthenticated, 403: errs.PermissionDenied, 404: errs.RouteNotFound, 413: errs.TooLarge,
		418: errs.InvalidRequest, 500: errs.Internal,
	} {
		_, c := newFake(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<h1>gateway</h1>\nmore", status) })
		_, err := c.Info(t.Context())
		require.Equal(t, code, errs.CodeOf(err))
		require.Contains(t, err.Error(), "<h1>gateway</h1>")
		require.NotContains(t, err.Error(), "more")
	}
}

// An answer that is cut off or no JSON is an error.
func TestBrokenAnswer(t *testing.T) {
	for _, h := range []http.HandlerFunc{cut(mediaJSON, `{"version":"1`), answer(200, "<html>")} {
		_, c := newFake(t, h)
		_, err := c.Info(t.Context())
		require.True(t, errs.Is(err, errs.Unavailable), "%v", err)
	}
}
