package iceberg

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/filter"
	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/row/jsonrow"
)

const (
	sealedName  = "1/2/data/p0-b3-r1-0123456789abcdef.parquet"
	foreignName = "1/2/data/00000-0-foreign.parquet"
)

func nameOf(w written) string {
	if w.sealed {
		return sealedName
	}
	return foreignName
}

// readAll reads a file to its end: its rows as one record, and their positions.
func readAll(t require.TestingT, rs lake.Rows, schema *arrow.Schema) (arrow.RecordBatch, []int64) {
	var parts []arrow.RecordBatch
	var positions []int64
	for {
		rec, pos, err := rs.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		require.True(t, rec.Schema().Equal(schema), "%v\n%v", rec.Schema(), schema)
		require.Len(t, pos, int(rec.NumRows()))
		parts, positions = append(parts, rec), append(positions, pos...)
	}
	cols := make([]arrow.Array, schema.NumFields())
	for i := range cols {
		var arrs []arrow.Array
		for _, p := range parts {
			require.True(t, arrow.TypeEqual(p.Column(i).DataType(), schema.Field(i).Type), "%v", p.Column(i).DataType())
			arrs = append(arrs, p.Column(i))
		}
		if len(arrs) == 0 {
			cols[i] = array.MakeArrayOfNull(memory.DefaultAllocator, schema.Field(i).Type, 0)
			continue
		}
		var err error
		cols[i], err = array.Concatenate(arrs, memory.DefaultAllocator)
		require.NoError(t, err)
	}
	require.NoError(t, rs.Close())
	return array.NewRecordBatch(schema, cols, int64(len(positions))), positions
}

// What is read of a file under a later schema is what stock builders make of the same
// values: columns and nested fields by id, widened, NULL where the file is older; from
// any position, without the deleted ones, in batches of any size.
func TestReadEvolved(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var n ids
		var old []millrace.Column
		for i := range rapid.IntRange(1, 5).Draw(t, "columns") {
			old = append(old, n.drawColumn(t, fmt.Sprintf("c%d", i), true, 2))
		}
		now := n.evolveColumns(t, old, 2)
		values := make([]map[millrace.ColumnID]any, rapid.IntRange(1, 60).Draw(t, "rows"))
		for i := range values {
			values[i] = map[millrace.ColumnID]any{}
			for _, c := range old {
				values[i][c.ID] = drawValue(t, c.Type, c.Nullable)
			}
		}
		w := drawWritten(t)
		body := parquetOf(buildRecord(storedSchema(old), values), w)

		from := rapid.IntRange(0, len(values)).Draw(t, "from")
		var deleted *roaring.Bitmap
		if rapid.Bool().Draw(t, "deletes") {
			deleted = roaring.New()
			for range rapid.IntRange(0, 30).Draw(t, "deleted") {
				deleted.AddInt(rapid.IntRange(0, len(values)+1).Draw(t, "position"))
			}
		}
		var want []map[millrace.ColumnID]any
		wantAt := []int64{}
		for i := from; i < len(values); i++ {
			if deleted == nil || !deleted.ContainsInt(i) {
				want, wantAt = append(want, values[i]), append(wantAt, int64(i))
			}
		}
		store := memStore{nameOf(w): body}
		rs, err := openRows(t.Context(), store, nameOf(w), int64(len(body)), reading{deleted: deleted, Read: lake.Read{
			Columns: now, From: int64(from), BatchRows: rapid.IntRange(0, 20).Draw(t, "batch"),
		}})
		require.NoError(t, err)
		schema := row.ArrowSchema(now)
		got, at := readAll(t, rs, schema)
		require.ElementsMatch(t, wantAt, at)
		require.IsNonDecreasing(t, append([]int64{0}, at...))
		expected := buildRecord(schema, want)
		for i := range schema.NumFields() {
			require.True(t, array.ApproxEqual(expected.Column(i), got.Column(i), array.WithNaNsEqual(true), array.WithAbsTolerance(0)), "column %d\nwant %v\ngot  %v", i, expected.Column(i), got.Column(i))
		}
	})
}

