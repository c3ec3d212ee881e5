package row

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// DecodeKey appends the values of a key's columns to their builders, as
// [NewBuilders] makes them. Bytes that are not a key of these columns are
// errs.CorruptData, and nothing is appended then.
func DecodeKey(key []byte, cols []millrace.Column, builders []array.Builder) error {
	rest := key
	for _, c := range cols {
		v, err := cutKeyValue(rest, c.Type)
		if err != nil {
			return fmt.Errorf("key column %s: %w", c.Name, err)
		}
		rest = rest[len(v):]
	}
	if len(rest) != 0 {
		return errs.New(errs.CorruptData, "%d bytes follow a key", len(rest))
	}
	for i, c := range cols {
		n := keyValueLen(key, c.Type)
		appendToBuilder(builders[i], c.Type, key[:n])
		key = key[n:]
	}
	return nil
}

// keyWidth is the bytes that a value of t takes in a key; 0: it varies.
func keyWidth(t millrace.DataType) int {
	mustBeKey(t)
	if t.Kind == millrace.Binary {
		return t.Length
	}
	return slotWidth(t)
}

// cutKeyValue is the first value of key, checked, with its terminator.
func cutKeyValue(key []byte, t millrace.DataType) ([]byte, error) {
	n := keyValueLen(key, t)
	if n < 0 || n > len(key) {
		return nil, errs.New(errs.CorruptData, "a key ends within a %v", t)
	}
	v := key[:n]
	if t.Kind == millrace.Boolean && v[0] > 1 {
		return nil, errs.New(errs.CorruptData, "a key's BOOLEAN is %d", v[0])
	}
	if keyWidth(t) == 0 {
		for i := 0; i < n-2; i++ {
			if v[i] != escapeByte {
				continue
			}
			if i++; v[i] != escapedZero {
				return nil, errs.New(errs.CorruptData, "a key holds the escape 00 %02X", v[i])
			}
		}
	}
	return v, nil
}

// keyValueLen is the length of the first value of key with its terminator; more
// than key has, or -1, when it does not end within key.
func keyValueLen(key []byte, t millrace.DataType) int {
	if w := keyWidth(t); w != 0 {
		return w
	}
	for i := 0; i+1 < len(key); i++ {
		if key[i] != escapeByte {
			continue
		}
		if key[i+1] == terminator {
			return i + 2
		}
		i++
	}
	return -1
}

func unescape(v []byte) []byte {
	v = v[:len(v)-2]
	if bytes.IndexByte(v, escapeByte) < 0 {
		return v
	}
	return bytes.ReplaceAll(v, []byte{escapeByte, escapedZero}, []byte{escapeByte})
}

// appendToBuilder appends a checked value of a key.
func appendToBuilder(b array.Builder, t millrace.DataType, v []byte) {
	switch b := b.(type) {
	case *array.BooleanBuilder:
		b.Append(v[0] == 1)
	case *array.Int8Builder:
		b.Append(int8(v[0] ^ signBit8))
	case *array.Int16Builder:
		b.Append(int16(binary.BigEndian.Uint16(v) ^ signBit16))
	case *array.Int32Builder:
		b.Append(int32(key32(v)))
	case *array.Int64Builder:
		b.Append(int64(key64(v)))
	case *array.Decimal128Builder:
		b.Append(decimal128.New(int64(key64(v)), binary.BigEndian.Uint64(v[8:])))
	case *array.Date32Builder:
		b.Append(arrow.Date32(key32(v)))
	case *array.Time32Builder:
		b.Append(arrow.Time32(key32(v)))
	case *array.Time64Builder:
		b.Append(arrow.Time64(key64(v)))
	case *array.TimestampBuilder:
		b.Append(arrow.Timestamp(key64(v)))
	case *array.StringBuilder:
		b.BinaryBuilder.Append(unescape(v))
	case *array.BinaryBuilder:
		b.Append(unescape(v))
	case *array.FixedSizeBinaryBuilder:
		b.Append(v)
	default:
		panic(fmt.Sprintf("row: no builder of %v for a key column of type %v", b.Type(), t))
	}
}

func key32(v []byte) uint32 { return binary.BigEndian.Uint32(v) ^ signBit32 }
func key64(v []byte) uint64 { return binary.BigEndian.Uint64(v) ^ signBit64 }
