package arrowrow

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	flatbuffers "github.com/google/flatbuffers/go"

	"github.com/millrace/millrace/errs"
)

// lie builds the messages of a stream by hand, so that each part can lie.
type lie struct {
	length, nodeLength, nodeNulls int64
	nodes, buffers                int
	offset, size                  int64
	bodyLength                    int64 // -1: as it is
	codec                         int8  // -1: none
	variadic                      []int64
	overlap                       bool // all buffers are the same
	body                          []byte
}

func honest() lie {
	return lie{length: 2, nodeLength: 2, nodes: 1, buffers: 2, size: 16, bodyLength: -1, codec: -1, body: make([]byte, 16)}
}

// bytes is a stream of an int64 column "v" and one batch.
func (l lie) bytes(t testing.TB) []byte {
	schema := arrow.NewSchema([]arrow.Field{{Name: "v", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, nil)
	var b bytes.Buffer
	if err := ipc.NewWriter(&b, ipc.WithSchema(schema)).Close(); err != nil {
		t.Fatal(err)
	}
	out := b.Bytes()[:b.Len()-8]
	return append(out, l.message()...)
}

func (l lie) message() []byte {
	fb := flatbuffers.NewBuilder(0)
	fb.StartVector(16, l.buffers, 8)
	for i := range l.buffers { // backwards
		if i == 0 || l.overlap {
			fb.PrependInt64(l.size)
			fb.PrependInt64(l.offset)
		} else {
			fb.PrependInt64(0)
			fb.PrependInt64(0)
		}
	}
	buffers := fb.EndVector(l.buffers)
	fb.StartVector(16, l.nodes, 8)
	for range l.nodes {
		fb.PrependInt64(l.nodeNulls)
		fb.PrependInt64(l.nodeLength)
	}
	nodes := fb.EndVector(l.nodes)
	fb.StartVector(8, len(l.variadic), 8)
	for _, v := range l.variadic {
		fb.PrependInt64(v)
	}
	variadic := fb.EndVector(len(l.variadic))
	var compression flatbuffers.UOffsetT
	if l.codec >= 0 {
		fb.StartObject(2)
		fb.PrependInt8Slot(0, l.codec, 0)
		compression = fb.EndObject()
	}
	fb.StartObject(5)
	fb.PrependInt64Slot(0, l.length, 0)
	fb.PrependUOffsetTSlot(1, nodes, 0)
	fb.PrependUOffsetTSlot(2, buffers, 0)
	fb.PrependUOffsetTSlot(3, compression, 0)
	fb.PrependUOffsetTSlot(4, variadic, 0)
	batch := fb.EndObject()
	bodyLength := l.bodyLength
	if bodyLength < 0 {
		bodyLength = int64(len(l.body))
	}
	return frame(fb, messageBatch, batch, bodyLength, l.body)
}

// frame finishes a message with this header.
func frame(fb *flatbuffers.Builder, kind byte, header flatbuffers.UOffsetT, bodyLength int64, body []byte) []byte {
	fb.StartObject(5)
	fb.PrependInt64Slot(3, bodyLength, 0)
	fb.PrependUOffsetTSlot(2, header, 0)
	fb.PrependByteSlot(1, kind, 0)
	fb.PrependInt16Slot(0, 4, 0)
	fb.Finish(fb.EndObject())
	meta := fb.FinishedBytes()
	for len(meta)%8 != 0 {
		meta = append(meta, 0)
	}
	out := binary.LittleEndian.AppendUint32([]byte{0xff, 0xff, 0xff, 0xff}, uint32(len(meta)))
	return append(append(out, meta...), body...)
}

// compressed is a body of one buffer that states a length and has some content.
func compressed(stated int64, content []byte) []byte {
	return append(binary.LittleEndian.AppendUint64(nil, uint64(stated)), content...)
}

// TestLies shows that a message that lies is refused with a 4xx code, at once, and
// costs little memory: the honest one passes, so it is the lie that is found.
func TestLies(t *testing.T) {
	if recs, err := readAll(honest().bytes(t), Limits{}); err != nil || recs[0].NumRows() != 2 {
		t.Fatal(err)
	}
	with := func(change func(*lie)) lie {
		l := honest()
		change(&l)
		return l
	}
	junk := bytes.Repeat([]byte{0xa5}, 64)
	squeeze := func(codec int8, stated int64, content []byte) func(*lie) {
		return func(l *lie) {
			l.codec, l.body = codec, compressed(stated, content)
			l.size = int64(len(l.body))
		}
	}
	tests := map[string]struct {
		lie  lie
		code errs.Code
	}{
		"claims 2^44 bytes, lz4":          {with(squeeze(0, 1<<44, junk)), errs.InvalidRequest},
		"claims 2^44 bytes, zstd":         {with(squeeze(1, 1<<44, junk)), errs.InvalidRequest},
		"claims 2^63-1 bytes":             {with(squeeze(1, 1<<63-1, junk)), errs.InvalidRequest},
		"claims -2 bytes":                 {with(squeeze(1, -2, junk)), errs.InvalidRequest},
		"claims more than there is":       {with(squeeze(1, 1<<20, junk)), errs.InvalidRequest},
		"claims less than the rows need":  {with(squeeze(0, 8, junk)), errs.InvalidRequest},
		"not really compressed, short":    {with(squeeze(0, -1, junk[:8])), errs.InvalidRequest},
		"content is junk, lz4":            {with(squeeze(0, 16, junk)), errs.InvalidRequest},
		"content is junk, zstd":           {with(squeeze(1, 16, junk)), errs.InvalidRequest},
		"no length prefix":                {with(func(l *lie) { l.codec, l.size = 0, 7 }), errs.InvalidRequest},
		"codec 7":                         {with(func(l *lie) { l.codec = 7 }), errs.InvalidRequest},
		"2^40 rows":                       {with(func(l *lie) { l.length, l.nodeLength = 1<<40, 1<<40 }), errs.TooLarge},
		"2^40 values in 2 rows":           {with(func(l *lie) { l.nodeLength = 1 << 40 }), errs.InvalidRequest},
		"3 values in 2 rows":              {with(func(l *lie) { l.nodeLength = 3 }), errs.InvalidRequest},
		"-1 rows":                         {with(func(l *lie) { l.length, l.nodeLength = -1, -1 }), errs.InvalidRequest},
		"3 nulls in 2 values":             {with(func(l *lie) { l.nodeNulls = 3 }), errs.InvalidRequest},
		"-2 nulls":                        {with(func(l *lie) { l.nodeNulls = -2 }), errs.InvalidRequest},
		"nulls without a bitmap":          {with(func(l *lie) { l.nodeNulls = 1 }), errs.InvalidRequest},
		"too few rows for the buffer":     {with(func(l *lie) { l.length, l.nodeLength = 3, 3 }), errs.InvalidRequest},
		"no nodes":                        {with(func(l *lie) { l.nodes = 0 }), errs.InvalidRequest},
		"two nodes":                       {with(func(l *lie) { l.nodes = 2 }), errs.InvalidRequest},
		"no buffers":                      {with(func(l *lie) { l.buffers = 0 }), errs.InvalidRequest},
		"one buffer":                      {with(func(l *lie) { l.buffers = 1 }), errs.InvalidRequest},
		"three buffers":                   {with(func(l *lie) { l.buffers = 3 }), errs.InvalidRequest},
		"variadic buffers":                {with(func(l *lie) { l.variadic = []int64{1 << 60} }), errs.InvalidRequest},
		"buffers that overlap":            {with(func(l *lie) { l.overlap = true }), errs.InvalidRequest},
		"buffer behind the body":          {with(func(l *lie) { l.offset = 16 }), errs.InvalidRequest},
		"buffer at -8":                    {with(func(l *lie) { l.offset = -8 }), errs.InvalidRequest},
		"buffer at 2^62":                  {with(func(l *lie) { l.offset = 1 << 62 }), errs.InvalidRequest},
		"buffer of 2^63-1 bytes":          {with(func(l *lie) { l.offset, l.size = 8, 1<<63-1 }), errs.InvalidRequest},
		"buffer of -16 bytes":             {with(func(l *lie) { l.size = -16 }), errs.InvalidRequest},
		"buffer not aligned":              {with(func(l *lie) { l.offset, l.body = 4, make([]byte, 24) }), errs.InvalidRequest},
		"body of 2^44 bytes":              {with(func(l *lie) { l.bodyLength = 1 << 44 }), errs.TooLarge},
		"body of 64 MiB that is not sent": {with(func(l *lie) { l.bodyLength = 64 << 20 }), errs.InvalidRequest},
		"body of 8 bytes":                 {with(func(l *lie) { l.bodyLength = 8 }), errs.InvalidRequest},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) { mustRefuse(t, tt.lie.bytes(t), tt.code, 16<<20) })
	}
}

