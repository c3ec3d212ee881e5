package catalog

import (
	"fmt"
	"slices"
	"testing"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// inLake is a table in the lake.
func inLake(name string) Spec {
	return Spec{Name: name, Columns: cols("a", "INT"), Properties: map[string]string{"table.datalake.enabled": "true"}}
}

func purges(c *Catalog) (out string) {
	for _, p := range c.Purges() {
		out += fmt.Sprintf("%d %s;", p.Table, p.Path)
	}
	return out
}

// A purge is there from the drop on, also after a crash, until it is done; the level that
// it raised keeps an earlier release from taking the table to be gone altogether.
func TestPurges(t *testing.T) {
	tc := openMem(t)
	tc.mustCreateDatabase(t, "d")
	first, plain, kept := tc.mustCreate(t, "d", inLake("t")), tc.mustCreate(t, "d", Spec{Name: "plain", Columns: cols("a", "INT")}), tc.mustCreate(t, "d", inLake("kept"))
	drop := func(t2 *millrace.Table, purge bool) {
		t.Helper()
		if got, err := tc.DropTable(t.Context(), t2.Path, false, purge); err != nil || got.ID != t2.ID {
			t.Fatal(got, err)
		}
	}
	drop(plain, true)
	drop(kept, false)
	if got := purges(tc.Catalog); got != "" || tc.FeatureLevel() != FeatureLake {
		t.Error(got, tc.FeatureLevel())
	}
	drop(first, true)
	second := tc.mustCreate(t, "d", inLake("t"))
	drop(second, true)
	third := tc.mustCreate(t, "d", inLake("t"))
	held := tc.Purges()
	want := fmt.Sprintf("%d d.t;%d d.t;", first.ID, second.ID)
	for range 2 {
		if got := purges(tc.Catalog); got != want || tc.FeatureLevel() != FeaturePurges || tc.Purges()[0].DroppedAt != testTime {
			t.Errorf("%s, want %s; level %d", got, want, tc.FeatureLevel())
		}
		tc.reopen(t)
	}
	for range 2 {
		if err := tc.Purged(t.Context(), first.ID); err != nil {
			t.Fatal(err)
		}
	}
	tc.reopen(t)
	if got, want := purges(tc.Catalog), fmt.Sprintf("%d d.t;", second.ID); got != want || len(held) != 2 || held[0].Table != first.ID {
		t.Errorf("%s, want %s; before: %v", got, want, held)
	}
	if got, err := tc.Table(t.Context(), third.Path); err != nil || got.ID != third.ID {
		t.Error(got, err)
	}
	if err := tc.Purged(t.Context(), second.ID); err != nil || purges(tc.Catalog) != "" {
		t.Error(err)
	}
}

// There is a bound to what waits to be removed, which a drop without purge does not meet.
func TestPurgesBound(t *testing.T) {
	tc := openMem(t)
	tc.mustCreateDatabase(t, "d")
	table := tc.mustCreate(t, "d", inLake("t"))
	s := tc.current.Load().edit()
	for i := range MaxPurges {
		s.purges = append(s.purges, &millrace.Purge{Table: table.ID + 1 + millrace.TableID(i)})
	}
	tc.current.Store(s)
	if _, err := tc.DropTable(t.Context(), table.Path, false, true); !errs.Is(err, errs.Unavailable) {
		t.Error(err)
	}
	if _, err := tc.Table(t.Context(), table.Path); err != nil {
		t.Error(err)
	}
	if _, err := tc.DropTable(t.Context(), table.Path, false, false); err != nil || len(tc.Purges()) != MaxPurges {
		t.Error(err)
	}
}

// Purges that make no sense are damage.
func TestPurgesDamaged(t *testing.T) {
	tc := openMem(t)
	tc.mustCreateDatabase(t, "d")
	table := tc.mustCreate(t, "d", inLake("t"))
	entries, _, err := tc.kv.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(entries, func(e Entry) bool { return e.Key > prefixPurge })
	for key, r := range map[string]purgeRecord{
		purgeKey(table.ID):     {TableID: table.ID},
		purgeKey(table.ID + 1): {TableID: table.ID + 1},
		purgeKey(0):            {},
		purgeKey(table.ID + 2): {TableID: table.ID},
	} {
		damaged := slices.Insert(slices.Clone(entries), at, Entry{Key: key, Value: encodeRecord(r), Revision: 1})
		if _, err := loadSnapshot(damaged); !errs.Is(err, errs.CorruptData) {
			t.Errorf("%s: %v", key, err)
		}
	}
}
