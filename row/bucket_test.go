package row_test

import (
	"encoding/binary"
	"math/big"
	"math/bits"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/twmb/murmur3"
	"pgregory.net/rapid"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/row"
)

// murmur32 is MurmurHash3_x86_32 with seed 0, written after the published
// algorithm, block by block: the reference for everything here.
func murmur32(b []byte) uint32 {
	mix := func(k uint32) uint32 { return bits.RotateLeft32(k*0xcc9e2d51, 15) * 0x1b873593 }
	h, n := uint32(0), uint32(len(b))
	for ; len(b) >= 4; b = b[4:] {
		h = bits.RotateLeft32(h^mix(binary.LittleEndian.Uint32(b)), 13)*5 + 0xe6546b64
	}
	var tail [4]byte
	copy(tail[:], b)
	if len(b) > 0 {
		h ^= mix(binary.LittleEndian.Uint32(tail[:]))
	}
	h ^= n
	h = (h ^ h>>16) * 0x85ebca6b
	h = (h ^ h>>13) * 0xc2b2ae35
	return h ^ h>>16
}

// The hash that is used is MurmurHash3_x86_32 for inputs of every length from 0
// to 300, at every alignment; the reference itself is checked against published
// vectors.
func TestMurmur(t *testing.T) {
	for in, want := range map[string]uint32{"": 0, "test": 0xba6bd213, "Hello, world!": 0xc0363e43, "The quick brown fox jumps over the lazy dog": 0x2e4ff723} {
		if got := murmur32([]byte(in)); got != want {
			t.Fatalf("the reference hashes %q to %08x, want %08x", in, got, want)
		}
	}
	buf := make([]byte, 310)
	for i := range buf {
		buf[i] = byte(i*i + 129*i)
	}
	for from := range 8 {
		for n := range 301 {
			b := buf[from : from+n]
			if got, want := murmur3.Sum32(b), murmur32(b); got != want {
				t.Fatalf("%d bytes at %d: %08x, want %08x", n, from, got, want)
			}
			if got, want := murmur3.StringSum32(string(b)), murmur32(b); got != want {
				t.Fatalf("a string of %d bytes: %08x, want %08x", n, got, want)
			}
		}
	}
}

// The hashes published in appendix B of the Iceberg specification come out as
// buckets, for every type and precision of ours that stands for one of theirs.
func TestIcebergVectors(t *testing.T) {
	for _, tc := range []struct {
		typ, value string
		hash       int32
	}{
		{"TINYINT", "34", 2017239379},
		{"SMALLINT", "34", 2017239379},
		{"INT", "34", 2017239379},
		{"BIGINT", "34", 2017239379},
		{"DECIMAL(9,2)", `"14.20"`, -500754589},
		{"DECIMAL(38,2)", `"14.20"`, -500754589},
		{"DATE", `"2017-11-16"`, -653330422},
		{"TIME(0)", `"22:31:08"`, -662762989},
		{"TIME(6)", `"22:31:08"`, -662762989},
		{"TIME(9)", `"22:31:08"`, -662762989},
		{"TIMESTAMP(0)", `"2017-11-16 22:31:08"`, -2047944441},
		{"TIMESTAMP(3)", `"2017-11-16 22:31:08"`, -2047944441},
		{"TIMESTAMP(6)", `"2017-11-16 22:31:08"`, -2047944441},
		{"TIMESTAMP(6)", `"2017-11-16 22:31:08.000001"`, -1207196810},
		{"TIMESTAMP(9)", `"2017-11-16 22:31:08.000001"`, -1207196810},
		{"TIMESTAMP(9)", `"2017-11-16 22:31:08.000001001"`, -1207196810},
		{"TIMESTAMP_LTZ(0)", `"2017-11-16 22:31:08Z"`, -2047944441},
		{"TIMESTAMP_LTZ(6)", `"2017-11-16 22:31:08.000001Z"`, -1207196810},
		{"CHAR(7)", `"iceberg"`, 1210000089},
		{"STRING", `"iceberg"`, 1210000089},
		{"BINARY(4)", `"AAECAw=="`, -188683207},
		{"BYTES", `"AAECAw=="`, -188683207},
		{"BINARY(16)", `"95w+CWd8S72keT80nLeF5w=="`, 1488055340}, // their uuid
	} {
		cols := columnsOf(parse(tc.typ))
		rec := fromJSON(t, cols, `[{"c0": `+tc.value+`}]`)
		for _, n := range []int{1, 2, 7, 64, 1000, millrace.MaxBuckets} {
			want := uint16((uint32(tc.hash) & 0x7fffffff) % uint32(n))
			if got := row.NewBucketer(cols, n).Buckets(rec, []int{0}, nil); len(got) != 1 || got[0] != want {
				t.Errorf("%s %s in %d buckets: %d, want %d", tc.typ, tc.value, n, got, want)
			}
		}
		rec.Release()
	}
}

