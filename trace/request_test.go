package trace

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/errs"
)

// Every line that is logged with a request's context carries its id, once, whatever the
// logger was given before; others have none.
func TestLinesCarryTheRequest(t *testing.T) {
	var b bytes.Buffer
	log := slog.New(NewHandler(slog.NewTextHandler(&b, nil)))
	ctx, _ := With(t.Context(), "r-1")
	log.InfoContext(ctx, "one")
	log.With(slog.Int("shard", 3)).WarnContext(context.WithoutCancel(ctx), "two")
	log.Info("none")
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	require.Len(t, lines, 3)
	require.Contains(t, lines[0], "request_id=r-1")
	require.Contains(t, lines[1], "shard=3")
	require.Equal(t, 1, strings.Count(lines[1], "request_id=r-1"))
	require.NotContains(t, lines[2], "request_id")
}

// What another process tells of a request makes it known here; what could not stand in a
// log does not, and a bad id of a caller is replaced.
func TestRequestGoesAlong(t *testing.T) {
	ctx, _ := With(t.Context(), "r-1")
	h := http.Header{}
	Inject(ctx, h.Set)
	require.Equal(t, "r-1", ID(Extract(t.Context(), h.Get)))
	for _, bad := range []string{"", "a b", "a\nb", `a"b`, "ä", strings.Repeat("x", maxID+1)} {
		h.Set(HeaderRequestID, bad)
		require.Empty(t, ID(Extract(t.Context(), h.Get)), "%q", bad)
		require.Len(t, RequestID(bad), 36, "%q", bad)
	}
	require.Equal(t, "abc-1", RequestID("abc-1"))
	Inject(t.Context(), func(string, string) { t.Error("there is no request") })
}

// The code that the caller was told last is the request's; without a request nothing is noted.
func TestFailure(t *testing.T) {
	ctx, r := With(t.Context(), "r-1")
	require.Empty(t, r.Failure())
	Of(ctx).Fail(errs.NotOwner)
	Of(ctx).Fail(errs.CodeOf(errors.New("x")))
	require.Equal(t, errs.Internal, r.Failure())
	Of(t.Context()).Fail(errs.Internal)
	require.Empty(t, Of(t.Context()).Failure())
}
