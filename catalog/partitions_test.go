package catalog

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// partitioned makes a keyed table d.p with partition columns day DATE and hour INT.
func partitioned(t testing.TB, tc *testCatalog, buckets int, properties map[string]string) *millrace.Table {
	t.Helper()
	tc.mustCreateDatabase(t, "d")
	return tc.mustCreate(t, "d", Spec{
		Name: "p", Columns: cols("day", "DATE", "id", "BIGINT", "hour", "INT"), PrimaryKey: []string{"id", "day", "hour"},
		PartitionBy: []string{"day", "hour"}, Buckets: &buckets, Properties: properties,
	})
}

func (tc *testCatalog) mustEnsure(t testing.TB, table *millrace.Table, values ...string) *millrace.Partition {
	t.Helper()
	p, created, err := tc.EnsurePartition(t.Context(), table.ID, values)
	if err != nil || !created {
		t.Fatalf("EnsurePartition(%v) = %v, %v", values, created, err)
	}
	return p
}

func names(ps []*millrace.Partition) string {
	out := make([]string, len(ps))
	for i, p := range ps {
		out[i] = p.Name
	}
	return strings.Join(out, " ")
}

// A partition is found by name, by id and in lists, its buckets go on in the
// rotation of shards, and all is the same after a restart.
func TestPartitions(t *testing.T) {
	tc := openMem(t)
	table := partitioned(t, tc, 3, nil)
	if got, err := tc.Partitions(t.Context(), table.ID); err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
	second := tc.mustEnsure(t, table, "2026-08-27", "7")
	want := &millrace.Partition{
		ID: 1, Table: table.ID, Name: "day=2026-08-27/hour=7", Values: []string{"2026-08-27", "7"}, State: millrace.PartitionOpen,
		Shards: []millrace.ShardID{0, 1, 2}, CreatedAt: testTime,
	}
	if d := cmp.Diff(want, second); d != "" {
		t.Error(d)
	}
	first := tc.mustEnsure(t, table, "2026-08-26", "10")
	if first.ID != 2 || fmt.Sprint(first.Shards) != "[3 0 1]" {
		t.Errorf("%+v", first)
	}
	// The same values in another spelling are the same partition.
	again, created, err := tc.EnsurePartition(t.Context(), table.ID, []string{"2026-08-26", "1e1"})
	if again != first || created || err != nil {
		t.Errorf("%+v, %v, %v", again, created, err)
	}
	for range 2 {
		all, err := tc.Partitions(t.Context(), table.ID)
		if err != nil || names(all) != "day=2026-08-26/hour=10 day=2026-08-27/hour=7" {
			t.Errorf("%v, %v", names(all), err)
		}
		for _, name := range []string{"day=2026-08-27/hour=7", "day=2026-08-27/hour=7.0", "day=2026%2D08%2D27/hour=7"} {
			if got, err := tc.Partition(t.Context(), table.ID, name); err != nil || !cmp.Equal(got, second) {
				t.Errorf("%s: %+v, %v", name, got, err)
			}
		}
		if got, err := tc.PartitionByID(t.Context(), table.ID, 2); err != nil || !cmp.Equal(got, first) {
			t.Errorf("%+v, %v", got, err)
		}
		tc.reopen(t)
	}
	// Partition ids are those of the whole cluster, and never used again.
	if _, err := tc.RemovePartition(t.Context(), table.ID, 2); err != nil {
		t.Fatal(err)
	}
	tc.reopen(t)
	if got := tc.mustEnsure(t, table, "2026-08-26", "10"); got.ID != 3 {
		t.Errorf("%+v", got)
	}
	if _, err := tc.DropTable(t.Context(), table.Path, false, false); err != nil {
		t.Fatal(err)
	}
	if _, err := tc.Partitions(t.Context(), table.ID); !errs.Is(err, errs.TableNotFound) {
		t.Error(err)
	}
	tc.reopen(t) // partitions that were left behind would be damage
}

