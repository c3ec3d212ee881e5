package main

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// columnsOf is a table's columns as SQL has them.
func columnsOf(schema *arrow.Schema) string {
	var cols []string
	for _, f := range schema.Fields() {
		typ := map[arrow.Type]string{arrow.INT64: "BIGINT", arrow.FLOAT64: "DOUBLE", arrow.STRING: "STRING", arrow.BINARY: "BYTES", arrow.INT32: "INT", arrow.TIMESTAMP: "TIMESTAMP_LTZ(6)"}[f.Type.ID()]
		cols = append(cols, f.Name+" "+typ)
	}
	return strings.Join(cols, ", ")
}

func field(name string, t arrow.DataType) arrow.Field {
	return arrow.Field{Name: name, Type: t, Nullable: true}
}

// Rows of 1 KiB: three numbers' worth of fixed columns and a body of random bytes,
// in which no compressor finds anything.
const (
	rowBytes   = 1 << 10
	appendRows = 256
	bodyBytes  = rowBytes - 8 - 8 - 4 // two numbers, one offset
)

var appendSchema = arrow.NewSchema([]arrow.Field{field("id", arrow.PrimitiveTypes.Int64), field("at", arrow.PrimitiveTypes.Int64), field("body", arrow.BinaryTypes.Binary)}, nil)

func appendBatch(rnd *rand.Rand, rows int) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, appendSchema)
	defer b.Release()
	body := make([]byte, bodyBytes)
	for range rows {
		b.Field(0).(*array.Int64Builder).Append(rnd.Int64())
		b.Field(1).(*array.Int64Builder).Append(rnd.Int64())
		fill(rnd, body)
		b.Field(2).(*array.BinaryBuilder).Append(body)
	}
	return b.NewRecordBatch()
}

func fill(rnd *rand.Rand, b []byte) {
	var word [8]byte
	for len(b) > 0 {
		binary.LittleEndian.PutUint64(word[:], rnd.Uint64())
		b = b[copy(b, word[:]):]
	}
}

// Wide events: 40 columns of 8 bytes. c00 is the number of the row, so rows are
// sorted by it; the others are random, so that what is sent is what is stored.
const (
	wideColumns = 40
	wideRows    = 6_400 // a batch of 2 MB, which is what the server stores and sends at once
)

func wideName(i int) string { return fmt.Sprintf("c%02d", i) }

func wideNames(n int) []string {
	var names []string
	for i := range n {
		names = append(names, wideName(i))
	}
	return names
}

func wideSchema() *arrow.Schema {
	var fields []arrow.Field
	for _, n := range wideNames(wideColumns) {
		fields = append(fields, field(n, arrow.PrimitiveTypes.Int64))
	}
	return arrow.NewSchema(fields, nil)
}

func wideBatch(rnd *rand.Rand, schema *arrow.Schema, from int64) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	for c := range wideColumns {
		f := b.Field(c).(*array.Int64Builder)
		f.Reserve(wideRows)
		for i := range int64(wideRows) {
			if c == 0 {
				f.UnsafeAppend(from + i)
			} else {
				f.UnsafeAppend(rnd.Int64())
			}
		}
	}
	return b.NewRecordBatch()
}

// Keyed rows of about 100 bytes.
const (
	keyedRows  = 100
	valueBytes = 76 // of the text; with key and two numbers 100
)

var (
	keyedSchema = arrow.NewSchema([]arrow.Field{
		field("id", arrow.PrimitiveTypes.Int64), field("text", arrow.BinaryTypes.String), field("n", arrow.PrimitiveTypes.Int64), field("x", arrow.PrimitiveTypes.Float64),
	}, nil)
	keySchema = arrow.NewSchema(keyedSchema.Fields()[:1], nil)
)

// keyedBatch has rows of the keys that next gives.
func keyedBatch(rnd *rand.Rand, rows int, next func() int64) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, keyedSchema)
	defer b.Release()
	for range rows {
		b.Field(0).(*array.Int64Builder).Append(next())
		b.Field(1).(*array.StringBuilder).Append(string(text(rnd)))
		b.Field(2).(*array.Int64Builder).Append(rnd.Int64())
		b.Field(3).(*array.Float64Builder).Append(rnd.Float64())
	}
	return b.NewRecordBatch()
}

func text(rnd *rand.Rand) []byte {
	b := make([]byte, valueBytes)
	for i := range b {
		b[i] = byte('a' + rnd.IntN(26))
	}
	return b
}

func keyBatch(rnd *rand.Rand, keys int) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, keySchema)
	defer b.Release()
	for range keyedRows {
		b.Field(0).(*array.Int64Builder).Append(rnd.Int64N(int64(keys)))
	}
	return b.NewRecordBatch()
}

// rawValue has as many random bytes as a keyed row without its key.
func rawValue(rnd *rand.Rand) []byte {
	v := append(text(rnd), make([]byte, 16)...)
	fill(rnd, v[valueBytes:])
	return v
}

func rawKey(dst []byte, id int64) []byte { return binary.BigEndian.AppendUint64(dst[:0], uint64(id)) }

func random(stream int) *rand.Rand { return rand.New(rand.NewPCG(uint64(stream), 1)) }