// A filter takes away only row groups that hold no row that passes, whatever bounds
// the file has.
func TestReadFiltered(t *testing.T) {
	skipped := int64(0)
	rapid.Check(t, func(t *rapid.T) {
		var n ids
		typ := parseType(rapid.SampledFrom(testScalars).Draw(t, "type"))
		c := n.number(millrace.Column{Name: "c", Type: typ, Nullable: true})
		values := make([]map[millrace.ColumnID]any, rapid.IntRange(1, 30).Draw(t, "rows"))
		for i := range values {
			values[i] = map[millrace.ColumnID]any{c.ID: drawValue(t, typ, true)}
		}
		w := drawWritten(t)
		w.groupRows = 3
		body := parquetOf(buildRecord(storedSchema([]millrace.Column{c}), values), w)
		c.Type = n.evolve(t, c.Type)
		cols := []millrace.Column{c}
		all := buildRecord(row.ArrowSchema(cols), values)

		f := drawFilter(t, cols, all)
		rs, err := openRows(t.Context(), memStore{nameOf(w): body}, nameOf(w), int64(len(body)), reading{Read: lake.Read{
			Columns: cols, Schema: &millrace.Schema{Columns: cols}, Filter: f,
		}})
		require.NoError(t, err)
		skipped += rs.Stats().RowsSkipped
		_, at := readAll(t, rs, row.ArrowSchema(cols))
		pass, err := f.Select(all)
		require.NoError(t, err)
		for _, i := range pass {
			require.Contains(t, at, int64(i))
		}
		require.Equal(t, int64(len(values)), int64(len(at))+rs.Stats().RowsSkipped)
	})
	require.Positive(t, skipped)
}

// drawFilter draws a filter on column 0, whose literal is a value of the record.
func drawFilter(t *rapid.T, cols []millrace.Column, rec arrow.RecordBatch) *filter.Filter {
	text := rapid.SampledFrom([]string{"= ?", "<> ?", "< ?", "<= ?", "> ?", ">= ?", "IN (?)", "NOT IN (?)", "IS NULL", "IS NOT NULL"}).Draw(t, "operator")
	at := rapid.IntRange(0, int(rec.NumRows())-1).Draw(t, "literal")
	var params []json.RawMessage
	if text[len(text)-1] == '?' || text[len(text)-1] == ')' {
		if rec.Column(0).IsNull(at) {
			text = "IS NULL"
		} else {
			params = append(params, jsonrow.AppendValue(nil, cols[0].Type, rec.Column(0), at, jsonrow.EncodeOptions{}))
		}
	}
	f, err := filter.Compile(cols[0].Name+" "+text, params, cols, time.Now())
	if err != nil { // such as comparisons of BYTES by order
		f, err = filter.Compile(cols[0].Name+" IS NULL", nil, cols, time.Now())
	}
	require.NoError(t, err)
	return f
}

// smallFile is a file of some types and row groups, and what is read of it.
func smallFile(w written) (cols []millrace.Column, body []byte, want arrow.RecordBatch) {
	var n ids
	for i, s := range []string{"BIGINT NOT NULL", "STRING", "DOUBLE", "DECIMAL(9,2)", "ROW<a INT, b ARRAY<STRING>>", "MAP<STRING, INT>"} {
		c := millrace.Column{Name: fmt.Sprintf("c%d", i), Nullable: i > 0}
		c.Type = parseType(map[bool]string{true: "BIGINT", false: s}[i == 0])
		cols = append(cols, n.number(c))
	}
	g := rapid.Custom(func(rt *rapid.T) []map[millrace.ColumnID]any {
		values := make([]map[millrace.ColumnID]any, 60)
		for i := range values {
			values[i] = map[millrace.ColumnID]any{}
			for _, c := range cols {
				values[i][c.ID] = drawValue(rt, c.Type, c.Nullable)
			}
		}
		return values
	})
	values := g.Example(7)
	return cols, parquetOf(buildRecord(storedSchema(cols), values), w), buildRecord(row.ArrowSchema(cols), values)
}

