package tier_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/lake/laketest"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/tier"
)

// kv are rows {"k":from..to-1,"v":tag}.
func kv(from, to int, tag string) string {
	var b strings.Builder
	for k := from; k < to; k++ {
		fmt.Fprintf(&b, `{"k":%d,"v":"%s%d"} `, k, tag, k)
	}
	return b.String()
}

func keys(ks ...int) string {
	var b strings.Builder
	for _, k := range ks {
		fmt.Fprintf(&b, `{"k":%d} `, k)
	}
	return b.String()
}

// A log table of each shape is tiered in rounds; nothing new means no commit.
func TestLogTable(t *testing.T) {
	for name, set := range map[string]func(*catalog.Spec){
		"one bucket":    nil,
		"by bucket":     func(s *catalog.Spec) { s.BucketKey, s.Buckets = []string{"k"}, new(4) },
		"of no key":     func(s *catalog.Spec) { s.Buckets = new(3) },
		"of two":        func(s *catalog.Spec) { s.BucketKey, s.Buckets = []string{"k", "v"}, new(3) },
		"partitioned":   func(s *catalog.Spec) { s.PartitionBy, s.Buckets = []string{"v"}, new(2) },
		"small files":   func(s *catalog.Spec) { s.Properties = tiered("table.datalake.target-file-size", "1mib") },
		"with a system": func(s *catalog.Spec) { s.Properties = tiered("table.datalake.system-columns", "true") },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			lt := n.table("t", "k BIGINT, v STRING", set)
			s := n.tier(lt)
			require.Equal(t, lake.StateEmpty, s.State)
			require.Zero(t, s.Tiered)

			n.must(lt, router.Append, kv(0, 20, "a"))
			s = n.tier(lt)
			require.Equal(t, lake.StateOK, s.State)
			require.EqualValues(t, 20, s.Tiered)
			require.EqualValues(t, 20, s.Totals.Rows)
			require.Zero(t, s.Pending)
			n.complete(lt)

			again := n.tier(lt)
			require.Equal(t, s.Snapshot, again.Snapshot, "a round without rows committed")
			n.must(lt, router.Append, kv(20, 27, "b"))
			s, err := n.m.Status(context.Background(), lt)
			require.NoError(t, err)
			require.EqualValues(t, 7, s.Pending)
			n.tier(lt)
			n.complete(lt)
			n.crash()
			n.must(lt, router.Append, kv(27, 30, "c"))
			s = n.tier(lt)
			require.EqualValues(t, 3, s.Tiered)
			n.complete(lt)
		})
	}
}

// The rows of one bucket are in files of their own exactly where the lake table is
// partitioned by bucket.
func TestSlices(t *testing.T) {
	n := newNode(t)
	for i, c := range []struct {
		set func(*catalog.Spec)
		own bool
	}{
		{func(s *catalog.Spec) { s.BucketKey, s.Buckets = []string{"k"}, new(4) }, true},
		{func(s *catalog.Spec) { s.Buckets = new(4) }, false},
		{func(s *catalog.Spec) { s.BucketKey, s.Buckets = []string{"k", "v"}, new(4) }, false},
		{func(s *catalog.Spec) { s.PrimaryKey, s.Buckets = []string{"k", "v"}, new(4) }, true},
	} {
		lt := n.table(fmt.Sprintf("t%d", i), "k BIGINT, v STRING", c.set)
		mode := router.Append
		if lt.Keyed() {
			mode = router.Upsert
		}
		for j := range 4 {
			n.must(lt, mode, kv(10*j, 10*j+10, "a"))
		}
		n.tier(lt)
		n.complete(lt)
		files, err := n.newest(lt).Files(context.Background(), lake.Scope{})
		require.NoError(t, err)
		want := 1
		if c.own {
			want = 4
		}
		require.Len(t, files, want)
		for _, f := range files {
			require.Equal(t, c.own, f.Bucket != lake.NoBucket)
		}
	}
}

