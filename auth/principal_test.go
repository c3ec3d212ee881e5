package auth

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPrincipal(t *testing.T) {
	require.Nil(t, Of(t.Context()))
	p := NewPrincipal("ann", []string{"b", "a", "b"}, time.Time{})
	require.Equal(t, &Principal{Name: "user:ann", Groups: []string{"group:a", "group:b"}}, p)
	require.Same(t, p, Of(With(t.Context(), p)))
	require.False(t, p.MayAll())
	require.False(t, NewPrincipal("system", nil, time.Time{}).MayAll(), "a name is not enough")
	require.True(t, System.MayAll())
	require.True(t, Anyone.MayAll())
	require.Equal(t, "user:ann", Scope(With(t.Context(), p)))
	require.Empty(t, Scope(With(t.Context(), Anyone)))
	require.Empty(t, Scope(t.Context()))
}
