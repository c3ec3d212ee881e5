package client

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// Blocks are read as the standard has it: fields in any order, data over several lines, comments and unknown fields left out, a block
// that is cut off dropped, and however the bytes arrive.
func TestEvents(t *testing.T) {
	const text = ": hello\n\nid: c1\n\nevent:insert\ndata: a\ndata:b\nother: x\nid\n\nretry: 20\nretry: soon\n\ndata: cut off\n"
	for _, r := range []io.Reader{bytes.NewReader([]byte(text)), iotest.OneByteReader(bytes.NewReader([]byte(text)))} {
		in := newEvents(r)
		ev, err := in.next()
		require.NoError(t, err)
		require.Equal(t, event{id: "c1", hasID: true}, ev)
		ev, err = in.next()
		require.NoError(t, err)
		require.Equal(t, event{kind: "insert", id: "", hasID: true, data: []byte("a\nb")}, ev)
		_, err = in.next()
		require.ErrorIs(t, err, io.EOF)
		require.Equal(t, int64(20), in.retry.Milliseconds())
	}
}

// No bytes make the reader of events panic, loop, or give an event longer than what came.
func FuzzEvents(f *testing.F) {
	f.Add([]byte(hello + block("c1.a", "+I", 0) + block("", "-U", 1)))
	f.Add([]byte("data\ndata:\n\n\x00:\r\n\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		in := newEvents(bytes.NewReader(text))
		total := 0
		for {
			ev, err := in.next()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			total += len(ev.data)
			if ev.data != nil {
				_, _ = parseChange(ev.data) // an error, at most
			}
		}
		require.LessOrEqual(t, total, len(text))
	})
}