// A partition's values are checked by column, and what is not there is said to be.
func TestPartitionErrors(t *testing.T) {
	tc := openMem(t)
	table := partitioned(t, tc, 1, nil)
	plain := tc.mustCreate(t, "d", keyed("plain", 1))
	tc.mustEnsure(t, table, "2026-08-26", "7")
	ensure := func(id millrace.TableID, values ...string) error {
		_, _, err := tc.EnsurePartition(t.Context(), id, values)
		return err
	}
	named := func(name string) error {
		_, err := tc.Partition(t.Context(), table.ID, name)
		return err
	}
	state := func(id millrace.PartitionID, s millrace.PartitionState) error {
		_, err := tc.SetPartitionState(t.Context(), table.ID, id, s)
		return err
	}
	before := tc.Revision()
	for _, c := range []struct {
		err  error
		code errs.Code
		says string
	}{
		{ensure(table.ID, "2026-8-26", "7"), errs.InvalidValue, `"day"`},
		{ensure(table.ID, "2026-02-30", "7"), errs.InvalidValue, `"day"`},
		{ensure(table.ID, "2026-08-26", "seven"), errs.InvalidValue, `"hour"`},
		{ensure(table.ID, "2026-08-26", "3000000000"), errs.ValueOutOfRange, `"hour"`},
		{ensure(table.ID, "2026-08-26", "7.5"), errs.ValueOutOfRange, `"hour"`},
		{ensure(table.ID, "2026-08-26"), errs.InvalidValue, "[day hour]"},
		{ensure(plain.ID, "x"), errs.WrongTableKind, "not partitioned"},
		{ensure(99, "x"), errs.TableNotFound, "99"},
		{named("day=2026-08-27/hour=7"), errs.PartitionNotFound, "day=2026-08-27/hour=7"},
		{named("hour=7/day=2026-08-26"), errs.InvalidValue, "[day hour]"},
		{named("day=2026-08-26"), errs.InvalidValue, "[day hour]"},
		{named("nonsense"), errs.InvalidValue, "nonsense"},
		{named("day=2026-08-26/hour=%zz"), errs.InvalidValue, "hour"},
		{named("day=%FF/hour=7"), errs.InvalidValue, "UTF-8"},
		{state(1, millrace.PartitionOpen), errs.InvalidValue, "is open"},
		{state(1, "strange"), errs.InvalidValue, "strange"},
		{state(9, millrace.PartitionClosing), errs.PartitionNotFound, "9"},
	} {
		if errs.CodeOf(c.err) != c.code || !strings.Contains(fmt.Sprint(c.err), c.says) {
			t.Errorf("%v\n\twant %q: …%s…", c.err, c.code, c.says)
		}
	}
	if tc.Revision() != before {
		t.Error("the catalog has changed")
	}
}

// A partition's state only moves on, is durable, and ends its writes.
func TestPartitionStates(t *testing.T) {
	tc := openMem(t)
	table := partitioned(t, tc, 1, nil)
	p := tc.mustEnsure(t, table, "2026-08-26", "7")
	for i, s := range partitionStates[1:] {
		if got, err := tc.SetPartitionState(t.Context(), table.ID, p.ID, s); err != nil || got.State != s || p.State != millrace.PartitionOpen {
			t.Errorf("%+v, %v", got, err)
		}
		tc.reopen(t)
		if got, err := tc.PartitionByID(t.Context(), table.ID, p.ID); err != nil || got.State != s {
			t.Errorf("%+v, %v", got, err)
		}
		if _, err := tc.SetPartitionState(t.Context(), table.ID, p.ID, partitionStates[i]); !errs.Is(err, errs.InvalidValue) {
			t.Errorf("back to %s: %v", partitionStates[i], err)
		}
		if _, _, err := tc.EnsurePartition(t.Context(), table.ID, p.Values); !errs.Is(err, errs.PartitionExpired) {
			t.Errorf("%s: %v", s, err)
		}
	}
}

// A table has at most 10,000 partitions, and as many times ten in the lake alone.
func TestMaxPartitions(t *testing.T) {
	tc := openMem(t)
	table := partitioned(t, tc, 1, nil)
	for _, c := range []struct {
		live, expired int
		want          errs.Code
	}{
		{millrace.MaxPartitions - 1, millrace.MaxExpired - 1, ""},
		{millrace.MaxPartitions, 0, errs.InvalidValue},
		{0, millrace.MaxExpired, errs.InvalidValue},
	} {
		if err := tc.checkNewPartition(tc.current.Load().tables[table.ID], []string{"2026-08-26", "7"}, c.live, c.expired); errs.CodeOf(err) != c.want {
			t.Errorf("beside %d and %d: %v", c.live, c.expired, err)
		}
	}
	open, dropping := &millrace.Partition{State: millrace.PartitionSealed}, &millrace.Partition{State: millrace.PartitionExpired, Dropping: true}
	if n := millrace.CountLive([]*millrace.Partition{open, {State: millrace.PartitionExpired}, dropping}); n != 2 {
		t.Errorf("%d are live", n)
	}
}

