package subject

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTaken(t *testing.T) {
	var came taken
	told := func(from caller, n uint64) (fate, string) {
		f, a := came.ask(from, n)
		return f, string(a)
	}
	is := func(want fate, answer string) func(fate, string) {
		return func(f fate, a string) {
			t.Helper()
			require.Equal(t, want, f)
			require.Equal(t, answer, a)
		}
	}

	require.True(t, came.begin(1, 1))
	require.False(t, came.begin(1, 1), "it has come before")
	is(fateUnderWay, "")(told(1, 1))
	came.end(1, 1, []byte("done"))
	is(fateAnswered, "done")(told(1, 1))

	is(fateNever, "")(told(1, 2))
	require.False(t, came.begin(1, 2), "its caller was told that it did not come")
	is(fateNever, "")(told(1, 2))
	is(fateNever, "")(told(2, 1))
	require.False(t, came.begin(2, 1))
	require.True(t, came.begin(2, 2))

	require.True(t, came.begin(1, 3))
	came.end(1, 3, []byte(strings.Repeat("x", maxKept+1)))
	is(fateUnknown, "")(told(1, 3))
	require.False(t, came.begin(1, 3))
}

// What was forgotten is not said to have never come.
func TestTakenForgets(t *testing.T) {
	var came taken
	for n := uint64(1); n <= maxTaken+10; n++ {
		require.True(t, came.begin(1, n))
		came.end(1, n, []byte("x"))
	}
	for n := uint64(1); n <= maxTaken+10; n++ {
		want := fateAnswered
		if n <= 10 {
			want = fateUnknown
		}
		got, _ := came.ask(1, n)
		require.Equal(t, want, got, n)
	}
	require.False(t, came.begin(1, 5))
	require.Len(t, came.of[1].calls, maxTaken)

	for from := caller(2); from <= maxCallers+1; from++ {
		require.True(t, came.begin(from, 1))
	}
	got, _ := came.ask(1, 3)
	require.Equal(t, fateUnknown, got, "caller 1, who has sent nothing for longest, made room")
	require.Len(t, came.of, maxCallers)
}
