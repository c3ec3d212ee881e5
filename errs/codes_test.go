package errs

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The table equals a golden list, so that no code is renamed, removed or moved to another status in silence (E1).
// A new code is appended to the list by hand.
func TestCodesAreGolden(t *testing.T) {
	var b strings.Builder
	for _, k := range Kinds() {
		again := "no"
		if k.Retry {
			again = "yes"
		}
		fmt.Fprintf(&b, "%s %d %d %s\n", k.Code, k.HTTP, k.GRPC, again)
	}
	want, err := os.ReadFile(filepath.Join("testdata", "codes.golden"))
	require.NoError(t, err)
	require.Equal(t, string(want), b.String())
}

// Every code has a row, a title that is a sentence, a status that is an error, and a retry hint only where retrying helps.
func TestKindsAreWellFormed(t *testing.T) {
	seen := map[Code]bool{}
	for _, k := range Kinds() {
		require.False(t, seen[k.Code], "%s stands twice", k.Code)
		seen[k.Code] = true
		require.Equal(t, k, KindOf(k.Code))
		require.NotEmpty(t, http.StatusText(k.HTTP), k.Code)
		require.GreaterOrEqual(t, k.HTTP, 400, k.Code)
		require.True(t, k.GRPC >= 1 && k.GRPC <= 16, k.Code)
		require.NotEmpty(t, k.Title, k.Code)
		require.NotContains(t, k.Title, ".", k.Code)
		require.True(t, k.Retry || k.RetryAfterSeconds == 0, k.Code)
		if k.HTTP == http.StatusTooManyRequests || k.HTTP == http.StatusServiceUnavailable {
			require.Positive(t, k.RetryAfterSeconds, k.Code)
		}
	}
	require.Equal(t, KindOf(Internal), KindOf("no_such_code"))
}

// The code of a chain is that of its outermost Error; without one it is internal (E2).
func TestCodeOf(t *testing.T) {
	cause := New(TableNotFound, "there is no table %q", "a")
	require.Equal(t, TableNotFound, CodeOf(cause))
	require.Equal(t, TableNotFound, CodeOf(fmt.Errorf("scan: %w", cause)))
	require.Equal(t, Unavailable, CodeOf(Wrap(Unavailable, "router.Scan", cause)))
	require.Equal(t, Internal, CodeOf(errors.New("disk on fire")))
	require.Equal(t, Code(""), CodeOf(nil))
	require.True(t, Is(cause, TableNotFound))
	require.False(t, Is(nil, Internal))
	require.NoError(t, Wrap(Internal, "op", nil))
}

// The text of an error reads from the operation to the cause, and falls back to the title.
func TestErrorText(t *testing.T) {
	require.Equal(t, `there is no table "a"`, New(TableNotFound, "there is no table %q", "a").Error())
	require.Equal(t, "segment.Seal: Stored data is damaged: bad magic", Wrap(CorruptData, "segment.Seal", errors.New("bad magic")).Error())
	require.Equal(t, "No such table", (&Error{Code: TableNotFound}).Error())
	err := Row(NullNotAllowed, 3, "id", "NULL in a key column")
	require.Equal(t, `row 3, field "id": NULL in a key column`, err.Error())
	require.Equal(t, int64(3), *err.Fields[0].Index)
	require.Equal(t, "row 0: not an object", Row(TypeMismatch, 0, "", "not an object").Error())
	require.Equal(t, map[string]any{"accepted": 2}, New(InvalidValue, "x").With("accepted", 2).Extra)
	wrapped := Wrap(Internal, "x", os.ErrNotExist)
	require.ErrorIs(t, wrapped, os.ErrNotExist)
}
