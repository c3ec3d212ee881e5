package catalog

import (
	"bytes"
	"strings"
	"testing"

	"github.com/millrace/millrace/errs"
)

// Entries that do not fit together are damage, whatever their checksums say, and
// the message names the key or the thing at fault.
func TestLoadMismatch(t *testing.T) {
	whole, _, err := openGolden(t, goldenFiles(newestGolden)).kv.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := loadSnapshot(whole); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ key, old, is, says string }{
		{"database/0000000001", `"id":1`, `"id":2`, "database/0000000001"},
		{"database/0000000001", "", "", "which does not exist"},
		{"head", "", "", `"head" is missing`},
		{"head", `"shards":4`, `"shards":0`, "0 shards"},
		{"head", `"shards":4`, `"shards":2`, "of 2"},
		{"head", `"next_table":9`, `"next_table":6`, "table 8"},
		{"head", `"next_database":3`, `"next_database":1`, "database 1"},
		{"head", `"next_partition":7`, `"next_partition":6`, "partition 6"},
		{"ids/0000000004", `"next":101`, `"next":0`, "ids/0000000004"},
		{"ids/0000000004", `"table_id":4`, `"table_id":3`, "ids/0000000004"},
		{"ids/0000000003", "", `{"table_id":3,"next":1}`, "ids of table 3"},
		{"partition/0000000004/0000000001", `"id":1`, `"id":3`, "partition/0000000004/0000000001"},
		{"partition/0000000004/0000000001", `"values":["2026-11-28"]`, `"values":["2026-11-30"]`, "two partitions"},
		{"partition/0000000004/0000000001", `"values":["2026-11-28"]`, `"values":["2026-11-28","x"]`, "2 values"},
		{"partition/0000000004/0000000001", `"values":["2026-11-28"]`, `"values":null`, "0 values"},
		{"partition/0000000004/0000000001", `"state":"sealed"`, `"state":"sold"`, "sold"},
		{"partition/0000000004/0000000001", `"shards":[1,2]`, `"shards":[1]`, "1 shards"},
		{"partition/0000000004/0000000001", `"shards":[1,2]`, `"shards":[1,9]`, "shard 9"},
		{"partition/0000000006/0000000004", `"state":"expired"`, `"state":"sealed"`, "gone and sealed"},
		{"partition/0000000002/0000000002", "", `{"id":2,"table_id":2,"values":[],"state":"open","shards":[1,1,1,1,1,1]}`, "of table 2"},
		{"partition/0000000009/0000000002", "", `{"id":2,"table_id":9,"values":["x"],"state":"open","shards":[1]}`, "table 9"},
		{"schema/0000000004/0000000002", "", "", "schema 2"},
		{"schema/0000000009/0000000001", "", `{"table_id":9,"schema":{"id":1}}`, "table 9"},
		{"table/0000000004", `"shards":null`, `"shards":[0,1]`, "2 shards"},
		{"table/0000000003", `"shards":[3]`, `"shards":[]`, "0 shards"},
		{"table/0000000004", `"partition_by":[2]`, `"partition_by":[5]`, "column 5"},
		{"table/0000000004", `"aggregates":{"3"`, `"aggregates":{"5"`, "column 5"},
		{"table/0000000004", `"zone":"Europe/Berlin"`, `"zone":"Atlantis"`, "Atlantis"},
		{"table/0000000004", `"auto_partition":{"column":2`, `"auto_partition":{"column":1`, "column 1"},
		{"table/0000000005", `"version_column":2`, `"version_column":9`, "column 9"},
		{"table/0000000002", `"table.changelog.image":"FULL"`, `"table.changelog.image":"HALF"`, "HALF"},
		{"table/0000000003", `"name":"clicks"`, `"name":"Orders"`, "two tables"},
	} {
		entries := edit(t, whole, c.key, c.old, c.is)
		if _, err := loadSnapshot(entries); !errs.Is(err, errs.CorruptData) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s, %s becomes %s: %v", c.key, c.old, c.is, err)
		}
	}
}

// edit is a copy of entries in which a key's value has one text in place of
// another; without texts the key is gone, and without an old one it is new.
func edit(t *testing.T, entries []Entry, key, old, is string) []Entry {
	t.Helper()
	var out []Entry
	added := false
	for _, e := range entries {
		if old == "" && is != "" && !added && e.Key > key {
			out, added = append(out, Entry{Key: key, Value: []byte(is), Revision: 1}), true
		}
		if e.Key != key {
			out = append(out, e)
			continue
		}
		if old == "" {
			continue
		}
		if !bytes.Contains(e.Value, []byte(old)) {
			t.Fatalf("%s is %s and has no %s", key, e.Value, old)
		}
		e.Value = bytes.Replace(e.Value, []byte(old), []byte(is), 1)
		out = append(out, e)
	}
	return out
}
