package arrowrow

import (
	"os"
	"runtime"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row/jsonrow"
)

// addStreams gives a fuzzer streams of every layout and compression.
func addStreams(f *testing.F) {
	for _, opts := range [][]ipc.Option{nil, {ipc.WithLZ4()}, {ipc.WithZstd()}} {
		for i, rec := range append(sample(f), viewSample()) {
			if i != 1 {
				f.Add(stream(f, opts, rec))
			}
			for c := range int(rec.NumCols()) {
				if i == 0 || i == 3 {
					f.Add(stream(f, opts, only(rec, c)))
				}
			}
		}
	}
	b, err := os.ReadFile("testdata/pyarrow_lz4.arrows")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(honest().bytes(f))
}

// FuzzIPCStream shows that no bytes make the reader fail badly: what it refuses has
// a code of its own, what it takes is sound by arrow-go's full check, and neither
// takes more memory than a small multiple of the limit.
func FuzzIPCStream(f *testing.F) {
	addStreams(f)
	limits := Limits{MaxMessageBytes: 1 << 20, MaxMetadataBytes: 1 << 20, MaxRows: 1 << 16}
	f.Fuzz(func(t *testing.T, in []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		recs, err := readAll(in, limits)
		runtime.ReadMemStats(&after)
		if err != nil && errs.CodeOf(err) == errs.Internal {
			t.Fatal(err)
		}
		// A message may cost its limit once as it is, once decompressed, and once in
		// the decompressor's window.
		messages := uint64(len(in)/40 + 1)
		if used := after.TotalAlloc - before.TotalAlloc; used > 16<<20+messages*4<<20 {
			t.Fatalf("%d bytes took %d", len(in), used)
		}
		for _, rec := range recs {
			if err := sound(rec); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// fuzzColumns are the types that FuzzConform tries to make of each column.
var fuzzColumns = "a TINYINT NOT NULL, b BIGINT, c DOUBLE, d DECIMAL(20,5), e CHAR(5), f STRING, g BINARY(3), h BYTES, i DATE, j TIME(4), k TIMESTAMP(3), l TIMESTAMP_LTZ(9), m ARRAY<INT>, n ARRAY<STRING NOT NULL>, o MAP<STRING, ARRAY<ROW<a BIGINT, b STRING>>>, p ROW<a BIGINT NOT NULL, b STRING>, q BOOLEAN"

// FuzzConform shows that rows made of any sound batch obey their types: they are
// sound by arrow-go's full check, and as JSON they are taken by the JSON decoder,
// which checks every value, and come back the same. Rows that are sifted are as
// many as were not rejected.
func FuzzConform(f *testing.F) {
	addStreams(f)
	cols := columnsOf(f, fuzzColumns)
	limits := Limits{MaxMessageBytes: 1 << 20, MaxMetadataBytes: 1 << 20, MaxRows: 1 << 12}
	f.Fuzz(func(t *testing.T, in []byte) {
		recs, _ := readAll(in, limits)
		for _, rec := range recs {
			for i := range int(rec.NumCols()) {
				one := only(rec, i)
				for _, c := range cols {
					c.Name = "v"
					conformOne(t, one, c, limits)
				}
			}
		}
	})
}

func conformOne(t *testing.T, rec arrow.RecordBatch, c millrace.Column, limits Limits) {
	p, err := NewPlan(rec.Schema(), []millrace.Column{c}, Options{Limits: limits})
	if err != nil {
		if errs.CodeOf(err) == errs.Internal {
			t.Fatal(err)
		}
		return
	}
	rows, rejected, err := p.Sift(rec)
	if err != nil {
		if !errs.Is(err, errs.TooLarge) {
			t.Fatalf("%s of %s: %v", c.Type, rec.Schema(), err)
		}
		return
	}
	defer rows.Release()
	if int64(rows.Len())+rejected.Rows != rec.NumRows() {
		t.Fatalf("%d rows and %d rejected of %d", rows.Len(), rejected.Rows, rec.NumRows())
	}
	if err := array.ValidateRecordFull(rows.Record); err != nil {
		t.Fatalf("%s of %s: %v", c.Type, rec.Schema(), err)
	}
	d := jsonrow.NewDecoder(rows.Columns, jsonrow.Options{})
	want := rendered(rows)
	for _, text := range want {
		if err := d.AddObject([]byte(text), 0); err != nil {
			t.Fatalf("%s of %s: %s: %v", c.Type, rec.Schema(), text, err)
		}
	}
	again := d.Finish()
	defer again.Release()
	for i, text := range rendered(again) {
		if text != want[i] {
			t.Fatalf("%s of %s: %s came back as %s", c.Type, rec.Schema(), want[i], text)
		}
	}
}
