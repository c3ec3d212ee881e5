package router

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is packed unpacks to itself, and what has many buckets becomes much shorter.
func TestPack(t *testing.T) {
	noise := make([]byte, 5000)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	for _, b := range [][]byte{[]byte(`{}`), []byte(`{"a":"` + strings.Repeat("x", 5000) + `"}`), append([]byte("{"), noise...)} {
		got, err := unpack(pack(b))
		require.NoError(t, err)
		require.True(t, bytes.Equal(b, got))
	}
	require.Less(t, len(pack([]byte(`{"b":[`+strings.Repeat(`{"b":17,"s":123456,"e":234567},`, 4096)+`{}]}`))), 4<<10)
	_, err := unpack([]byte("z no deflate"))
	require.Error(t, err)
	got, err := unpack(nil)
	require.NoError(t, err)
	require.Empty(t, got)
	bomb := pack([]byte(`{"` + strings.Repeat("x", maxUnpacked+1) + `"}`))
	_, err = unpack(bomb)
	require.Error(t, err)
}
