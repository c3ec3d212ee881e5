package server

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/tier"
)

// A failpoint strikes at its step, once, at the time that it names; what cannot be one
// is refused.
func TestFailpoint(t *testing.T) {
	hook, err := failpoint("")
	require.NoError(t, err)
	require.Nil(t, hook)

	hook, err = failpoint("tier.read:fail:2")
	require.NoError(t, err)
	require.NoError(t, hook(tier.StepRead))
	require.NoError(t, hook(tier.StepBegun))
	require.True(t, errs.Is(hook(tier.StepRead), errs.Unavailable))
	require.NoError(t, hook(tier.StepRead))

	for _, bad := range []string{"x", "tier.read", "tier.nowhere:kill", "tier.read:explode", "tier.read:fail:x", "read:kill"} {
		_, err := failpoint(bad)
		require.True(t, errs.Is(err, errs.InvalidValue), bad)
	}
}
