package trace_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/trace"
)

// Of a panic nothing is told that may be a caller's.
func TestPanicText(t *testing.T) {
	caught := func(f func()) (text string) {
		defer func() { text = trace.PanicText(recover()) }()
		f()
		return ""
	}
	var none []int
	require.Equal(t, "runtime error: index out of range [3] with length 0", caught(func() { _ = none[len(t.Name())-10] }))
	require.Equal(t, "interface conversion: interface {} is string, not int", caught(func() { _ = any("secret").(int) }))
	require.Equal(t, "a value of type string", caught(func() { panic("secret") }))
	require.Equal(t, "a value of type *errors.errorString", caught(func() { panic(errors.New("secret")) }))
}
