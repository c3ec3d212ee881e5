package iceberg

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"path"

	"github.com/apache/arrow-go/v18/parquet/metadata"

	"github.com/millrace/millrace/errs"
)

// Parquet has no checksums over its footer and page headers, and arrow-go neither
// writes nor checks those of pages. So the Parquet files that we write have a seal
// between body and footer, where other readers do not look:
//
//	body    row groups and page indexes, as Parquet has them
//	blocks  u32 each: CRC32C of every 32 KiB of the body, the last one shorter
//	        u64: bytes of the body
//	        u32: CRC32C of the footer, its length and magic
//	        u32: CRC32C of the seal up to here
//	        8 bytes: sealMagic
//	footer  as Parquet has it, its length, PAR1
//
// Numbers are little endian.
const (
	sealBlock   = 32 << 10
	sealTrailer = 8 + 4 + 4 + 8
	sealMagic   = "MRSEAL\x00\x01"
	// parquetTrailer is the length of the footer, and PAR1.
	parquetTrailer = 8
	parquetMagic   = "PAR1"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// isSealed says whether a file is one that we wrote, by its name: such a file
// without a seal is damaged.
func isSealed(file string) bool {
	return ours.MatchString(path.Base(file))
}

// sealer writes a Parquet file with its seal. The caller ends the body by hold before
// it closes the Parquet writer, and then calls seal.
type sealer struct {
	w      io.Writer
	n      int64 // bytes of the body that are written
	crc    uint32
	blocks []byte
	tail   *bytes.Buffer // once hold was called
}

func newSealer(w io.Writer) *sealer { return &sealer{w: w} }

// hold keeps what is written from now on in memory: the last row group, and the
// footer.
func (s *sealer) hold() { s.tail = new(bytes.Buffer) }

func (s *sealer) Write(p []byte) (int, error) {
	if s.tail != nil {
		return s.tail.Write(p)
	}
	n, err := s.w.Write(p)
	s.add(p[:n])
	return n, err
}

// add counts bytes of the body.
func (s *sealer) add(p []byte) {
	for len(p) > 0 {
		part := p[:min(len(p), sealBlock-int(s.n%sealBlock))]
		s.crc = crc32.Update(s.crc, castagnoli, part)
		s.n += int64(len(part))
		if s.n%sealBlock == 0 {
			s.endBlock()
		}
		p = p[len(part):]
	}
}

func (s *sealer) endBlock() {
	s.blocks = binary.LittleEndian.AppendUint32(s.blocks, s.crc)
	s.crc = 0
}

// seal writes what was held, with the seal, and meta in place of the footer; nil: the
// footer stays.
func (s *sealer) seal(meta *metadata.FileMetaData) error {
	held := s.tail.Bytes()
	footer := int(binary.LittleEndian.Uint32(held[len(held)-parquetTrailer:])) + parquetTrailer
	body, rest := held[:len(held)-footer], held[len(held)-footer:]
	if meta != nil {
		b := new(bytes.Buffer)
		if _, err := meta.WriteTo(b, nil); err != nil {
			return err
		}
		n := uint32(b.Len())
		rest = append(binary.LittleEndian.AppendUint32(b.Bytes(), n), parquetMagic...)
	}
	s.add(body)
	if s.n%sealBlock != 0 {
		s.endBlock()
	}
	record := binary.LittleEndian.AppendUint64(s.blocks, uint64(s.n))
	record = binary.LittleEndian.AppendUint32(record, crc32.Checksum(rest, castagnoli))
	record = binary.LittleEndian.AppendUint32(record, crc32.Checksum(record, castagnoli))
	record = append(record, sealMagic...)
	for _, part := range [][]byte{body, record, rest} {
		if _, err := s.w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// plainIntegers takes away what arrow-go says of integers besides their type, as Iceberg
// has them: Iceberg's reader in Spark fails on an annotated INT whose column has become
// a BIGINT since.
func plainIntegers(meta *metadata.FileMetaData) *metadata.FileMetaData {
	for _, e := range meta.FileMetaData.Schema {
		if l := e.LogicalType; l != nil && l.IsSetINTEGER() {
			e.LogicalType, e.ConvertedType = nil, nil
		}
	}
	return meta
}

// seal is that of a file that is read.
type seal struct {
	path   string
	body   int64
	blocks []byte
}

// readSeal finds and checks the seal; tail are bytes from the file's end, and need
// is how many of them it takes when these are too few.
func readSeal(file string, tail []byte, size int64) (s *seal, need int64, err error) {
	broken := errs.New(errs.CorruptData, "file %s of the lake is damaged: its seal does not fit its footer", file)
	if len(tail) < parquetTrailer {
		return nil, 0, broken
	}
	footer := int64(binary.LittleEndian.Uint32(tail[len(tail)-parquetTrailer:])) + parquetTrailer
	end := int64(len(tail)) - footer // of the seal
	if footer+sealTrailer > size || footer > maxFooterBytes {
		return nil, 0, broken
	}
	if end < sealTrailer {
		return nil, footer + sealTrailer, nil
	}
	trailer := tail[end-sealTrailer : end]
	body := int64(binary.LittleEndian.Uint64(trailer))
	if string(trailer[16:]) != sealMagic || body < 0 || body > size {
		return nil, 0, broken
	}
	n := (body + sealBlock - 1) / sealBlock * 4
	if body+n+sealTrailer+footer != size {
		return nil, 0, broken
	}
	if end-sealTrailer < n {
		return nil, footer + sealTrailer + n, nil
	}
	record := tail[end-sealTrailer-n : end]
	if binary.LittleEndian.Uint32(trailer[8:]) != crc32.Checksum(tail[end:], castagnoli) ||
		binary.LittleEndian.Uint32(trailer[12:]) != crc32.Checksum(record[:n+12], castagnoli) {
		return nil, 0, broken
	}
	return &seal{path: file, body: body, blocks: record[:n]}, 0, nil
}

// check compares what was read of the body with its checksums: p begins with a
// block, and ends with one or beyond the body.
func (s *seal) check(p span) error {
	for at := p.at; at < s.body && at < p.at+int64(len(p.body)); at += sealBlock {
		block := p.body[at-p.at : min(at+sealBlock, s.body)-p.at]
		if crc32.Checksum(block, castagnoli) != binary.LittleEndian.Uint32(s.blocks[at/sealBlock*4:]) {
			return errs.New(errs.CorruptData, "file %s of the lake is damaged: bytes %d to %d are not what was written", s.path, at, at+int64(len(block)))
		}
	}
	return nil
}
