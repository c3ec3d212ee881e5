package shardrpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/errs"
)

func across(t *testing.T, err error) error {
	d := &decoder{b: appendFailure(nil, err)}
	got := d.failure()
	require.NoError(t, d.end())
	return got
}

// Every code of the table comes across with its message, fields and further members, and
// what was said around it (P2).
func TestFailureRoundTrip(t *testing.T) {
	for _, k := range errs.Kinds() {
		e := errs.Row(k.Code, 1<<53+1, "v", "this is %s", k.Code).With("offsets", map[string]any{"0": map[string]int64{"start": 1<<60 + 1}})
		for _, err := range []error{
			e, fmt.Errorf("router.Scan: %w", e), errs.New(k.Code, "plain"),
			errs.Wrap(k.Code, "segment.Read", errors.New("bad sector")), &errs.Error{Code: k.Code},
		} {
			got := across(t, err)
			require.Equal(t, err.Error(), got.Error())
			require.Equal(t, k.Code, errs.CodeOf(got))
			want, _ := errors.AsType[*errs.Error](err)
			is, ok := errors.AsType[*errs.Error](got)
			require.True(t, ok)
			require.Equal(t, want.Message, is.Message)
			require.Equal(t, want.Op, is.Op)
			require.Equal(t, want.Fields, is.Fields)
			a, _ := json.Marshal(want.Extra)
			b, _ := json.Marshal(is.Extra)
			require.Equal(t, string(a), string(b))
		}
	}
	require.ErrorIs(t, across(t, fmt.Errorf("x: %w", context.DeadlineExceeded)), context.DeadlineExceeded)
	require.True(t, errs.Is(across(t, context.Canceled), errs.NotOwner), "the process that ended is no owner any more")
	foreign := across(t, errors.New("disk on fire"))
	require.True(t, errs.Is(foreign, errs.Internal))
	require.ErrorContains(t, foreign, "disk on fire")
}
