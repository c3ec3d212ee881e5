package arrowrow

import (
	"bytes"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/row/jsonrow"
)

// keys finds keys of maps that stand twice.
type keys struct {
	at   func(i int) []byte // equal for equal keys only
	seen map[string]struct{}
}

// fewKeys is up to how many keys comparing each with each costs less than a set.
const fewKeys = 8

// newKeys compares the keys of one array, which are of our types and not NULL.
func newKeys(t millrace.DataType, data arrow.ArrayData) *keys {
	k := &keys{}
	switch t.Kind {
	case millrace.String, millrace.Char, millrace.Bytes:
		offsets, b := text(data)
		k.at = func(i int) []byte { return b[offsets[i]:offsets[i+1]] }
	case millrace.Boolean, millrace.Array, millrace.Map, millrace.Row:
		arr := array.MakeFromData(data)
		var scratch [2][]byte
		turn := 0
		k.at = func(i int) []byte {
			turn = 1 - turn
			scratch[turn] = jsonrow.AppendValue(scratch[turn][:0], t, arr, i, jsonrow.EncodeOptions{})
			return scratch[turn]
		}
	default:
		if data.Len() == 0 {
			break
		}
		width := data.DataType().(arrow.FixedWidthDataType).Bytes()
		b := data.Buffers()[1].Bytes()
		k.at = func(i int) []byte { return b[i*width : (i+1)*width] }
		if t.Kind == millrace.Float || t.Kind == millrace.Double {
			k.at = floatKey(k.at)
		}
	}
	return k
}

// floatKey makes one of the two zeros, and one of all NaNs.
func floatKey(at func(int) []byte) func(int) []byte {
	zero, nan := make([]byte, 8), bytes.Repeat([]byte{0xff}, 8)
	return func(i int) []byte {
		b := at(i)
		top := len(b) - 1
		rest := b[top-1]
		switch {
		case b[top]&0x7f == 0 && len(bytes.Trim(b[:top], "\x00")) == 0:
			return zero[:len(b)]
		case len(b) == 8 && b[top]&0x7f == 0x7f && rest >= 0xf0 && (rest != 0xf0 || len(bytes.Trim(b[:6], "\x00")) != 0),
			len(b) == 4 && b[top]&0x7f == 0x7f && rest >= 0x80 && (rest != 0x80 || b[0]|b[1] != 0):
			return nan[:len(b)]
		}
		return b
	}
}

// duplicate says whether two of the keys [from, to) are equal.
func (k *keys) duplicate(from, to int) bool {
	if to-from < 2 {
		return false
	}
	if to-from <= fewKeys {
		for i := from + 1; i < to; i++ {
			for j := from; j < i; j++ {
				if bytes.Equal(k.at(i), k.at(j)) {
					return true
				}
			}
		}
		return false
	}
	if k.seen == nil {
		k.seen = map[string]struct{}{}
	}
	defer clear(k.seen)
	for i := from; i < to; i++ {
		b := k.at(i)
		if _, ok := k.seen[string(b)]; ok {
			return true
		}
		k.seen[string(b)] = struct{}{}
	}
	return false
}

// withoutNulls is a map array whose entries and keys hold no NULL, with whatever
// stands in their place: each such map is at fault or below a NULL, but arrow-go
// makes no array of it.
func (c *cast) withoutNulls(m arrow.ArrayData) arrow.ArrayData {
	entries := m.Children()[0]
	key := entries.Children()[0]
	plain := func(d arrow.ArrayData, children []arrow.ArrayData) arrow.ArrayData {
		buffers := append([]*memory.Buffer{nil}, d.Buffers()[1:]...)
		return array.NewData(d.DataType(), d.Len(), buffers, children, 0, 0)
	}
	key = plain(key, key.Children())
	defer key.Release()
	entries = plain(entries, []arrow.ArrayData{key, entries.Children()[1]})
	defer entries.Release()
	return array.NewData(c.out, m.Len(), m.Buffers(), []arrow.ArrayData{entries}, m.NullN(), 0)
}
