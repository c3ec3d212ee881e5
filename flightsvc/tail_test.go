package flightsvc_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/millrace/millrace/errs"
)

// A tail sends where each bucket stands at once, then rows as they come, each once
// and in order, then heartbeats; its places are where another tail goes on.
func TestTail(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	f.table("t", false, 3)
	f.mustWrite(c, pathOf("d.t"), rows(0, 30, "a"))
	r, err := f.open(c, jsonOf(obj{"op": "scan", "table": "d.t", "from": "earliest", "until": "never", "heartbeat_ms": 100}))
	require.NoError(t, err)
	next := map[string]int64{}
	for i := range 3 {
		g := r.must()
		require.Zero(t, g.rec.NumRows())
		require.Equal(t, i, *g.meta.Bucket)
		require.Zero(t, *g.meta.Next)
		require.Nil(t, g.meta.Base)
		next[fmt.Sprint(i)] = 0
	}
	seen := map[string]bool{}
	read := func(upTo int) {
		for len(seen) < upTo {
			g := r.must()
			key := fmt.Sprint(*g.meta.Bucket)
			if g.rec.NumRows() > 0 {
				require.Equal(t, next[key], *g.meta.Base)
				require.WithinDuration(t, time.Now(), time.UnixMilli(*g.meta.TS), time.Minute)
			}
			next[key] = *g.meta.Next
			for _, row := range texts(t, g.rec) {
				require.False(t, seen[row])
				seen[row] = true
			}
		}
	}
	read(30)
	for i := 30; i < 60; i += 10 {
		f.mustWrite(c, pathOf("d.t"), rows(i, i+10, "a"))
		read(i + 10)
	}
	for range 3 {
		require.Zero(t, r.must().rec.NumRows(), "signs of life")
	}
	r.cancel()

	f.mustWrite(c, pathOf("d.t"), rows(60, 70, "a"))
	r, err = f.open(c, jsonOf(obj{"op": "scan", "table": "d.t", "from": next, "until": "never", "heartbeat_ms": 100}))
	require.NoError(t, err)
	for range 3 {
		g := r.must()
		require.Equal(t, next[fmt.Sprint(*g.meta.Bucket)], *g.meta.Next)
	}
	read(70)
}

// A tail without a position begins now; a limit ends it.
func TestTailFromNowToALimit(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	f.table("t", false, 1)
	f.mustWrite(c, pathOf("d.t"), rows(0, 10, "a"))
	r, err := f.open(c, jsonOf(obj{"table": "d.t", "until": "never", "limit": 3, "heartbeat_ms": 60_000}))
	require.NoError(t, err)
	require.EqualValues(t, 10, *r.must().meta.Next)
	f.mustWrite(c, pathOf("d.t"), rows(10, 12, "a"), rows(12, 14, "a"))
	got, last := r.drain()
	require.Len(t, got, 3)
	require.EqualValues(t, 3, last.Stats.RowsShipped)
}

// `full` gives the keyed state, says that it does, and goes on with the changelog
// from exactly where that stands.
func TestTailFromFull(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	f.table("t", true, 1)
	f.mustWrite(c, pathOf("d.t"), rows(0, 3, "a"))
	f.mustWrite(c, pathOf("d.t"), rows(0, 1, "b"))
	info, err := c.GetFlightInfo(f.ctx(), commandOf(obj{"op": "scan", "table": "d.t$changelog", "from": "full", "until": "never", "heartbeat_ms": 100}))
	require.NoError(t, err)
	require.Contains(t, string(info.Endpoint[0].AppMetadata), `"start":null,"end":null`)
	r, err := f.open(c, info.Endpoint[0].Ticket.Ticket)
	require.NoError(t, err)
	g := r.must()
	require.True(t, g.meta.State, "the state is to come")
	var got []string
	next := int64(-1)
	wrote := false
	for len(got) < 5 {
		g := r.must()
		if g.meta.Base != nil && g.rec.NumRows() > 0 {
			require.Equal(t, next, *g.meta.Base)
		}
		next = *g.meta.Next
		for _, text := range texts(t, g.rec) {
			var row struct {
				Type   string `json:"_change_type"`
				Offset *int   `json:"_log_offset"`
				V      string
			}
			require.NoError(t, json.Unmarshal([]byte(text), &row))
			off := "null"
			if row.Offset != nil {
				off = fmt.Sprint(*row.Offset)
			}
			got = append(got, fmt.Sprintf("%s %s %s", row.Type, off, row.V))
		}
		if len(got) == 3 && !g.meta.State && !wrote {
			require.Zero(t, g.rec.NumRows(), "a heartbeat says that the state is read")
			wrote = true
			f.mustWrite(c, pathOf("d.t"), rows(1, 2, "c"))
		}
	}
	require.Equal(t, []string{"+I null b0", "+I null a1", "+I null a2", "-U 5 a1", "+U 6 c1"}, got)
}

// Each bucket tells when its state was read, also one that gives nothing else: from
// then on its place is one to go on from.
func TestTailTellsWhenStateIsRead(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	f.table("t", true, 4)
	f.mustWrite(c, pathOf("d.t"), rows(0, 100, "a"))
	r, err := f.open(c, jsonOf(obj{"table": "d.t$changelog", "from": "full", "until": "never", "heartbeat_ms": 100}))
	require.NoError(t, err)
	for read := map[int]bool{}; len(read) < 4; {
		if g := r.must(); !g.meta.State {
			require.Zero(t, g.rec.NumRows())
			require.Positive(t, *g.meta.Next)
			read[*g.meta.Bucket] = true
		}
	}
}

// A filter that takes nothing does not keep the heartbeats from telling how far
// the tail has come.
func TestTailThatFindsNothing(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	f.table("t", false, 1)
	r, err := f.open(c, jsonOf(obj{"table": "d.t", "until": "never", "filter": "k < 0", "heartbeat_ms": 100}))
	require.NoError(t, err)
	r.must()
	f.mustWrite(c, pathOf("d.t"), rows(0, 1000, "a"))
	for {
		g := r.must()
		require.Zero(t, g.rec.NumRows())
		if *g.meta.Next == 1000 {
			require.EqualValues(t, 1000, *g.meta.HW)
			return
		}
	}
}

// A table that is dropped ends its tails with its error, also those of a table
// that nothing was ever written to.
func TestTailOfADroppedTable(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	for _, n := range []int{0, 10} {
		tbl := f.table("t", false, 2)
		if n > 0 {
			f.mustWrite(c, pathOf("d.t"), rows(0, n, "a"))
		}
		r, err := f.open(c, jsonOf(obj{"table": "d.t", "from": "earliest", "until": "never", "heartbeat_ms": 100}))
		require.NoError(t, err)
		for seen := 0; seen < n; {
			seen += r.must().meta.Rows
		}
		f.drop(tbl)
		for err == nil {
			_, err = r.next()
		}
		require.False(t, errors.Is(err, io.EOF))
		refused(t, err, codes.NotFound, errs.TableNotFound)
	}
}
