package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/stats"
)

// wireBytes counts the bytes of messages as they come over the wire.
type wireBytes struct{ n atomic.Int64 }

func (w *wireBytes) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (w *wireBytes) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (w *wireBytes) HandleConn(context.Context, stats.ConnStats)                       {}
func (w *wireBytes) HandleRPC(_ context.Context, s stats.RPCStats) {
	if in, ok := s.(*stats.InPayload); ok {
		w.n.Add(int64(in.WireLength))
	}
}

// wideEvents loads 40 columns of equal width that hardly compress.
func wideEvents(t *testing.T, s *server, rows int) table {
	t.Helper()
	names := []string{"user_id", "amount_cents"}
	for i := 2; i < 40; i++ {
		names = append(names, fmt.Sprintf("c%d", i))
	}
	tb := create(t, s, newDB(t, s), "events_wide", strings.Join(names, " BIGINT, ")+" BIGINT", "", 4)
	x := uint64(88172645463325252)
	random := func(int, int) int64 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		return int64(x)
	}
	var recs []arrow.RecordBatch
	for range rows / 5000 {
		recs = append(recs, longs(strings.Join(names, ","), 5000, random))
	}
	s.ok(t, "POST", tb.path()+"/records", stream(t, recs), "Content-Type", mediaArrow)
	require.Equal(t, fmt.Sprint(rows), tb.count(t, ""))
	return tb
}

// X4 through REST: two of forty columns cost at most 8 % of the bytes of all.
func TestX4REST(t *testing.T) {
	t.Parallel()
	s := shared(t)
	tb := wideEvents(t, s, 50_000)
	for _, accept := range []string{mediaArrow, mediaNDJSON} {
		full := s.do(t, "POST", tb.path()+"/scan", obj{}, "Accept", accept)
		require.Equal(t, 200, full.status)
		narrow := s.do(t, "POST", tb.path()+"/scan", obj{"columns": []string{"user_id", "amount_cents"}}, "Accept", accept)
		require.Equal(t, 200, narrow.status)
		require.LessOrEqual(t, float64(len(narrow.body)), 0.08*float64(len(full.body)), accept)
		if accept == mediaArrow {
			schema, rows := readStream(t, narrow.body)
			require.Equal(t, "user_id,amount_cents", names(schema))
			require.Len(t, rows, 50_000)
		}
		require.NotEmpty(t, narrow.header.Get("X-Millrace-Stats")+narrow.trailer("X-Millrace-Stats"), "a read says what it cost")
	}
}

// X4 through Flight: the same on the wire of DoGet, planning included.
func TestX4Flight(t *testing.T) {
	t.Parallel()
	s := shared(t)
	tb := wideEvents(t, s, 50_000)
	read := func(request obj) (int64, int) {
		var wire wireBytes
		c, err := flight.NewClientWithMiddleware(s.flight, nil, nil, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithStatsHandler(&wire))
		require.NoError(t, err)
		fc := &flightConn{c}
		defer fc.close()
		_, rows := fc.scan(t, command(t, scanCommand(tb, request)))
		return wire.n.Load(), len(rows)
	}
	full, n := read(obj{})
	require.Equal(t, 50_000, n)
	narrow, n := read(obj{"columns": []string{"user_id", "amount_cents"}})
	require.Equal(t, 50_000, n)
	require.LessOrEqual(t, float64(narrow), 0.08*float64(full), "%d of %d bytes", narrow, full)
}

// X4 through the command line: a narrow scan prints the two columns of every row.
func TestX4CLI(t *testing.T) {
	t.Parallel()
	s := shared(t)
	tb := wideEvents(t, s, 5000)
	got := s.cliOK(t, "scan", tb.full(), "--columns", "user_id,amount_cents", "--format", "csv")
	require.Equal(t, "user_id,amount_cents", got[0])
	require.Len(t, got, 5001)
}

// Stored buffers are sent as they lie only to who can read them: HTTP is sent plain by default, and each compression on request.
func TestCompressionOnRequest(t *testing.T) {
	t.Parallel()
	s := shared(t)
	tb := create(t, s, newDB(t, s), "same", "v BIGINT", "", 1)
	s.ok(t, "POST", tb.path()+"/records", stream(t, []arrow.RecordBatch{longs("v", 20_000, func(int, int) int64 { return 7 })}, ipc.WithZstd()), "Content-Type", mediaArrow)
	size := map[string]int{}
	for _, compression := range []string{"", "none", "lz4", "zstd", "stored"} {
		req := obj{}
		if compression != "" {
			req["compression"] = compression
		}
		a := s.do(t, "POST", tb.path()+"/scan", req, "Accept", mediaArrow)
		require.Equal(t, 200, a.status, "%s", a.body)
		_, rows := readStream(t, a.body)
		require.Len(t, rows, 20_000)
		size[compression] = len(a.body)
	}
	require.Greater(t, size[""], 20_000*8, "the default over HTTP is plain")
	require.Greater(t, size["none"], 20_000*8)
	require.Less(t, size["lz4"], 20_000)
	require.Less(t, size["zstd"], 20_000)
	s.fails(t, 422, "invalid_value", "POST", tb.path()+"/scan", obj{"compression": "rar"}, "Accept", mediaArrow)
}