// hang is far longer than anything hostile may take, on a busy machine too: what is
// quadratic in the input takes longer.
const hang = 30 * time.Second

// mustRefuse reads a hostile stream and checks the code, the time and the memory.
func mustRefuse(t *testing.T, in []byte, code errs.Code, most uint64) {
	t.Helper()
	start := time.Now()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := readAll(in, Limits{})
	runtime.ReadMemStats(&after)
	if !errs.Is(err, code) {
		t.Errorf("got %v, want %s", err, code)
	}
	if err != nil && strings.Contains(err.Error(), "runtime error") {
		t.Errorf("it was not refused, it panicked: %v", err)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > most {
		t.Errorf("%d bytes were allocated", got)
	}
	if took := time.Since(start); took > hang {
		t.Errorf("took %v", took)
	}
}

// schemaLie is a schema message of a table that fields makes.
func schemaLie(fields func(fb *flatbuffers.Builder) flatbuffers.UOffsetT) []byte {
	fb := flatbuffers.NewBuilder(0)
	v := fields(fb)
	fb.StartObject(4)
	fb.PrependUOffsetTSlot(1, v, 0)
	return frame(fb, messageSchema, fb.EndObject(), 0, nil)
}

// TestSchemaLies shows that schemas that lead in circles, multiply themselves, or
// have names and lists longer than themselves are refused without being followed.
func TestSchemaLies(t *testing.T) {
	// nested is a chain of structs, each with twice the one below as its children.
	nested := func(levels, fan int) []byte {
		return schemaLie(func(fb *flatbuffers.Builder) flatbuffers.UOffsetT {
			name := fb.CreateString(strings.Repeat("n", 60))
			fb.StartObject(0)
			typ := fb.EndObject()
			var children flatbuffers.UOffsetT
			for range levels {
				fb.StartObject(7)
				fb.PrependUOffsetTSlot(0, name, 0)
				fb.PrependByteSlot(2, typeStruct, 0)
				fb.PrependUOffsetTSlot(3, typ, 0)
				fb.PrependUOffsetTSlot(5, children, 0)
				field := fb.EndObject()
				fb.StartVector(4, fan, 4)
				for range fan {
					fb.PrependUOffsetT(field)
				}
				children = fb.EndVector(fan)
			}
			return children
		})
	}
	tests := map[string]struct {
		in   []byte
		code errs.Code
	}{
		"10,000 levels":    {nested(10_000, 1), errs.InvalidRequest},
		"2^30 fields":      {nested(30, 2), errs.DuplicateField},
		"a million in one": {nested(1, 1_000_000), errs.InvalidRequest},
		"2000^3 fields":    {nested(3, 2000), errs.DuplicateField},
		"cut":              {nested(2, 1)[:40], errs.InvalidRequest},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) { mustRefuse(t, tt.in, tt.code, 64<<20) })
	}
	if _, err := readAll(tests["a million in one"].in, Limits{}); !strings.Contains(err.Error(), "more than 32768 fields") {
		t.Error(err)
	}
	t.Run("metadata of 16 MiB", func(t *testing.T) { mustRefuse(t, nested(1, 4<<20), errs.TooLarge, 16<<20) })
}

