package auth

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// unnamed are groups among which are some that no grant can name.
func unnamed(groups ...string) []string {
	return append(groups, "a\u00a0b", "a\u2028b", "\ue000", "\U000e0fff", "a\nb", " a", "a\xff", "a\ufffd", strings.Repeat("a", 251), strings.Repeat("a", 9999))
}

func TestPrincipal(t *testing.T) {
	require.Nil(t, Of(t.Context()))
	p := NewPrincipal("ann", []string{"b", "a", "b"}, time.Time{})
	require.Equal(t, &Principal{Name: "user:ann", Groups: []string{"group:a", "group:b"}}, p)
	require.Equal(t, p, NewPrincipal("ann", unnamed("a", "b"), time.Time{}))
	require.Same(t, p, Of(With(t.Context(), p)))
	require.False(t, p.MayAll())
	require.False(t, NewPrincipal("system", nil, time.Time{}).MayAll(), "a name is not enough")
	require.True(t, System.MayAll())
	require.True(t, Anyone.MayAll())
	require.Equal(t, "user:ann", Scope(With(t.Context(), p)))
	require.Empty(t, Scope(With(t.Context(), Anyone)))
	require.Empty(t, Scope(t.Context()))
}
