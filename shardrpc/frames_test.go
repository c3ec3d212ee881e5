package shardrpc

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/storage/segment"
)

func someFrames() []*router.Frame {
	stats := router.Stats{RowsRead: 1, RowsSkipped: 1 << 40, BytesRead: 3, BytesSkipped: 4, LakeFiles: 5}
	place := router.Place{Lake: true, Overlay: true, State: true, File: 6, Row: 7, Tail: 8, After: []byte("key"), Start: 1 << 60}
	message := func(rows int) *segment.Message {
		return &segment.Message{Header: bytes.Repeat([]byte{1}, 200), Body: bytes.Repeat([]byte{2}, 3<<20), Rows: rows, Codec: segment.LZ4}
	}
	return []*router.Frame{
		{Part: 3, Place: place, Stats: stats},
		{Idle: true},
		{End: true, More: true},
		{
			Part: 1, Kind: router.LogRows, Rows: 5, Base: 10, Next: 99, High: 1 << 50, Micros: -3, Place: router.Place{Start: 99}, Message: message(5),
			At: []router.Run{{First: 10, Rows: 3}, {First: 4, Rows: 2}}, Times: []router.Run{{First: -3, Rows: 5}},
			Changes: []millrace.ChangeType{millrace.Insert, millrace.UpdateBefore, millrace.UpdateAfter, millrace.Delete, millrace.Insert},
		},
		{Kind: router.StateRows, Rows: 2, Base: millrace.NoOffset, Message: message(2), Keys: []byte("abcde"), Ends: []int{0, 5}, Place: router.Place{State: true, After: []byte{}}},
		{Kind: router.LakeRows, Rows: 2, Base: millrace.NoOffset, Message: message(2), At: []router.Run{{First: 1 << 40, Rows: 2}}},
	}
}

// Frames arrive as they were, with beats in between; then what ended the stream, with the
// part that it is of.
func TestFramesRoundTrip(t *testing.T) {
	var b bytes.Buffer
	w := frameWriter{w: &b}
	for _, f := range someFrames() {
		require.NoError(t, w.beat())
		require.NoError(t, w.frame(f))
	}
	require.NoError(t, w.failure(4, errs.New(errs.SnapshotGone, "it is gone")))
	whole := b.Bytes()
	r := &frameReader{r: bytes.NewReader(whole), alive: func() {}, close: func() error { return nil }}
	for _, want := range someFrames() {
		got, err := r.Next()
		require.NoError(t, err)
		if got.Keys != nil && len(got.Keys) == 0 {
			got.Keys = nil
		}
		require.Equal(t, want, got)
	}
	_, err := r.Next()
	require.True(t, errs.Is(err, errs.SnapshotGone))
	part, _ := router.FarPart(err, 9)
	require.Equal(t, 4, part)

	// Wherever it breaks off, it can be asked for again, and nothing is given in part.
	for _, n := range []int{0, 1, 3, 5, 40, len(whole) / 2, len(whole) - 1} {
		r := &frameReader{r: bytes.NewReader(whole[:n]), alive: func() {}, close: func() error { return nil }}
		for err = nil; err == nil; {
			_, err = r.Next()
		}
		require.True(t, errs.Is(err, errs.NotOwner), "%d: %v", n, err)
	}
}

// No bytes make who reads a stream panic, or allocate more than a multiple of what came.
func FuzzFrames(f *testing.F) {
	var b bytes.Buffer
	w := frameWriter{w: &b}
	for _, fr := range someFrames() {
		if fr.Message != nil {
			fr.Message.Body = fr.Message.Body[:64]
		}
		require.NoError(f, w.frame(fr))
	}
	f.Add(b.Bytes())
	f.Fuzz(func(_ *testing.T, b []byte) {
		r := &frameReader{r: bytes.NewReader(b), alive: func() {}, close: func() error { return nil }}
		for {
			if _, err := r.Next(); err != nil {
				return
			}
		}
	})
}

var _ io.Reader = (*watched)(nil)
