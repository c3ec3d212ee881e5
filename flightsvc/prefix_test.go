package flightsvc_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

func prefixCmd(more obj) *flight.FlightDescriptor {
	cmd := obj{"op": "prefix_lookup", "table": "d.t"}
	maps.Copy(cmd, more)
	return commandOf(cmd)
}

// tenants makes a table whose key is tenant, day and id, in buckets by tenant, with
// rows of some tenants; and returns its schema.
func (f *fixture) tenants(c flight.Client) *arrow.Schema {
	tbl := f.tableOf("t", true, 4,
		millrace.Column{ID: 1, Name: "id", Type: millrace.DataType{Kind: millrace.BigInt}},
		millrace.Column{ID: 2, Name: "tenant", Type: millrace.DataType{Kind: millrace.String}},
		millrace.Column{ID: 3, Name: "day", Type: millrace.DataType{Kind: millrace.Int}},
		millrace.Column{ID: 4, Name: "v", Type: millrace.DataType{Kind: millrace.String}, Nullable: true})
	tbl.PrimaryKey, tbl.BucketKey = []millrace.ColumnID{2, 3, 1}, []millrace.ColumnID{2}
	schema := schemaOf(field("id", int64s), field("tenant", strs), field("day", int32s), field("v", strs))
	var b strings.Builder
	for _, tenant := range []string{"a", "ab", "b", ""} {
		for day := range 3 {
			for id := range 4 {
				fmt.Fprintf(&b, `,{"id":%d,"tenant":%q,"day":%d,"v":"%s%d%d"}`, 10-id, tenant, day-1, tenant, day-1, 10-id)
			}
		}
	}
	f.mustWrite(c, pathOf("d.t"), batchOf(f.t, schema, "["+b.String()[1:]+"]"))
	return schema
}

// Each batch of prefixes is answered by one batch: the rows of each prefix in the
// order of their keys, with the number of the prefix in front.
func TestPrefixLookup(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	f.tenants(c)
	byDay := schemaOf(field("day", int64s), field("tenant", arrow.BinaryTypes.LargeString))
	x := f.exchange(c, prefixCmd(obj{"columns": []string{"v", "id"}, "limit": 3}), byDay)
	rec, err := x.ask(batchOf(t, byDay, `[{"tenant":"b","day":0},{"tenant":"c","day":0},{"tenant":"a","day":-1},{"tenant":"","day":1}]`))
	require.NoError(t, err)
	require.Equal(t, "_key_index v id", strings.Join(names(x.r.Schema()), " "))
	require.Equal(t, arrow.PrimitiveTypes.Int32, x.r.Schema().Field(0).Type)
	require.Equal(t, []string{
		`{"_key_index":0,"id":7,"v":"b07"}`, `{"_key_index":0,"id":8,"v":"b08"}`, `{"_key_index":0,"id":9,"v":"b09"}`,
		`{"_key_index":2,"id":7,"v":"a-17"}`, `{"_key_index":2,"id":8,"v":"a-18"}`, `{"_key_index":2,"id":9,"v":"a-19"}`,
		`{"_key_index":3,"id":7,"v":"17"}`, `{"_key_index":3,"id":8,"v":"18"}`, `{"_key_index":3,"id":9,"v":"19"}`,
	}, texts(t, rec))
	rec, err = x.ask(batchOf(t, byDay, `[{"tenant":"c","day":0}]`))
	require.NoError(t, err)
	require.Empty(t, texts(t, rec))

	byTenant := schemaOf(field("tenant", strs))
	x = f.exchange(c, prefixCmd(nil), byTenant)
	rec, err = x.ask(batchOf(t, byTenant, `[{"tenant":"a"},{"tenant":"a"}]`))
	require.NoError(t, err)
	require.EqualValues(t, 24, rec.NumRows(), "not those of ab")
	require.Equal(t, `{"_key_index":0,"day":-1,"id":7,"tenant":"a","v":"a-17"}`, texts(t, rec)[0])
	require.Equal(t, `{"_key_index":1,"day":1,"id":10,"tenant":"a","v":"a110"}`, texts(t, rec)[23])
	whole := schemaOf(field("tenant", strs), field("id", int64s), field("day", int64s))
	rec, err = f.exchange(c, prefixCmd(nil), whole).ask(batchOf(t, whole, `[{"tenant":"ab","id":9,"day":1}]`))
	require.NoError(t, err)
	require.Len(t, texts(t, rec), 1)
}

