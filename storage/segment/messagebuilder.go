package segment

import (
	"slices"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	flatbuffers "github.com/google/flatbuffers/go"

	"github.com/millrace/millrace/errs"
)

// span is where a buffer lies in a body.
type span struct{ offset, length int }

// messageBuilder puts a message together. Column by column, in the order of the
// message, buffers go to the body and nodes and spans to the lists that the
// header is made of.
type messageBuilder struct {
	rows    int
	body    []byte
	nodes   []node
	buffers []span
	pieces  []piece
	decoded arrow.RecordBatch // owns arrays of pieces

	w   chunkWriter
	raw []byte // an uncompressed buffer
	fb  *flatbuffers.Builder
}

var messageBuilders = sync.Pool{New: func() any { return &messageBuilder{fb: flatbuffers.NewBuilder(4 << 10)} }}

// newMessageBuilder takes a builder; close gives it back.
func newMessageBuilder(codec Codec, rows int) *messageBuilder {
	b := messageBuilders.Get().(*messageBuilder)
	b.rows = rows
	b.w.reset(codec, getCompressor())
	return b
}

func (b *messageBuilder) close() {
	putCompressor(b.w.comp)
	if b.decoded != nil {
		b.decoded.Release()
	}
	clear(b.pieces)
	b.nodes, b.buffers, b.pieces = b.nodes[:0], b.buffers[:0], b.pieces[:0]
	b.body, b.decoded, b.w.comp = nil, nil, nil
	messageBuilders.Put(b)
}

// drop gives the body back when there will be no message.
func (b *messageBuilder) drop() { putBytes(b.body) }

// grow makes room for n more bytes in the body, from the pool.
func (b *messageBuilder) grow(n int) {
	if cap(b.body)-len(b.body) >= n {
		return
	}
	body := getBytes(len(b.body) + n + cap(b.body)/2)[:len(b.body)]
	copy(body, b.body)
	putBytes(b.body)
	b.body = body
}

// encode appends an array.
func (b *messageBuilder) encode(a arrow.Array) {
	d := a.Data()
	b.grow(windowBytes(d, d.Offset(), d.Len())/2 + 256)
	b.w.reset(b.w.codec, b.w.comp)
	at := len(b.body)
	b.body = b.w.array(b.body, d, d.Offset(), d.Len(), 0)
	b.nodes = append(b.nodes, b.w.nodes...)
	for _, n := range b.w.buffers {
		b.buffers = append(b.buffers, span{at, n})
		at += ceil(n, bufferAlign)
	}
}

// refer lists the nodes and buffers of a chunk that lies at position at.
func (b *messageBuilder) refer(e *entry, meta []byte, at int) {
	for i := range e.nodes {
		length, nulls := e.node(meta, i)
		b.nodes = append(b.nodes, node{length, nulls})
	}
	for i := range e.buffers {
		n := e.buffer(meta, i)
		b.buffers = append(b.buffers, span{at, n})
		at += ceil(n, bufferAlign)
	}
}

// transcode appends the buffers of a chunk in the message's codec.
func (b *messageBuilder) transcode(e *entry, meta, chunk []byte, from Codec) error {
	for i := range e.nodes {
		length, nulls := e.node(meta, i)
		b.nodes = append(b.nodes, node{length, nulls})
	}
	pos := 0
	for i := range e.buffers {
		n := e.buffer(meta, i)
		stored := chunk[pos:][:n]
		pos += ceil(n, bufferAlign)
		size, err := rawLen(stored, from)
		if err != nil {
			return err
		}
		b.grow(size + lengthPrefix + bufferAlign)
		at := len(b.body)
		switch raw, ok := rawBytes(stored, from); {
		case ok:
			b.body = b.w.comp.appendBuffer(b.body, raw, b.w.codec)
		case b.w.codec == None:
			b.body = b.body[:at+size]
			err = b.w.comp.decode(b.body[at:], stored, from)
		default:
			b.raw = slices.Grow(b.raw[:0], size)[:size]
			if err = b.w.comp.decode(b.raw, stored, from); err == nil {
				b.body = b.w.comp.appendBuffer(b.body, b.raw, b.w.codec)
			}
		}
		if err != nil {
			return err
		}
		if len(b.body) > 2*MaxPayloadBytes {
			return errs.New(errs.CorruptData, "buffers of more than %d bytes", 2*MaxPayloadBytes)
		}
		b.buffers = append(b.buffers, span{at, len(b.body) - at})
		b.body = appendZeros(b.body, 0, bufferAlign)
	}
	return nil
}

// The tables of Arrow's Message.fbs that a record batch needs: slots and numbers.
const (
	metadataV5        = 4
	headerRecordBatch = 3

	messageVersion, messageHeaderType, messageHeader, messageBodyLength, messageSlots = 0, 1, 2, 3, 5
	batchLength, batchNodes, batchBuffers, batchCompression, batchSlots               = 0, 1, 2, 3, 5
	compressionCodec, compressionMethod, compressionSlots                             = 0, 1, 2
)

// finish writes the header: a flatbuffer is built from its end.
func (b *messageBuilder) finish() *Message {
	fb := b.fb
	fb.Reset()
	fb.StartVector(16, len(b.nodes), 8)
	for _, n := range slices.Backward(b.nodes) {
		fb.Prep(8, 16)
		fb.PrependInt64(int64(n.nulls))
		fb.PrependInt64(int64(n.length))
	}
	nodes := fb.EndVector(len(b.nodes))
	fb.StartVector(16, len(b.buffers), 8)
	for _, s := range slices.Backward(b.buffers) {
		fb.Prep(8, 16)
		fb.PrependInt64(int64(s.length))
		fb.PrependInt64(int64(s.offset))
	}
	buffers := fb.EndVector(len(b.buffers))

	var compression flatbuffers.UOffsetT
	if b.w.codec != None {
		fb.StartObject(compressionSlots)
		fb.PrependInt8Slot(compressionCodec, int8(b.w.codec), 0) // Arrow's number
		fb.PrependInt8Slot(compressionMethod, 0, 0)              // BUFFER
		compression = fb.EndObject()
	}
	fb.StartObject(batchSlots)
	fb.PrependInt64Slot(batchLength, int64(b.rows), 0)
	fb.PrependUOffsetTSlot(batchNodes, nodes, 0)
	fb.PrependUOffsetTSlot(batchBuffers, buffers, 0)
	fb.PrependUOffsetTSlot(batchCompression, compression, 0)
	batch := fb.EndObject()

	fb.StartObject(messageSlots)
	fb.PrependInt64Slot(messageBodyLength, int64(len(b.body)), 0)
	fb.PrependUOffsetTSlot(messageHeader, batch, 0)
	fb.PrependInt16Slot(messageVersion, metadataV5, 0)
	fb.PrependByteSlot(messageHeaderType, headerRecordBatch, 0)
	fb.Finish(fb.EndObject())
	return &Message{Header: slices.Clone(fb.FinishedBytes()), Body: b.body, Rows: b.rows, Codec: b.w.codec}
}
