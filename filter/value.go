package filter

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"

	millrace "github.com/millrace/millrace"
)

type valueKind uint8

const (
	valueNull valueKind = iota
	valueBool
	valueNumber
	valueText
	valueBytes
	valueDate
	valueTime
	valueTimestamp
	valueTimestampLTZ
)

// value is a literal or a parameter, before it meets a column.
type value struct {
	kind    valueKind
	yes     bool    // valueBool
	num     number  // valueNumber
	str     string  // valueText, valueBytes
	instant instant // valueDate, valueTimestamp, valueTimestampLTZ; valueTime counts from midnight
}

func (v value) temporal() bool {
	return v.kind == valueDate || v.kind == valueTimestamp || v.kind == valueTimestampLTZ
}

// noun says what kind of value v is, for messages.
func (v value) noun() string {
	switch v.kind {
	case valueNull:
		return "NULL"
	case valueBool:
		return "a BOOLEAN"
	case valueNumber:
		return "a number"
	case valueText:
		return "a text"
	case valueBytes:
		return "a binary value"
	case valueDate:
		return "a DATE"
	case valueTime:
		return "a TIME"
	case valueTimestamp:
		return "a TIMESTAMP"
	case valueTimestampLTZ:
		return "a TIMESTAMP_LTZ"
	}
	panic("filter: unknown kind of value")
}

// floatWords are the texts for the floats that are no numbers, as in JSON rows.
var floatWords = map[string]int64{
	"NaN": nanKey, "Infinity": infKey, "-Infinity": -infKey,
}

// readText reads a text as a value of the given kind of column, in the form it
// has in a JSON row.
func readText(s string, k millrace.Kind) (value, error) {
	switch k {
	case millrace.Boolean:
		switch strings.ToLower(s) {
		case "true":
			return value{kind: valueBool, yes: true}, nil
		case "false":
			return value{kind: valueBool}, nil
		}
		return value{}, fmt.Errorf("%s is neither 'true' nor 'false'", quoteText(s))
	case millrace.TinyInt, millrace.SmallInt, millrace.Int, millrace.BigInt, millrace.Decimal,
		millrace.Float, millrace.Double:
		n, ok := parseNumber(s)
		if !ok {
			return value{}, fmt.Errorf("%s is not a number", quoteText(s))
		}
		n.rounds = true
		return value{kind: valueNumber, num: n}, nil
	case millrace.Char, millrace.String:
		return value{kind: valueText, str: s}, nil
	case millrace.Binary, millrace.Bytes:
		b, err := readBase64(s)
		if err != nil {
			return value{}, fmt.Errorf("%s is not base64; a binary value can also be written in hexadecimal: X'00ff'", quoteText(s))
		}
		return value{kind: valueBytes, str: b}, nil
	case millrace.Date:
		return readTemporal(s, valueDate)
	case millrace.Time:
		return readTemporal(s, valueTime)
	case millrace.Timestamp:
		return readTemporal(s, valueTimestamp)
	case millrace.TimestampLTZ:
		return readTemporal(s, valueTimestampLTZ)
	default:
		panic("filter: no values of kind " + k.String())
	}
}

// readBase64 takes both alphabets, with and without padding.
func readBase64(s string) (string, error) {
	s = strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(s, "="))
	b, err := base64.RawStdEncoding.DecodeString(s)
	return string(b), err
}

func readHex(digits string) (value, error) {
	b, err := hex.DecodeString(digits)
	if err != nil {
		return value{}, fmt.Errorf("the literal X'%s' is not hexadecimal: two digits a byte", clipText(digits))
	}
	return value{kind: valueBytes, str: string(b)}, nil
}

// kindOf is the kind of column that a typed literal would have; used where two
// literals meet.
func (v value) kindOf() millrace.Kind {
	switch v.kind {
	case valueBool:
		return millrace.Boolean
	case valueNumber:
		return millrace.Decimal
	case valueBytes:
		return millrace.Bytes
	case valueDate:
		return millrace.Date
	case valueTime:
		return millrace.Time
	case valueTimestamp:
		return millrace.Timestamp
	case valueTimestampLTZ:
		return millrace.TimestampLTZ
	case valueNull, valueText:
	}
	return millrace.String
}

// compareValues compares two literals that are not NULL; false when they have
// nothing in common.
func compareValues(a, b value) (int, bool) {
	switch {
	case a.temporal() && b.temporal(), a.kind == valueTime && b.kind == valueTime:
		return a.instant.compare(b.instant), true
	case a.kind != b.kind:
		return 0, false
	case a.kind == valueBool:
		return compareBool(a.yes, b.yes), true
	case a.kind == valueNumber:
		return a.num.compare(b.num), true
	}
	return strings.Compare(a.str, b.str), true
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// clipAt is how many characters of a user's text a message repeats.
const clipAt = 40

func clipText(s string) string {
	if utf8.RuneCountInString(s) <= clipAt {
		return s
	}
	n := 0
	for i := range s {
		if n++; n > clipAt {
			return s[:i] + "…"
		}
	}
	return s
}

// clip quotes a part of the filter for a message.
func clip(s string) string { return fmt.Sprintf("%q", clipText(s)) }

// quoteText is a text as a filter writes it, for a message.
func quoteText(s string) string {
	return "'" + strings.ReplaceAll(clipText(s), "'", "''") + "'"
}
