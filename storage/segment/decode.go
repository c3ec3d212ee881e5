package segment

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row"
)

// Record decodes the wanted columns, in that order, into the types of
// row.ArrowType, in memory of mem. The caller releases it. A column that the
// payload does not have is NULL; widened columns are cast.
func (p *Payload) Record(mem memory.Allocator, schemas Schemas, want []millrace.Column) (arrow.RecordBatch, error) {
	if p.head.encoding == Rows {
		return p.recordOfRows(mem, schemas, want)
	}
	schema, err := p.schema(schemas)
	if err != nil {
		return nil, err
	}
	out := row.ArrowSchema(want)
	d := decoder{p: p, mem: mem, budget: MaxPayloadBytes}
	if p.head.codec != None {
		d.comp = getCompressor()
		defer putCompressor(d.comp)
	}
	arrays := make([]arrow.Array, len(want))
	defer func() {
		for _, a := range arrays {
			if a != nil {
				a.Release()
			}
		}
	}()
	at := 0
	for i := 0; i < len(want); {
		first := p.find(want[i].ID, at)
		if first < 0 {
			// Not taken from the budget, which is for what the payload claims.
			if n := nullBytes(&want[i].Type, p.head.rows); n > MaxPayloadBytes {
				return nil, errs.New(errs.TooLarge, "%d NULLs of column %q, which is %s, do not fit in a batch", p.head.rows, want[i].Name, want[i].Type)
			}
			arrays[i] = array.MakeArrayOfNull(mem, out.Field(i).Type, p.head.rows)
			i++
			continue
		}
		n := p.adjacent(first, want[i:])
		if err := d.run(schema, first, want[i:i+n], out.Fields()[i:i+n], arrays[i:i+n]); err != nil {
			return nil, err
		}
		i, at = i+n, first+n
	}
	return array.NewRecordBatch(out, arrays, int64(p.head.rows)), nil
}

// schema is the schema that a columnar payload was written with.
func (p *Payload) schema(schemas Schemas) (*millrace.Schema, error) {
	s := schemas(p.head.schema)
	if s == nil {
		return nil, p.corrupt(0, "schema %d, which the table does not have", p.head.schema)
	}
	if len(s.Columns) != p.head.columns {
		return nil, p.corrupt(0, "%d columns; schema %d has %d", p.head.columns, s.ID, len(s.Columns))
	}
	return s, nil
}

// adjacent is how many of the wanted columns lie behind each other from the
// first on, so that one read gets them all.
func (p *Payload) adjacent(first int, want []millrace.Column) int {
	n := 1
	for n < len(want) && first+n < p.head.columns && entryAt(p.meta, first+n).id == want[n].ID {
		n++
	}
	return n
}

// column is the schema's column of the i-th entry, when both agree.
func (p *Payload) column(schema *millrace.Schema, i int) (*millrace.Column, error) {
	e, c := entryAt(p.meta, i), &schema.Columns[i]
	nodes, buffers := shape(&c.Type)
	if n, nulls := e.node(p.meta, 0); n != p.head.rows || nulls > n {
		return nil, p.corrupt(e.detail, "column %d has %d values and %d nulls in a payload of %d rows", e.id, n, nulls, p.head.rows)
	}
	if e.id != c.ID || e.kind != c.Type.Kind || e.nodes != nodes || e.buffers != buffers {
		return nil, p.corrupt(payloadHeader+i*entryBytes, "column %d of kind %v is not column %d %s of schema %d", e.id, e.kind, c.ID, c.Type, schema.ID)
	}
	return c, nil
}

// decoder decodes columns of one payload.
type decoder struct {
	p      *Payload
	mem    memory.Allocator
	comp   *compressor
	budget int // bytes that may still be decompressed
}

// run decodes columns whose chunks lie behind each other, from the entry first.
func (d *decoder) run(schema *millrace.Schema, first int, want []millrace.Column, fields []arrow.Field, out []arrow.Array) error {
	from := entryAt(d.p.meta, first).pos
	last := entryAt(d.p.meta, first+len(want)-1)
	size := last.pos + last.len - from

	// Uncompressed chunks stay where they lie in memory, or are read to where they stay;
	// compressed ones are not kept.
	var keep *memory.Buffer
	var b []byte
	switch {
	case d.p.whole != nil:
		b = d.p.view(from, size)
	case d.p.head.codec == None:
		keep = memory.NewResizableBuffer(d.mem)
		defer keep.Release()
		keep.Resize(size)
		b = keep.Bytes()
	default:
		b = getBytes(size)
		defer putBytes(b)
	}
	if d.p.whole == nil {
		if err := d.p.readAt(b, from); err != nil {
			return err
		}
	}
	sound, err := d.p.run(b, first, len(want))
	if err != nil {
		return err
	}
	if keep != nil {
		move(b, sound) // what is kept is what Arrow is given
	} else {
		b = sound
		if d.p.head.codec == None {
			keep = memory.NewBufferBytes(b)
		}
	}
	for k := range want {
		e := entryAt(d.p.meta, first+k)
		chunk := b[e.pos-from:][:e.len]
		c, err := d.p.column(schema, first+k)
		if err != nil {
			return err
		}
		r := chunkReader{decoder: d, e: &e, chunk: chunk, keep: keep, keepAt: e.pos - from}
		if out[k], err = r.column(c, &want[k], fields[k].Type); err != nil {
			return d.p.locate(err, e.pos)
		}
	}
	return nil
}

