package iceberg

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
)

// allTypes are columns of every type and precision that the lake can hold.
var allTypes = []string{
	"k BIGINT NOT NULL", "b BOOLEAN", "i1 TINYINT", "i2 SMALLINT", "i4 INT", "i8 BIGINT", "f4 FLOAT", "f8 DOUBLE",
	"d9 DECIMAL(9,2)", "d18 DECIMAL(18,4)", "d38 DECIMAL(38,10)", "c CHAR(5)", "s STRING", "x3 BINARY(3)", "x BYTES", "dt DATE",
	"t0 TIME(0)", "t3 TIME(3)", "t6 TIME(6)", "ts0 TIMESTAMP(0)", "ts3 TIMESTAMP(3)", "ts6 TIMESTAMP(6)",
	"tz0 TIMESTAMP_LTZ(0)", "tz3 TIMESTAMP_LTZ(3)", "tz6 TIMESTAMP_LTZ(6)",
	"a ARRAY<SMALLINT>", "at ARRAY<TIMESTAMP(3)>", "m MAP<STRING, TINYINT>", "mt MAP<DATE, TIME(0)>",
	"r ROW<n TINYINT, t TIMESTAMP_LTZ(0), l ARRAY<ROW<q SMALLINT, p DECIMAL(9,2)>>>",
}

// typeRows are two rows of allTypes: of values, and of NULLs.
var typeRows = []string{
	`{"k":1,"b":true,"i1":-128,"i2":-32768,"i4":-2147483648,"i8":-9223372036854775808,"f4":1.5,"f8":-0.1,
	"d9":"-1234567.89","d18":"12345678901234.5678","d38":"1234567890123456789012345678.0123456789","c":"ab","s":"héllo","x3":"AQID","x":"AP8=","dt":"1969-12-31",
	"t0":"23:59:59","t3":"12:34:56.789","t6":"00:00:00.000001","ts0":"0001-01-01T00:00:00","ts3":"1969-12-31T23:59:59.999","ts6":"2026-08-26T12:34:56.123456",
	"tz0":"9999-12-31T23:59:59Z","tz3":"1969-12-31T23:59:59.999Z","tz6":"2026-08-26T12:34:56.123456Z",
	"a":[1,null,-32768],"at":["1969-12-31T23:59:59.999",null],"m":{"a":-128,"b":null},"mt":[{"key":"1969-12-31","value":"23:59:59"}],
	"r":{"n":-1,"t":"1969-12-31T23:59:59Z","l":[{"q":-2,"p":"0.01"},null,{"q":null,"p":null}]}}`,
	`{"k":2,"b":null,"i1":null,"i2":null,"i4":null,"i8":null,"f4":null,"f8":null,"d9":null,"d18":null,"d38":null,"c":null,"s":null,"x3":null,"x":null,"dt":null,
	"t0":null,"t3":null,"t6":null,"ts0":null,"ts3":null,"ts6":null,"tz0":null,"tz3":null,"tz6":null,"a":null,"at":null,"m":null,"mt":null,"r":null}`,
}

// TestTypes writes a value of each type and reads them back with iceberg-go's reader; what
// is expected is written by hand.
func TestTypes(t *testing.T) {
	w := newWorld(t)
	d := testTable(1, []string{"k"}, nil, 1, allTypes...)
	_, err := w.append(w.f, d, lake.Slice{Bucket: 0}, at(d, 2), typeRows...)
	require.NoError(t, err)
	got := w.scan(d)
	require.Len(t, got, 2)
	require.JSONEq(t, `{"k":1,"b":true,"i1":-128,"i2":-32768,"i4":-2147483648,"i8":-9223372036854775808,"f4":1.5,"f8":-0.1,
	"d9":"-1234567.89","d18":"12345678901234.5678","d38":"1234567890123456789012345678.0123456789","c":"ab","s":"héllo","x3":"AQID","x":"AP8=","dt":"1969-12-31",
	"t0":"23:59:59","t3":"12:34:56.789","t6":"00:00:00.000001","ts0":"0001-01-01T00:00:00","ts3":"1969-12-31T23:59:59.999","ts6":"2026-08-26T12:34:56.123456",
	"tz0":"9999-12-31T23:59:59Z","tz3":"1969-12-31T23:59:59.999Z","tz6":"2026-08-26T12:34:56.123456Z",
	"a":[1,null,-32768],"at":["1969-12-31T23:59:59.999",null],"m":[{"key":"a","value":-128},{"key":"b","value":null}],"mt":[{"key":"1969-12-31","value":"23:59:59"}],
	"r":{"n":-1,"t":"1969-12-31T23:59:59Z","l":[{"q":-2,"p":"0.01"},null,{"q":null,"p":null}]}}`, got[0])
	require.JSONEq(t, typeRows[1], got[1])
}

// TestSlices writes parts of batches, whose values do not begin where their buffers do.
func TestSlices(t *testing.T) {
	w := newWorld(t)
	d := testTable(1, nil, nil, 1, allTypes...)
	_, err := w.append(w.f, d, noBucket, at(d, 2), typeRows...)
	require.NoError(t, err)
	want := w.scan(d)
	d.ID = 2
	lt, err := w.f.open(t.Context(), d)
	require.NoError(t, err)
	r, err := lt.begin(t.Context(), d)
	require.NoError(t, err)
	a, err := r.Append(t.Context(), noBucket)
	require.NoError(t, err)
	b := batch(t, d.Schema.Columns, typeRows[1], typeRows[0], typeRows[1], typeRows[0], typeRows[1])
	defer b.Release()
	for _, at := range []int64{3, 2} {
		part := b.NewSlice(at, at+1)
		require.NoError(t, a.Write(part))
		part.Release()
	}
	require.NoError(t, a.Close())
	_, err = r.commit(t.Context(), at(d, 2))
	require.NoError(t, err)
	require.Equal(t, want, w.scan(d))
}

// TestUnsupportedTypes asks for types that format version 2 does not have.
func TestUnsupportedTypes(t *testing.T) {
	w := newWorld(t)
	for i, c := range []string{"x TIME(9)", "x TIMESTAMP(7)", "x ARRAY<ROW<t TIMESTAMP_LTZ(9)>>"} {
		d := testTable(1, nil, nil, 1, "k BIGINT NOT NULL", c)
		_, err := w.f.open(t.Context(), d)
		require.True(t, errs.Is(err, errs.UnsupportedByLake), "%d: %v", i, err)
	}
}
