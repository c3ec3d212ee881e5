package rest

import (
	"bytes"
	"io"
	"net/http/httptest"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/errs"
)

// A body of zstd that wants a window of more than 8 MiB, for which that much memory would be
// taken, is refused.
func TestZstdWindow(t *testing.T) {
	for window, code := range map[int]errs.Code{8 << 20: "", 16 << 20: errs.InvalidRequest} {
		var compressed bytes.Buffer
		z, err := zstd.NewWriter(&compressed, zstd.WithWindowSize(window), zstd.WithEncoderConcurrency(1))
		require.NoError(t, err)
		_, err = z.Write(bytes.Repeat([]byte("a row "), 200_000)) // more than a block, so that the frame says its window
		require.NoError(t, err)
		require.NoError(t, z.Close())
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/", &compressed)
		r.Header.Set("Content-Encoding", "zstd")
		b, err := wholeBody(r)
		if err == nil {
			_, err = io.Copy(io.Discard, b)
			require.NoError(t, b.Close())
			if err != nil {
				err = bodyError(err)
			}
		}
		require.Equal(t, code, errs.CodeOf(err), "%d: %v", window, err)
	}
}

// Bodies of zstd, each of which may want 8 MiB for nothing, are so many at a time; one more is
// refused after a while, and finds its place when another is closed, once.
func TestZstdBodies(t *testing.T) {
	var compressed bytes.Buffer
	z, err := zstd.NewWriter(&compressed)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	open := func() (func() error, error) {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/", bytes.NewReader(compressed.Bytes()))
		r.Header.Set("Content-Encoding", "zstd")
		b, err := wholeBody(r)
		if err != nil {
			return nil, err
		}
		return b.Close, nil
	}
	var closes []func() error
	for range maxZstdBodies {
		c, err := open()
		require.NoError(t, err)
		closes = append(closes, c)
	}
	_, err = open()
	require.Equal(t, errs.Overloaded, errs.CodeOf(err))
	require.NoError(t, closes[0]())
	require.NoError(t, closes[0]())
	last, err := open()
	require.NoError(t, err)
	_, err = open()
	require.Equal(t, errs.Overloaded, errs.CodeOf(err))
	for _, c := range append(closes, last) {
		require.NoError(t, c())
	}
}
