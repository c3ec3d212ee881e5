package flightsvc

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	gen "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/millrace/millrace/errs"
)

// Bounds of what is received of a message.
const (
	maxHealthBytes    = 4 << 10
	maxHandshakeBytes = 64 << 10
	// maxAskBytes is of commands, tickets and the like: a FlightInfo, which has all
	// tickets of a read, has less.
	maxAskBytes = 4 << 20
	// maxActionBytes is of actions: an operation's body has 16 MiB, and its parameters
	// stand beside it.
	maxActionBytes = 17 << 20
	// freeBytes may come without asking the room, except what a DoPut keeps: gRPC takes
	// as much of each stream anyway.
	freeBytes = 64 << 10
	// pieceBytes have to come within StallTimeout.
	pieceBytes = 64 << 10
	// slowMessage is how long a message may come while others wait for its room.
	slowMessage = 30 * time.Second
)

// streaming is a service of which each method is a stream to gRPC: of others it receives
// the whole message before an interceptor can refuse the call.
func streaming(d grpc.ServiceDesc) *grpc.ServiceDesc {
	d.Streams = slices.Clone(d.Streams)
	for _, m := range d.Methods {
		d.Streams = append(d.Streams, grpc.StreamDesc{StreamName: m.MethodName, ServerStreams: true, Handler: func(srv any, ss grpc.ServerStream) error {
			answer, err := m.Handler(srv, ss.Context(), ss.RecvMsg, nil)
			if err != nil {
				return err
			}
			return ss.SendMsg(answer)
		}})
	}
	d.Methods = nil
	return &d
}

// isUnary says whether a method of Flight is answered with one message.
func isUnary(method string) bool {
	return slices.ContainsFunc(gen.FlightService_ServiceDesc.Methods, func(m grpc.MethodDesc) bool { return m.MethodName == method })
}

// mostOf is how long a message of a method may be.
func mostOf(fullMethod, method string) int64 {
	switch {
	case !isFlight(fullMethod):
		return maxHealthBytes
	case method == "DoPut" || method == "DoExchange":
		return maxRecvBytes
	case method == "DoAction":
		return maxActionBytes
	case method == "Handshake":
		return maxHandshakeBytes
	}
	return maxAskBytes
}

// wire is what gRPC reads messages from. It says how long a message is before the message
// is received, which ServerStream does not.
type wire interface {
	ReadMessageHeader(header []byte) error
	Read(n int) (mem.BufferSlice, error)
	RecvCompress() string
}

// held is what the message of a call that came last has of the room.
type held struct {
	mu    sync.Mutex
	bytes int64
	ended bool // the call: it holds nothing any more
}

// keep makes bytes of the room the call's; false when it has ended.
func (h *held) keep(bytes int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.ended {
		h.bytes = bytes
	}
	return !h.ended
}

// takeOver is what was kept; from now on the caller has it.
func (h *held) takeOver() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.bytes
	h.bytes = 0
	return n
}

// letGo gives back what was kept.
func (c *call) letGo(ended bool) {
	n := c.held.takeOver()
	if ended {
		c.held.mu.Lock()
		c.held.ended = true
		n += c.held.bytes
		c.held.bytes = 0
		c.held.mu.Unlock()
	}
	if n > 0 {
		c.s.o.Room.Give(n)
	}
}

