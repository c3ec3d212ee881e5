package arrowrow

import (
	"encoding/binary"
	"math"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// textKernel casts text of every layout to STRING and CHAR.
func textKernel(in arrow.DataType) kernel {
	var lay kernel
	switch in.ID() {
	case arrow.STRING:
		lay = castSame
	case arrow.LARGE_STRING:
		lay = narrowOffsets
	case arrow.STRING_VIEW:
		lay = gatherViews
	default:
		return nil
	}
	return func(x *run, c *cast, in arrow.ArrayData, at *place) (arrow.ArrayData, error) {
		out, err := lay(x, c, in, at)
		if err == nil {
			x.checkText(c, out, at)
		}
		return out, err
	}
}

// bytesKernel casts binaries of every layout to BYTES and BINARY(n).
func bytesKernel(in, out arrow.DataType) kernel {
	fixed, toFixed := out.(*arrow.FixedSizeBinaryType)
	var lay kernel
	switch in.ID() {
	case arrow.FIXED_SIZE_BINARY:
		if !toFixed {
			return offsetsOfFixed
		}
		if in.(*arrow.FixedSizeBinaryType).ByteWidth != fixed.ByteWidth {
			return nil
		}
		return castSame
	case arrow.BINARY:
		lay = castSame
	case arrow.LARGE_BINARY:
		lay = narrowOffsets
	case arrow.BINARY_VIEW:
		lay = gatherViews
	default:
		return nil
	}
	if !toFixed {
		return lay
	}
	return func(x *run, c *cast, in arrow.ArrayData, at *place) (arrow.ArrayData, error) {
		plain, err := lay(x, &cast{column: c.column, out: arrow.BinaryTypes.Binary}, in, at)
		if err != nil {
			return nil, err
		}
		defer plain.Release()
		return x.fix(c, plain, at)
	}
}

// text is the offsets and data of an array of variable length.
func text(in arrow.ArrayData) ([]int32, []byte) {
	return arrow.GetData[int32](in.Buffers()[1].Bytes())[:in.Len()+1], in.Buffers()[2].Bytes()
}

// checkText judges UTF-8 and, for CHAR(n), lengths.
func (x *run) checkText(c *cast, in arrow.ArrayData, at *place) {
	offsets, data := text(in)
	sound := validText(offsets, data)
	most := math.MaxInt
	if c.column.Type.Kind == millrace.Char {
		most = c.column.Type.Length
	}
	if sound && most == math.MaxInt {
		return
	}
	from := offsets[0]
	for i, to := range offsets[1:] {
		if size := int(to - from); size > most || !sound {
			x.checkOne(c, in, at, i, data[from:to], most)
		}
		from = to
	}
}

func (x *run) checkOne(c *cast, in arrow.ArrayData, at *place, i int, s []byte, most int) {
	sound := utf8.Valid(s)
	switch {
	case sound && (len(s) <= most || utf8.RuneCount(s) <= most), isNull(in, i), x.counted(at, i):
	case !sound:
		x.fail(at, i, errs.InvalidValue, "the text is not valid UTF-8")
	default:
		x.fail(at, i, errs.ValueOutOfRange, "%q: %s holds at most %d characters", clip(string(s[:min(len(s), 65)])), c.column.Type, most)
	}
}

// validText says at once that all texts are UTF-8: their data is as a whole, and
// none begins inside a character.
func validText(offsets []int32, data []byte) bool {
	data = data[:offsets[len(offsets)-1]]
	if !utf8.Valid(data[offsets[0]:]) {
		return false
	}
	for _, o := range offsets {
		if int(o) < len(data) && !utf8.RuneStart(data[o]) {
			return false
		}
	}
	return true
}

// narrowOffsets makes 32-bit offsets of 64-bit ones; a message is far below 2 GiB.
func narrowOffsets(x *run, c *cast, in arrow.ArrayData, _ *place) (arrow.ArrayData, error) {
	out, dst, err := room[int32](x, in.Len()+1)
	if err != nil {
		return nil, err
	}
	for i, o := range arrow.GetData[int64](in.Buffers()[1].Bytes())[:in.Len()+1] {
		dst[i] = int32(o)
	}
	buffers := []*memory.Buffer{in.Buffers()[0], memory.NewBufferBytes(out), in.Buffers()[2]}
	return array.NewData(c.out, in.Len(), buffers, nil, in.NullN(), 0), nil
}

// gatherViews puts the texts that views point to behind one another. Many views
// may point to one long text, so their sum is known before any is copied.
func gatherViews(x *run, c *cast, in arrow.ArrayData, _ *place) (arrow.ArrayData, error) {
	n := in.Len()
	headers := in.Buffers()[1].Bytes()
	total := int64(0)
	for i := range n {
		if !isNull(in, i) {
			total += int64(binary.LittleEndian.Uint32(headers[i*arrow.ViewHeaderSizeBytes:]))
		}
	}
	if err := x.spend(total); err != nil {
		return nil, err
	}
	out, offsets, err := room[int32](x, n+1)
	if err != nil {
		return nil, err
	}
	data := make([]byte, 0, total)
	for i := range n {
		if !isNull(in, i) {
			h := headers[i*arrow.ViewHeaderSizeBytes:]
			size := binary.LittleEndian.Uint32(h)
			if size <= inlineView {
				data = append(data, h[4:4+size]...)
			} else {
				from := binary.LittleEndian.Uint32(h[12:])
				data = append(data, in.Buffers()[2+binary.LittleEndian.Uint32(h[8:])].Bytes()[from:from+size]...)
			}
		}
		offsets[i+1] = int32(len(data))
	}
	return c.fresh(in, out, data), nil
}

// offsetsOfFixed gives binaries of one size the offsets of a variable one.
func offsetsOfFixed(x *run, c *cast, in arrow.ArrayData, _ *place) (arrow.ArrayData, error) {
	width := in.DataType().(*arrow.FixedSizeBinaryType).ByteWidth
	out, dst, err := room[int32](x, in.Len()+1)
	if err != nil {
		return nil, err
	}
	for i := range dst {
		dst[i] = int32(i * width)
	}
	buffers := []*memory.Buffer{in.Buffers()[0], memory.NewBufferBytes(out), in.Buffers()[1]}
	return array.NewData(c.out, in.Len(), buffers, nil, in.NullN(), 0), nil
}

// fix makes BINARY(n) of binaries of variable length.
func (x *run) fix(c *cast, in arrow.ArrayData, at *place) (arrow.ArrayData, error) {
	width := c.column.Type.Length
	out, err := x.bytes(in.Len() * width)
	if err != nil {
		return nil, err
	}
	offsets, data := text(in)
	for i := range in.Len() {
		b := data[offsets[i]:offsets[i+1]]
		if len(b) == width {
			copy(out[i*width:], b)
		} else if !isNull(in, i) && !x.counted(at, i) {
			x.fail(at, i, errs.ValueOutOfRange, "the value has %d bytes; %s holds exactly %d", len(b), c.column.Type, width)
		}
	}
	return c.fresh(in, out), nil
}
