package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
)

// numberedTable has a column that the server numbers, NOT NULL.
func numberedTable(t testing.TB, s *server, db, typ string) table {
	t.Helper()
	s.ok(t, "POST", "/v1/databases/"+db+"/tables", obj{
		"name": "words", "primary_key": []string{"word"}, "buckets": 4,
		"columns": []obj{
			{"name": "word", "type": "STRING"}, {"name": "id", "type": typ, "nullable": false, "auto_increment": true}, {"name": "note", "type": "STRING"},
		},
	})
	return table{s, db, "words"}
}

// Shows that every door numbers the rows that come without a number, keeps the numbers
// over updates and restarts, and refuses numbers of the clients' own, naming row and
// column.
func TestNumberedColumn(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	db := newDB(t, s)
	tb := numberedTable(t, s, db, "INT")
	tb.write(t, `[{"word":"a"},{"word":"b","id":null,"note":"x"}]`)
	require.Equal(t, []string{`{"word":"a","id":1,"note":null}`, `{"word":"b","id":2,"note":"x"}`}, tb.lookup(t, `[{"word":"a"},{"word":"b"}]`))

	s.ok(t, "POST", tb.path()+"/records", `{"word":"c","note":"y"}`+"\n"+`{"word":"a","note":"z"}`+"\n", "Content-Type", "application/x-ndjson")
	tb.write(t, `[{"word":"d"},{"word":"b"}]`, `"columns":["word"]`)
	s.ok(t, "POST", tb.path()+"/records", stream(t, []arrow.RecordBatch{batch(t, schemaOf("word string, note string"), `[{"word":"e"}]`)}), "Content-Type", "application/vnd.apache.arrow.stream")
	c := s.dial(t)
	_, err := c.putAll(t, command(t, obj{"op": "put", "table": tb.full()}), batch(t, schemaOf("word string, id int"), `[{"word":"f"}]`))
	require.NoError(t, err)
	_, err = c.putAll(t, command(t, obj{"op": "put", "table": tb.full(), "partial": true}), batch(t, schemaOf("word string, note string"), `[{"word":"g","note":"n"},{"word":"f","note":"n"}]`))
	require.NoError(t, err)
	s.ok(t, "PUT", tb.path()+"/rows/h", `{"note":"p"}`)
	s.ok(t, "PATCH", tb.path()+"/rows/i", `{"note":"p"}`)
	keys := `[{"word":"a"},{"word":"b"},{"word":"c"},{"word":"d"},{"word":"e"},{"word":"f"},{"word":"g"},{"word":"h"},{"word":"i"}]`
	got := tb.lookup(t, keys)
	seen := map[string]bool{}
	for _, row := range got {
		id := row[strings.Index(row, `"id":`):strings.Index(row, `,"note"`)]
		require.NotEqual(t, `"id":null`, id, row)
		require.False(t, seen[id], "%s twice", id)
		seen[id] = true
	}
	require.Contains(t, got[0], `"id":1,"note":"z"`)
	require.Contains(t, got[5], `"note":"n"`)

	for _, body := range []string{`{"rows":[{"word":"x"},{"word":"y","id":7}]}`, `{"rows":[{"word":"x","id":null},{"word":"y","id":7}],"columns":["word","id"]}`, `{"rows":[{"word":"x"},{"word":"y","id":7,"_change_type":"+U"}]}`} {
		p := s.fails(t, 422, "invalid_value", "POST", tb.path()+"/records", body)
		require.Len(t, p.Errors, 1)
		require.EqualValues(t, 1, *p.Errors[0].Index)
		require.Equal(t, "id", p.Errors[0].Field)
	}
	s.fails(t, 422, "invalid_value", "PATCH", tb.path()+"/rows/a", `{"id":5}`)
	s.fails(t, 422, "null_not_allowed", "POST", tb.path()+"/records", `{"rows":[{"word":"a"}],"mode":"delete","columns":["word","id"]}`)
	_, err = c.putAll(t, command(t, obj{"op": "put", "table": tb.full()}), batch(t, schemaOf("word string, id int"), `[{"word":"x","id":3}]`))
	refused(t, err, codes.InvalidArgument, "invalid_value")
	require.Equal(t, []string{"null", "null"}, tb.lookup(t, `[{"word":"x"},{"word":"y"}]`))
	ans := s.ok(t, "POST", tb.path()+"/records?on_error=continue", `{"word":"j"}`+"\n"+`{"word":"k","id":9}`+"\n", "Content-Type", "application/x-ndjson")
	require.Equal(t, "1 1", fmt.Sprintf("%v %v", ans["accepted"], ans["rejected"]))

	s.kill()
	require.NoError(t, s.launch())
	require.Equal(t, got, tb.lookup(t, keys))
	tb.write(t, `[{"word":"z"},{"word":"a","note":null}]`)
	after := tb.lookup(t, `[{"word":"z"},{"word":"a"}]`)
	require.Contains(t, after[1], `"id":1,`)
	require.NotContains(t, after[0], `"id":null`)
	for _, row := range got {
		id := row[strings.Index(row, `"id":`):strings.Index(row, `,"note"`)]
		require.NotContains(t, after[0], id+",")
	}
}