// RecvMsg receives a message: it is refused when it is too long, and has its room, before it
// comes. While it comes, and always where nothing but it is waited for, the client holds the
// call up.
func (w *watchedStream) RecvMsg(m any) error {
	c := w.c
	c.letGo(false)
	in, ok := grpc.ServerTransportStreamFromContext(w.ServerStream.Context()).(wire)
	if !ok {
		return errors.New("flightsvc: this gRPC does not say how long a message is")
	}
	defer c.receiving.Store(0)
	if w.prompt {
		c.startReceiving()
	}
	var head [5]byte
	if err := in.ReadMessageHeader(head[:]); err != nil {
		if ended(err) && w.once {
			return errs.New(errs.InvalidRequest, "the call ended before its message came")
		}
		return ofWire(err)
	}
	n := int64(binary.BigEndian.Uint32(head[1:]))
	if n > w.most {
		return tooLong(c.method, w.most)
	}
	room := n
	packed := head[0] != 0
	if packed {
		room = w.most // it says how long it is when it is unpacked
	}
	if err := w.take(room); err != nil {
		return err
	}
	c.startReceiving()
	data, err := w.body(in, n)
	if err != nil {
		return err
	}
	c.receiving.Store(0) // the client has done its part
	if packed {
		if data, err = unpack(in.RecvCompress(), data, c.method, w.most); err != nil {
			return err
		}
		c.shrink(int64(data.Len()))
	}
	err = theCodec.Unmarshal(data, m)
	data.Free()
	if err != nil {
		return status.Errorf(codes.Internal, "grpc: failed to unmarshal the received message: %v", err)
	}
	if !w.once {
		return nil
	}
	c.startReceiving()
	if err := in.ReadMessageHeader(head[:]); !ended(err) {
		if err != nil {
			return ofWire(err)
		}
		return errs.New(errs.InvalidRequest, "%s takes one message, and more came", c.method)
	}
	return nil
}

var theCodec = newCodec()

func tooLong(method string, most int64) error {
	return errs.New(errs.TooLarge, "a message of %s has at most %d bytes", clipText(method, 64), most)
}

// take waits for room for a message.
func (w *watchedStream) take(n int64) error {
	if n <= w.free {
		return nil
	}
	w.c.receiving.Store(0) // it is not the client who is waited for
	n = min(n, w.c.s.o.Room.Limit())
	if err := w.c.s.o.Room.Take(w.ctx, n, putPatience); err != nil {
		return err
	}
	if !w.c.held.keep(n) {
		w.c.s.o.Room.Give(n)
		return context.Canceled
	}
	return nil
}

// shrink gives back what the call holds beyond n bytes.
func (c *call) shrink(n int64) {
	c.held.mu.Lock()
	more := c.held.bytes - n
	if more > 0 {
		c.held.bytes = n
	}
	c.held.mu.Unlock()
	if more > 0 {
		c.s.o.Room.Give(more)
	}
}

// body receives n bytes.
func (w *watchedStream) body(in wire, n int64) (mem.BufferSlice, error) {
	var data mem.BufferSlice
	began := w.c.age()
	for n > 0 {
		if w.c.age()-began > slowMessage && w.c.s.o.Room.Contended() {
			data.Free()
			return nil, &errs.Error{Code: errs.Overloaded, RetryAfter: int(slowMessage / time.Second), Message: "the message comes slowly, and others wait for the memory that it takes: send less at a time, or come back later"}
		}
		piece, err := in.Read(int(min(n, pieceBytes)))
		if err != nil {
			data.Free()
			if ended(err) {
				err = io.ErrUnexpectedEOF
			}
			return nil, ofWire(err)
		}
		n -= int64(piece.Len())
		data = append(data, piece...)
		w.c.startReceiving()
	}
	return data, nil
}

// unpack undoes the compression of a message.
func unpack(name string, data mem.BufferSlice, method string, most int64) (mem.BufferSlice, error) {
	defer data.Free()
	by := encoding.GetCompressor(name)
	if by == nil {
		return nil, status.Errorf(codes.Unimplemented, "the message is compressed by %q, which is not known here", clipText(name, 64))
	}
	in := data.Reader()
	defer in.Close()
	r, err := by.Decompress(in)
	if err != nil {
		return nil, errs.New(errs.InvalidRequest, "the message cannot be decompressed: %v", err)
	}
	out, err := mem.ReadAll(io.LimitReader(r, most+1), mem.DefaultBufferPool())
	if err != nil {
		out.Free()
		return nil, errs.New(errs.InvalidRequest, "the message cannot be decompressed: %v", err)
	}
	if int64(out.Len()) > most {
		out.Free()
		return nil, tooLong(method, most)
	}
	return out, nil
}

// ofWire is an error of the transport as gRPC tells it.
func ofWire(err error) error {
	if _, is := status.FromError(err); is || ended(err) {
		return err
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return status.Error(codes.Internal, err.Error())
	}
	return status.Error(codes.Unavailable, fmt.Sprint(err))
}
