package flightsvc

import (
	"bytes"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// cut makes buffers of at most n bytes each.
func cut(b []byte, n int) mem.BufferSlice {
	var out mem.BufferSlice
	for len(b) > 0 {
		k := min(n, len(b))
		out = append(out, mem.SliceBuffer(b[:k]))
		b = b[k:]
	}
	return out
}

// What the codec makes protobuf reads as the same message, and the codec reads
// what protobuf makes, however it is cut.
func TestCodecIsProtobuf(t *testing.T) {
	c := newCodec()
	body := bytes.Repeat([]byte{1, 2, 3}, 100_000)
	for _, f := range []*frame{{}, {header: []byte("h")}, {meta: []byte("m")}, {header: []byte("header"), meta: []byte("{}"), body: body}} {
		got, err := c.Marshal(f)
		require.NoError(t, err)
		want := &flight.FlightData{DataHeader: f.header, AppMetadata: f.meta, DataBody: f.body}
		var back flight.FlightData
		require.NoError(t, proto.Unmarshal(got.Materialize(), &back))
		require.True(t, proto.Equal(want, &back))
	}
	fd := &flight.FlightData{
		FlightDescriptor: &flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{"d", "t"}},
		DataHeader:       []byte("header"), AppMetadata: []byte("meta"), DataBody: body,
	}
	b, err := proto.Marshal(fd)
	require.NoError(t, err)
	for _, n := range []int{1, 7, 4096, len(b)} {
		var back flight.FlightData
		require.NoError(t, c.Unmarshal(cut(b, n), &back))
		require.True(t, proto.Equal(fd, &back))
	}
	var schema flight.SchemaResult
	require.NoError(t, c.Unmarshal(cut([]byte{0x0a, 1, 'x'}, 2), &schema), "other messages are protobuf's")
	require.Equal(t, "x", string(schema.Schema))
}

// The body of a message goes back once, when gRPC has no more use for it.
func TestCodecGivesBodiesBack(t *testing.T) {
	pool := &countingPool{}
	got, err := newCodec().Marshal(&frame{header: []byte("h"), body: make([]byte, 4096), free: pool})
	require.NoError(t, err)
	got.Ref()
	got.Free()
	require.Zero(t, pool.put)
	got.Free()
	require.Equal(t, 1, pool.put)
}

type countingPool struct{ put int }

func (*countingPool) Get(int) *[]byte { panic("not asked for") }
func (p *countingPool) Put(*[]byte)   { p.put++ }

// Whatever bytes come, the codec neither panics nor takes more than they are; what
// it accepts protobuf accepts as the same message.
func FuzzCodec(f *testing.F) {
	for _, fd := range []*flight.FlightData{
		{}, {DataHeader: []byte("h"), DataBody: []byte("b")}, {AppMetadata: []byte("m"), FlightDescriptor: &flight.FlightDescriptor{Cmd: []byte("{}")}},
	} {
		b, err := proto.Marshal(fd)
		require.NoError(f, err)
		f.Add(b, 3)
	}
	f.Add([]byte("\x12\x00"), 1)
	f.Add([]byte{0xc2, 0x3e, 0xff, 0xff, 0xff, 0xff, 0x0f}, 1)
	f.Add([]byte{0x21, 1, 2, 3, 4, 5, 6, 7, 8, 0x28, 0x80, 1, 0x35, 1, 2, 3, 4}, 2)
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		var got, want flight.FlightData
		if newCodec().Unmarshal(cut(b, max(1, n%64)), &got) != nil {
			return
		}
		if proto.Unmarshal(b, &want) != nil {
			return // protobuf checks text and knows groups
		}
		require.Equal(t, string(want.DataHeader), string(got.DataHeader))
		require.Equal(t, string(want.DataBody), string(got.DataBody))
		require.Equal(t, string(want.AppMetadata), string(got.AppMetadata))
	})
}