// TestEvilWords puts the values that hurt most in place of every word of streams of
// all layouts in turn: whatever comes of it, it is an error with a code or sound
// batches.
func TestEvilWords(t *testing.T) {
	evil := []uint32{0, 1, 0xffffffff, 0x7fffffff, 0x80000000, 0xfffffff0}
	for name, in := range map[string][]byte{
		"plain": stream(t, nil, sample(t)[0]), "lz4": stream(t, []ipc.Option{ipc.WithLZ4()}, sample(t)[0]),
		"views": stream(t, nil, viewSample()), "views, zstd": stream(t, []ipc.Option{ipc.WithZstd()}, viewSample()),
	} {
		for at := 0; at+4 <= len(in); at += 4 {
			for _, v := range append(evil, uint32(len(in)-at)) {
				bad := bytes.Clone(in)
				binary.LittleEndian.PutUint32(bad[at:], v)
				recs, err := readAll(bad, Limits{MaxMessageBytes: 1 << 20})
				if err != nil && errs.CodeOf(err) == errs.Internal {
					t.Fatalf("%s: %#x at byte %d: %v", name, v, at, err)
				}
				for _, rec := range recs {
					if err := sound(rec); err != nil {
						t.Fatalf("%s: %#x at byte %d: %v", name, v, at, err)
					}
				}
			}
		}
	}
}

