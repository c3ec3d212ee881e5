package segment

import (
	"fmt"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/row"
)

// benchRecord is 40 columns like those of an event table: ids that rise, small
// numbers, measurements, times, words that repeat.
func benchRecord(rows int) (*millrace.Schema, arrow.RecordBatch) {
	s := makeSchema(1, slices.Repeat([]string{"BIGINT", "INT", "DOUBLE", "TIMESTAMP(6)", "STRING"}, 8)...)
	b := array.NewRecordBuilder(memory.DefaultAllocator, row.ArrowSchema(s.Columns))
	defer b.Release()
	rng := newRand(1)
	words := []string{"EWR", "JFK", "LGA", "United Air Lines Inc.", "JetBlue Airways", "N14228", ""}
	for i := range rows {
		for c := range s.Columns {
			switch f := b.Field(c).(type) {
			case *array.Int64Builder:
				f.Append(int64(i)*10 + rng.Int64N(10))
			case *array.Int32Builder:
				if rng.IntN(20) == 0 {
					f.AppendNull()
				} else {
					f.Append(rng.Int32N(1000))
				}
			case *array.Float64Builder:
				f.Append(rng.NormFloat64())
			case *array.TimestampBuilder:
				f.Append(arrow.Timestamp(1.8e15 + int64(i)*1000 + rng.Int64N(1000)))
			case *array.StringBuilder:
				f.Append(words[rng.IntN(len(words))])
			}
		}
	}
	return s, b.NewRecordBatch()
}

func benchPayload(rows int, codec Codec) (*millrace.Schema, []byte, int) {
	s, rec := benchRecord(rows)
	defer rec.Release()
	return s, must(AppendColumns(nil, s, rec, nil, EncodeOptions{Codec: codec})), recordBytes(rec, 0, rows)
}

const benchRows = 6000 // about 2 MiB

func BenchmarkAppendColumns(b *testing.B) {
	s, rec := benchRecord(benchRows)
	defer rec.Release()
	for _, codec := range codecs {
		b.Run(codec.String(), func(b *testing.B) {
			b.SetBytes(int64(recordBytes(rec, 0, benchRows)))
			b.ReportAllocs()
			var dst []byte
			for b.Loop() {
				dst = must(AppendColumns(dst[:0], s, rec, nil, EncodeOptions{Codec: codec}))
			}
			b.ReportMetric(float64(recordBytes(rec, 0, benchRows))/float64(len(dst)), "ratio")
		})
	}
}

// BenchmarkMessageStored ships 2, 4 and 40 of 40 columns as they lie: opening the
// payload, reading, checking, header. MB/s are of the body.
func BenchmarkMessageStored(b *testing.B) {
	for _, codec := range []Codec{LZ4, None} {
		s, payload, _ := benchPayload(benchRows, codec)
		for _, n := range []int{2, 4, 40} {
			b.Run(fmt.Sprintf("%s/%d", codec, n), func(b *testing.B) {
				src := &countingReader{b: payload}
				b.ReportAllocs()
				for b.Loop() {
					p := must(Open(src, 0, int64(len(payload))))
					m := must(p.Message(only(s), s.Columns[:n], nil, Stored))
					b.SetBytes(int64(len(m.Body)))
					m.Release()
				}
			})
		}
	}
}

// BenchmarkMessageNone ships LZ4 chunks to readers that cannot decompress.
func BenchmarkMessageNone(b *testing.B) {
	s, payload, raw := benchPayload(benchRows, LZ4)
	b.SetBytes(int64(raw))
	b.ReportAllocs()
	for b.Loop() {
		must(must(OpenBytes(payload)).Message(only(s), s.Columns, nil, None)).Release()
	}
}

func BenchmarkRecord(b *testing.B) {
	for _, codec := range codecs {
		s, payload, raw := benchPayload(benchRows, codec)
		b.Run(codec.String(), func(b *testing.B) {
			b.SetBytes(int64(raw))
			b.ReportAllocs()
			for b.Loop() {
				must(must(OpenBytes(payload)).Record(memory.DefaultAllocator, only(s), s.Columns)).Release()
			}
		})
	}
}

func BenchmarkEncodeMessage(b *testing.B) {
	_, rec := benchRecord(benchRows)
	defer rec.Release()
	for _, codec := range codecs {
		b.Run(codec.String(), func(b *testing.B) {
			b.SetBytes(int64(recordBytes(rec, 0, benchRows)))
			b.ReportAllocs()
			for b.Loop() {
				must(EncodeMessage(rec, codec)).Release()
			}
		})
	}
}

// BenchmarkMerge seals many small batches: of rows one by one, and of columns.
func BenchmarkMerge(b *testing.B) {
	s, rec := benchRecord(benchRows)
	defer rec.Release()
	for _, size := range []int{1, 100, 1000} {
		for _, encoding := range []Encoding{Rows, Columns} {
			if encoding == Columns && size == 1 {
				continue
			}
			var parts []*Payload
			for at := 0; at < benchRows; at += size {
				part := rec.NewSlice(int64(at), int64(min(at+size, benchRows)))
				if encoding == Rows {
					parts = append(parts, must(OpenBytes(rowPayload(s, part, nil))))
				} else {
					parts = append(parts, must(OpenBytes(must(AppendColumns(nil, s, part, nil, EncodeOptions{})))))
				}
				part.Release()
			}
			b.Run(fmt.Sprintf("%s/%d", encoding, size), func(b *testing.B) {
				b.SetBytes(int64(recordBytes(rec, 0, benchRows)))
				b.ReportAllocs()
				var dst []byte
				for b.Loop() {
					dst = must(Merge(dst[:0], memory.DefaultAllocator, only(s), s, parts, EncodeOptions{}))
				}
			})
		}
	}
}

// BenchmarkSmall reads one row of 40 columns, as a tail does when little is written.
func BenchmarkSmall(b *testing.B) {
	s, rec := benchRecord(1)
	defer rec.Release()
	payloads := map[Encoding][]byte{Rows: rowPayload(s, rec, nil), Columns: must(AppendColumns(nil, s, rec, nil, EncodeOptions{}))}
	for _, encoding := range []Encoding{Rows, Columns} {
		b.Run(encoding.String()+"/record", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				must(must(OpenBytes(payloads[encoding])).Record(memory.DefaultAllocator, only(s), s.Columns)).Release()
			}
		})
		b.Run(encoding.String()+"/message", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				must(must(OpenBytes(payloads[encoding])).Message(only(s), s.Columns, nil, Stored)).Release()
			}
		})
		b.Run(encoding.String()+"/write", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if encoding == Rows {
					rowPayload(s, rec, nil)
				} else {
					must(AppendColumns(nil, s, rec, nil, EncodeOptions{}))
				}
			}
		})
	}
}
