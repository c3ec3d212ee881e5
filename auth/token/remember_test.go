package token

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/auth"
)

// What is remembered is bounded, and what is in use stays.
func TestMemory(t *testing.T) {
	var m memory
	used := verified{auth.NewPrincipal("used", nil, time.Time{}), nil}
	m.put("used", used)
	for i := range 5 * maxRemembered {
		m.put(fmt.Sprint(i), verified{})
		if i%1000 == 0 {
			v, ok := m.get("used")
			require.True(t, ok, "after %d", i)
			require.Equal(t, used, v)
		}
		require.LessOrEqual(t, m.len(), maxRemembered)
	}
	_, ok := m.get("0")
	require.False(t, ok)
	_, ok = m.get(fmt.Sprint(5*maxRemembered - 1))
	require.True(t, ok)
	_, ok = m.get("never")
	require.False(t, ok)
}
