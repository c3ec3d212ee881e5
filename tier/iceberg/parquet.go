package iceberg

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/objstore"
	"github.com/millrace/millrace/row"
)

// What a Parquet file may ask of us; footers are a stranger's.
const (
	maxFooterBytes = 16 << 20
	maxPageBytes   = 64 << 20
	// maxGroupBytes is how much of a row group is fetched ahead; what is larger is read
	// as it is decoded.
	maxGroupBytes = 32 << 20
	// streamBytes is what is read at once of a column that was not fetched.
	streamBytes = 1 << 20
	// heldBytes is the same of one that was.
	heldBytes = 64 << 10
)

// parquetFile is an open Parquet file.
type parquetFile struct {
	src    *source
	props  *parquet.ReaderProperties
	rd     *file.Reader
	fr     *pqarrow.FileReader
	starts []int64 // the position of the first row of each row group, and the end
}

// openParquet reads the footer of a file whose size is known.
func openParquet(ctx context.Context, store objstore.Reader, key string, size int64) (*parquetFile, error) {
	f := &parquetFile{src: &source{ctx: ctx, store: store, key: key, size: size}}
	return f, f.guard(func() error { return f.open(ctx) })
}

func (f *parquetFile) open(ctx context.Context) error {
	if err := f.readFooter(ctx); err != nil {
		return err
	}
	f.props = parquet.NewReaderProperties(memory.DefaultAllocator)
	f.props.MaxCompressedPageSize, f.props.MaxUncompressedPageSize = maxPageBytes, maxPageBytes
	f.props.BufferedStreamEnabled, f.props.BufferSize = true, heldBytes
	rd, err := file.NewParquetReader(f.src, file.WithReadProps(f.props))
	if err != nil {
		return err
	}
	// Types come from the Parquet schema alone: an Arrow schema that the writer left
	// would make its own of them, such as large strings.
	ap := pqarrow.ArrowReadProperties{}
	manifest, err := pqarrow.NewSchemaManifest(rd.MetaData().Schema, nil, &ap)
	if err != nil {
		return err
	}
	f.fr, err = pqarrow.NewFileReader(rd, ap, memory.DefaultAllocator)
	if err != nil {
		return err
	}
	f.fr.Manifest = manifest
	f.rd = rd
	f.src.held = nil
	return f.checkGroups()
}

// readFooter holds the end of the file, and takes its seal when it must have one.
func (f *parquetFile) readFooter(ctx context.Context) error {
	s := f.src
	sealed := isSealed(s.key)
	for need := int64(footerAhead); ; {
		at := max(0, s.size-need) &^ (sealBlock - 1)
		if err := s.grow(ctx, at); err != nil {
			return err
		}
		tail := s.held[0]
		if !sealed {
			return checkFooterSize(tail.body)
		}
		seal, more, err := readSeal(s.key, tail.body, s.size)
		if err != nil {
			return err
		}
		if seal == nil {
			need = more
			continue
		}
		s.check = seal.check
		return seal.check(tail)
	}
}

// checkFooterSize refuses footers that would take too much memory.
func checkFooterSize(tail []byte) error {
	if len(tail) < parquetTrailer {
		return fmt.Errorf("it has %d bytes", len(tail))
	}
	if n := binary.LittleEndian.Uint32(tail[len(tail)-parquetTrailer:]); n > maxFooterBytes {
		return fmt.Errorf("its footer has %d bytes", n)
	}
	return nil
}

// grow makes what is held of the file's end begin at a place.
func (s *source) grow(ctx context.Context, at int64) error {
	end := s.size
	var rest []byte
	if len(s.held) > 0 {
		end, rest = s.held[0].at, s.held[0].body
	}
	body := make([]byte, end-at, s.size-at)
	if err := s.get(ctx, span{at: at, body: body}); err != nil {
		return err
	}
	s.held = []span{{at: at, body: append(body, rest...)}}
	return nil
}

// checkGroups checks what arrow-go takes from the footer without checking.
func (f *parquetFile) checkGroups() error {
	md := f.rd.MetaData()
	f.starts = make([]int64, 1, f.rd.NumRowGroups()+1)
	for g := range f.rd.NumRowGroups() {
		rg := md.RowGroup(g)
		if rg.NumRows() < 0 || rg.NumColumns() != md.Schema.NumColumns() {
			return fmt.Errorf("row group %d has %d rows of %d columns, the schema %d columns", g, rg.NumRows(), rg.NumColumns(), md.Schema.NumColumns())
		}
		f.starts = append(f.starts, f.starts[g]+rg.NumRows())
	}
	if n := f.starts[len(f.starts)-1]; n != md.NumRows {
		return fmt.Errorf("the row groups have %d rows, the file %d", n, md.NumRows)
	}
	return nil
}

// chunks are where the given leaves of a row group lie.
func (f *parquetFile) chunks(group int, leaves []int) ([]extent, error) {
	var out []extent
	rg := f.rd.MetaData().RowGroup(group)
	for _, leaf := range leaves {
		c, err := rg.ColumnChunk(leaf)
		if err != nil {
			return nil, err
		}
		from, n := c.DataPageOffset(), c.TotalCompressedSize()
		if c.HasDictionaryPage() && c.DictionaryPageOffset() > 0 && c.DictionaryPageOffset() < from {
			from = c.DictionaryPageOffset()
		}
		if from < 0 || n < 0 || from > f.src.size || n > f.src.size-from || c.NumValues() < 0 {
			return nil, fmt.Errorf("a column of row group %d lies at bytes %d to %d of a file of %d", group, from, from+n, f.src.size)
		}
		out = append(out, extent{from, from + n})
	}
	return out, nil
}

// guard runs what decodes a file, and says what its errors and panics mean.
func (f *parquetFile) guard(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
		err = f.explain(err)
	}()
	return do()
}

// explain makes an error of decoding one about the file; a failure of the store that
// stands behind it goes first.
func (f *parquetFile) explain(err error) error {
	if err == nil {
		return nil
	}
	if failed := f.src.failed.Load(); failed != nil {
		return *failed
	}
	if errs.CodeOf(err) != errs.Internal {
		return err
	}
	return errs.New(errs.CorruptData, "file %s of the lake is damaged: %v", f.src.key, err)
}

// fieldID is the id of a field of a file, or -1.
func fieldID(f *arrow.Field) millrace.ColumnID {
	if i := f.Metadata.FindKey(row.MetaFieldID); i >= 0 {
		if id, err := strconv.ParseInt(f.Metadata.Values()[i], 10, 32); err == nil {
			return millrace.ColumnID(id)
		}
	}
	return -1
}

// indexField is the index of the field with an id, or -1.
func indexField(fields []pqarrow.SchemaField, id millrace.ColumnID) int {
	return slices.IndexFunc(fields, func(f pqarrow.SchemaField) bool { return fieldID(f.Field) == id })
}