// That a partition is being dropped, when it expired, and that the workers let go of it,
// is durable; a drop ends its writes and can come at any time.
func TestPartitionEnds(t *testing.T) {
	tc := openMem(t)
	table := partitioned(t, tc, 1, nil)
	p := tc.mustEnsure(t, table, "2026-08-26", "7")
	if _, err := tc.PartitionGone(t.Context(), table.ID, p.ID); !errs.Is(err, errs.InvalidValue) {
		t.Errorf("gone while open: %v", err)
	}
	tc.now = testTime.Add(time.Hour)
	if _, err := tc.SetPartitionState(t.Context(), table.ID, p.ID, millrace.PartitionExpired); err != nil {
		t.Fatal(err)
	}
	tc.now = testTime.Add(2 * time.Hour)
	for _, change := range []struct {
		do   func() (*millrace.Partition, error)
		want millrace.Partition
	}{
		{func() (*millrace.Partition, error) { return tc.PartitionByID(t.Context(), table.ID, p.ID) }, millrace.Partition{}},
		{func() (*millrace.Partition, error) { return tc.PartitionGone(t.Context(), table.ID, p.ID) }, millrace.Partition{Gone: true}},
		{func() (*millrace.Partition, error) { return tc.DropPartition(t.Context(), table.ID, p.ID) }, millrace.Partition{Gone: true, Dropping: true}},
	} {
		want := *p
		want.State, want.ExpiredAt, want.Gone, want.Dropping = millrace.PartitionExpired, testTime.Add(time.Hour).Truncate(time.Microsecond), change.want.Gone, change.want.Dropping
		for range 2 { // a second time nothing changes
			got, err := change.do()
			if d := cmp.Diff(&want, got); err != nil || d != "" {
				t.Errorf("%v (-want +got)\n%s", err, d)
			}
		}
		if want.LakeOnly() == want.Dropping {
			t.Errorf("%+v is read from the lake: %t", want, want.LakeOnly())
		}
		revision := tc.Revision()
		tc.reopen(t)
		got, err := tc.PartitionByID(t.Context(), table.ID, p.ID)
		if d := cmp.Diff(&want, got); err != nil || d != "" || tc.Revision() != revision {
			t.Errorf("after a restart: %v (-want +got)\n%s", err, d)
		}
	}
	open := tc.mustEnsure(t, table, "2026-08-27", "7")
	if got, err := tc.DropPartition(t.Context(), table.ID, open.ID); err != nil || got.State != millrace.PartitionOpen || open.Dropping {
		t.Errorf("%+v, %v", got, err)
	}
	if _, _, err := tc.EnsurePartition(t.Context(), table.ID, open.Values); !errs.Is(err, errs.Unavailable) || !strings.Contains(err.Error(), "being dropped") {
		t.Error(err)
	}
	if _, err := tc.DropPartition(t.Context(), table.ID, 99); !errs.Is(err, errs.PartitionNotFound) {
		t.Error(err)
	}
}

