package wal

import (
	"bytes"
	"encoding/binary"
	"io"
	"log/slog"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/millrace/errs"
)

// readHeader reads a file's header, its second copy when the first is damaged.
func (f *Files) readHeader(number uint64) (*fileHeader, error) {
	name := f.path(number, fileSuffix)
	file, err := f.fs.Open(name)
	if err != nil {
		return nil, f.fileError("opening", name, err)
	}
	defer func() { _ = file.Close() }() // only read
	b := make([]byte, 2*headerBlock)
	n, err := readFull(file, b, 0)
	if err != nil {
		return nil, f.fileError("reading", name, err)
	}
	if n == len(b) && bytes.Equal(b[:len(fileMagic)], fileMagic) {
		if size := binary.LittleEndian.Uint32(b[headerLengthField:]); size > headerBlock && size <= maxHeaderBytes {
			b = make([]byte, 2*size)
			if n, err = readFull(file, b, 0); err != nil {
				return nil, f.fileError("reading", name, err)
			}
		}
	}
	h, err := parseFileHeader(b[:n], number)
	switch {
	case errs.Is(err, errs.CorruptData):
		if h, err = f.secondHeader(file, name, number, err); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, errs.New(errs.CodeOf(err), "%s at byte 0: %v", name, err)
	case !bytes.Equal(b[:h.copySize()], b[h.copySize():min(n, 2*h.copySize())]):
		f.met.repaired.Inc()
		f.opts.Logger.Error("second copy of a log file's header is damaged", slog.String("file", name), slog.Int("offset", h.copySize()))
	}
	if h.cluster != f.opts.ClusterID {
		return nil, errs.New(errs.InvalidRequest, "the log in %s belongs to cluster %x, not to %x", f.dir, h.cluster, f.opts.ClusterID)
	}
	return h, nil
}

// secondHeader looks for the second copy of a header whose first is damaged.
func (f *Files) secondHeader(file vfs.File, name string, number uint64, first error) (*fileHeader, error) {
	st, err := file.Stat()
	if err != nil {
		return nil, f.fileError("reading", name, err)
	}
	b := make([]byte, min(2*maxHeaderBytes, st.Size()))
	n, err := readFull(file, b, 0)
	if err != nil {
		return nil, f.fileError("reading", name, err)
	}
	for at := headerBlock; at <= min(n-headerBlock, maxHeaderBytes); at += headerBlock {
		h, err := parseFileHeader(b[at:n], number)
		if err != nil || h.copySize() != at {
			continue
		}
		f.met.repaired.Inc()
		f.opts.Logger.Error("header of a log file is damaged, its second copy is used", slog.String("file", name), slog.Int64("offset", 0), slog.Any("err", first))
		return h, nil
	}
	return nil, errs.New(errs.CorruptData, "%s at byte 0: both copies of the header are damaged: %v", name, first)
}

func readFull(r io.ReaderAt, b []byte, off int64) (int, error) {
	n, err := r.ReadAt(b, off)
	if err == io.EOF {
		err = nil
	}
	return n, err
}