// An answer that a stock client would not take is refused with what to do.
func TestPrefixLookupOfTooMuch(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	schema := f.tenants(c)
	for id := range 8 {
		f.mustWrite(c, pathOf("d.t"), batchOf(t, schema, fmt.Sprintf(`[{"id":%d,"tenant":"large","day":1,"v":%q}]`, id, strings.Repeat("v", 900<<10))))
	}
	tenant := schemaOf(field("tenant", strs))
	_, err := f.exchange(c, prefixCmd(nil), tenant).ask(batchOf(t, tenant, `[{"tenant":"large"}]`))
	refused(t, err, codes.InvalidArgument, errs.TooLarge)
	rec, err := f.exchange(c, prefixCmd(obj{"limit": 2}), tenant).ask(batchOf(t, tenant, `[{"tenant":"large"}]`))
	require.NoError(t, err)
	require.EqualValues(t, 2, rec.NumRows())
	rec, err = f.exchange(c, prefixCmd(obj{"columns": []string{"id"}}), tenant).ask(batchOf(t, tenant, `[{"tenant":"large"}]`))
	require.NoError(t, err)
	require.EqualValues(t, 8, rec.NumRows())
}

// What is no prefix, or none of one bucket, is refused with its code.
func TestPrefixLookupThatIsRefused(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	f.tenants(c)
	f.table("log", false, 2)
	tenant := schemaOf(field("tenant", strs))
	for _, x := range []struct {
		d      *flight.FlightDescriptor
		schema *arrow.Schema
		keys   string
		code   codes.Code
		why    errs.Code
	}{
		{prefixCmd(obj{"table": "d.log"}), tenant, `[{"tenant":"a"}]`, codes.InvalidArgument, errs.WrongTableKind},
		{prefixCmd(obj{"table": "d.t$changelog"}), tenant, `[{"tenant":"a"}]`, codes.InvalidArgument, errs.InvalidValue},
		{prefixCmd(obj{"columns": []string{"x"}}), tenant, `[{"tenant":"a"}]`, codes.InvalidArgument, errs.UnknownColumn},
		{prefixCmd(obj{"limit": 0}), tenant, `[{"tenant":"a"}]`, codes.InvalidArgument, errs.InvalidValue},
		{prefixCmd(obj{"insert_if_absent": true}), tenant, `[{"tenant":"a"}]`, codes.InvalidArgument, errs.UnknownField},
		{prefixCmd(nil), schemaOf(field("day", int64s)), `[{"day":1}]`, codes.InvalidArgument, errs.PrefixTooShort},
		{prefixCmd(nil), schemaOf(field("tenant", strs), field("id", int64s)), `[{"tenant":"a","id":1}]`, codes.InvalidArgument, errs.PrefixTooShort},
		{prefixCmd(nil), schemaOf(field("tenant", strs), field("v", strs)), `[{"tenant":"a","v":"a"}]`, codes.InvalidArgument, errs.UnknownColumn},
		{prefixCmd(nil), schemaOf(field("tenant", int64s)), `[{"tenant":1}]`, codes.InvalidArgument, errs.TypeMismatch},
		{prefixCmd(nil), tenant, `[{"tenant":null}]`, codes.InvalidArgument, errs.NullNotAllowed},
		{prefixCmd(nil), tenant, "[" + strings.Repeat(`{"tenant":"c"},`, 1000) + `{"tenant":"c"}]`, codes.InvalidArgument, errs.TooLarge},
	} {
		_, err := f.exchange(c, x.d, x.schema).ask(batchOf(t, x.schema, x.keys))
		require.False(t, errors.Is(err, io.EOF), "%s", x.keys)
		refused(t, err, x.code, x.why)
	}
	tenantDay := schemaOf(field("tenant", strs), field("id", int64s))
	_, err := f.exchange(c, prefixCmd(nil), tenantDay).ask(batchOf(t, tenantDay, `[{"tenant":"a","id":1}]`))
	require.ErrorContains(t, err, "the prefix lacks day: it begins with tenant")
}