// readOrError reads all of a file; rows differ from want only where there is an error.
func readOrError(t *testing.T, store memStore, name string, cols []millrace.Column, size int, want arrow.RecordBatch) error {
	rs, err := openRows(t.Context(), store, name, int64(size), reading{Read: lake.Read{Columns: cols}})
	if err != nil {
		return err
	}
	defer rs.Close()
	at := int64(0)
	for {
		rec, _, err := rs.Next()
		if errors.Is(err, io.EOF) {
			require.Equal(t, want.NumRows(), at)
			return nil
		}
		if err != nil {
			return err
		}
		if want != nil {
			part := want.NewSlice(at, at+rec.NumRows())
			require.True(t, array.RecordApproxEqual(part, rec, array.WithNaNsEqual(true), array.WithAbsTolerance(0)), "other rows than were written")
		}
		at += rec.NumRows()
	}
}

// Any flipped bit of a file of ours is found before a row of it is given, and the
// error names the file; so is any other length.
func TestDamagedFile(t *testing.T) {
	cols, body, want := smallFile(written{groupRows: 25, pageBytes: 200, codec: compress.Codecs.Zstd, dictionary: true, sealed: true})
	require.NoError(t, readOrError(t, memStore{sealedName: body}, sealedName, cols, len(body), want))
	for i := range len(body) {
		for _, bit := range []byte{1, 0x80, 0x10}[:1+i%3] {
			body[i] ^= bit
			err := readOrError(t, memStore{sealedName: body}, sealedName, cols, len(body), want)
			body[i] ^= bit
			require.Equal(t, errs.CorruptData, errs.CodeOf(err), "byte %d of %d: %v", i, len(body), err)
			require.ErrorContains(t, err, sealedName)
		}
	}
	for n := range len(body) {
		err := readOrError(t, memStore{sealedName: body[:n]}, sealedName, cols, n, want)
		require.Equal(t, errs.CorruptData, errs.CodeOf(err), "%d bytes: %v", n, err)
		err = readOrError(t, memStore{sealedName: body[:n]}, sealedName, cols, len(body), want)
		require.Equal(t, errs.CorruptData, errs.CodeOf(err), "%d bytes: %v", n, err)
	}
}

// So is damage in what is fetched after the footer, of a file that is larger than what
// comes with it.
func TestDamagedBody(t *testing.T) {
	var n ids
	cols := []millrace.Column{n.number(millrace.Column{Name: "b", Type: parseType("BYTES")})}
	values := make([]map[millrace.ColumnID]any, 3000)
	for i := range values {
		values[i] = map[millrace.ColumnID]any{1: noiseText(i)[:200]}
	}
	body := parquetOf(buildRecord(storedSchema(cols), values), written{groupRows: 700, pageBytes: 20 << 10, sealed: true})
	want := buildRecord(row.ArrowSchema(cols), values)
	require.Greater(t, len(body), 500<<10)
	store := memStore{sealedName: body}
	require.NoError(t, readOrError(t, store, sealedName, cols, len(body), want))
	for i := 0; i < len(body); i += 17_777 {
		body[i] ^= 4
		err := readOrError(t, store, sealedName, cols, len(body), want)
		body[i] ^= 4
		require.Equal(t, errs.CorruptData, errs.CodeOf(err), "byte %d: %v", i, err)
		require.ErrorContains(t, err, "not what was written")
	}
}

