package segment

import (
	"fmt"
	"slices"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/millrace/millrace/errs"
)

// A compressed buffer is what Arrow IPC says: the uncompressed length as int64,
// then one LZ4 frame or ZSTD frame; or -1, then the bytes as they are. An empty
// buffer has no bytes at all.
//
// LZ4 frames are written here, block by block into the payload, in the one form
// that arrow-go's writer gives them too: version 1, independent blocks of 64 KiB,
// no checksums (the chunk has one), no content size. Only that form is read.
const (
	lengthPrefix = 8
	storedRaw    = -1
	lz4Block     = 64 << 10
	lz4RawBlock  = 1 << 31 // in a block's length: the block is not compressed
	// minCompress is the shortest buffer that compression is tried on: a frame
	// alone takes 15 bytes.
	minCompress = 48
	// Of a buffer from probeFrom bytes on, parts of probeBytes are tried first: random
	// bytes, media and what is compressed or encrypted are not worth a whole try.
	probeFrom  = 128 << 10
	probeBytes = 4 << 10
	// Less than a sixteenth saved is not worth the reader's time.
	worthwhile = 16
)

// lz4FrameHeader is magic, FLG, BD and the first byte of their xxh32.
var lz4FrameHeader = [7]byte{0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82}

// Codec says how buffers are compressed.
type Codec uint8

// The codecs. The numbers are in files; LZ4 and ZSTD have Arrow's. Stored is
// never in a file: as the target of a Message it asks for the payload's own.
const (
	LZ4    Codec = 0 // the default
	ZSTD   Codec = 1
	None   Codec = 2
	Stored Codec = 255
)

// String is the codec's name.
func (c Codec) String() string {
	switch c {
	case LZ4:
		return "lz4"
	case ZSTD:
		return "zstd"
	case None:
		return "none"
	case Stored:
		return "stored"
	}
	return fmt.Sprintf("Codec(%d)", uint8(c))
}

// compressor holds the tables that compressing and decompressing need; they are
// too large to be made for each payload.
type compressor struct {
	lz    lz4.Compressor
	probe [probeBytes - probeBytes/worthwhile]byte
	enc   *zstd.Encoder
	dec   *zstd.Decoder
	dense bool // long buffers are known not to compress
}

var compressors = sync.Pool{New: func() any { return new(compressor) }}

func getCompressor() *compressor  { return compressors.Get().(*compressor) }
func putCompressor(c *compressor) { compressors.Put(c) }

func (c *compressor) encoder() *zstd.Encoder {
	if c.enc == nil {
		enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false), zstd.WithWindowSize(1<<20), zstd.WithLowerEncoderMem(true))
		if err != nil {
			panic(err) // the options are constant
		}
		c.enc = enc
	}
	return c.enc
}

func (c *compressor) decoder() *zstd.Decoder {
	if c.dec == nil {
		dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxMemory(MaxPayloadBytes), zstd.WithDecoderLowmem(true))
		if err != nil {
			panic(err)
		}
		c.dec = dec
	}
	return c.dec
}

// appendBuffer appends raw as codec holds it.
func (c *compressor) appendBuffer(dst, raw []byte, codec Codec) []byte {
	if codec == None || len(raw) == 0 {
		return append(dst, raw...)
	}
	start := len(dst)
	dst = le.AppendUint64(dst, uint64(len(raw)))
	if len(raw) >= minCompress && c.promising(raw) {
		if codec == LZ4 {
			dst = c.appendLZ4(dst, raw)
		} else {
			dst = c.encoder().EncodeAll(raw, dst)
		}
		if n := len(dst) - start - lengthPrefix; n <= len(raw)-len(raw)/worthwhile {
			return dst
		}
	}
	raw64 := int64(storedRaw)
	dst = le.AppendUint64(dst[:start], uint64(raw64))
	return append(dst, raw...)
}

