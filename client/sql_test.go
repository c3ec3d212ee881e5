package client

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/openapi"
)

// A statement is sent with its parameters and database; numbers of an answer keep every digit; what is wrong keeps its code.
func TestSQL(t *testing.T) {
	f, c := newFake(t,
		answer(200, `{"columns":[{"name":"n","type":"BIGINT"}],"rows":[[9007199254740993]]}`),
		answer(200, `{"rows_affected":3}`),
		problem(422, "unsupported_sql", "line 1, column 1: UPDATE: not in this SQL subset", map[string]any{"line": 1, "column": 1}))
	got, err := c.SQL(t.Context(), openapi.SQLRequest{SQL: "SELECT n FROM t WHERE a = ?", Params: []json.RawMessage{json.RawMessage("1")}, Database: "shop"}, true)
	require.NoError(t, err)
	require.Equal(t, "BIGINT", got.Columns[0].Type)
	require.Equal(t, "9007199254740993", string(got.Rows[0][0]))
	require.Equal(t, "/v1/sql", f.only(t).path)
	require.JSONEq(t, `{"sql":"SELECT n FROM t WHERE a = ?","params":[1],"database":"shop"}`, f.only(t).body)
	got, err = c.SQL(t.Context(), openapi.SQLRequest{SQL: "INSERT INTO shop.t VALUES (1)"}, false)
	require.NoError(t, err)
	require.Nil(t, got.Columns)
	require.EqualValues(t, 3, got.RowsAffected)
	_, err = c.SQL(t.Context(), openapi.SQLRequest{SQL: "UPDATE t SET a = 1"}, false)
	require.Equal(t, errs.UnsupportedSQL, errs.CodeOf(err))
	require.ErrorContains(t, err, "line 1, column 1")
}

// A query that is not answered is sent again; a statement that may have written is not.
func TestSQLRetries(t *testing.T) {
	broken := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	f, c := newFake(t, broken, answer(200, `{"columns":[],"rows":[]}`))
	_, err := c.SQL(t.Context(), openapi.SQLRequest{SQL: "SELECT a FROM t"}, true)
	require.NoError(t, err)
	require.Len(t, f.all(), 2)
	f, c = newFake(t, broken)
	_, err = c.SQL(t.Context(), openapi.SQLRequest{SQL: "INSERT INTO t VALUES (1)"}, false)
	require.Equal(t, errs.UnknownOutcome, errs.CodeOf(err))
	require.Len(t, f.all(), 1)
}

// Streams of rows are asked for by their media type, and one that breaks off is an error.
func TestSQLStreams(t *testing.T) {
	f, c := newFake(t, cut(mediaNDJSON, "{\"a\":1}\n{\"__error\":{\"code\":\"corrupt_data\",\"detail\":\"bad\"}}\n"))
	s, err := c.SQLNDJSON(t.Context(), openapi.SQLRequest{SQL: "SELECT a FROM shop.t"})
	require.NoError(t, err)
	defer s.Close()
	rows := 0
	for _, err = range s.Lines() {
		if err == nil {
			rows++
		}
	}
	require.Equal(t, 1, rows)
	require.Equal(t, errs.CorruptData, errs.CodeOf(err))
	require.Equal(t, mediaNDJSON, f.only(t).header.Get("Accept"))
	f, c = newFake(t, cut(mediaArrow, "half"))
	s, err = c.SQLArrow(t.Context(), openapi.SQLRequest{SQL: "SELECT a FROM shop.t"})
	require.NoError(t, err)
	defer s.Close()
	_, err = s.Read(make([]byte, 100))
	for err == nil {
		_, err = s.Read(make([]byte, 100))
	}
	require.Equal(t, errs.Unavailable, errs.CodeOf(err))
	require.Equal(t, mediaArrow, f.only(t).header.Get("Accept"))
}
