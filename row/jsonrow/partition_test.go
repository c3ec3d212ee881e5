package jsonrow

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// partitionedBy is a table that is partitioned by all of these columns.
func partitionedBy(t testing.TB, list string) *millrace.Table {
	t.Helper()
	table := &millrace.Table{Path: millrace.TablePath{Database: "d", Table: "t"}, Schema: &millrace.Schema{Columns: columnsOf(t, list)}}
	for i := range table.Schema.Columns {
		c := &table.Schema.Columns[i]
		c.ID, c.Nullable = millrace.ColumnID(i+1), false
		table.PartitionBy = append(table.PartitionBy, c.ID)
	}
	return table
}

// Every spelling of a value has one canonical text, by object and by name, which is
// read back as itself.
func TestPartitionTexts(t *testing.T) {
	for _, c := range []struct {
		typ, object, name, want, wantName string
	}{
		{"BOOLEAN", `true`, "true", "true", "true"},
		{"TINYINT", `7.0`, "7", "7", "7"},
		{"INT", `"1e3"`, "1000", "1000", "1000"},
		{"BIGINT", `-9223372036854775808`, "-9223372036854775808", "-9223372036854775808", "-9223372036854775808"},
		{"DECIMAL(10,2)", `12.5`, "1.25e1", "12.50", "12.50"},
		{"CHAR(3)", `"äöü"`, "%C3%A4öü", "äöü", "%C3%A4%C3%B6%C3%BC"},
		{"STRING", `"a\u002fb=c\n\""`, "a%2Fb%3Dc%0A%22", "a/b=c\n\"", "a%2Fb%3Dc%0A%22"},
		{"STRING", `""`, "", "", ""},
		{"BINARY(2)", `"-_8="`, "%2B%2F8%3D", "+/8=", "%2B%2F8%3D"},
		{"BYTES", `"AQI"`, "AQI", "AQI=", "AQI%3D"},
		{"DATE", `"2026-08-26"`, "2026-08-26", "2026-08-26", "2026-08-26"},
		{"TIME(3)", `"07:00:00"`, "07:00:00.000000", "07:00:00.000", "07%3A00%3A00.000"},
		{"TIMESTAMP(0)", `"2026-08-26 07:00:00.0"`, "2026-08-26T07:00:00", "2026-08-26T07:00:00", "2026-08-26T07%3A00%3A00"},
		{"TIMESTAMP_LTZ(3)", `"2026-08-26T09:00:00+02:00"`, "2026-08-26T07:00:00Z", "2026-08-26T07:00:00.000Z", "2026-08-26T07%3A00%3A00.000Z"},
		{"TIMESTAMP_LTZ(0)", `1787727600000`, "2026-08-26T07:00:00Z", "2026-08-26T07:00:00Z", "2026-08-26T07%3A00%3A00Z"},
	} {
		table := partitionedBy(t, "p "+c.typ)
		got, err := PartitionOfObject(table, []byte(`{"p": `+c.object+` }`))
		require.NoError(t, err, "%s %s", c.typ, c.object)
		require.Equal(t, []string{c.want}, got)
		require.Equal(t, "p="+c.wantName, millrace.PartitionName([]string{"p"}, got))
		for _, name := range []string{"p=" + c.name, "p=" + c.wantName} {
			got, err := PartitionOfName(table, name)
			require.NoError(t, err, "%s %s", c.typ, name)
			require.Equal(t, []string{c.want}, got)
		}
		again, err := PartitionOfObject(table, AppendPartitionObject(nil, table, got))
		require.NoError(t, err)
		require.Equal(t, got, again)
	}
}

