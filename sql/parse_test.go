package sql

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
)

// A script is cut at semicolons outside of quotes and comments; each piece keeps its lines and columns.
func TestSplit(t *testing.T) {
	pieces, err := Split("-- ;\nUSE a; /* ; */ SELECT ';', \"x;\"\n  FROM `;` -- end\n;;\n\n ö ;\tlast")
	require.NoError(t, err)
	require.Equal(t, []Piece{
		{Text: "\nUSE a", Line: 2},
		{Text: "\n               SELECT ';', \"x;\"\n  FROM `;`", Line: 2},
		{Text: "\n\n\n\n\n ö", Line: 6},
		{Text: "\n\n\n\n\n     last", Line: 6},
	}, pieces)
	for _, empty := range []string{"", " \n", ";;", "-- x", "/* ; */;"} {
		pieces, err := Split(empty)
		require.NoError(t, err)
		require.Empty(t, pieces)
	}
	for script, place := range map[string]string{"a;\n 'b": "line 2, column 2", "a; /*": "line 1, column 4", "ö \"": "line 1, column 3", "\xff": "line 1, column 1"} {
		_, err := Split(script)
		require.ErrorContains(t, err, place, script)
	}
	db, ok, err := ParseUse("\n use `shop`")
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "shop", db)
	_, ok, err = ParseUse("USE")
	require.True(t, ok)
	require.Error(t, err)
	_, ok, err = ParseUse("SELECT a FROM t")
	require.NoError(t, err)
	require.False(t, ok)
	require.True(t, Reads("-- x\nshow tables") && Reads("DESC t") && !Reads("INSERT INTO t VALUES (1)") && !Reads("'") && !Reads(`"select"`))
	require.True(t, ShowsStatement("show create table t") && !ShowsStatement("SHOW TABLES"))
}

// The condition is cut out with its parameters, and what was a comment in it is white space.
func TestCondition(t *testing.T) {
	st, params, err := parse("SELECT a FROM t WHERE a = ? /* ? */ AND (b IN ('group by', ?) -- c\n OR \"order\" = 'x;') ORDER BY a LIMIT ?")
	require.NoError(t, err)
	require.Equal(t, 3, params)
	q := st.(*query)
	require.Equal(t, "a = ?         AND (b IN ('group by', ?)       OR \"order\" = 'x;')", q.where.text)
	require.Equal(t, 22, q.where.at)
	require.Equal(t, 0, q.where.param)
	require.Equal(t, 2, q.where.count)
	require.Equal(t, 2, q.limit.param)
	// Words that are also names of columns end a condition only where they can.
	for text, want := range map[string]string{
		"SELECT a FROM t WHERE offset > 1 AND window = 2 OR minus = 3 AND \"limit\" = 4": "offset > 1 AND window = 2 OR minus = 3 AND \"limit\" = 4",
		"SELECT a FROM t WHERE window LIKE 'x' LIMIT 1":                                  "window LIKE 'x'",
	} {
		st, _, err := parse(text)
		require.NoError(t, err, text)
		require.Equal(t, want, st.(*query).where.text)
	}
}

func column(name, typ string) *catalog.ColumnSpec { return &catalog.ColumnSpec{Name: name, Type: typ} }

// ALTER TABLE is read in the forms that people know.
func TestParseAlter(t *testing.T) {
	for text, want := range map[string][]catalog.AlterStep{
		"ALTER TABLE t ADD x INT":                                  {{Op: "add_column", Column: column("x", "INT")}},
		"ALTER TABLE t ADD COLUMN x INT FIRST":                     {{Op: "add_column", Column: column("x", "INT"), First: true}},
		"ALTER TABLE t ADD `column` MAP<INT, STRING> AFTER `b`":    {{Op: "add_column", Column: column("column", "MAP< INT, STRING>"), After: "b"}},
		"ALTER TABLE t ADD (x INT, y DECIMAL(9, 2))":               {{Op: "add_column", Column: column("x", "INT")}, {Op: "add_column", Column: column("y", "DECIMAL( 9, 2)")}},
		"ALTER TABLE t RENAME a TO b":                              {{Op: "rename_column", Name: "a", To: "b"}},
		"ALTER TABLE t RENAME COLUMN to TO b":                      {{Op: "rename_column", Name: "to", To: "b"}},
		"ALTER TABLE t RENAME to TO b":                             {{Op: "rename_column", Name: "to", To: "b"}},
		"ALTER TABLE t DROP COLUMN a":                              {{Op: "drop_column", Name: "a"}},
		"ALTER TABLE t DROP column.`key`.b":                        {{Op: "drop_column", Name: "column.key.b"}},
		"ALTER TABLE t ADD a.b INT AFTER a.c":                      {{Op: "add_column", Column: column("a.b", "INT"), After: "a.c"}},
		"ALTER TABLE t DROP column":                                {{Op: "drop_column", Name: "column"}},
		"ALTER TABLE t DROP (a, b)":                                {{Op: "drop_column", Name: "a"}, {Op: "drop_column", Name: "b"}},
		"ALTER TABLE t MODIFY a BIGINT":                            {{Op: "alter_type", Name: "a", Type: "BIGINT"}},
		"ALTER TABLE t MODIFY COLUMN a BIGINT COMMENT 'c'":         {{Op: "alter_type", Name: "a", Type: "BIGINT"}, {Op: "set_comment", Name: "a", Comment: new("c")}},
		"ALTER TABLE t SET ('table.log.ttl' = '7d', 'it''s' = '')": {{Op: "set_properties", Properties: map[string]string{"table.log.ttl": "7d", "it's": ""}}},
		"ALTER TABLE t RESET ('a', 'b');":                          {{Op: "reset_properties", Keys: []string{"a", "b"}}},
		"ALTER TABLE t COMMENT 'c'":                                {{Op: "set_comment", Comment: new("c")}},
	} {
		st, _, err := parse(text)
		require.NoError(t, err, text)
		require.Equal(t, want, st.(*alterTable).steps, text)
	}
}

