package catalog

import (
	"math"
	"testing"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// Auto-increment ids are dense blocks from 1, given once, also over restarts and
// widening, and run out with an error.
func TestReserveIDs(t *testing.T) {
	tc := openMem(t)
	tc.mustCreateDatabase(t, "d")
	table := tc.mustCreate(t, "d", specOf(t, `{"columns":[{"name":"id","type":"BIGINT"},{"name":"n","type":"INT","auto_increment":true}]}`))
	plain := tc.mustCreate(t, "d", keyed("plain", 1))
	next := int64(1)
	reserve := func(n int) {
		t.Helper()
		if got, err := tc.ReserveIDs(t.Context(), table.ID, n); err != nil || got != next {
			t.Errorf("%d, %v, want %d", got, err, next)
		}
		next += int64(n)
	}
	reserve(1000)
	reserve(1)
	tc.reopen(t)
	reserve(math.MaxInt32 - 1001)
	if got, err := tc.ReserveIDs(t.Context(), table.ID, 1); !errs.Is(err, errs.IntegerOverflow) {
		t.Errorf("%d, %v", got, err)
	}
	for id, n := range map[millrace.TableID]int{plain.ID: 1, table.ID: 0} {
		if _, err := tc.ReserveIDs(t.Context(), id, n); !errs.Is(err, errs.WrongTableKind) {
			t.Error(err)
		}
	}
	if _, err := tc.ReserveIDs(t.Context(), 99, 1); !errs.Is(err, errs.TableNotFound) {
		t.Error(err)
	}
	if _, err := tc.DropTable(t.Context(), table.Path, false, false); err != nil {
		t.Fatal(err)
	}
	tc.reopen(t)
}
