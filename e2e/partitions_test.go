package e2e

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func (tb table) partitions(t testing.TB) []string {
	t.Helper()
	var out []string
	for _, p := range tb.s.ok(t, "GET", tb.path()+"/partitions?limit=1000", nil)["partitions"].([]any) {
		out = append(out, p.(map[string]any)["name"].(string))
	}
	return out
}

// Partitions are made by hand and by writers, named by value or by name, listed by
// pages, read alone, and dropped with their rows.
func TestPartitions(t *testing.T) {
	s := shared(t)
	db := newDB(t, s)
	tb := create(t, s, db, "events", "id BIGINT, dt DATE, hour INT, v STRING", "id,dt,hour", 2, obj{"partition_by": []string{"dt", "hour"}})
	p := s.ok(t, "POST", tb.path()+"/partitions", obj{"partition": obj{"dt": "2026-08-26", "hour": 7}})
	require.Equal(t, "dt=2026-08-26/hour=7", p["name"])
	require.Equal(t, "map[dt:2026-08-26 hour:7]", fmt.Sprint(p["partition"]))
	require.Equal(t, "open", p["state"])
	s.fails(t, 409, "partition_already_exists", "POST", tb.path()+"/partitions", obj{"partition": "dt=2026-08-26/hour=7"})
	require.Equal(t, p["id"], s.ok(t, "POST", tb.path()+"/partitions?if_not_exists=true", obj{"partition": "dt=2026-08-26/hour=7"})["id"])

	got := tb.write(t, `[{"id":1,"dt":"2026-08-26","hour":7,"v":"a"},{"id":1,"dt":"2026-08-27","hour":0,"v":"b"},{"id":2,"dt":"2026-08-27","hour":0,"v":"c"}]`)
	for key := range got["offsets"].(map[string]any) {
		require.Regexp(t, `^dt=2026-08-2[67]/hour=[07]/[01]$`, key)
	}
	require.Equal(t, []string{"dt=2026-08-26/hour=7", "dt=2026-08-27/hour=0"}, tb.partitions(t))
	require.Equal(t, []string{`{"v":"b"}`}, tb.lookup(t, `[{"id":1,"dt":"2026-08-27","hour":0}],"columns":["v"]`))
	require.Equal(t, []string{`null`}, tb.lookup(t, `[{"id":1,"dt":"2026-08-28","hour":0}],"columns":["v"]`))
	require.Equal(t, []string{`{"v":"a"}`}, tb.scan(t, obj{"columns": []string{"v"}, "partitions": []any{obj{"dt": "2026-08-26", "hour": 7}}}))
	require.Equal(t, []string{`{"v":"a"}`}, tb.scan(t, obj{"columns": []string{"v"}, "partitions": []string{"dt=2026-08-26/hour=7"}}))
	require.Equal(t, []string{`{"v":"a"}`}, tb.scan(t, obj{"columns": []string{"v"}, "filter": "dt < '2026-08-27'"}))
	require.Equal(t, "2", tb.count(t, "hour = 0"))
	require.Equal(t, "3", tb.count(t, ""))
	require.Len(t, tb.partitions(t), 2, "a lookup makes no partition")

	first := s.ok(t, "GET", tb.path()+"/partitions?limit=1", nil)
	second := s.ok(t, "GET", tb.path()+"/partitions?limit=1&page_token="+first["next_page_token"].(string), nil)
	require.Len(t, second["partitions"], 1)
	require.Nil(t, second["next_page_token"])

	s.ok(t, "DELETE", tb.path()+"/partitions?name=dt%3D2026-08-27%2Fhour%3D0", nil)
	require.Equal(t, []string{`{"v":"a"}`}, tb.scan(t, obj{"columns": []string{"v"}}))
	s.fails(t, 404, "partition_not_found", "DELETE", tb.path()+"/partitions?name=dt%3D2026-08-27%2Fhour%3D0", nil)
	s.ok(t, "DELETE", tb.path()+"/partitions?if_exists=true&name=dt%3D2026-08-27%2Fhour%3D0", nil)
	s.fails(t, 404, "partition_not_found", "POST", tb.path()+"/scan", obj{"partitions": []string{"dt=2026-08-27/hour=0"}})

	fixed := create(t, s, db, "fixed", "id BIGINT, region STRING", "", 1, obj{"partition_by": []string{"region"}, "properties": obj{"table.partition.dynamic": "false"}})
	s.fails(t, 404, "partition_not_found", "POST", fixed.path()+"/records", recordsBody(`[{"id":1,"region":"eu"}]`))
	s.ok(t, "POST", fixed.path()+"/partitions", obj{"partition": obj{"region": "eu"}})
	fixed.write(t, `[{"id":1,"region":"eu"}]`)
	for name, c := range map[string]struct{ code, body string }{
		"wrong type":    {"type_mismatch", `{"partition":{"dt":"2026-08-26","hour":{}}}`},
		"a word":        {"invalid_value", `{"partition":{"dt":"2026-08-26","hour":"seven"}}`},
		"a date?":       {"invalid_value", `{"partition":{"dt":"yesterday","hour":7}}`},
		"NULL":          {"null_not_allowed", `{"partition":{"dt":null,"hour":7}}`},
		"half a name":   {"missing_column", `{"partition":{"dt":"2026-08-26"}}`},
		"another":       {"unknown_field", `{"partition":{"dt":"2026-08-26","hour":7,"v":"x"}}`},
		"nothing":       {"missing_column", `{}`},
		"name":          {"invalid_value", `{"partition":"hour=7/dt=2026-08-26"}`},
		"not a name":    {"invalid_value", `{"partition":"../../etc"}`},
		"unknown field": {"unknown_field", `{"partition":{"dt":"2026-08-26","hour":7},"colour":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			s.fails(t, 422, c.code, "POST", tb.path()+"/partitions", c.body)
		})
	}
	plain := create(t, s, db, "plain", "id BIGINT", "", 1)
	s.fails(t, 422, "wrong_table_kind", "GET", plain.path()+"/partitions", nil)
	s.fails(t, 422, "type_mismatch", "POST", tb.path()+"/records", recordsBody(`[{"id":1,"dt":"2026-08-26","hour":{},"v":"a"}]`))
	s.fails(t, 422, "null_not_allowed", "POST", tb.path()+"/records", recordsBody(`[{"id":1,"dt":null,"hour":1,"v":"a"}]`))
}

// Writers that come upon a new partition at once get one partition between them.
func TestPartitionMadeAtOnce(t *testing.T) {
	s := shared(t)
	tb := create(t, s, newDB(t, s), "t", "id BIGINT, region STRING", "id,region", 4, obj{"partition_by": []string{"region"}})
	var wg sync.WaitGroup
	for w := range 20 {
		wg.Go(func() {
			for r := range 5 {
				if err := tb.tryWrite(fmt.Sprintf(`[{"id":%d,"region":"r%d"}]`, w, r)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.Len(t, tb.partitions(t), 5)
	require.Equal(t, "100", tb.count(t, ""))
}