// A file that someone else wrote has no seal: damage is an error that names it, or
// rows, but never a panic.
func TestDamagedForeignFile(t *testing.T) {
	cols, body, _ := smallFile(written{groupRows: 25, pageBytes: 200, codec: compress.Codecs.Snappy, dictionary: true})
	for i := 0; i < len(body); i += 11 {
		body[i] ^= 1 << (i % 8)
		rs, err := openRows(t.Context(), memStore{foreignName: body}, foreignName, int64(len(body)), reading{Read: lake.Read{Columns: cols}})
		for err == nil {
			_, _, err = rs.Next()
		}
		body[i] ^= 1 << (i % 8)
		if !errors.Is(err, io.EOF) {
			require.Equal(t, errs.CorruptData, errs.CodeOf(err), "byte %d: %v", i, err)
			require.ErrorContains(t, err, foreignName)
		}
	}
}

// Only the columns that are asked for are fetched, and only of the row groups that may
// match.
func TestReadTouchesLittle(t *testing.T) {
	var n ids
	cols := []millrace.Column{
		n.number(millrace.Column{Name: "k", Type: parseType("BIGINT")}),
		n.number(millrace.Column{Name: "wide", Type: parseType("BYTES")}),
	}
	values := make([]map[millrace.ColumnID]any, 4000)
	for i := range values {
		wide := make([]byte, 2000)
		for j := range wide {
			wide[j] = byte(i * j * 7919 >> 3)
		}
		values[i] = map[millrace.ColumnID]any{1: int64(i), 2: string(wide)}
	}
	body := parquetOf(buildRecord(storedSchema(cols), values), written{groupRows: 1000, pageBytes: 1 << 20, sealed: true})
	store := memStore{sealedName: body}
	f, err := filter.Compile("k BETWEEN 2500 AND 2600", nil, cols, time.Now())
	require.NoError(t, err)
	read := func(r lake.Read) lake.ReadStats {
		rs, err := openRows(t.Context(), store, sealedName, int64(len(body)), reading{Read: r})
		require.NoError(t, err)
		readAll(t, rs, row.ArrowSchema(r.Columns))
		require.Equal(t, int64(len(body)), rs.Stats().BytesRead+rs.Stats().BytesSkipped)
		return rs.Stats()
	}
	keys := read(lake.Read{Columns: cols[:1]})
	require.Less(t, keys.BytesRead, int64(600<<10))
	some := read(lake.Read{Columns: cols, Schema: &millrace.Schema{Columns: cols}, Filter: f})
	require.Equal(t, int64(3000), some.RowsSkipped)
	require.Less(t, some.BytesRead, int64(2300<<10))
	added := n.number(millrace.Column{Name: "added", Type: parseType("INT"), Nullable: true})
	later := append(slices.Clone(cols), added)
	f, err = filter.Compile("added IS NOT NULL", nil, later, time.Now())
	require.NoError(t, err)
	none := read(lake.Read{Columns: later, Schema: &millrace.Schema{Columns: later}, Filter: f})
	require.Equal(t, int64(4000), none.RowsSkipped)
	last := read(lake.Read{Columns: cols, From: 3999})
	require.Less(t, last.BytesRead, int64(2300<<10))
	require.Zero(t, last.RowsSkipped)
}

// Values of other writers that a column of ours cannot hold are damage, not other values.
func TestReadForeignValues(t *testing.T) {
	var n ids
	c := n.number(millrace.Column{Name: "c", Type: parseType("INT"), Nullable: true})
	body := parquetOf(buildRecord(storedSchema([]millrace.Column{c}), []map[millrace.ColumnID]any{{1: int64(127)}, {1: int64(128)}}), written{groupRows: 1})
	c.Type = parseType("TINYINT")
	rs, err := openRows(t.Context(), memStore{foreignName: body}, foreignName, int64(len(body)), reading{Read: lake.Read{Columns: []millrace.Column{c}}})
	require.NoError(t, err)
	defer rs.Close()
	rec, _, err := rs.Next()
	require.NoError(t, err)
	rec.Release()
	_, _, err = rs.Next()
	require.Equal(t, errs.CorruptData, errs.CodeOf(err))
	require.ErrorContains(t, err, "128")
}
