package arrowrow

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

const flightColumns = "year INT NOT NULL, dep_delay DOUBLE, arr_delay DOUBLE, carrier STRING NOT NULL, flight INT NOT NULL, tailnum STRING, origin CHAR(3) NOT NULL, dest CHAR(3) NOT NULL, distance BIGINT, time_hour TIMESTAMP_LTZ(3) NOT NULL"

// flights are rows of the table's own types; loose, as pandas sends them: 64-bit
// integers, nanoseconds, dictionaries of text.
func flights(b *testing.B, n int, loose bool) arrow.RecordBatch {
	text, ints, times := arrow.DataType(arrow.BinaryTypes.String), arrow.PrimitiveTypes.Int32, &arrow.TimestampType{Unit: arrow.Millisecond, TimeZone: "UTC"}
	if loose {
		text, ints, times = &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: arrow.BinaryTypes.String}, arrow.PrimitiveTypes.Int64, &arrow.TimestampType{Unit: arrow.Nanosecond, TimeZone: "UTC"}
	}
	schema := schemaOf(field("year", ints), field("dep_delay", arrow.PrimitiveTypes.Float64), field("arr_delay", arrow.PrimitiveTypes.Float64), field("carrier", text), field("flight", ints),
		field("tailnum", text), field("origin", text), field("dest", text), field("distance", arrow.PrimitiveTypes.Int64), field("time_hour", times))
	rb := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	for i := range n {
		for c, v := range []string{"2013", fmt.Sprint(i%120 - 10), fmt.Sprint(float64(i%300) / 3), "UA", fmt.Sprint(1000 + i%8000), fmt.Sprintf("N%05d", i*37%4000), "EWR", "IAH", fmt.Sprint(200 + i%2500), fmt.Sprintf("2013-01-%02dT%02d:00:00Z", 1+i%28, i%24)} {
			if err := rb.Field(c).AppendValueFromString(v); err != nil {
				b.Fatal(err)
			}
		}
	}
	return rb.NewRecordBatch()
}

const benchRows = 20_000

func BenchmarkRead(b *testing.B) {
	for name, opts := range map[string][]ipc.Option{"plain": nil, "lz4": {ipc.WithLZ4()}, "zstd": {ipc.WithZstd()}} {
		in := stream(b, opts, flights(b, benchRows, false))
		size := int64(len(stream(b, nil, flights(b, benchRows, false)))) // as it is in memory
		b.Run(name+"/guarded", func(b *testing.B) {
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				r, err := NewReader(bytes.NewReader(in), Limits{})
				if err != nil {
					b.Fatal(err)
				}
				rec, err := r.Next()
				if err != nil {
					b.Fatal(err)
				}
				rec.Release()
			}
		})
		// The yardstick: arrow-go's reader, which checks nothing.
		b.Run(name+"/arrow-go", func(b *testing.B) {
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				r, err := ipc.NewReader(bytes.NewReader(in))
				if err != nil {
					b.Fatal(err)
				}
				if !r.Next() {
					b.Fatal(r.Err())
				}
				r.Release()
			}
		})
	}
}

func BenchmarkConform(b *testing.B) {
	cols := columnsOf(b, flightColumns)
	for name, loose := range map[string]bool{"same types": false, "cast": true} {
		recs, err := readAll(stream(b, nil, flights(b, benchRows, loose)), Limits{})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			p, err := NewPlan(recs[0].Schema(), cols, Options{})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				rows, err := p.Conform(recs[0])
				if err != nil {
					b.Fatal(err)
				}
				rows.Release()
			}
			b.ReportMetric(benchRows*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mrows/s")
		})
	}
}
