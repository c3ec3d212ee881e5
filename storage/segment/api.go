package segment

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/cockroachdb/pebble/v2/vfs"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/filter"
)

// Codec says how buffers are compressed. LZ4 and ZSTD have Arrow's numbers.
type Codec uint8

// The codecs; the numbers are in files. Stored is never in a file: as the
// target of a Message it asks for the codec that the payload has.
const (
	LZ4    Codec = 0 // LZ4 frames; the default
	ZSTD   Codec = 1
	None   Codec = 2
	Stored Codec = 255
)

// Encoding says how a payload holds its rows.
type Encoding uint8

// The encodings; the numbers are in files.
const (
	Columns Encoding = 0
	Rows    Encoding = 1
)

// Limits.
const (
	// MaxPayloadBytes is the longest payload, and the most that its buffers may
	// hold before compression.
	MaxPayloadBytes = 64 << 20
	// TargetBatchBytes is what SplitRows should be asked for when batches are to
	// be stored or sent.
	TargetBatchBytes = 2 << 20
)

// EncodeOptions is how columns are encoded.
type EncodeOptions struct {
	Codec Codec
}

// Schemas finds a version of the table's schema; nil when there is none.
type Schemas func(millrace.SchemaID) *millrace.Schema

// AppendColumns appends a columnar payload to dst. rec has all columns of the
// schema, in order, in the types of row.ArrowType; slices are written as if they
// stood alone. changes has one change type a row; nil means that all are +I. It
// fails with errs.TooLarge.
func AppendColumns(dst []byte, schema *millrace.Schema, rec arrow.RecordBatch, changes []millrace.ChangeType, o EncodeOptions) ([]byte, error) {
	panic("unwritten")
}

// AppendRows appends a payload of compact rows to dst; each row carries the
// schema id it was written with, schemaID is the newest of them. It fails with
// errs.TooLarge.
func AppendRows(dst []byte, schemaID millrace.SchemaID, changes []millrace.ChangeType, rows [][]byte) ([]byte, error) {
	panic("unwritten")
}

// RowRange is the rows [Start, End) of a record batch.
type RowRange struct{ Start, End int }

// SplitRows cuts a record batch into ranges of rows that hold about targetBytes
// of Arrow buffers each, and at least one row.
func SplitRows(rec arrow.RecordBatch, targetBytes int) []RowRange { panic("unwritten") }

// ReaderAt is where payloads lie; vfs.File is one.
type ReaderAt interface {
	ReadAt(p []byte, off int64) (int, error)
}

// Payload is an opened payload.
type Payload struct{}

// Open reads and checks the meta part of the payload at [off, off+size) of src.
func Open(src ReaderAt, off, size int64) (*Payload, error) { panic("unwritten") }

// OpenBytes opens a payload that lies in memory. b must not change as long as
// the Payload is used.
func OpenBytes(b []byte) (*Payload, error) { panic("unwritten") }

// Encoding says how the rows are held.
func (p *Payload) Encoding() Encoding { panic("unwritten") }

// Rows is the number of rows.
func (p *Payload) Rows() int { panic("unwritten") }

// SchemaID is the schema version of a columnar payload, the newest one among the
// rows of a row payload.
func (p *Payload) SchemaID() millrace.SchemaID { panic("unwritten") }

// Codec is the codec of a columnar payload; None for rows.
func (p *Payload) Codec() Codec { panic("unwritten") }

// HasChanges says whether the payload has change types; without, all rows are +I.
func (p *Payload) HasChanges() bool { panic("unwritten") }

// Size is the payload's length in bytes.
func (p *Payload) Size() int64 { panic("unwritten") }

// MetaCRC is the checksum of the meta part, which a BatchHeader repeats.
func (p *Payload) MetaCRC() uint32 { panic("unwritten") }

// BytesRead is the number of bytes that were read from the source so far.
func (p *Payload) BytesRead() int64 { panic("unwritten") }

// Stats describes a top-level scalar column; false when the payload has no
// statistics of it (rows, nested columns, absent columns).
func (p *Payload) Stats(id millrace.ColumnID) (filter.Stats, bool) { panic("unwritten") }

// Changes returns one change type a row, or nil when all are +I.
func (p *Payload) Changes() ([]millrace.ChangeType, error) { panic("unwritten") }

// Record decodes the wanted columns, in that order, into the types of
// row.ArrowType, in memory of mem. The caller releases it.
func (p *Payload) Record(mem memory.Allocator, schemas Schemas, want []millrace.Column) (arrow.RecordBatch, error) {
	panic("unwritten")
}

// ExtraColumn is a column that is not in the payload, to be sent with it.
type ExtraColumn struct {
	Position int         // in the message, counting all columns
	Array    arrow.Array // one value a row; borrowed for the call
}

// Message is an Arrow IPC RecordBatch message.
type Message struct {
	Header []byte // the Message flatbuffer, without the stream's length prefix
	Body   []byte // 8-byte aligned buffers
	Rows   int
	Codec  Codec
}

// Release gives the body's memory back for use by other messages. It need not be
// called; after it m must not be used.
func (m *Message) Release() { panic("unwritten") }

// Message makes the IPC message of the wanted columns, in that order, with the
// extra columns at their positions (given in rising order). Its schema is
// row.ArrowSchema of the wanted columns with the extra fields put in. Chunks whose
// codec and type are those asked for go in as they lie.
func (p *Payload) Message(schemas Schemas, want []millrace.Column, extra []ExtraColumn, codec Codec) (*Message, error) {
	panic("unwritten")
}