// promising says whether compression may be worthwhile, by the buffer's beginning,
// middle and end.
func (c *compressor) promising(raw []byte) bool {
	if len(raw) < probeFrom {
		return true
	}
	if c.dense {
		return false
	}
	last := len(raw) - probeBytes
	for _, at := range [...]int{0, last / 2, last} {
		n, err := c.lz.CompressBlock(raw[at:][:probeBytes], c.probe[:])
		if err != nil || n > 0 { // it is 0 when it does not fit
			return true
		}
	}
	return false
}

func (c *compressor) appendLZ4(dst, raw []byte) []byte {
	dst = append(dst, lz4FrameHeader[:]...)
	for len(raw) > 0 {
		block := raw[:min(len(raw), lz4Block)]
		raw = raw[len(block):]
		at := len(dst)
		// Room for one byte less than the block: when that is not enough, the
		// block does not pay and is kept as it is.
		dst = slices.Grow(dst, 4+len(block))
		n, err := c.lz.CompressBlock(block, dst[at+4:at+4+len(block)-1])
		if err != nil || n == 0 {
			dst = le.AppendUint32(dst, uint32(len(block))|lz4RawBlock)
			dst = append(dst, block...)
			continue
		}
		dst = le.AppendUint32(dst, uint32(n))
		dst = dst[:at+4+n]
	}
	return append(dst, 0, 0, 0, 0)
}

// rawLen is the uncompressed length of a stored buffer.
func rawLen(b []byte, codec Codec) (int, error) {
	if codec == None || len(b) == 0 {
		return len(b), nil
	}
	if len(b) < lengthPrefix {
		return 0, errs.New(errs.CorruptData, "a compressed buffer of %d bytes", len(b))
	}
	n := int64(le.Uint64(b))
	if n == storedRaw {
		return len(b) - lengthPrefix, nil
	}
	if n <= 0 || n > MaxPayloadBytes {
		return 0, errs.New(errs.CorruptData, "a compressed buffer that claims %d bytes", n)
	}
	return int(n), nil
}

// rawBytes are the uncompressed bytes of a stored buffer when it holds them as
// they are.
func rawBytes(b []byte, codec Codec) ([]byte, bool) {
	if codec == None || len(b) == 0 {
		return b, true
	}
	if int64(le.Uint64(b)) == storedRaw {
		return b[lengthPrefix:], true
	}
	return nil, false
}

// decode writes the uncompressed bytes of a stored buffer to dst, which has the
// length that rawLen gave.
func (c *compressor) decode(dst, b []byte, codec Codec) error {
	if raw, ok := rawBytes(b, codec); ok {
		copy(dst, raw)
		return nil
	}
	b = b[lengthPrefix:]
	if codec == LZ4 {
		return decodeLZ4(dst, b)
	}
	out, err := c.decoder().DecodeAll(b, dst[:0:len(dst)])
	if err != nil {
		return errs.New(errs.CorruptData, "a ZSTD buffer that cannot be read: %v", err)
	}
	if len(out) != len(dst) {
		return errs.New(errs.CorruptData, "a ZSTD buffer that holds %d bytes, not %d", len(out), len(dst))
	}
	return nil
}

func decodeLZ4(dst, b []byte) error {
	bad := func(what string) error { return errs.New(errs.CorruptData, "an LZ4 buffer %s", what) }
	if len(b) < len(lz4FrameHeader) || [7]byte(b) != lz4FrameHeader {
		return bad("with an unknown frame header")
	}
	b = b[len(lz4FrameHeader):]
	for {
		if len(b) < 4 {
			return bad("that ends early")
		}
		n := int(le.Uint32(b) &^ lz4RawBlock)
		raw := le.Uint32(b)&lz4RawBlock != 0
		b = b[4:]
		if n == 0 {
			break
		}
		if n > len(b) {
			return bad("that ends early")
		}
		var got int
		if raw {
			if got = copy(dst, b[:n]); got < n {
				return bad("that holds more than it claims")
			}
		} else {
			var err error
			if got, err = lz4.UncompressBlock(b[:n], dst[:min(len(dst), lz4Block)]); err != nil {
				return bad("that cannot be read")
			}
		}
		dst, b = dst[got:], b[n:]
	}
	if len(dst) != 0 || len(b) != 0 {
		return bad("that holds less than it claims")
	}
	return nil
}