// view is a part of a payload in memory.
func (p *Payload) view(pos, n int) []byte {
	if p.src == nil {
		p.read.Add(int64(n))
	}
	return p.whole[pos:][:n:n]
}

// chunkReader takes the nodes and buffers of one chunk in turn. Everything it
// hands to Arrow is checked, so that arrays are safe to use whatever the bytes
// say: lengths fit, offsets rise and stay within what they point into.
type chunkReader struct {
	*decoder
	e     *entry
	chunk []byte
	// keep, when the chunk is not compressed, owns it from keepAt on.
	keep   *memory.Buffer
	keepAt int

	nodes, buffers, pos int
}

func (r *chunkReader) column(stored, want *millrace.Column, dt arrow.DataType) (arrow.Array, error) {
	same := sameLayout(&stored.Type, &want.Type)
	load := dt
	if !same {
		load = row.ArrowType(stored.Type)
	}
	data, err := r.array(load, r.p.head.rows)
	if err != nil {
		return nil, err
	}
	defer data.Release()
	if same {
		return array.MakeFromData(data), nil
	}
	a := aligner{mem: r.mem, column: want.ID}
	aligned, err := a.align(data, nil, &stored.Type, &want.Type, dt)
	if err != nil {
		return nil, err
	}
	defer aligned.Release()
	return array.MakeFromData(aligned), nil
}

// array loads the next array, which must have n values.
func (r *chunkReader) array(dt arrow.DataType, n int) (arrow.ArrayData, error) {
	length, nulls := r.e.node(r.p.meta, r.nodes)
	r.nodes++
	if length != n || nulls > n {
		return nil, errs.New(errs.CorruptData, "column %d: an array of %d values and %d nulls where %d values belong", r.e.id, length, nulls, n)
	}
	bufs := make([]*memory.Buffer, 0, 3)
	defer func() {
		for _, b := range bufs {
			if b != nil {
				b.Release()
			}
		}
	}()
	next := func(size int) (*memory.Buffer, error) {
		b, err := r.buffer(size)
		if err == nil {
			bufs = append(bufs, b)
		}
		return b, err
	}
	bitmap := int(bitutil.BytesForBits(int64(n)))
	if nulls == 0 {
		if r.skip() != 0 {
			return nil, errs.New(errs.CorruptData, "column %d: a validity bitmap without nulls", r.e.id)
		}
		bufs = append(bufs, nil)
	} else if _, err := next(bitmap); err != nil {
		return nil, err
	}
	var children []arrow.ArrayData
	defer func() {
		for _, c := range children {
			c.Release()
		}
	}()
	child := func(dt arrow.DataType, n int) error {
		c, err := r.array(dt, n)
		if err == nil {
			children = append(children, c)
		}
		return err
	}
	var err error
	switch dt := dt.(type) {
	case *arrow.StructType:
		for i := range dt.NumFields() {
			if err := child(dt.Field(i).Type, n); err != nil {
				return nil, err
			}
		}
	case *arrow.ListType, *arrow.MapType:
		var last int
		if last, err = r.offsets(next, n); err == nil {
			err = child(dt.(arrow.ListLikeType).Elem(), last)
		}
	case *arrow.StringType, *arrow.BinaryType:
		var last int
		if last, err = r.offsets(next, n); err == nil {
			_, err = next(last)
		}
	case *arrow.BooleanType:
		_, err = next(bitmap)
	default:
		_, err = next(n * dt.(arrow.FixedWidthDataType).Bytes())
	}
	if err != nil {
		return nil, err
	}
	return array.NewData(dt, n, bufs, children, nulls, 0), nil
}

// offsets loads n+1 offsets and returns the last.
func (r *chunkReader) offsets(next func(int) (*memory.Buffer, error), n int) (int, error) {
	b, err := next(4 * (n + 1))
	if err != nil {
		return 0, err
	}
	at := arrow.Int32Traits.CastFromBytes(b.Bytes())[:n+1]
	prev := int32(0)
	for _, o := range at {
		if o < prev {
			return 0, errs.New(errs.CorruptData, "column %d: offsets that go back", r.e.id)
		}
		prev = o
	}
	if at[0] != 0 {
		return 0, errs.New(errs.CorruptData, "column %d: offsets that do not begin at 0", r.e.id)
	}
	return int(prev), nil
}

// skip passes over a buffer and returns its length.
func (r *chunkReader) skip() int {
	n := r.e.buffer(r.p.meta, r.buffers)
	r.buffers++
	r.pos += ceil(n, bufferAlign)
	return n
}

// buffer loads the next buffer, which must have size bytes.
func (r *chunkReader) buffer(size int) (*memory.Buffer, error) {
	at := r.pos
	stored := r.chunk[at:][:r.skip()]
	n, err := rawLen(stored, r.p.head.codec)
	if err != nil {
		return nil, err
	}
	if r.budget -= n; n != size || r.budget < 0 {
		return nil, errs.New(errs.CorruptData, "column %d: a buffer of %d bytes where %d belong", r.e.id, n, size)
	}
	if r.keep != nil {
		return memory.SliceBuffer(r.keep, r.keepAt+at, n), nil
	}
	b := memory.NewResizableBuffer(r.mem)
	b.Resize(n)
	if err := r.comp.decode(b.Bytes(), stored, r.p.head.codec); err != nil {
		b.Release()
		return nil, err
	}
	return b, nil
}
