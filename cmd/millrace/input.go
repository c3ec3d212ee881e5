package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/millrace/millrace/errs"
)

// input is a file to be loaded.
type input struct {
	name   string
	format string        // csv, ndjson, json, arrow, arrowfile, parquet
	file   *os.File      // nil for standard input
	size   int64         // bytes of the file; -1 when not known
	read   *countReader  // the bytes of the file as they are read
	text   *bufio.Reader // the content, decompressed
	packed bool          // the file is compressed
	closer func()
}

// countReader tells how much has been read.
type countReader struct {
	r    io.Reader
	n    int64
	tell func(n int)
}

func (c *countReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	if c.tell != nil && n > 0 {
		c.tell(n)
	}
	return n, err
}

var (
	gzipMagic      = []byte{0x1f, 0x8b}
	zstdMagic      = []byte{0x28, 0xb5, 0x2f, 0xfd}
	arrowFileMagic = []byte("ARROW1")
	parquetMagic   = []byte("PAR1")
	// An Arrow stream begins with a continuation marker.
	arrowMagic = []byte{0xff, 0xff, 0xff, 0xff}
	bom        = []byte{0xef, 0xbb, 0xbf}
)

// openInput opens a file (- is standard input), finds out how it is compressed
// and, unless format says it, what it is.
func openInput(a *app, name, format string) (in *input, err error) {
	in = &input{name: name, format: format, size: -1, closer: func() {}}
	raw := a.stdin
	if name == "-" {
		in.name = "standard input"
	} else {
		if in.file, err = os.Open(name); err != nil {
			return nil, err
		}
		if st, err := in.file.Stat(); err == nil && st.Mode().IsRegular() {
			in.size = st.Size()
		}
		raw = in.file
	}
	in.read = &countReader{r: raw}
	in.text = bufio.NewReaderSize(in.read, 256<<10)
	if err := in.decompress(); err != nil {
		in.close()
		return nil, errs.New(errs.InvalidValue, "%s: %v", in.name, err)
	}
	head, _ := in.text.Peek(len(bom))
	if bytes.Equal(head, bom) {
		_, _ = in.text.Discard(len(bom)) // it was peeked
	}
	switch in.format {
	case "":
		in.format = in.guess()
	case "arrow":
		if in.begins(arrowFileMagic) {
			in.format = "arrowfile"
		}
	}
	if in.format == "" {
		in.close()
		return nil, usagef("what %s holds is not clear from its name or beginning; say --input-format", in.name)
	}
	return in, nil
}

func (in *input) begins(magic []byte) bool {
	head, _ := in.text.Peek(len(magic)) // shorter at the end of the file
	return bytes.Equal(head, magic)
}

func (in *input) decompress() error {
	switch {
	case in.begins(gzipMagic):
		z, err := gzip.NewReader(in.text)
		if err != nil {
			return err
		}
		in.text, in.packed = bufio.NewReaderSize(z, 256<<10), true
	case in.begins(zstdMagic):
		z, err := zstd.NewReader(in.text, zstd.WithDecoderMaxMemory(256<<20))
		if err != nil {
			return err
		}
		in.closer = z.Close
		in.text, in.packed = bufio.NewReaderSize(z, 256<<10), true
	}
	return nil
}

// guess is the format by the first bytes, then by the name.
func (in *input) guess() string {
	switch {
	case in.begins(parquetMagic):
		return "parquet"
	case in.begins(arrowFileMagic):
		return "arrowfile"
	case in.begins(arrowMagic):
		return "arrow"
	}
	name := strings.ToLower(in.name)
	for _, packed := range []string{".gz", ".zst", ".zstd"} {
		name = strings.TrimSuffix(name, packed)
	}
	switch filepath.Ext(name) {
	case ".csv":
		return "csv"
	case ".ndjson", ".jsonl":
		return "ndjson"
	case ".json":
		return "json"
	}
	head, _ := in.text.Peek(512)
	switch head = bytes.TrimLeft(head, " \t\r\n"); {
	case bytes.HasPrefix(head, []byte("{")), bytes.HasPrefix(head, []byte("[")):
		return "json" // which takes lines of objects too
	}
	return ""
}

// randomAccess is the file for formats that are not read from front to back.
func (in *input) randomAccess(what string) (*os.File, error) {
	if in.file == nil || in.size < 0 || in.packed {
		return nil, usagef("%s is read from several places: it has to be a plain file", what)
	}
	return in.file, nil
}

func (in *input) close() {
	in.closer()
	if in.file != nil {
		_ = in.file.Close() // it was only read
	}
}
