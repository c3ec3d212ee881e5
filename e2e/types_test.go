package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

// vector is one type of testdata/types.json.
type vector struct {
	Type   string
	Values []struct {
		JSON json.RawMessage
		Also []json.RawMessage // other spellings of the same value
	}
	Bad []struct {
		JSON json.RawMessage
		Code string
	}
}

func vectors(t *testing.T) []vector {
	t.Helper()
	b, err := os.ReadFile("testdata/types.json")
	require.NoError(t, err)
	var file struct{ Vectors []vector }
	require.NoError(t, json.Unmarshal(b, &file))
	require.Greater(t, len(file.Vectors), 25)
	return file.Vectors
}

// Every type, its extremes and NULL go in through REST in each of their spellings and come out in the one spelling that
// contract.md gives them, from log and keyed tables, through scans, lookups and the changelog; bad values have their code.
func TestTypesREST(t *testing.T) {
	t.Parallel()
	s := shared(t)
	db := newDB(t, s)
	for i, v := range vectors(t) {
		t.Run(v.Type, func(t *testing.T) {
			t.Parallel()
			for _, key := range []string{"", "id"} {
				tb := create(t, s, db, fmt.Sprintf("t%d%s", i, key), "id INT, v "+v.Type, key, 1)
				require.Equal(t, v.Type, s.ok(t, "GET", tb.path(), nil)["columns"].([]any)[1].(obj)["type"])
				var in [][]byte
				var want []json.RawMessage
				for _, value := range v.Values {
					for _, spelling := range append([]json.RawMessage{value.JSON}, value.Also...) {
						in = append(in, fmt.Appendf(nil, `{"id":%d,"v":%s}`, len(in), spelling))
						want = append(want, value.JSON)
					}
				}
				tb.write(t, "["+string(bytes.Join(in, []byte(",")))+"]")
				check := func(from string, id int, v json.RawMessage) {
					require.True(t, sameJSON(t, want[id], v), "%s: %s came out as %s, want %s", from, in[id], v, want[id])
				}
				var row struct {
					ID int
					V  json.RawMessage
				}
				scanned := tb.scan(t, nil)
				require.Len(t, scanned, len(in))
				for _, r := range scanned {
					require.NoError(t, json.Unmarshal([]byte(r), &row))
					check("scan", row.ID, row.V)
				}
				changes := tb.allChanges(t, "earliest")
				require.Len(t, changes, len(in))
				for _, c := range changes {
					require.NoError(t, json.Unmarshal([]byte(c.Row), &row))
					check("changelog", row.ID, row.V)
				}
				for id := range in {
					if key == "" {
						break
					}
					require.NoError(t, json.Unmarshal([]byte(tb.lookup(t, fmt.Sprintf(`[{"id":%d}]`, id))[0]), &row))
					check("lookup", id, row.V)
				}
				for _, bad := range v.Bad {
					p := s.do(t, "POST", tb.path()+"/records", recordsBody(fmt.Sprintf(`[{"id":0,"v":%s}]`, bad.JSON))).problem(t, 422, bad.Code)
					require.NotEmpty(t, p.Errors, "%s", bad.JSON)
					require.Contains(t, p.Errors[0].Field, "v", "%s", bad.JSON)
				}
			}
		})
	}
}

// sameJSON compares values: numbers by what they are, all else by what is written.
func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	read := func(text []byte) any {
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.UseNumber()
		var v any
		require.NoError(t, dec.Decode(&v), "%s", text)
		return exact(v)
	}
	return reflect.DeepEqual(read(a), read(b))
}

// exact replaces numbers by their exact value's text.
func exact(v any) any {
	switch v := v.(type) {
	case json.Number:
		r, ok := new(big.Rat).SetString(v.String())
		if !ok {
			return v
		}
		return "number " + r.String()
	case []any:
		for i := range v {
			v[i] = exact(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = exact(v[k])
		}
	}
	return v
}