// System columns say where a row was in the log; a row of keyed state was nowhere.
func TestSystemColumns(t *testing.T) {
	n := newNode(t)
	props := tiered("table.datalake.system-columns", "true")
	lt := n.table("l", "k BIGINT, v STRING", func(s *catalog.Spec) { s.Properties, s.Buckets = props, new(2) })
	kt := n.table("k", "k BIGINT, v STRING", func(s *catalog.Spec) { s.Properties, s.PrimaryKey = props, []string{"k"} })
	at := n.clock.Now().UnixMicro()
	n.must(lt, router.Append, kv(0, 3, "a"))
	n.must(lt, router.Append, kv(3, 5, "b"))
	n.tier(lt)
	system := func(t2 *millrace.Table) (out []laketest.System) {
		s := n.newest(t2).(*laketest.Snapshot)
		files, err := s.Files(context.Background(), lake.Scope{})
		require.NoError(t, err)
		for i := range files {
			out = append(out, s.System(&files[i])...)
		}
		return out
	}
	got := system(lt)
	require.Len(t, got, 5)
	byBucket := map[uint16][]millrace.Offset{}
	for _, s := range got {
		byBucket[s.Bucket] = append(byBucket[s.Bucket], s.Offset)
		require.EqualValues(t, at, s.Timestamp)
	}
	for b, offsets := range byBucket {
		for i, off := range offsets {
			require.EqualValues(t, i, off, "bucket %d", b)
		}
	}
	n.must(kt, router.Upsert, kv(0, 1, "a"))
	n.tier(kt)
	require.Equal(t, []laketest.System{{}}, system(kt))
	n.must(kt, router.Upsert, kv(0, 1, "b"))
	n.tier(kt)
	n.must(kt, router.Upsert, kv(1, 2, "c"))
	n.tier(kt)
	got = system(kt)
	require.EqualValues(t, 2, got[1].Offset) // +I -U +U: the last is at 2
	require.EqualValues(t, 3, got[2].Offset)
}

// A keyed table begins with its state and goes on with what became of each key.
func TestKeyedTable(t *testing.T) {
	for _, props := range []map[string]string{
		tiered(), tiered("table.changelog.image", "WAL"), tiered("table.datalake.iceberg.delete-mode", "rewrite"),
		tiered("table.merge-engine", "first_row"),
	} {
		t.Run(fmt.Sprint(props), func(t *testing.T) {
			n := newNode(t)
			kt := n.table("t", "k BIGINT, v STRING", func(s *catalog.Spec) {
				s.PrimaryKey, s.Buckets, s.Properties = []string{"k"}, new(2), props
			})
			deletes := props["table.merge-engine"] == ""
			n.must(kt, router.Upsert, kv(0, 10, "a"))
			n.must(kt, router.Upsert, kv(0, 5, "b"))
			if deletes {
				n.must(kt, router.Delete, keys(1, 9))
			}
			n.tier(kt)
			n.complete(kt)

			n.must(kt, router.Upsert, kv(3, 12, "c")) // updates, keys deleted before, and new ones
			if deletes {
				n.must(kt, router.Delete, keys(3, 11)) // one that the lake has, one that it never had
				n.must(kt, router.Delete, keys(4))
				n.must(kt, router.Upsert, kv(4, 5, "d")) // gone and come
			}
			s := n.tier(kt)
			n.complete(kt)
			if deletes {
				require.EqualValues(t, 10-2+1+1-1, s.Totals.Rows)
			}
			if deletes {
				n.must(kt, router.Delete, keys(0, 2, 4, 5, 6, 7, 8, 9, 10))
				n.tier(kt)
				n.complete(kt)
				require.Zero(t, n.newest(kt).Totals().Rows)
			}
			n.must(kt, router.Upsert, kv(0, 3, "e"))
			n.crash()
			n.tier(kt)
			n.complete(kt)
		})
	}
}

// What was inserted and deleted between two rounds leaves nothing but the offsets.
func TestNothingLeft(t *testing.T) {
	n := newNode(t)
	kt := n.table("t", "k BIGINT, v STRING", func(s *catalog.Spec) { s.PrimaryKey = []string{"k"} })
	n.must(kt, router.Upsert, kv(0, 2, "a"))
	n.tier(kt)
	n.must(kt, router.Upsert, kv(5, 6, "b"))
	n.must(kt, router.Delete, keys(5))
	s := n.tier(kt)
	require.Zero(t, s.Tiered)
	require.EqualValues(t, 4, s.Offsets["0"])
	require.EqualValues(t, 1, s.Totals.DataFiles)
	n.complete(kt)
}