// Whatever values a statement has, what they become is JSON: nothing in a text, a number or a name leaves its place.
func FuzzValues(f *testing.F) {
	for _, s := range []string{
		"1, 'a', NULL", "-1.5e3, 'it''s \"x\" \\\\ \n', ARRAY['a', NULL, 'b']", "?, ?, ?", "00.5, X'00ff', ARRAY[ROW(1, MAP['k', 2, 'l', NULL])]", "+.5, '\x01', MAP[1, ARRAY[]]",
		"1., TIMESTAMP '2026-01-01', ROW(TRUE, MAP[])", "1e5, '', ARRAY[ROW(?, ?)]",
	} {
		f.Add(s)
	}
	row, err := millrace.ParseType("ROW<`a` DOUBLE, m MAP<STRING, BIGINT>>")
	if err != nil {
		f.Fatal(err)
	}
	types := []millrace.DataType{
		{Kind: millrace.Double},
		{Kind: millrace.String},
		{Kind: millrace.Bytes},
		{Kind: millrace.Timestamp},
		row,
		{Kind: millrace.Array, Children: []millrace.Column{{Type: row}}},
		{Kind: millrace.Map, Children: []millrace.Column{{Type: millrace.DataType{Kind: millrace.Int}}, {Type: row}}},
	}
	f.Fuzz(func(t *testing.T, values string) {
		st, params, err := parse("INSERT INTO t VALUES (" + values + ")")
		if err != nil {
			return
		}
		given := make([]json.RawMessage, params)
		for i := range given {
			given[i] = json.RawMessage(`{"a":1}`)
		}
		in := st.(*insert)
		for shift := range types {
			cols := make([]millrace.Column, in.width)
			for i := range cols {
				cols[i] = millrace.Column{Name: fmt.Sprintf("c%d", i), Type: types[(i+shift)%len(types)]}
			}
			r := newRowReader(in, cols, given)
			for i := range in.rows {
				if i > 0 {
					r.p.expectSymbol(",", "between rows")
				}
				n := r.row()
				if r.p.err != nil {
					break
				}
				var object map[string]json.RawMessage
				if err := json.Unmarshal(r.object, &object); err != nil || n != in.width || len(object) != n {
					t.Fatalf("%q became %s: %v", values, r.object, err)
				}
			}
		}
	})
}

// Whatever the text, parsing ends, without a panic, in a statement or in an error that names a place in the text.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"SELECT a, COUNT(*) AS n FROM d.t$changelog WHERE (a = 'x' AND b IN (?, 2)) GROUP BY a ORDER BY n DESC LIMIT ?",
		"INSERT INTO t (a, b) VALUES (1, ARRAY[MAP['a', ROW(X'00', -1.5e3)], NULL]), (?, DATE '2026-01-01')",
		"CREATE TABLE IF NOT EXISTS `d`.t (a DECIMAL(10, 2) NOT NULL COMMENT 'x', r ROW<`n` INT, m MAP<INT, ARRAY<STRING>>>, PRIMARY KEY (a) NOT ENFORCED) COMMENT 'c' PARTITIONED BY (a) WITH ('k' = 'v')",
		"ALTER TABLE t ADD COLUMN x TIMESTAMP(3) WITH LOCAL TIME ZONE AFTER y", "DELETE FROM t WHERE a = 1 /* x */ -- y", "SHOW TABLES IN d; USE d",
		"DROP DATABASE IF EXISTS d CASCADE", "DESCRIBE t", "SELECT 'ö' \x00 FROM", "((((((((", "SELECT a FROM t WHERE ((((((((((((",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		st, _, err := parse(text)
		if (st == nil) == (err == nil) {
			t.Fatalf("%v, %v", st, err)
		}
		if err != nil {
			e, ok := errors.AsType[*errs.Error](err)
			if !ok {
				t.Fatal(err)
			}
			line, column := e.Extra["line"].(int), e.Extra["column"].(int)
			lines := strings.Split(text, "\n")
			if line < 1 || line > len(lines) || column < 1 || column > len([]rune(lines[line-1]))+1 {
				t.Fatalf("%q: %v", text, err)
			}
		}
		if pieces, err := Split(text); err == nil {
			for _, p := range pieces {
				if len(p.Text) == 0 {
					t.Fatalf("%q has an empty piece", text)
				}
			}
		}
	})
}
