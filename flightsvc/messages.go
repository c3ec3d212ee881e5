package flightsvc

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/storage/segment"
)

// schemaFrame is the message that a stream of record batches begins with.
func schemaFrame(schema *arrow.Schema) *frame {
	p := ipc.GetSchemaPayload(schema, memory.DefaultAllocator)
	defer p.Release()
	meta := p.Meta()
	defer meta.Release()
	return &frame{header: bytes.Clone(meta.Bytes())}
}

// emptyMessage is a batch without rows. Its body holds the offsets of texts and
// lists that begin at nothing.
func emptyMessage(schema *arrow.Schema) (*segment.Message, error) {
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	rec := b.NewRecordBatch()
	defer rec.Release()
	return segment.EncodeMessage(rec, segment.None)
}

// messageFrame sends a message, whose memory goes back once it was written.
func messageFrame(m *segment.Message, meta []byte) *frame {
	return &frame{header: m.Header, meta: meta, body: m.Body, free: messageMemory{m}}
}

// messageMemory gives the memory of one message back.
type messageMemory struct{ m *segment.Message }

// Get is not called: gRPC takes its own buffers elsewhere.
func (messageMemory) Get(int) *[]byte { panic("flightsvc: a message is no pool") }

// Put releases the message.
func (mm messageMemory) Put(*[]byte) { mm.m.Release() }

// batchMeta is what the app_metadata of a batch says.
type batchMeta struct {
	partition string
	bucket    uint16          // router.NoBucket: rows of several
	base      millrace.Offset // NoOffset: rows of keyed state, or none
	rows      int
	next, hw  millrace.Offset
	micros    int64 // 0: not known
	// state says that keyed state is being read, of which next is the end: what was
	// not read of it is not found from there.
	state bool
}

// append writes {"partition","bucket","base","rows","next","hw","ts"}.
func (m *batchMeta) append(b []byte) []byte {
	b = append(b, `{"partition":`...)
	if m.partition == "" {
		b = append(b, "null"...)
	} else {
		b = appendJSON(b, m.partition)
	}
	b = append(b, `,"bucket":`...)
	if m.bucket == router.NoBucket {
		b = append(b, "null"...)
	} else {
		b = strconv.AppendUint(b, uint64(m.bucket), 10)
	}
	b = append(b, `,"base":`...)
	if m.base == millrace.NoOffset {
		b = append(b, "null"...)
	} else {
		b = strconv.AppendInt(b, int64(m.base), 10)
	}
	b = strconv.AppendInt(append(b, `,"rows":`...), int64(m.rows), 10)
	b = strconv.AppendInt(append(b, `,"next":`...), int64(m.next), 10)
	b = strconv.AppendInt(append(b, `,"hw":`...), int64(m.hw), 10)
	b = append(b, `,"ts":`...)
	if m.micros == 0 {
		b = append(b, "null"...)
	} else {
		b = strconv.AppendInt(b, m.micros/1000, 10)
	}
	if m.state {
		b = append(b, `,"state":true`...)
	}
	return append(b, '}')
}

// appendJSON appends a value that always encodes.
func appendJSON(b []byte, v any) []byte {
	j, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return append(b, j...)
}
