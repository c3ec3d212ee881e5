package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
)

// A writer that numbers its batches may send any of its last ones again, also after kill -9: nothing is written twice,
// and the answer is that of the first time.
func TestWriterSequencesREST(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	tb := create(t, s, newDB(t, s), "t", "id BIGINT, v BIGINT", "", 2, obj{"bucket_key": []string{"id"}})
	send := func(seq, v int) string {
		a := s.do(t, "POST", tb.path()+"/records", recordsBody(fmt.Sprintf(`[{"id":1,"v":%d},{"id":2,"v":%d}]`, v, v)),
			"X-Writer-Id", "w", "X-Writer-Seq", fmt.Sprint(seq))
		require.Equal(t, 200, a.status, "%s", a.body)
		o := a.object(t)
		require.Equal(t, fmt.Sprint(seq), fmt.Sprint(o["last_seq"]))
		require.Equal(t, "2", fmt.Sprint(o["accepted"]))
		b, err := json.Marshal(o["offsets"])
		require.NoError(t, err)
		return string(b)
	}
	first := make([]string, 6)
	for seq := 1; seq <= 5; seq++ {
		first[seq] = send(seq, seq)
	}
	for seq := 5; seq >= 1; seq-- {
		require.Equal(t, first[seq], send(seq, seq), "a duplicate is answered with its first offsets")
	}
	s.kill()
	s.restart(t)
	for seq := 1; seq <= 5; seq++ {
		require.Equal(t, first[seq], send(seq, seq), "also after a crash")
	}
	send(9, 9) // numbers may have holes
	s.fails(t, 409, "out_of_order_sequence", "POST", tb.path()+"/records", recordsBody(`[{"id":1,"v":7}]`), "X-Writer-Id", "w", "X-Writer-Seq", "7")
	require.Equal(t, "12", tb.count(t, ""))
	s.ok(t, "POST", tb.path()+"/records", recordsBody(`[{"id":1,"v":1}]`), "X-Writer-Id", "other", "X-Writer-Seq", "1")
	require.Equal(t, "13", tb.count(t, ""), "another writer has its own numbers")
}

// A newer instance of a writer fences the older one, and the fence survives kill -9.
func TestWriterEpochFences(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	tb := create(t, s, newDB(t, s), "t", "id BIGINT", "id", 1)
	send := func(epoch, seq int) answer {
		return s.do(t, "POST", tb.path()+"/records", recordsBody(fmt.Sprintf(`[{"id":%d}]`, seq)),
			"X-Writer-Id", "w", "X-Writer-Epoch", fmt.Sprint(epoch), "X-Writer-Seq", fmt.Sprint(seq))
	}
	require.Equal(t, 200, send(1, 1).status)
	require.Equal(t, 200, send(2, 2).status)
	send(1, 3).problem(t, 409, "writer_fenced")
	s.kill()
	s.restart(t)
	send(1, 3).problem(t, 409, "writer_fenced")
	require.Equal(t, 200, send(2, 3).status)
	require.Equal(t, "3", tb.count(t, ""))
}

