package auth

import (
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

// A caller's time ends when his token does; others have no end.
func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		expired, stop := Expiry(With(t.Context(), NewPrincipal("ann", nil, began.Add(time.Minute))), time.Now)
		<-expired
		require.Equal(t, time.Minute, time.Since(began))
		stop()
		for _, p := range []*Principal{nil, System, Anyone} {
			expired, stop := Expiry(With(t.Context(), p), time.Now)
			require.Nil(t, expired)
			stop()
		}
		expired, stop = Expiry(With(t.Context(), NewPrincipal("ann", nil, began)), time.Now)
		<-expired
		stop()
	})
}
