package catalog

import (
	"context"
	"math"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// ReserveIDs gives the caller the next n values of a table's auto-increment column,
// from first on, from 1 in a new table. They are given to nobody else, also after a
// restart.
func (c *Catalog) ReserveIDs(ctx context.Context, table millrace.TableID, n int) (first int64, err error) {
	_, err = c.store(ctx, func(s *snapshot) ([]Write, error) {
		t, err := s.tableByID(table)
		if err != nil {
			return nil, err
		}
		i := t.Schema.AutoIncrement()
		if i < 0 || n < 1 {
			return nil, errs.New(errs.WrongTableKind, "%d ids of table %q, which needs an auto_increment column and at least one id", n, t.Path)
		}
		limit := int64(math.MaxInt64 - 1)
		if t.Schema.Columns[i].Type.Kind == millrace.Int {
			limit = math.MaxInt32
		}
		first = max(s.nextIDs[table], 1)
		if int64(n) > limit-first+1 {
			return nil, errs.New(errs.IntegerOverflow, "column %q of table %q is %s, and has given its values up to %d; ALTER can widen an INT column to BIGINT",
				t.Schema.Columns[i].Name, t.Path, t.Schema.Columns[i].Type, first-1)
		}
		next := first + int64(n)
		s.nextIDs = with(s.nextIDs, table, next)
		return []Write{{Key: idsKey(table), Value: encodeRecord(idsRecord{TableID: table, Next: next})}}, nil
	})
	return first, err // nobody else reads them, so nobody has to have seen the commit
}