// TestCircle shows that a schema whose field is its own child is refused.
func TestCircle(t *testing.T) {
	in := schemaLie(func(fb *flatbuffers.Builder) flatbuffers.UOffsetT {
		name := fb.CreateString("loop")
		fb.StartObject(0)
		typ := fb.EndObject()
		// Offsets lead forward in a buffer built backwards, so the circle is closed by
		// hand below: the children are a list whose element is patched.
		fb.StartVector(4, 1, 4)
		fb.PrependUOffsetT(typ)
		children := fb.EndVector(1)
		fb.StartObject(7)
		fb.PrependUOffsetTSlot(0, name, 0)
		fb.PrependByteSlot(2, typeStruct, 0)
		fb.PrependUOffsetTSlot(3, typ, 0)
		fb.PrependUOffsetTSlot(5, children, 0)
		field := fb.EndObject()
		fb.StartVector(4, 1, 4)
		fb.PrependUOffsetT(field)
		return fb.EndVector(1)
	})
	f := &fbuf{b: in[8:]}
	schema, _ := f.root().table(2)
	field := schema.vector(1, 4).table(0)
	children := field.vector(5, 4)
	if f.err != nil || children.n != 1 {
		t.Fatal(f.err)
	}
	binary.LittleEndian.PutUint32(in[8+children.pos:], uint32(int32(field.pos-children.pos)))
	mustRefuse(t, in, errs.InvalidRequest, 16<<20)
}

// TestBadValues shows that arrays whose parts do not fit together are refused:
// each is a good stream with some bytes of one body changed.
func TestBadValues(t *testing.T) {
	mem := memory.DefaultAllocator
	one := func(typ arrow.DataType, json string) arrow.RecordBatch {
		return record(t, arrow.NewSchema([]arrow.Field{{Name: "v", Type: typ, Nullable: true}}, nil), json)
	}
	views := viewSample()
	sv := array.NewRecordBatch(arrow.NewSchema(views.Schema().Fields()[:1], nil), views.Columns()[:1], 4)
	lv := array.NewRecordBatch(arrow.NewSchema(views.Schema().Fields()[1:], nil), views.Columns()[1:], 4)
	dict := array.NewDictionaryBuilder(mem, &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: arrow.BinaryTypes.String}).(*array.BinaryDictionaryBuilder)
	if err := errors.Join(dict.AppendString("a"), dict.AppendString("b")); err != nil {
		t.Fatal(err)
	}
	dictArr := dict.NewArray()
	dictRec := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "v", Type: dictArr.DataType(), Nullable: true}}, nil), []arrow.Array{dictArr}, 2)
	tests := []struct {
		name   string
		rec    arrow.RecordBatch
		buffer int // of the last batch
		at     int
		value  uint32
		part   string
	}{
		{"offsets fall", one(arrow.BinaryTypes.String, `[{"v":"ab"},{"v":"c"}]`), 1, 4, 5, "fall"},
		{"offsets begin below 0", one(arrow.BinaryTypes.String, `[{"v":"ab"},{"v":"c"}]`), 1, 0, 0xffffffff, "first offset"},
		{"offsets end behind the data", one(arrow.BinaryTypes.String, `[{"v":"ab"},{"v":"c"}]`), 1, 8, 9, "end at 9"},
		{"large offsets fall", one(arrow.BinaryTypes.LargeString, `[{"v":"ab"},{"v":"c"}]`), 1, 12, 0x80000000, "fall"},
		{"list offsets fall", one(arrow.ListOf(arrow.PrimitiveTypes.Int8), `[{"v":[1]},{"v":[2]}]`), 1, 4, 7, "fall"},
		{"list offsets end behind the child", one(arrow.ListOf(arrow.PrimitiveTypes.Int8), `[{"v":[1]},{"v":[2]}]`), 1, 8, 3, "end at 3"},
		{"list view behind its child", lv, 1, 12, 100, "list 3"},
		{"list view of -1", lv, 2, 4, 0xffffffff, "list 1"},
		{"view of -1", sv, 1, 0, 0xffffffff, "value 0"},
		{"view in no buffer", sv, 1, 16 + 8, 9, "buffer 9"},
		{"view in buffer -1", sv, 1, 16 + 8, 0xffffffff, "buffer -1"},
		{"view behind its buffer", sv, 1, 16 + 12, 0x7fffffff, "value 1"},
		{"view with another prefix", sv, 1, 16 + 4, 0, "as its header says"},
		{"index behind the dictionary", dictRec, 1, 4, 2, "dictionary of 2"},
		{"index -1", dictRec, 1, 4, 0xffffffff, "dictionary of 2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := stream(t, nil, tt.rec)
			if _, err := readAll(in, Limits{}); err != nil {
				t.Fatal(err)
			}
			headers, bodies := messages(in)
			f := &fbuf{b: headers[len(headers)-1]}
			batch, _ := f.root().table(2)
			at := int(batch.vector(2, 16).i64(tt.buffer, 0))
			binary.LittleEndian.PutUint32(bodies[len(bodies)-1][at+tt.at:], tt.value)
			_, err := readAll(in, Limits{})
			if !errs.Is(err, errs.InvalidRequest) || !strings.Contains(err.Error(), tt.part) {
				t.Errorf("got %v, want %q", err, tt.part)
			}
		})
	}
}
