package row_test

import (
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/row"
)

const benchRows = 1024

// benchTable is ten columns as an orders table has them, 1024 rows.
func benchTable() (*millrace.Schema, arrow.RecordBatch) {
	s := &millrace.Schema{ID: 1, Columns: columnsOf(
		parse("BIGINT"), parse("STRING"), parse("INT"), parse("DOUBLE"), parse("TIMESTAMP(6)"),
		parse("STRING"), parse("BOOLEAN"), parse("DECIMAL(18,2)"), parse("DATE"), parse("BIGINT"))}
	b := array.NewRecordBuilder(memory.DefaultAllocator, row.ArrowSchema(s.Columns))
	defer b.Release()
	for i := range benchRows {
		b.Field(0).(*array.Int64Builder).Append(int64(i) * 7919)
		b.Field(1).(*array.StringBuilder).Append(fmt.Sprintf("customer-%06d", i))
		b.Field(2).(*array.Int32Builder).Append(int32(i))
		b.Field(3).(*array.Float64Builder).Append(float64(i) / 3)
		b.Field(4).(*array.TimestampBuilder).Append(arrow.Timestamp(1_700_000_000_000_000 + i))
		if i%4 == 0 {
			b.Field(5).AppendNull()
		} else {
			b.Field(5).(*array.StringBuilder).Append("a comment of some length, as people write them")
		}
		b.Field(6).(*array.BooleanBuilder).Append(i%2 == 0)
		b.Field(7).(*array.Decimal128Builder).Append(decimal128.FromI64(int64(i) * 100))
		b.Field(8).(*array.Date32Builder).Append(arrow.Date32(i))
		b.Field(9).(*array.Int64Builder).Append(-int64(i))
	}
	return s, b.NewRecordBatch()
}

func perRow(b *testing.B) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchRows, "ns/row")
}

func BenchmarkAppendRow(b *testing.B) {
	s, rec := benchTable()
	c := row.NewCodec(s)
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst = dst[:0]
		for i := range benchRows {
			dst = c.AppendRow(dst, rec, i)
		}
	}
	b.SetBytes(int64(len(dst)))
	perRow(b)
}

func BenchmarkReader(b *testing.B) {
	s, rec := benchTable()
	rows := encodeAll(row.NewCodec(s), rec)
	for _, n := range []int{10, 2} {
		b.Run(fmt.Sprintf("columns=%d", n), func(b *testing.B) {
			r := row.NewReader(memory.DefaultAllocator, oneSchema(s), s.Columns[:n])
			b.ReportAllocs()
			for b.Loop() {
				for _, v := range rows {
					if err := r.Append(v); err != nil {
						b.Fatal(err)
					}
				}
				r.Record().Release()
			}
			perRow(b)
		})
	}
}

func BenchmarkAppendMerged(b *testing.B) {
	s, rec := benchTable()
	c := row.NewCodec(s)
	rows := encodeAll(c, rec)
	set := []bool{true, false, true, false, false, true, false, false, false, false}
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		for i, v := range rows {
			dst = c.AppendMerged(dst[:0], v, rows[benchRows-1-i], set)
		}
	}
	perRow(b)
}

func BenchmarkAppendKey(b *testing.B) {
	s, rec := benchTable()
	c := row.NewCodec(s)
	rows := encodeAll(c, rec)
	for name, cols := range map[string][]int{"bigint": {0}, "string": {1}, "string+int+decimal": {1, 2, 7}} {
		b.Run("record/"+name, func(b *testing.B) {
			var dst []byte
			b.ReportAllocs()
			for b.Loop() {
				for i := range benchRows {
					dst = row.AppendKey(dst[:0], rec, cols, i)
				}
			}
			perRow(b)
		})
		b.Run("row/"+name, func(b *testing.B) {
			var dst []byte
			b.ReportAllocs()
			for b.Loop() {
				for _, v := range rows {
					dst, _ = c.AppendKeyOfRow(dst[:0], v, cols)
				}
			}
			perRow(b)
		})
	}
}

func BenchmarkBucketer(b *testing.B) {
	s, rec := benchTable()
	for _, cols := range [][]int{{0}, {1}, {4}, {7}, {0, 1}} {
		var keyCols []millrace.Column
		name := ""
		for _, c := range cols {
			keyCols = append(keyCols, s.Columns[c])
			name += "+" + s.Columns[c].Type.Kind.String()
		}
		b.Run(name[1:], func(b *testing.B) {
			bk := row.NewBucketer(keyCols, 16)
			var dst []uint16
			for b.Loop() {
				dst = bk.Buckets(rec, cols, dst[:0])
			}
			perRow(b)
		})
	}
}

func BenchmarkTake(b *testing.B) {
	_, rec := benchTable()
	idx := make([]int32, benchRows/4)
	for i := range idx {
		idx[i] = int32(i * 4)
	}
	b.ReportAllocs()
	for b.Loop() {
		row.Take(memory.DefaultAllocator, rec, idx).Release()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(idx)), "ns/row")
}
