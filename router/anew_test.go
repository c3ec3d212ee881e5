package router_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/router"
)

// A read is begun anew when its snapshot is gone, a few times, and for no other reason.
func TestAnew(t *testing.T) {
	gone, other := errs.New(errs.SnapshotGone, "gone"), errors.New("other")
	read := func(ctx context.Context, outcomes ...error) (tries int, err error) {
		err = router.Anew(ctx, func() error {
			tries++
			return outcomes[min(tries, len(outcomes))-1]
		})
		return tries, err
	}
	tries, err := read(t.Context(), gone, gone, nil)
	require.NoError(t, err)
	require.Equal(t, 3, tries)
	tries, err = read(t.Context(), gone)
	require.Equal(t, errs.SnapshotGone, errs.CodeOf(err))
	require.Equal(t, 4, tries)
	tries, err = read(t.Context(), other, nil)
	require.ErrorIs(t, err, other)
	require.Equal(t, 1, tries)
	ended, end := context.WithCancel(t.Context())
	end()
	tries, err = read(ended, gone, nil)
	require.Error(t, err)
	require.Equal(t, 1, tries)
}
