package e2e

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// patched sends what a stock writer makes, changed on the way.
type patched struct {
	flight.DataStreamWriter
	change func([]byte) []byte
}

func (p *patched) Send(d *flight.FlightData) error {
	d.DataHeader, d.DataBody = p.change(d.DataHeader), p.change(d.DataBody)
	return p.DataStreamWriter.Send(d)
}

// little is the little-endian form of a 64-bit number.
func little(n int64) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(n)) }

// H1: Arrow messages that claim what they do not hold, over REST and Flight: compressed buffers that say they are 2⁴⁴
// bytes long, offsets outside the body, wrong counts.
func TestArrowBombs(t *testing.T) {
	s := newServer(t)
	tb := create(t, s, newDB(t, s), "t", "v BIGINT", "", 1)
	texty := create(t, s, tb.db, "texty", "s STRING", "", 1)
	c := s.dial(t)
	numbers := longs("v", 1003, func(int, int) int64 { return 7 })
	strs := batch(t, schemaOf("s string"), `[{"s":"aaaa"},{"s":"bbbb"},{"s":"cccc"}]`)
	offset12, far := binary.LittleEndian.AppendUint32(nil, 12), binary.LittleEndian.AppendUint32(nil, 1<<30)
	for _, a := range []struct {
		name     string
		tb       table
		rec      arrow.RecordBatch
		opts     []ipc.Option
		old, new []byte
	}{
		{"lz4 bomb", tb, numbers, []ipc.Option{ipc.WithLZ4()}, little(1003 * 8), little(1 << 44)},
		{"zstd bomb", tb, numbers, []ipc.Option{ipc.WithZstd()}, little(1003 * 8), little(1 << 44)},
		{"negative length", tb, numbers, []ipc.Option{ipc.WithLZ4()}, little(1003 * 8), little(math.MinInt64)},
		{"more than there is", tb, numbers, []ipc.Option{ipc.WithZstd()}, little(1003 * 8), little(1 << 20)},
		{"wrong counts", tb, numbers, nil, little(1003), little(1 << 40)},
		{"negative counts", tb, numbers, nil, little(1003), little(-1)},
		{"buffer outside the body", tb, numbers, nil, little(1003 * 8), little(1 << 40)},
		{"offsets outside the body", texty, strs, nil, offset12, far},
		{"offsets that go back", texty, strs, nil, offset12, binary.LittleEndian.AppendUint32(nil, 1)},
	} {
		t.Run(a.name, func(t *testing.T) {
			good := stream(t, []arrow.RecordBatch{a.rec}, a.opts...)
			bad := bytes.ReplaceAll(good, a.old, a.new)
			require.NotEqual(t, good, bad, "the patch must hit")
			bounded(t, s, func() {
				ans := s.do(t, "POST", a.tb.path()+"/records", bad, "Content-Type", mediaArrow)
				require.Equal(t, 4, ans.status/100, "%d %s", ans.status, ans.body)
			})
			bounded(t, s, func() {
				st, err := c.DoPut(within(t, patience))
				require.NoError(t, err)
				w := flight.NewRecordWriter(&patched{st, func(b []byte) []byte { return bytes.ReplaceAll(b, a.old, a.new) }}, append([]ipc.Option{ipc.WithSchema(a.rec.Schema())}, a.opts...)...)
				w.SetFlightDescriptor(pathOf(a.tb))
				if err := w.Write(a.rec); err == nil {
					require.NoError(t, st.CloseSend())
				}
				for err == nil {
					_, err = st.Recv()
				}
				require.Equal(t, codes.InvalidArgument.String(), status.Code(err).String(), "%v", err)
			})
		})
	}
	require.Equal(t, "0", tb.count(t, ""))
	require.Equal(t, "0", texty.count(t, ""))
}

// A stream that is cut at any byte is refused and nothing of its last message is written.
func TestArrowStreamCutAnywhere(t *testing.T) {
	t.Parallel()
	s := shared(t)
	tb := create(t, s, newDB(t, s), "t", "v BIGINT", "", 1)
	whole := stream(t, []arrow.RecordBatch{longs("v", 10, func(i, _ int) int64 { return int64(i) })})
	for at := 1; at < len(whole)-8; at += 3 { // the last 8 bytes are the end marker
		a := s.do(t, "POST", tb.path()+"/records", whole[:at], "Content-Type", mediaArrow)
		if a.status == 200 {
			require.Equal(t, `0`, fmt.Sprint(a.object(t)["accepted"]), "cut at %d of %d: %s", at, len(whole), a.body)
			continue
		}
		require.Equal(t, 400, a.status, "cut at %d of %d: %s", at, len(whole), a.body)
	}
	require.Equal(t, "0", tb.count(t, ""))
}
