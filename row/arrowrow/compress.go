package arrowrow

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// codec is how the buffers of a message are compressed.
type codec uint8

const (
	codecNone codec = iota
	codecLZ4
	codecZSTD
)

// sizePrefix is in front of each compressed buffer: its length once decompressed,
// or -1 when it is not compressed after all.
const sizePrefix = 8

// maxRatio is how much longer than itself the content of a compressed buffer can
// be: a byte of LZ4 stands for at most 255, the four bytes of a ZSTD block for at
// most 128 KiB. A short message that claims more is refused before memory for it
// is taken.
func (c codec) maxRatio() int64 {
	if c == codecLZ4 {
		return 256
	}
	return 128 << 10 / 4
}

// statedSize is the length of a compressed buffer's content.
func (c codec) statedSize(b []byte) (int64, error) {
	if len(b) < sizePrefix {
		return 0, fmt.Errorf("%d bytes are no compressed buffer", len(b))
	}
	n := int64(binary.LittleEndian.Uint64(b))
	content := int64(len(b) - sizePrefix)
	switch {
	case n == -1:
		return content, nil
	case n < 0 || n > content*c.maxRatio():
		return 0, fmt.Errorf("%d bytes cannot decompress to %d", content, n)
	}
	return n, nil
}

// decompress is the content of a compressed buffer, whose stated size was checked.
func (d *Decoder) decompress(c codec, b []byte) ([]byte, error) {
	n := int64(binary.LittleEndian.Uint64(b))
	b = b[sizePrefix:]
	if n == -1 {
		return b, nil
	}
	out := make([]byte, n)
	var err error
	if c == codecLZ4 {
		err = decompressLZ4(out, b)
	} else {
		err = d.decompressZSTD(out, b)
	}
	if err != nil {
		return nil, fmt.Errorf("a compressed buffer of %d bytes: %w", n, err)
	}
	return out, nil
}

func decompressLZ4(out, b []byte) error {
	r := lz4.NewReader(bytes.NewReader(b))
	if _, err := io.ReadFull(r, out); err != nil {
		return err
	}
	var more [1]byte
	if n, _ := r.Read(more[:]); n > 0 {
		return fmt.Errorf("it decompresses to more than that")
	}
	return nil
}

func (d *Decoder) decompressZSTD(out, b []byte) error {
	if d.zstd == nil {
		// Never more than the room it is given, and no goroutines.
		z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecodeAllCapLimit(true),
			zstd.WithDecoderMaxMemory(uint64(d.limits.MaxMessageBytes)), zstd.WithDecoderMaxWindow(uint64(max(d.limits.MaxMessageBytes, 1<<20))))
		if err != nil {
			return err
		}
		d.zstd = z
	}
	got, err := d.zstd.DecodeAll(b, out[:0])
	if err != nil {
		return err
	}
	if len(got) != len(out) {
		return fmt.Errorf("it decompresses to %d", len(got))
	}
	return nil
}