// Shows that what only a bucket can see refuses that bucket's part, tells which parts
// were taken, and leaves the others: an overflow names its column, and deletes that are
// disabled say so.
func TestPartOfABucketIsRefused(t *testing.T) {
	t.Parallel()
	s := shared(t)
	db := newDB(t, s)
	sums := create(t, s, db, "sums", "k BIGINT NOT NULL, n TINYINT, d DECIMAL(3,1)", "k", 8, obj{"properties": obj{"table.merge-engine": "aggregation", "fields.n.agg": "sum", "fields.d.agg": "sum"}})
	var rows []string
	for k := range 20 {
		rows = append(rows, fmt.Sprintf(`{"k":%d,"n":100,"d":"50.0"}`, k))
	}
	sums.write(t, "["+strings.Join(rows, ",")+"]")
	one := []string{`{"k":1,"n":100,"d":"50.0"}`}
	for i := range 20 {
		if i != 3 {
			rows[i] = fmt.Sprintf(`{"k":%d,"n":1,"d":"0.1"}`, i)
		}
	}
	p := s.fails(t, 422, "integer_overflow", "POST", sums.path()+"/records", recordsBody("["+strings.Join(rows, ",")+"]"))
	require.Contains(t, p.Detail, `"n"`)
	rejected := 0
	for _, outcome := range p.Buckets {
		if outcome == "rejected" {
			rejected++
		}
	}
	require.Equal(t, 1, rejected)
	require.EqualValues(t, 20, *p.Accepted+*p.Rejected)
	require.Equal(t, fmt.Sprint(*p.Rejected), sums.count(t, "n = 100"))
	require.Equal(t, fmt.Sprint(*p.Accepted), sums.count(t, "n = 101 AND d = 50.1"))
	p = s.fails(t, 422, "integer_overflow", "POST", sums.path()+"/records", recordsBody(`[{"k":3,"n":-100,"d":"50.0"}]`))
	require.Contains(t, p.Detail, `"d"`)
	require.Equal(t, strings.Replace(one[0], `"k":1`, `"k":3`, 1), sums.lookup(t, `[{"k":3}]`)[0])
	ans := s.ok(t, "POST", sums.path()+"/records?on_error=continue", recordsBody(`[{"k":3,"n":100}]`))
	require.Equal(t, "0 1", fmt.Sprintf("%v %v", ans["accepted"], ans["rejected"]))

	kept := create(t, s, db, "kept", "k BIGINT NOT NULL, n INT", "k", 1, obj{"properties": obj{"table.delete.behavior": "DISABLE"}})
	kept.write(t, `[{"k":1,"n":1}]`)
	s.fails(t, 422, "delete_disabled", "POST", kept.path()+"/records", recordsBody(`[{"k":1}]`, `"mode":"delete"`))
	s.fails(t, 422, "delete_disabled", "POST", kept.path()+"/records", recordsBody(`[{"k":2,"n":2},{"k":1,"_change_type":"-D"}]`))
	s.fails(t, 422, "delete_disabled", "POST", kept.path()+"/records", recordsBody(`[{"k":1}]`, `"mode":"delete"`, `"columns":["k","n"]`))
	s.fails(t, 422, "delete_disabled", "DELETE", kept.path()+"/rows/1", nil)
	_, err := s.dial(t).putAll(t, command(t, obj{"op": "put", "table": kept.full(), "mode": "delete"}), batch(t, schemaOf("k long"), `[{"k":1}]`))
	refused(t, err, codes.InvalidArgument, "delete_disabled")
	require.Equal(t, []string{`{"k":1,"n":1}`}, kept.scan(t, nil))

	ignored := create(t, s, db, "ignored", "k BIGINT NOT NULL, n INT", "k", 1, obj{"properties": obj{"table.delete.behavior": "IGNORE"}})
	ans = ignored.write(t, `[{"k":1,"n":1},{"k":1,"_change_type":"-D"},{"k":1,"n":1,"_change_type":"-U"}]`)
	require.Equal(t, "3 0", fmt.Sprintf("%v %v", ans["accepted"], ans["rejected"]))
	s.ok(t, "DELETE", ignored.path()+"/rows/1", nil)
	require.Equal(t, []string{`{"k":1,"n":1}`}, ignored.scan(t, nil))
}

// Shows the changelogs that images and unchanged rows give, as a reader sees them.
func TestImages(t *testing.T) {
	t.Parallel()
	s := shared(t)
	db := newDB(t, s)
	for image, want := range map[string]string{
		"FULL": "+I 1 1, -U 1 1, +U 1 2, -U 1 2, +U 1 3, -D 1 3",
		"WAL":  "+I 1 1, +U 1 2, +U 1 3, -D 1 3",
	} {
		tb := create(t, s, db, "t_"+image, "k BIGINT NOT NULL, n INT", "k", 1, obj{"properties": obj{"table.changelog.image": image, "table.changelog.skip-unchanged": "true"}})
		for _, rows := range []string{`[{"k":1,"n":1}]`, `[{"k":1,"n":1}]`, `[{"k":1,"n":2},{"k":1,"n":2},{"k":1,"n":3}]`, `[{"k":1,"_change_type":"-D"}]`} {
			tb.write(t, rows)
		}
		var got []string
		for _, c := range s.ok(t, "GET", tb.path()+"/changelog?from=earliest&wait=0s", nil)["rows"].([]any) {
			r := c.(map[string]any)
			got = append(got, fmt.Sprint(r["_change_type"], " ", r["k"], " ", r["n"]))
		}
		require.Equal(t, want, strings.Join(got, ", "))
	}
}