// Small bounds make many rounds; rows are there once, and a change is never cut apart.
func TestBoundedRounds(t *testing.T) {
	for _, o := range []tier.Options{{RoundBytes: 1}, {FoldBytes: 1}, {FoldBytes: 2000}, {RoundBytes: 300, FoldBytes: 500}} {
		n := newNode(t, func(n *node) { n.o = o })
		lt := n.table("l", "k BIGINT, v STRING", func(s *catalog.Spec) { s.Buckets = new(3) })
		kt := n.table("k", "k BIGINT, v STRING", func(s *catalog.Spec) { s.PrimaryKey, s.Buckets = []string{"k"}, new(2) })
		for i := range 8 {
			n.must(lt, router.Append, kv(10*i, 10*i+10, "a"))
			n.must(kt, router.Upsert, kv(0, 10+i, fmt.Sprint("a", i)))
			if i == 2 {
				n.tier(kt)
			}
			n.must(kt, router.Delete, keys(i, i+1))
		}
		n.tier(lt)
		n.complete(lt)
		n.tier(kt)
		n.complete(kt)
	}
}

// Changes beyond what the memory may hold are cut into several rounds, and those of the
// same keys over and over are not.
func TestFoldInParts(t *testing.T) {
	n := newNode(t, func(n *node) { n.o.FoldBytes = 2 << 20 })
	kt := n.table("k", "k BIGINT, v STRING", func(s *catalog.Spec) { s.PrimaryKey = []string{"k"} })
	big := strings.Repeat("x", 100_000)
	n.must(kt, router.Upsert, kv(0, 20, "a"))
	require.EqualValues(t, 1, n.tier(kt).Round)
	for i := range 6 {
		n.must(kt, router.Upsert, kv(0, 5, fmt.Sprint(i, big)))
	}
	require.EqualValues(t, 2, n.tier(kt).Round)
	n.complete(kt)
	for i := range 6 {
		n.must(kt, router.Upsert, kv(10*i, 10*i+20, fmt.Sprint(i, big)))
	}
	require.Greater(t, n.tier(kt).Round, int64(3))
	n.complete(kt)
}

// A table that is not tiered, or not any more, says so; turning it on later begins.
func TestEnabledLater(t *testing.T) {
	n := newNode(t)
	lt := n.table("l", "k BIGINT, v STRING", func(s *catalog.Spec) { s.Properties = map[string]string{"table.log.ttl": "0"} })
	n.must(lt, router.Append, kv(0, 5, "a"))
	_, err := n.m.Tier(context.Background(), lt)
	require.True(t, errs.Is(err, errs.InvalidValue), "%v", err)
	s, err := n.m.Status(context.Background(), lt)
	require.NoError(t, err)
	require.False(t, s.Enabled)
	snap, err := n.m.Newest(context.Background(), lt)
	require.NoError(t, err)
	require.Nil(t, snap)

	lt = n.alter(lt, `[{"op":"set_properties","properties":{"table.datalake.enabled":"true"}}]`)
	n.tier(lt)
	n.complete(lt)
	lt = n.alter(lt, `[{"op":"set_properties","properties":{"table.datalake.enabled":"false"}}]`)
	n.must(lt, router.Append, kv(5, 7, "b"))
	_, err = n.m.Tier(context.Background(), lt)
	require.True(t, errs.Is(err, errs.InvalidValue), "%v", err)
	snap, err = n.m.Newest(context.Background(), lt)
	require.NoError(t, err)
	require.EqualValues(t, 5, snap.Totals().Rows) // what is there can still be read
	lt = n.alter(lt, `[{"op":"set_properties","properties":{"table.datalake.enabled":"true"}}]`)
	n.tier(lt)
	n.complete(lt)
}

// The lake table evolves in the round that first carries the new schema.
func TestAlter(t *testing.T) {
	n := newNode(t)
	for _, keyed := range []bool{false, true} {
		mode := router.Append
		lt := n.table(fmt.Sprint("t", keyed), "k BIGINT, v STRING, i INT", func(s *catalog.Spec) {
			if keyed {
				s.PrimaryKey, mode = []string{"k"}, router.Upsert
			}
		})
		n.must(lt, mode, `{"k":1,"v":"a","i":7} {"k":2,"v":"b","i":8}`)
		n.tier(lt)
		lt = n.alter(lt, `[{"op":"add_column","column":{"name":"x","type":"STRING"}},{"op":"alter_type","name":"i","type":"BIGINT"}]`)
		n.must(lt, mode, `{"k":2,"v":"c","i":9000000000,"x":"new"} {"k":3,"v":"d","i":1}`)
		n.check(lt)
		n.tier(lt)
		n.complete(lt)
		require.Equal(t, lt.Schema.ID, n.newest(lt).Schema())
		lt = n.alter(lt, `[{"op":"rename_column","name":"x","to":"y"},{"op":"drop_column","name":"v"}]`)
		n.must(lt, mode, `{"k":4,"i":1,"y":"z"}`)
		n.tier(lt)
		n.complete(lt)
	}
}
