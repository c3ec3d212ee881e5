package tier

import (
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/row"
)

// recorder makes records for the lake of chunks.
type recorder struct {
	system bool
	schema *arrow.Schema
}

func newRecorder(t *millrace.Table) recorder {
	cols := t.Schema.Columns
	r := recorder{system: t.Options.Lake.SystemColumns}
	fields := row.ArrowSchema(cols).Fields()
	if r.system {
		for _, c := range lake.SystemColumns {
			fields = append(fields, row.ArrowField(c))
		}
	}
	r.schema = arrow.NewSchema(fields, nil)
	return r
}

// record is the rows of a chunk. The caller releases it.
func (r *recorder) record(c *router.Chunk) (arrow.RecordBatch, error) {
	rec, err := c.Record()
	if err != nil {
		return nil, err
	}
	defer rec.Release()
	arrs := rec.Columns()
	if r.system {
		extra := systemArrays(c)
		for _, a := range extra {
			defer a.Release()
		}
		arrs = append(slices.Clip(arrs), extra...)
	}
	return array.NewRecordBatch(r.schema, arrs, rec.NumRows()), nil
}

// systemArrays are the system columns of a chunk's rows; rows of keyed state have no
// offset and no time.
func systemArrays(c *router.Chunk) []arrow.Array {
	bs := row.NewBuilders(memory.DefaultAllocator, lake.SystemColumns)
	bucket, offset, at := bs[0].(*array.Int32Builder), bs[1].(*array.Int64Builder), bs[2].(*array.TimestampBuilder)
	for i := range c.Rows {
		bucket.Append(int32(c.Bucket))
		if c.Base == millrace.NoOffset {
			offset.AppendNull()
			at.AppendNull()
			continue
		}
		offset.Append(int64(c.Base) + int64(i))
		at.Append(arrow.Timestamp(c.MicrosAt(i)))
	}
	out := make([]arrow.Array, len(bs))
	for i, b := range bs {
		out[i] = b.NewArray()
		b.Release()
	}
	return out
}
