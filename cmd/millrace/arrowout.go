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
	var cells []cell
	var write []func(arr arrow.Array, i int) cell
	rows, err = readBatches(in, func(s *arrow.Schema) error {
		names, right := make([]string, s.NumFields()), make([]bool, s.NumFields())
		for i, f := range s.Fields() {
			names[i] = f.Name
			right[i] = isNumber(f.Type)
			write = append(write, cellWriter(f))
		}
		cells = make([]cell, len(names))
		out.header(names, right)
		return nil
	}, func(rec arrow.RecordBatch) error {
		for i := range int(rec.NumRows()) {
			for j, arr := range rec.Columns() {
				if arr.IsNull(i) {
					cells[j] = cell{null: true}
				} else {
					cells[j] = write[j](arr, i)
				}
			}
			if err := out.row(cells); err != nil {
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

func isNumber(t arrow.DataType) bool {
	return arrow.IsInteger(t.ID()) || arrow.IsFloating(t.ID()) || arrow.IsDecimal(t.ID())
}

// cellWriter renders the values of a column: as JSON has them, strings bare. A
// column without a SQL type is rendered as Arrow does.
func cellWriter(f arrow.Field) func(arrow.Array, int) cell {
	t, err := millrace.ParseType(metaOf(f, row.MetaType))
	if err != nil || !arrow.TypeEqual(row.ArrowType(t), f.Type) {
		return func(arr arrow.Array, i int) cell { return cell{text: arr.ValueStr(i)} }
	}
	if t.Kind == millrace.String || t.Kind == millrace.Char {
		return func(arr arrow.Array, i int) cell { return cell{text: arr.(*array.String).Value(i)} }
	}
	var buf []byte
	return func(arr arrow.Array, i int) cell {
		buf = jsonrow.AppendValue(buf[:0], t, arr, i, jsonrow.EncodeOptions{})
		return cellOf(buf)
	}
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
