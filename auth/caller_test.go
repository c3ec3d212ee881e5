package auth

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOff(t *testing.T) {
	p, err := Off{}.Authenticate(t.Context(), Shown{Authorization: []string{"Bearer x"}})
	require.NoError(t, err)
	require.Same(t, Anyone, p)
}

// What goes on ends when its caller's token does, and says why; others never end by it.
func TestUntilExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := UntilExpiry(With(t.Context(), NewPrincipal("ann", nil, time.Now().Add(time.Minute))), time.Now)
		defer cancel()
		time.Sleep(time.Minute - time.Millisecond)
		require.NoError(t, ctx.Err())
		<-ctx.Done()
		require.Equal(t, ErrExpired, context.Cause(ctx))
		for _, p := range []*Principal{nil, System, Anyone} {
			ctx, cancel := UntilExpiry(With(t.Context(), p), time.Now)
			time.Sleep(1000 * time.Hour)
			require.NoError(t, ctx.Err())
			cancel()
			require.Equal(t, context.Canceled, context.Cause(ctx))
		}
	})
}
