package row

import (
	"bytes"
	"fmt"
)

// AppendMerged appends a row made of two of this schema: column i is patch's
// where set[i], else old's. A nil old stands for a row of NULLs.
// REQUIRES: len(set) is the number of columns; both rows passed [Codec.Check] or
// were made by this codec; dst does not overlap them.
func (c *Codec) AppendMerged(dst, old, patch []byte, set []bool) []byte {
	t := c.tuple
	if len(set) != len(t.fields) {
		panic(fmt.Sprintf("row: %d flags for %d columns", len(set), len(t.fields)))
	}
	if old != nil {
		old = old[headerBytes:]
	}
	patch = patch[headerBytes:]
	dst, at := c.begin(dst)
	for j := range t.fields {
		from := old
		if set[j] {
			from = patch
		}
		f := &t.fields[j]
		switch {
		case from == nil || from[f.nullAt]&f.nullBit != 0:
			t.putNull(dst, at, j)
		case f.width != 0:
			copy(dst[at+f.at:at+f.at+f.width], from[f.at:])
		default:
			begin := 0
			if f.prev >= 0 {
				begin = end(from, f.prev)
			}
			dst = append(dst, from[t.head+begin:t.head+end(from, f.at)]...)
			t.putEnd(dst, at, f)
		}
	}
	return dst
}

// IsNull says whether column col of the row is NULL.
// REQUIRES: row passed [Codec.Check] or was made by this codec.
func (c *Codec) IsNull(row []byte, col int) bool {
	f := &c.tuple.fields[col]
	return row[headerBytes+f.nullAt]&f.nullBit != 0
}

// Equal says whether two rows are of one schema version and hold the same
// values. The encoding is canonical, so these are the rows with equal bytes: a
// NaN equals a NaN, -0.0 and 0.0 differ, and maps differ when the order of their
// entries does.
func Equal(a, b []byte) bool { return bytes.Equal(a, b) }