// Columns come in the order of the table whatever the object's is, and the object
// holds numbers and booleans as such.
func TestPartitionObject(t *testing.T) {
	table := partitionedBy(t, `dt STRING, hour INT, live BOOLEAN, amount DECIMAL(4,1)`)
	slices.Reverse(table.PartitionBy)
	got, err := PartitionOfObject(table, []byte(`{"hour":"7","live":false,"dt":"EU","amount":"1.5"}`))
	require.NoError(t, err)
	require.Equal(t, []string{"1.5", "false", "7", "EU"}, got)
	require.Equal(t, `{"amount":"1.5","live":false,"hour":7,"dt":"EU"}`, string(AppendPartitionObject(nil, table, got)))
}

// A partition that is not one is refused with the column at fault and no row number.
func TestPartitionErrors(t *testing.T) {
	table := partitionedBy(t, `day DATE, hour INT, s STRING, ok BOOLEAN`)
	const rest = `"s":"x","ok":true`
	for _, c := range []struct {
		object string
		code   errs.Code
		field  string
	}{
		{`{"day":"2026-8-26","hour":7,` + rest + `}`, errs.InvalidValue, "day"},
		{`{"day":20260826,"hour":7,` + rest + `}`, errs.TypeMismatch, "day"},
		{`{"day":"2026-08-26","hour":7.5,` + rest + `}`, errs.ValueOutOfRange, "hour"},
		{`{"day":"2026-08-26","hour":null,` + rest + `}`, errs.NullNotAllowed, "hour"},
		{`{"day":"2026-08-26",` + rest + `}`, errs.MissingColumn, "hour"},
		{`{"day":"2026-08-26","hour":7,"s":1,"ok":true}`, errs.TypeMismatch, "s"},
		{`{"day":"2026-08-26","hour":7,"s":"x","ok":"true"}`, errs.TypeMismatch, "ok"},
		{`{"day":"2026-08-26","hour":7,"x":1,` + rest + `}`, errs.UnknownField, "x"},
		{`{"day":"2026-08-26","hour":7,"hour":7,` + rest + `}`, errs.DuplicateField, "hour"},
		{`["2026-08-26"]`, errs.TypeMismatch, ""},
		{`{"day":`, errs.InvalidRequest, ""},
		{`{"day":"2026-08-26","hour":7,"ok":true,"s":"` + strings.Repeat("x", maxPartitionBytes) + `"}`, errs.ValueOutOfRange, ""},
		{`{"day":"2026-08-26","hour":7,"ok":true,"s":"` + strings.Repeat("ä", maxPartitionBytes/4) + `"}`, errs.ValueOutOfRange, ""},
	} {
		_, err := PartitionOfObject(table, []byte(c.object))
		require.Equal(t, c.code, errs.CodeOf(err), "%.80s: %v", c.object, err)
		require.NotContains(t, err.Error(), "row 0")
		if c.field != "" {
			var coded *errs.Error
			require.ErrorAs(t, err, &coded)
			require.Equal(t, c.field, coded.Fields[0].Field)
			require.Nil(t, coded.Fields[0].Index)
			require.Contains(t, err.Error(), fmt.Sprintf("%q", c.field))
		}
	}
	for _, name := range []string{
		"", "day", "day=2026-08-26", "day=2026-08-26/hour=7/s=x/ok=true/more=1", "hour=7/day=2026-08-26/s=x/ok=true", "day=2026-08-26/hour=x/s=x/ok=true",
		"day=2026-08-26/hour=7/s=%zz/ok=true", "day=2026-08-26/hour=7/s=%FF/ok=true", "day=2026-08-26/hour=/s=x/ok=true",
	} {
		_, err := PartitionOfName(table, name)
		require.Equal(t, errs.InvalidValue, errs.CodeOf(err), "%s: %v", name, err)
	}
	_, err := PartitionOfName(table, "day="+strings.Repeat("x", 3*maxPartitionBytes))
	require.Equal(t, errs.ValueOutOfRange, errs.CodeOf(err))
	_, err = PartitionOfName(table, "day=2026-08-26/hour=7/s=x/ok=yes")
	require.Equal(t, errs.TypeMismatch, errs.CodeOf(err))
}
