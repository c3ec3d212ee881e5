package main

import (
	"context"
	"errors"
	"io"

	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/millrace/millrace/errs"
)

// arrowStreamLoader loads an Arrow IPC stream.
type arrowStreamLoader struct {
	in   io.Reader
	pick picker
}

func (l *arrowStreamLoader) arrow() bool { return true }

// send implements loader.
func (l *arrowStreamLoader) send(w io.Writer) (err error) {
	defer recoverDamage("the Arrow stream", &err)
	r, err := ipc.NewReader(l.in)
	if err != nil {
		return damaged("the Arrow stream", err)
	}
	defer r.Release()
	body, err := newArrowBody(w, r.Schema(), l.pick)
	if err != nil {
		return err
	}
	for r.Next() {
		if err := body.write(r.RecordBatch()); err != nil {
			return err
		}
	}
	if err := r.Err(); err != nil {
		return damaged("the Arrow stream", err)
	}
	return body.close()
}

func damaged(what string, err error) error {
	return errs.New(errs.InvalidValue, "%s cannot be read: %v", what, err)
}

// arrowFileLoader loads an Arrow IPC file.
type arrowFileLoader struct {
	r    *ipc.FileReader
	pick picker
}

func newArrowFileLoader(in *input, pick picker) (l *arrowFileLoader, err error) {
	defer recoverDamage(in.name, &err)
	f, err := in.randomAccess("an Arrow IPC file")
	if err != nil {
		return nil, err
	}
	r, err := ipc.NewFileReader(&countAt{f, in})
	if err != nil {
		return nil, damaged(in.name, err)
	}
	return &arrowFileLoader{r: r, pick: pick}, nil
}

func (l *arrowFileLoader) arrow() bool { return true }

// send implements loader.
func (l *arrowFileLoader) send(w io.Writer) (err error) {
	defer recoverDamage("the Arrow file", &err)
	defer l.r.Close()
	body, err := newArrowBody(w, l.r.Schema(), l.pick)
	if err != nil {
		return err
	}
	for i := range l.r.NumRecords() {
		rec, err := l.r.RecordBatch(i)
		if err != nil {
			return damaged("the Arrow file", err)
		}
		err = body.write(rec)
		rec.Release()
		if err != nil {
			return err
		}
	}
	return body.close()
}

// countAt tells how much of a file has been read, wherever.
type countAt struct {
	f interface {
		io.ReaderAt
		io.ReadSeeker
	}
	in *input
}

func (c *countAt) tell(n int) {
	if c.in.read.tell != nil && n > 0 {
		c.in.read.tell(n)
	}
}

// ReadAt implements io.ReaderAt.
func (c *countAt) ReadAt(p []byte, off int64) (int, error) {
	n, err := c.f.ReadAt(p, off)
	c.tell(n)
	return n, err
}

// Read implements io.Reader.
func (c *countAt) Read(p []byte) (int, error) {
	n, err := c.f.Read(p)
	c.tell(n)
	return n, err
}

// Seek implements io.Seeker.
func (c *countAt) Seek(offset int64, whence int) (int64, error) { return c.f.Seek(offset, whence) }

// parquetLoader loads a Parquet file, one row group after the other.
type parquetLoader struct {
	r    *file.Reader
	pick picker
}

// parquetBatch is how many rows of a Parquet file are decoded at once.
const parquetBatch = 32 << 10

func newParquetLoader(in *input, pick picker) (l *parquetLoader, err error) {
	defer recoverDamage(in.name, &err)
	f, err := in.randomAccess("Parquet")
	if err != nil {
		return nil, err
	}
	props := parquet.NewReaderProperties(memory.DefaultAllocator)
	props.BufferedStreamEnabled = true // a row group is not held in memory
	r, err := file.NewParquetReader(&countAt{f, in}, file.WithReadProps(props))
	if err != nil {
		return nil, damaged(in.name, err)
	}
	return &parquetLoader{r: r, pick: pick}, nil
}

func (l *parquetLoader) arrow() bool { return true }

// send implements loader.
func (l *parquetLoader) send(w io.Writer) (err error) {
	defer recoverDamage("the Parquet file", &err)
	defer l.r.Close()
	pr, err := pqarrow.NewFileReader(l.r, pqarrow.ArrowReadProperties{BatchSize: parquetBatch}, memory.DefaultAllocator)
	if err != nil {
		return damaged("the Parquet file", err)
	}
	schema, err := pr.Schema()
	if err != nil {
		return damaged("the Parquet file", err)
	}
	body, err := newArrowBody(w, schema, l.pick)
	if err != nil {
		return err
	}
	rr, err := pr.GetRecordReader(context.Background(), nil, nil)
	if err != nil {
		return damaged("the Parquet file", err)
	}
	defer rr.Release()
	for rr.Next() {
		if err := body.write(rr.RecordBatch()); err != nil {
			return err
		}
	}
	if err := rr.Err(); err != nil && !errors.Is(err, io.EOF) {
		return damaged("the Parquet file", err)
	}
	return body.close()
}
