package filter

import "github.com/apache/arrow-go/v18/arrow/decimal128"

// Stats describes the values of one scalar column in a batch or file. NaN is
// never a bound: it is counted apart.
type Stats struct {
	Rows   int64
	Nulls  int64
	NaNs   int64
	HasMin bool // Min is a lower bound of every value that is neither NULL nor NaN
	HasMax bool // Max is an upper bound of the same
	Min    Bound
	Max    Bound
}

// Bound is a value of a column's kind: BOOLEAN (0, 1), integers, DATE, TIME,
// TIMESTAMP and TIMESTAMP_LTZ in Int, in the unit of the column's Arrow type;
// FLOAT and DOUBLE in Float; DECIMAL in Dec, unscaled; CHAR, STRING, BINARY and
// BYTES in Bytes, a lower bound cut to 32 bytes, an upper bound cut and raised.
type Bound struct {
	Int   int64
	Float float64
	Bytes []byte
	Dec   decimal128.Num
}
