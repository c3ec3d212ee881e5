package main

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/openapi"
)

func contextOf(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithCancel(t.Context())
}

// Numbers and sizes read as people write them.
func TestWords(t *testing.T) {
	require.Equal(t, []string{"0", "999", "1,000", "12,345,678", "-5"}, []string{grouped(0), grouped(999), grouped(1000), grouped(12345678), grouped(-5)})
	require.Equal(t, []string{"1 row", "0 rows", "1,000 rows"}, []string{plural(1, "row"), plural(0, "row"), plural(1000, "row")})
	require.Equal(t, []string{"1023 B", "1.0 KiB", "1.5 MiB", "3.0 TiB"}, []string{byteSize(1023), byteSize(1024), byteSize(3 << 19), byteSize(3 << 40)})
	require.Equal(t, []string{"0", "2", "10", "dt=a/1", "dt=b/0"}, sortedBuckets(openapi.Offsets{"10": 1, "2": 1, "0": 1, "dt=b/0": 1, "dt=a/1": 1}))
}

// A --column is a name, a type and whether NULL may stand in it; the type is checked and written out.
func TestParseColumn(t *testing.T) {
	for in, want := range map[string]openapi.NewColumn{
		"id BIGINT":                       {Name: "id", Type: "BIGINT"},
		"  a  decimal(10, 2)  not null ":  {Name: "a", Type: "DECIMAL(10,2)", Nullable: new(false)},
		"r ROW<x INT NOT NULL, y STRING>": {Name: "r", Type: "ROW<x INT NOT NULL, y STRING>"},
		"t timestamp":                     {Name: "t", Type: "TIMESTAMP(6)"},
	} {
		got, err := parseColumn(in)
		require.NoError(t, err, in)
		require.Equal(t, want, got, in)
	}
	for _, bad := range []string{"", "id", "id NOPE", "id INT NULL", "id NOT NULL"} {
		_, err := parseColumn(bad)
		_, isUsage := errors.AsType[usageError](err)
		require.True(t, isUsage, "%q: %v", bad, err)
	}
}

// Every error with a hint says what to do in a few words, and the words are no sentence.
func TestHints(t *testing.T) {
	for code, hint := range hints {
		require.Equal(t, code, errs.KindOf(code).Code)
		require.NotRegexp(t, `^[A-Z]|\.$`, hint)
	}
	require.Equal(t, "report it with request id r7", hintFor(errs.New(errs.Internal, "x").With("request_id", "r7")))
}