// hashInput is what docs/formats/bucket-hash.md says is hashed, by big integers
// and division where the code has bytes and shifts.
func hashInput(arr arrow.Array, i int) []byte {
	long := func(v int64) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(v)) }
	perSecond := map[arrow.TimeUnit]float64{arrow.Second: 1, arrow.Millisecond: 1e3, arrow.Microsecond: 1e6, arrow.Nanosecond: 1e9}
	micros := func(v int64) []byte {
		unit := int64(perSecond[arr.DataType().(arrow.TemporalWithUnit).TimeUnit()])
		second, rest := v/unit, v%unit
		if rest < 0 {
			second, rest = second-1, rest+unit
		}
		return long(second*1e6 + rest*1e6/unit)
	}
	switch a := arr.(type) {
	case *array.Int8:
		return long(int64(a.Value(i)))
	case *array.Int16:
		return long(int64(a.Value(i)))
	case *array.Int32:
		return long(int64(a.Value(i)))
	case *array.Int64:
		return long(a.Value(i))
	case *array.Date32:
		return long(int64(a.Value(i)))
	case *array.Time32:
		return micros(int64(a.Value(i)))
	case *array.Time64:
		return micros(int64(a.Value(i)))
	case *array.Timestamp:
		return micros(int64(a.Value(i)))
	case *array.String:
		return []byte(a.Value(i))
	case *array.Binary:
		return a.Value(i)
	case *array.FixedSizeBinary:
		return a.Value(i)
	case *array.Decimal128:
		v := a.Value(i).BigInt()
		// The shortest two's complement has room for the bits and a sign bit.
		// v and ^v = -v-1 have the same bits below the sign.
		n := v.BitLen()
		if v.Sign() < 0 {
			n = new(big.Int).Not(v).BitLen()
		}
		size := n/8 + 1
		if v.Sign() < 0 {
			v = new(big.Int).Add(v, new(big.Int).Lsh(big.NewInt(1), uint(size*8)))
		}
		return v.FillBytes(make([]byte, size))
	}
	panic(arr.DataType())
}

// The bucket of a row is the reference hash of the concatenated inputs of its key
// columns, for one column and several, of all types.
func TestBuckets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cols := drawKeyColumns(t)
		for i := range cols {
			if cols[i].Type.Kind == millrace.Boolean {
				cols[i].Type = parse("INT")
			}
		}
		rec := drawRecord(t, cols, false)
		defer rec.Release()
		n := rapid.IntRange(1, millrace.MaxBuckets).Draw(t, "buckets")
		order := rapid.Permutation(indexes(len(cols))).Draw(t, "order")
		keyCols := make([]millrace.Column, len(order))
		for i, c := range order {
			keyCols[i] = cols[c]
		}
		got := row.NewBucketer(keyCols, n).Buckets(rec, order, []uint16{7})
		if len(got) != 1+int(rec.NumRows()) || got[0] != 7 {
			t.Fatalf("%d buckets for %d rows", len(got), rec.NumRows())
		}
		for i, b := range got[1:] {
			var in []byte
			for _, c := range order {
				in = append(in, hashInput(rec.Column(c), i)...)
			}
			if want := murmur32(in) & 0x7fffffff % uint32(n); uint32(b) != want {
				t.Fatalf("row %d, input %x: bucket %d, want %d", i, in, b, want)
			}
		}
	})
}

// Batches without a bucket key go by writer and sequence: the same pair always to
// the same bucket, and many pairs to all buckets about evenly.
func TestSpreadBucket(t *testing.T) {
	const n, batches = 16, 16000
	var counts [n]int
	for seq := range uint64(batches) {
		b := row.SpreadBucket("writer-1", seq, n)
		if b != row.SpreadBucket("writer-1", seq, n) {
			t.Fatal("two buckets for one batch")
		}
		counts[b]++
	}
	for b, c := range counts {
		if c < batches/n*8/10 || c > batches/n*12/10 {
			t.Errorf("bucket %d has %d of %d batches", b, c, batches)
		}
	}
	// Fixed for ever: a retry may come to a newer release.
	if got := row.SpreadBucket("w", 1, 4096); got != uint16(murmur32([]byte("w\x01\x00\x00\x00\x00\x00\x00\x00"))&0x7fffffff%4096) {
		t.Errorf("bucket %d", got)
	}
}
