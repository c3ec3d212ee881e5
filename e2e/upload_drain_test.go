package e2e

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An upload that is under way when the server drains is answered with what was written of it, and the server does not
// wait for its end.
func TestUploadAtDrain(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	tb := create(t, s, newDB(t, s), "t", "id BIGINT", "", 1)
	var body strings.Builder
	for i := range 12_000 {
		fmt.Fprintf(&body, "{\"id\":%d}\n", i)
	}
	r, w := io.Pipe()
	answered := make(chan answer, 1)
	go func() {
		a, err := s.send("POST", tb.path()+"/records", io.Reader(r), "Content-Type", mediaNDJSON)
		if err != nil {
			t.Errorf("the upload was cut off without an answer: %v", err)
		}
		answered <- a
	}()
	_, err := io.WriteString(w, body.String())
	require.NoError(t, err)
	require.Eventually(t, func() bool { return tb.count(t, "") == "10000" }, patience, 10*time.Millisecond)
	require.Equal(t, 0, s.drain(t))
	require.NotContains(t, s.log.String(), "requests broken off", "the drain waited for the end of the upload")
	a := <-answered
	a.problem(t, 503, "draining")
	require.Equal(t, "10000", fmt.Sprint(a.object(t)["accepted"]))
	s.restart(t)
	require.Equal(t, "10000", tb.count(t, ""))
}

// on_error=continue does not go past a number that a writer's batch could not take.
func TestContinueStopsAtARefusedNumber(t *testing.T) {
	t.Parallel()
	s := shared(t)
	tb := create(t, s, newDB(t, s), "t", "id BIGINT", "id", 1)
	send := func(seq string) answer {
		return s.do(t, "POST", tb.path()+"/records?on_error=continue", recordsBody(`[{"id":1}]`), "X-Writer-Id", "w", "X-Writer-Seq", seq)
	}
	require.Equal(t, 200, send("5").status)
	send("3").problem(t, 409, "out_of_order_sequence")
}