// What a reader has seen stays as it was through every change, one that fails too.
func TestSnapshotsStay(t *testing.T) {
	tc := openMem(t)
	table := partitioned(t, tc, 2, nil)
	other := tc.mustCreate(t, "d", specOf(t, `{"columns":[{"name":"id","type":"BIGINT"},{"name":"n","type":"INT","auto_increment":true}]}`))
	tc.mustCreateDatabase(t, "e")
	tc.mustEnsure(t, table, "2026-08-26", "7")
	if _, err := tc.ReserveIDs(t.Context(), other.ID, 1); err != nil {
		t.Fatal(err)
	}
	for i, change := range []func() error{
		func() error { _, err := tc.CreateDatabase(t.Context(), "a", ""); return err },
		func() error { _, err := tc.DropDatabase(t.Context(), "e", false); return err },
		func() error { _, _, err := tc.CreateTable(t.Context(), "d", keyed("a", 1), false); return err },
		func() error {
			_, _, err := tc.EnsurePartition(t.Context(), table.ID, []string{"2026-08-25", "7"})
			return err
		},
		func() error {
			_, _, err := tc.EnsurePartition(t.Context(), table.ID, []string{"2026-08-27", "7"})
			return err
		},
		func() error {
			_, err := tc.SetPartitionState(t.Context(), table.ID, 2, millrace.PartitionClosing)
			return err
		},
		func() error { _, err := tc.RemovePartition(t.Context(), table.ID, 1); return err },
		func() error { _, err := tc.ReserveIDs(t.Context(), other.ID, 1); return err },
		func() error {
			_, err := tc.AlterTable(t.Context(), other.Path, steps(t, `[{"op":"alter_type","name":"n","type":"BIGINT"},{"op":"set_properties","properties":{"a":"b"}}]`), nil)
			return err
		},
		func() error { return tc.ExpirePartitions(t.Context(), table.ID, testTime) },
		func() error { _, err := tc.DropTable(t.Context(), other.Path, false, false); return err },
		func() error { _, err := tc.DropDatabase(t.Context(), "d", true); return err },
	} {
		old := &Catalog{kv: tc.kv}
		old.current.Store(tc.current.Load())
		before := describe(t, old)
		if err := change(); err != nil {
			t.Fatalf("change %d: %v", i, err)
		}
		if d := cmp.Diff(before, describe(t, old)); d != "" {
			t.Errorf("change %d is seen in what was there before:\n%s", i, d)
		}
		if cmp.Equal(before, describe(t, tc.Catalog)) {
			t.Errorf("change %d is not seen", i)
		}
	}
}

// Many callers that want one partition at the same time get one.
func TestEnsureAtOnce(t *testing.T) {
	tc := openMem(t)
	table := partitioned(t, tc, 2, nil)
	var wg sync.WaitGroup
	var mu sync.Mutex
	made, ids := 0, map[millrace.PartitionID]bool{}
	for i := range 32 {
		wg.Go(func() {
			p, created, err := tc.EnsurePartition(context.Background(), table.ID, []string{"2026-08-26", fmt.Sprint(i % 2)})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
			ids[p.ID] = true
			if created {
				made++
			}
		})
	}
	wg.Wait()
	if made != 2 || len(ids) != 2 {
		t.Errorf("%d made, ids %v", made, ids)
	}
}

// Auto-partitions that are no longer kept are not made again: not when the clock
// goes back, nor when properties keep more, nor after a restart.
func TestPartitionExpiry(t *testing.T) {
	tc := openMem(t) // 2026-11-29 10:00 UTC
	table := partitioned(t, tc, 1, map[string]string{
		"table.auto-partition.enabled": "true", "table.auto-partition.key": "day", "table.auto-partition.num-retention": "2", "table.auto-partition.time-zone": "Asia/Tokyo",
	})
	expired := func(day string) {
		t.Helper()
		if _, _, err := tc.EnsurePartition(t.Context(), table.ID, []string{day, "0"}); !errs.Is(err, errs.PartitionExpired) || !strings.Contains(fmt.Sprint(err), "day="+day) {
			t.Errorf("%s: %v", day, err)
		}
	}
	tc.mustEnsure(t, table, "2026-11-27", "0")
	expired("2026-11-26")
	tc.now = tc.now.Add(5 * time.Hour) // midnight in Tokyo
	if p, err := tc.Partition(t.Context(), table.ID, "day=2026-11-27/hour=0"); err != nil || p.State != millrace.PartitionOpen {
		t.Errorf("%v, %v", p, err) // that it is past keeping is for others to see
	}
	tc.mustEnsure(t, table, "2026-11-28", "0")
	expired("2026-11-25")

	tokyo, err := time.LoadLocation("Asia/Tokyo")
	if err != nil {
		t.Fatal(err)
	}
	if err := tc.ExpirePartitions(t.Context(), table.ID, time.Date(2026, 11, 30, 0, 0, 0, 0, tokyo)); err != nil {
		t.Fatal(err)
	}
	revision := tc.Revision()
	if err := tc.ExpirePartitions(t.Context(), table.ID, time.Date(2026, 11, 20, 0, 0, 0, 0, tokyo)); err != nil || tc.Revision() != revision {
		t.Errorf("an earlier time: %v", err)
	}
	tc.now = testTime
	tc.reopen(t)
	expired("2026-11-29")
	tc.mustEnsure(t, table, "2026-11-30", "0")
}
