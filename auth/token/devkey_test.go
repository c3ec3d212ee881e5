package token_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/auth"
	"github.com/millrace/millrace/auth/token"
	"github.com/millrace/millrace/errs"
)

func newDevVerifier(t *testing.T, path string, c *clock) (*token.Verifier, error) {
	t.Helper()
	v, err := token.New(t.Context(), token.Options{
		Source: token.Dev(path), Issuer: token.DevIssuer, Audience: token.DevAudience, GroupsClaim: "groups",
		Clock: c, Logger: quiet, Registerer: newRegistry(),
	})
	if err == nil {
		t.Cleanup(v.Close)
	}
	return v, err
}

// The key is made once, for its owner alone, and what it signs is taken.
func TestDevKey(t *testing.T) {
	dir := t.TempDir()
	path := token.DevKeyPath(dir)
	_, err := token.OpenDevKey(path)
	require.ErrorContains(t, err, "a server makes it at its first start")
	require.NoError(t, token.MakeDevKey(path))
	first, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, token.MakeDevKey(path))
	second, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, first, second)
	for p, mode := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		info, err := os.Stat(p)
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode().Perm(), p)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, entries, 1)

	k, err := token.OpenDevKey(path)
	require.NoError(t, err)
	c := newClock()
	v, err := newDevVerifier(t, path, c)
	require.NoError(t, err)
	text, err := k.Sign("ann", []string{"ops", "dev"}, c.Now(), time.Hour)
	require.NoError(t, err)
	p, err := v.Authenticate(t.Context(), bearer(text))
	require.NoError(t, err)
	require.Equal(t, auth.NewPrincipal("ann", []string{"dev", "ops"}, p.Expires), p)
	require.True(t, p.Expires.Equal(c.Now().Add(time.Hour)))
	_, err = k.Sign("ann", nil, c.Now(), 24*time.Hour)
	require.NoError(t, err)
	for _, bad := range []func() (string, error){
		func() (string, error) { return k.Sign("ann", nil, c.Now(), 25*time.Hour) },
		func() (string, error) { return k.Sign("ann", nil, c.Now(), 0) },
		func() (string, error) { return k.Sign("", nil, c.Now(), time.Hour) },
		func() (string, error) { return k.Sign("a\nb", nil, c.Now(), time.Hour) },
		func() (string, error) { return k.Sign("ann", []string{""}, c.Now(), time.Hour) },
	} {
		_, err := bad()
		require.True(t, errs.Is(err, errs.InvalidValue))
	}
}

// A key that others can read, or that is none, is refused in words that tell what to do, and
// that do not give it away; while a server runs, it keeps the one it has.
func TestDevKeyThatOthersRead(t *testing.T) {
	path := token.DevKeyPath(t.TempDir())
	require.NoError(t, token.MakeDevKey(path))
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	secret := string(content)[strings.Index(string(content), `"d":"`)+5:][:43]
	c := newClock()
	v, err := newDevVerifier(t, path, c)
	require.NoError(t, err)
	k, err := token.OpenDevKey(path)
	require.NoError(t, err)
	for _, mode := range []os.FileMode{0o604, 0o640, 0o644, 0o620, 0o602, 0o666, 0o610} {
		require.NoError(t, os.Chmod(path, mode))
		_, err := token.OpenDevKey(path)
		require.ErrorContains(t, err, "chmod 600")
		_, err = newDevVerifier(t, path, c)
		require.ErrorContains(t, err, "chmod 600")
	}
	c.advance(time.Minute)
	text, err := k.Sign("ann", nil, c.Now(), time.Hour)
	require.NoError(t, err)
	_, err = v.Authenticate(t.Context(), bearer(text))
	require.NoError(t, err)
	require.NoError(t, os.Chmod(path, 0o600))
	for _, bad := range []string{"", "{}", secret, `{"d":"` + secret + `"`, `{"kty":"OKP","crv":"Ed25519","kid":"x","d":"AAAA"}`, `["` + secret + `"]`} {
		require.NoError(t, os.WriteFile(path, []byte(bad), 0o600))
		_, err := token.OpenDevKey(path)
		require.ErrorContains(t, err, "not a development key")
		require.NotContains(t, err.Error(), secret)
	}
}