// EncodeMessage makes the IPC message of a record batch.
func EncodeMessage(rec arrow.RecordBatch, codec Codec) (*Message, error) { panic("unwritten") }

// Merge appends to dst one columnar payload with the rows of all parts, in
// order, in the schema to. It fails with errs.TooLarge when that is too much for
// one payload.
func Merge(dst []byte, mem memory.Allocator, schemas Schemas, to *millrace.Schema, parts []*Payload, o EncodeOptions) ([]byte, error) {
	panic("unwritten")
}

// TimeRun is some rows in a row that have the same time.
type TimeRun struct {
	Rows   uint32
	Micros int64 // µs since the Unix epoch
}

// BatchHeader is what the owner of a bucket stamps on a payload.
type BatchHeader struct {
	Bucket     millrace.BucketID
	Base       millrace.Offset // of the first row
	Rows       int
	Times      []TimeRun // of all rows, in order; never going back
	PayloadLen int64
	PayloadCRC uint32 // Payload.MetaCRC
}

// End is the offset after the last row.
func (h *BatchHeader) End() millrace.Offset { return h.Base + millrace.Offset(h.Rows) }

// MaxTime is the time of the last row.
func (h *BatchHeader) MaxTime() int64 { panic("unwritten") }

// TimeAt is the time of a row.
func (h *BatchHeader) TimeAt(row int) int64 { panic("unwritten") }

// FirstRowAtOrAfter is the first row whose time is at or after micros; Rows when
// there is none.
func (h *BatchHeader) FirstRowAtOrAfter(micros int64) int { panic("unwritten") }

// StampPayload makes the header of a payload.
func StampPayload(p *Payload, bucket millrace.BucketID, base millrace.Offset, times ...TimeRun) BatchHeader {
	panic("unwritten")
}

// AppendBatchHeader appends the encoded header to dst.
func AppendBatchHeader(dst []byte, h *BatchHeader) []byte { panic("unwritten") }

// ParseBatchHeader reads a header at the start of b and says how long it is.
func ParseBatchHeader(b []byte) (h BatchHeader, n int, err error) { panic("unwritten") }

// FileName is the name of the segment file that begins at base.
func FileName(base millrace.Offset) string { panic("unwritten") }

// ParseFileName reads a segment file's name.
func ParseFileName(name string) (base millrace.Offset, ok bool) { panic("unwritten") }

// BatchRef is where a batch lies in a segment file.
type BatchRef struct {
	Base      millrace.Offset
	Rows      int
	Position  int64 // of the batch header
	HeaderLen int   // without padding
	Length    int64 // of header, payload and padding
	MaxTime   int64 // µs
}

// End is the offset after the batch's last row.
func (r BatchRef) End() millrace.Offset { return r.Base + millrace.Offset(r.Rows) }

// FileID says whose file it is; opening another's is an error.
type FileID struct {
	Cluster [16]byte
	Bucket  millrace.BucketID
	Base    millrace.Offset
}

// Writer writes one segment file.
type Writer struct{}

// Create makes the segment file of id in dir, which exists.
func Create(fs vfs.FS, dir string, id FileID) (*Writer, error) { panic("unwritten") }

// Append writes a batch, in one write and without syncing; after an error the
// Writer takes no more and what was appended before stays readable.
// REQUIRES: h.Base is the file's end.
func (w *Writer) Append(h *BatchHeader, payload []byte) (BatchRef, error) { panic("unwritten") }

// File reads what was appended so far; it is closed apart from the Writer.
func (w *Writer) File() *File { panic("unwritten") }

// Sync makes all that was appended durable and returns the file's length.
func (w *Writer) Sync() (int64, error) { panic("unwritten") }

// Seal writes the index footer, makes the file durable and closes it for writing.
func (w *Writer) Seal() error { panic("unwritten") }

// Close closes the file for writing, unsealed.
func (w *Writer) Close() error { panic("unwritten") }

// File reads a segment file.
type File struct{}

// OpenSealed opens a sealed file through its footer.
func OpenSealed(fs vfs.FS, dir string, id FileID) (*File, error) { panic("unwritten") }

// OpenUnsealed opens the first length bytes (as Writer.Sync returned them) of a
// file that was not sealed, by walking its batch headers.
func OpenUnsealed(fs vfs.FS, dir string, id FileID, length int64) (*File, error) {
	panic("unwritten")
}

// Path is the file's path.
func (f *File) Path() string { panic("unwritten") }

// ID is whose file it is.
func (f *File) ID() FileID { panic("unwritten") }

// Sealed says whether the file has its footer.
func (f *File) Sealed() bool { panic("unwritten") }

// Size is the file's length, as far as it is read.
func (f *File) Size() int64 { panic("unwritten") }

// End is the offset after the last batch; the base when there is none.
func (f *File) End() millrace.Offset { panic("unwritten") }

// Batches lists the batches there are now. The slice must not be changed.
func (f *File) Batches() []BatchRef { panic("unwritten") }

// Find is the index in Batches of the batch that holds the offset, or, when the
// offset lies outside, of where such a batch would be.
func (f *File) Find(off millrace.Offset) int { panic("unwritten") }

// FindTime is the index in Batches of the first batch with a row at or after micros.
func (f *File) FindTime(micros int64) int { panic("unwritten") }

// Payload opens a batch: one read of its header and the payload's meta part.
func (f *File) Payload(ref BatchRef) (*Payload, *BatchHeader, error) { panic("unwritten") }

// Retain adds a user; each calls Close once.
func (f *File) Retain() { panic("unwritten") }

// Close ends one use; the last one closes the file.
func (f *File) Close() error { panic("unwritten") }
