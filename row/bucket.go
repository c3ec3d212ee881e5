package row

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/twmb/murmur3"

	millrace "github.com/millrace/millrace"
)

// Bucketer gives rows their buckets by the values of the bucket key, as the
// bucket transform of Iceberg does (docs/formats/bucket-hash.md). It is
// immutable, so any number of goroutines may use it.
type Bucketer struct {
	cols    []millrace.Column
	buckets uint32
}

// NewBucketer makes the bucketer of a table with the given bucket-key columns.
// REQUIRES: 1 ≤ buckets ≤ millrace.MaxBuckets; there is a column; all are scalars
// that may be in a bucket key.
func NewBucketer(cols []millrace.Column, buckets int) *Bucketer {
	if len(cols) == 0 || buckets < 1 || buckets > millrace.MaxBuckets {
		panic(fmt.Sprintf("row: %d buckets by %d columns", buckets, len(cols)))
	}
	for _, c := range cols {
		mustBeKey(c.Type)
		if c.Type.Kind == millrace.Boolean {
			panic(fmt.Sprintf("row: BOOLEAN column %q cannot be in a bucket key", c.Name))
		}
	}
	return &Bucketer{cols: cols, buckets: uint32(buckets)}
}

// Buckets appends the bucket of each row of rec to dst. The columns of the
// bucket key, in its order, are cols of rec.
// REQUIRES: they are of canonical types and hold no NULL.
func (b *Bucketer) Buckets(rec arrow.RecordBatch, cols []int, dst []uint16) []uint16 {
	if len(cols) != len(b.cols) {
		panic(fmt.Sprintf("row: %d columns for a bucket key of %d", len(cols), len(b.cols)))
	}
	at := len(dst)
	dst = append(dst, make([]uint16, rec.NumRows())...)
	out := dst[at:]
	arrs := make([]arrow.Array, len(cols))
	for i, c := range cols {
		if arrs[i] = rec.Column(c); arrs[i].NullN() != 0 {
			panic(fmt.Sprintf("row: NULL in bucket-key column %q", b.cols[i].Name))
		}
	}
	switch {
	case b.buckets == 1:
	case len(arrs) == 1:
		b.single(arrs[0], out)
	default:
		b.several(arrs, out)
	}
	return dst
}

// single has a loop for each type, for a bucket key of one column.
func (b *Bucketer) single(arr arrow.Array, out []uint16) {
	switch a := arr.(type) {
	case *array.Int8:
		hashInts(b.buckets, a.Values(), out)
	case *array.Int16:
		hashInts(b.buckets, a.Values(), out)
	case *array.Int32:
		hashInts(b.buckets, a.Values(), out)
	case *array.Int64:
		hashInts(b.buckets, a.Values(), out)
	case *array.Date32:
		hashInts(b.buckets, a.Values(), out)
	case *array.Time32:
		hashTimes(b.buckets, a.Values(), unitOf(a), out)
	case *array.Time64:
		hashTimes(b.buckets, a.Values(), unitOf(a), out)
	case *array.Timestamp:
		hashTimes(b.buckets, a.Values(), unitOf(a), out)
	case *array.String:
		for i := range out {
			out[i] = bucketOf(murmur3.StringSum32(a.Value(i)), b.buckets)
		}
	case *array.Binary:
		for i := range out {
			out[i] = bucketOf(murmur3.Sum32(a.Value(i)), b.buckets)
		}
	case *array.FixedSizeBinary:
		for i := range out {
			out[i] = bucketOf(murmur3.Sum32(a.Value(i)), b.buckets)
		}
	case *array.Decimal128:
		scratch := make([]byte, 0, 16)
		for i := range out {
			out[i] = bucketOf(murmur3.Sum32(appendDecimal(scratch, a.Value(i))), b.buckets)
		}
	default:
		panic(fmt.Sprintf("row: %v cannot be in a bucket key", arr.DataType()))
	}
}

// several hashes, for each row, the concatenation of the columns' bytes.
func (b *Bucketer) several(arrs []arrow.Array, out []uint16) {
	scratch := make([]byte, 0, 128)
	for i := range out {
		scratch = scratch[:0]
		for _, arr := range arrs {
			scratch = appendHashInput(scratch, arr, i)
		}
		out[i] = bucketOf(murmur3.Sum32(scratch), b.buckets)
	}
}

