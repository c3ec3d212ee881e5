package main

import (
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/row/jsonrow"
)

// readBatches hands each batch of an Arrow stream to fn, and says how many rows
// there were.
func readBatches(in io.Reader, begin func(*arrow.Schema) error, fn func(arrow.RecordBatch) error) (rows int64, err error) {
	defer recoverDamage("the Arrow stream", &err)
	r, err := ipc.NewReader(in)
	if err != nil {
		return 0, err
	}
	defer r.Release()
	if err := begin(r.Schema()); err != nil {
		return 0, err
	}
	for r.Next() {
		rec := r.RecordBatch()
		rows += rec.NumRows()
		if err := fn(rec); err != nil {
			return rows, err
		}
	}
	return rows, r.Err()
}

// recoverDamage turns a panic of the Arrow and Parquet readers, which they have
// on damaged input, into an error.
func recoverDamage(what string, err *error) {
	if r := recover(); r != nil {
		*err = errs.New(errs.InvalidValue, "%s is damaged: %v", what, r)
	}
}

// textOfBatches writes an Arrow stream as text.
func textOfBatches(in io.Reader, out textWriter) (rows int64, err error) {
	var t *batchText
	rows, err = readBatches(in, func(s *arrow.Schema) error {
		t = newBatchText(s)
		names, right := make([]string, s.NumFields()), make([]bool, s.NumFields())
		for i, f := range s.Fields() {
			names[i] = f.Name
			right[i] = isNumber(f.Type)
		}
		out.header(names, right)
		return nil
	}, func(rec arrow.RecordBatch) error {
		typed := row.Project(rec, t.typed)
		defer typed.Release()
		t.bind(rec, typed)
		for i := range int(rec.NumRows()) {
			if err := out.row(t.row(i)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		_ = out.flush() // what came before the error is worth seeing
		return rows, err
	}
	return rows, out.close()
}

// batchText renders the rows of batches: values as JSON has them, strings bare. A
// column without a SQL type is rendered as Arrow does.
type batchText struct {
	rec     arrow.RecordBatch
	encoder *jsonrow.Encoder // of the columns that have a SQL type
	typed   []int            // their positions
	at      []int            // position in typed, or -1
	bare    []bool           // strings
	cells   []cell
	buf     []byte
	ends    []int // of the texts in buf, each after its column
}

func newBatchText(s *arrow.Schema) *batchText {
	t := &batchText{at: make([]int, s.NumFields()), bare: make([]bool, s.NumFields()), cells: make([]cell, s.NumFields())}
	var cols []millrace.Column
	for i, f := range s.Fields() {
		typ, err := millrace.ParseType(metaOf(f, row.MetaType))
		if err != nil || !arrow.TypeEqual(row.ArrowType(typ), f.Type) {
			t.at[i] = -1
			continue
		}
		t.bare[i] = typ.Kind == millrace.String || typ.Kind == millrace.Char
		t.at[i] = len(cols)
		t.typed = append(t.typed, i)
		cols = append(cols, millrace.Column{Name: f.Name, Type: typ, Nullable: true})
	}
	t.encoder = jsonrow.NewEncoder(cols, jsonrow.EncodeOptions{})
	return t
}

// bind makes rec the batch whose rows are rendered; it and what is made of it must
// stay alive meanwhile.
func (t *batchText) bind(rec, typed arrow.RecordBatch) {
	t.rec = rec
	t.encoder.Bind(typed)
}

// row renders a row; the cells are good until the next.
func (t *batchText) row(i int) []cell {
	// The texts of a row are in one buffer, which becomes one string.
	t.buf = t.buf[:0]
	ends := t.ends[:0]
	for j, arr := range t.rec.Columns() {
		switch {
		case arr.IsNull(i):
			t.cells[j] = cell{null: true}
		case t.bare[j]:
			t.cells[j] = cell{text: arr.(*array.String).Value(i)}
		case t.at[j] < 0:
			t.cells[j] = cell{text: arr.ValueStr(i)}
		default:
			t.buf = t.encoder.AppendValue(t.buf, t.at[j], i)
			ends = append(ends, j, len(t.buf))
		}
	}
	t.ends = ends
	text, start := string(t.buf), 0
	for k := 0; k < len(ends); k += 2 {
		t.cells[ends[k]] = cellOf(text[start:ends[k+1]])
		start = ends[k+1]
	}
	return t.cells
}

func isNumber(t arrow.DataType) bool {
	return arrow.IsInteger(t.ID()) || arrow.IsFloating(t.ID()) || arrow.IsDecimal(t.ID())
}

func metaOf(f arrow.Field, key string) string {
	v, _ := f.Metadata.GetValue(key)
	return v
}

// parquetRowGroup is how many rows a row group of an output file has: enough for
// compression, few enough to hold in memory.
const parquetRowGroup = 128 << 10

// parquetOfBatches writes an Arrow stream as a Parquet file.
func parquetOfBatches(in io.Reader, out io.Writer) (rows int64, err error) {
	var w *pqarrow.FileWriter
	rows, err = readBatches(in, func(s *arrow.Schema) error {
		props := parquet.NewWriterProperties(parquet.WithCompression(compress.Codecs.Zstd), parquet.WithMaxRowGroupLength(parquetRowGroup), parquet.WithDictionaryDefault(true))
		// Hide Close, which a Parquet writer would call on standard output.
		w, err = pqarrow.NewFileWriter(s, struct{ io.Writer }{out}, props, pqarrow.NewArrowWriterProperties(pqarrow.WithStoreSchema()))
		return err
	}, func(rec arrow.RecordBatch) error { return w.WriteBuffered(rec) })
	if err != nil {
		return rows, err
	}
	if err := w.Close(); err != nil {
		return rows, fmt.Errorf("the Parquet file: %w", err)
	}
	return rows, nil
}