// A body of several chunks takes one number a chunk. Cut off in the middle by kill -9 and sent again with the same
// first number, every line is there once.
func TestWriterSequencesOfChunks(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	tb := create(t, s, newDB(t, s), "t", "id BIGINT", "", 1)
	var body strings.Builder
	for i := range 35_000 {
		fmt.Fprintf(&body, "{\"id\":%d}\n", i)
	}
	headers := []string{"Content-Type", mediaNDJSON, "X-Writer-Id", "loader", "X-Writer-Seq", "1"}
	r, w := io.Pipe()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		a, err := s.send("POST", tb.path()+"/records", io.Reader(r), headers...)
		if err == nil {
			t.Errorf("a body without an end was answered: %d %s", a.status, a.body)
		}
	}()
	_, err := io.WriteString(w, body.String()[:len(body.String())*2/3]) // 23,000 lines: two chunks and a part
	require.NoError(t, err)
	require.Eventually(t, func() bool { return tb.count(t, "") == "20000" }, patience, 10*time.Millisecond, "whole chunks are written as they come")
	s.kill()
	w.CloseWithError(io.ErrUnexpectedEOF)
	<-sent
	s.restart(t)
	require.Equal(t, "20000", tb.count(t, ""))
	o := s.ok(t, "POST", tb.path()+"/records", body.String(), headers...)
	require.Equal(t, "4", fmt.Sprint(o["last_seq"]), "35,000 lines are four chunks")
	require.Equal(t, "35000", fmt.Sprint(o["accepted"]))
	require.Equal(t, "35000", tb.count(t, ""))
	for i, c := range tb.allChanges(t, "earliest") {
		require.Equal(t, fmt.Sprintf(`+I %d {"id":%d}`, i, i), c.String())
	}
}

// DoPut with numbered batches: acknowledgements are cumulative, and after kill -9 the writer sends again from the
// lowest number without one; every row is there once.
func TestWriterSequencesDoPut(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	tb := create(t, s, newDB(t, s), "t", "id BIGINT", "", 1)
	schema := schemaOf("id long")
	const batches, rows = 60, 100
	acked := 0
	for round := 0; acked < batches; round++ {
		c := s.dial(t)
		p, err := c.put(within(t, patience), command(t, obj{"op": "put", "table": tb.full(), "writer_id": "w", "acks": "stream"}), schema)
		require.NoError(t, err)
		for seq := acked + 1; seq <= batches; seq++ {
			rec := longs("id", rows, func(i, _ int) int64 { return int64((seq-1)*rows + i) })
			if p.send(rec, fmt.Sprintf(`{"seq":%d}`, seq)) != nil {
				break // the stream is gone; the acknowledgements say how far it came
			}
			if round == 0 && seq == 20 {
				a, err := p.ack()
				require.NoError(t, err)
				require.Zero(t, a.AckRows, "the first message says the stream is ready: %s", a.raw)
				for a.AckSeq < 10 {
					a, err = p.ack()
					require.NoError(t, err)
					require.GreaterOrEqual(t, int(a.AckSeq), acked, "acknowledgements are cumulative")
					acked = int(a.AckSeq)
				}
				s.kill()
				break
			}
		}
		if round == 0 {
			c.close()
			s.restart(t)
			continue
		}
		last, err := p.finish()
		require.NoError(t, err)
		require.EqualValues(t, batches, last.AckSeq, last.raw)
		acked = int(last.AckSeq)
	}
	require.Equal(t, fmt.Sprint(batches*rows), tb.count(t, ""))
	_, got := s.dial(t).scan(t, pathOf(tb))
	require.Equal(t, ints(0, batches*rows), got)
}

// A numbered stream stops at its first failure: nothing after it is written.
func TestDoPutStopsAtFirstFailure(t *testing.T) {
	t.Parallel()
	s := shared(t)
	tb := create(t, s, newDB(t, s), "t", "id BIGINT, small TINYINT", "", 1)
	c := s.dial(t)
	p, err := c.put(within(t, patience), command(t, obj{"op": "put", "table": tb.full(), "writer_id": "w", "acks": "stream"}), schemaOf("id long, small long"))
	require.NoError(t, err)
	for seq, small := range []int64{1, 500, 1} {
		rec := longs("id,small", 1, func(_, col int) int64 { return []int64{int64(seq), small}[col] })
		if p.send(rec, fmt.Sprintf(`{"seq":%d}`, seq+1)) != nil {
			break
		}
	}
	_, err = p.finish()
	require.False(t, errors.Is(err, io.EOF))
	refused(t, err, codes.InvalidArgument, "value_out_of_range")
	_, got := c.scan(t, pathOf(tb))
	require.Equal(t, []string{"0|1"}, got)
}