// appendHashInput appends the bytes that value i of arr is hashed by.
func appendHashInput(dst []byte, arr arrow.Array, i int) []byte {
	var long int64
	switch a := arr.(type) {
	case *array.Int8:
		long = int64(a.Value(i))
	case *array.Int16:
		long = int64(a.Value(i))
	case *array.Int32:
		long = int64(a.Value(i))
	case *array.Int64:
		long = a.Value(i)
	case *array.Date32:
		long = int64(a.Value(i))
	case *array.Time32:
		long = micros(int64(a.Value(i)), unitOf(a))
	case *array.Time64:
		long = micros(int64(a.Value(i)), unitOf(a))
	case *array.Timestamp:
		long = micros(int64(a.Value(i)), unitOf(a))
	case *array.String:
		return append(dst, a.Value(i)...)
	case *array.Binary:
		return append(dst, a.Value(i)...)
	case *array.FixedSizeBinary:
		return append(dst, a.Value(i)...)
	case *array.Decimal128:
		return appendDecimal(dst, a.Value(i))
	default:
		panic(fmt.Sprintf("row: %v cannot be in a bucket key", arr.DataType()))
	}
	return binary.LittleEndian.AppendUint64(dst, uint64(long))
}

func bucketOf(hash, buckets uint32) uint16 { return uint16((hash & 0x7fffffff) % buckets) }

func hashInts[T ~int8 | ~int16 | ~int32 | ~int64](buckets uint32, vals []T, out []uint16) {
	for i, v := range vals {
		out[i] = bucketOf(hashLong(int64(v)), buckets)
	}
}

func hashTimes[T ~int32 | ~int64](buckets uint32, vals []T, unit arrow.TimeUnit, out []uint16) {
	if unit == arrow.Microsecond {
		hashInts(buckets, vals, out)
		return
	}
	for i, v := range vals {
		out[i] = bucketOf(hashLong(micros(int64(v), unit)), buckets)
	}
}

func unitOf(arr arrow.Array) arrow.TimeUnit {
	return arr.DataType().(arrow.TemporalWithUnit).TimeUnit()
}

// micros is a time of the unit in microseconds, rounded down: what Iceberg
// hashes whatever the precision.
func micros(v int64, unit arrow.TimeUnit) int64 {
	switch unit {
	case arrow.Second:
		return v * 1_000_000
	case arrow.Millisecond:
		return v * 1_000
	case arrow.Nanosecond:
		m := v / 1_000
		if v%1_000 < 0 {
			m--
		}
		return m
	default:
		return v
	}
}

// appendDecimal appends the unscaled value in the fewest bytes of big-endian
// two's complement, at least one.
func appendDecimal(dst []byte, v decimal128.Num) []byte {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], uint64(v.HighBits()))
	binary.BigEndian.PutUint64(b[8:], v.LowBits())
	i := 0
	for i < 15 && (b[i] == 0x00 && b[i+1] < 0x80 || b[i] == 0xff && b[i+1] >= 0x80) {
		i++ // the next byte has the same sign
	}
	return append(dst, b[i:]...)
}

// hashLong is murmur3-32 of the 8 little-endian bytes of v.
func hashLong(v int64) uint32 {
	h := mixWord(mixWord(0, uint32(v)), uint32(uint64(v)>>32))
	h ^= 8
	h ^= h >> 16
	h *= 0x85ebca6b
	h ^= h >> 13
	h *= 0xc2b2ae35
	return h ^ h>>16
}

func mixWord(h, k uint32) uint32 {
	k *= 0xcc9e2d51
	k = bits.RotateLeft32(k, 15)
	k *= 0x1b873593
	h ^= k
	h = bits.RotateLeft32(h, 13)
	return h*5 + 0xe6546b64
}

// SpreadBucket is the bucket of the rows of a batch that have no bucket key: by
// writer and sequence, so that a retry meets its first copy.
// REQUIRES: 1 ≤ n ≤ millrace.MaxBuckets.
func SpreadBucket(writer string, seq uint64, n int) uint16 {
	in := make([]byte, 0, 64)
	in = append(in, writer...)
	in = binary.LittleEndian.AppendUint64(in, seq)
	return bucketOf(murmur3.Sum32(in), uint32(n))
}
