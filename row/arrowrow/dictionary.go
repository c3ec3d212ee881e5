package arrowrow

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/millrace/millrace/errs"
)

// dictionary is one of a stream's dictionaries as of its last message.
type dictionary struct {
	id     int64
	node   *node // of the values
	values arrow.ArrayData
	deltas []arrow.ArrayData // to be put behind values, once they are needed
	bytes  int
}

// maxDeltaWork is how many times MaxMessageBytes the deltas of a stream may make
// us copy. Each delta that a batch follows costs the whole dictionary.
const maxDeltaWork = 64

// takeDictionary reads a DictionaryBatch message.
func (d *Decoder) takeDictionary(t table, body []byte) error {
	id, delta := t.i64(0), t.bool(2)
	data, ok := t.table(1)
	if t.f.err == nil && !ok {
		t.f.fail("it has a dictionary without values")
	}
	if t.f.err != nil {
		return t.f.err
	}
	dict := d.dicts[id]
	if dict == nil {
		return fmt.Errorf("it has a dictionary %d that no column has", id)
	}
	l, size, err := d.loader(data, body)
	if err != nil {
		return err
	}
	if size > int64(d.limits.maxValues()) {
		return fmt.Errorf("it has a dictionary of %d values", size)
	}
	values, err := l.load(dict.node, int(size))
	if err != nil {
		return fmt.Errorf("dictionary of column %q: %w", dict.node.path(), err)
	}
	if err := l.finished(); err != nil {
		return err
	}
	n := 0
	for _, b := range values.Buffers() {
		if b != nil {
			n += b.Len()
		}
	}
	n = max(n, len(body)) // buffers may be parts of it
	if !delta {
		d.dictBytes -= dict.bytes
		dict.bytes, dict.values, dict.deltas = 0, nil, nil
	}
	dict.bytes += n
	d.dictBytes += n
	if d.dictBytes > d.limits.MaxMessageBytes {
		return errs.New(errs.TooLarge, "the dictionaries of the Arrow stream have more than %d bytes", d.limits.MaxMessageBytes)
	}
	if dict.values == nil {
		dict.values = values
	} else {
		dict.deltas = append(dict.deltas, values)
	}
	return nil
}

// current is the whole dictionary, nil when there is none yet.
func (d *Decoder) current(dict *dictionary) (arrow.ArrayData, error) {
	if len(dict.deltas) == 0 {
		return dict.values, nil
	}
	if d.deltaWork += dict.bytes; d.deltaWork > maxDeltaWork*d.limits.MaxMessageBytes {
		return nil, errs.New(errs.TooLarge, "the Arrow stream has too many dictionary deltas; send whole dictionaries, or fewer and larger batches")
	}
	parts := []arrow.Array{array.MakeFromData(dict.values)}
	for _, delta := range dict.deltas {
		parts = append(parts, array.MakeFromData(delta))
	}
	whole, err := array.Concatenate(parts, memory.DefaultAllocator)
	for _, p := range parts {
		p.Release()
	}
	if err != nil {
		return nil, err
	}
	dict.values, dict.deltas = whole.Data(), nil
	return dict.values, nil
}

// dictionary reads the indices of a dictionary column.
func (l *loader) dictionary(n *node, size int, valid *memory.Buffer, nulls int) (arrow.ArrayData, error) {
	indices, err := l.buffer(size * n.typ.(arrow.FixedWidthDataType).Bytes())
	if err != nil {
		return nil, err
	}
	values, err := l.d.current(n.dict)
	if err != nil {
		return nil, err
	}
	if values == nil {
		// A writer need not send a dictionary that nothing refers to.
		if nulls < size {
			return nil, fmt.Errorf("its dictionary %d is missing", n.dict.id)
		}
		empty := array.MakeArrayOfNull(memory.DefaultAllocator, n.dict.node.typ, 0)
		values = empty.Data()
	}
	if err := checkIndices(n.typ, indices, size, valid, values.Len()); err != nil {
		return nil, err
	}
	return array.NewDataWithDictionary(n.field.Type, size, []*memory.Buffer{valid, indices}, nulls, 0, values.(*array.Data)), nil
}
