package flightsvc

import (
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// The fields of a FlightData message.
const (
	fieldDescriptor  protowire.Number = 1
	fieldHeader      protowire.Number = 2
	fieldAppMetadata protowire.Number = 3
	fieldBody        protowire.Number = 1000
)

// frame is a FlightData message to be sent. The body is not copied: it belongs to
// gRPC from the call of SendMsg on, which gives it to free when it was written or
// dropped.
type frame struct {
	header, meta, body []byte
	free               mem.BufferPool // may be nil
}

// size is about how many bytes go on the wire.
func (f *frame) size() int64 { return int64(len(f.header) + len(f.meta) + len(f.body)) }

// codec is gRPC's protobuf codec, except that messages of record batches are
// taken apart and put together with one copy less: protobuf's copies a body into
// memory that it has cleared before, each way.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(grpcproto.Name)} }

// Marshal makes the bytes of a message.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	f, ok := v.(*frame)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	head := make([]byte, 0, len(f.header)+len(f.meta)+32)
	if len(f.header) > 0 {
		head = protowire.AppendBytes(protowire.AppendTag(head, fieldHeader, protowire.BytesType), f.header)
	}
	if len(f.meta) > 0 {
		head = protowire.AppendBytes(protowire.AppendTag(head, fieldAppMetadata, protowire.BytesType), f.meta)
	}
	if len(f.body) == 0 {
		return mem.BufferSlice{mem.SliceBuffer(head)}, nil
	}
	head = protowire.AppendVarint(protowire.AppendTag(head, fieldBody, protowire.BytesType), uint64(len(f.body)))
	return mem.BufferSlice{mem.SliceBuffer(head), mem.NewBuffer(&f.body, f.free)}, nil
}

// Unmarshal reads a message from bytes.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	fd, ok := v.(*flight.FlightData)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	r := wireReader{r: data.Reader()}
	defer r.r.Close()
	if err := r.flightData(fd); err != nil {
		return fmt.Errorf("flightsvc: not a FlightData message: %w", err)
	}
	return nil
}

// wireReader reads protobuf from buffers without joining them first.
type wireReader struct{ r *mem.Reader }

func (r wireReader) flightData(fd *flight.FlightData) error {
	for r.r.Remaining() > 0 {
		tag, err := r.varint()
		if err != nil {
			return err
		}
		num, typ := protowire.DecodeTag(tag)
		if typ != protowire.BytesType {
			if err := r.skip(num, typ); err != nil {
				return err
			}
			continue
		}
		b, err := r.bytes()
		if err != nil {
			return err
		}
		switch num {
		case fieldDescriptor:
			fd.FlightDescriptor = &flight.FlightDescriptor{}
			if err := proto.Unmarshal(b, fd.FlightDescriptor); err != nil {
				return err
			}
		case fieldHeader:
			fd.DataHeader = b
		case fieldAppMetadata:
			fd.AppMetadata = b
		case fieldBody:
			fd.DataBody = b
		default:
			// A field of a later version of Flight.
		}
	}
	return nil
}

var errShort = errors.New("it ends too early")

func (r wireReader) varint() (uint64, error) {
	var v uint64
	for shift := 0; shift < 64; shift += 7 {
		b, err := r.r.ReadByte()
		if err != nil {
			return 0, errShort
		}
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v, nil
		}
	}
	return 0, errors.New("it has a number of more than 64 bits")
}

// bytes copies a length-delimited field into memory of its own: rows share it.
func (r wireReader) bytes() ([]byte, error) {
	n, err := r.varint()
	if err != nil {
		return nil, err
	}
	if n > uint64(r.r.Remaining()) {
		return nil, errShort
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r.r, b); err != nil {
		return nil, errShort
	}
	return b, nil
}

// skip passes over a field of a kind that FlightData does not have.
func (r wireReader) skip(num protowire.Number, typ protowire.Type) error {
	var n int
	switch {
	case num < protowire.MinValidNumber:
		return fmt.Errorf("it has a field %d", num)
	case typ == protowire.VarintType:
		_, err := r.varint()
		return err
	case typ == protowire.Fixed32Type:
		n = 4
	case typ == protowire.Fixed64Type:
		n = 8
	default:
		return fmt.Errorf("field %d is of wire type %d", num, typ)
	}
	if n > r.r.Remaining() {
		return errShort
	}
	_, err := r.r.Discard(n)
	return err
}
