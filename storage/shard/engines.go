package shard

import "github.com/millrace/millrace/row"

// lastRow keeps the last row; of a partial one the columns that it names.
func (e *engine) lastRow(old, patch []byte, set []bool) ([]byte, bool, error) {
	if set == nil {
		return patch, true, nil
	}
	return e.codec.AppendMerged(nil, old, patch, set), true, nil
}

// firstRow keeps the row that is there.
func firstRow(old, _ []byte, _ []bool) ([]byte, bool, error) { return old, false, nil }

// versioned keeps the row whose version is higher, the last of equal ones. NULL is the
// lowest version.
func (e *engine) versioned(version int) updateFunc {
	return func(old, patch []byte, set []bool) ([]byte, bool, error) {
		if e.codec.Compare(patch, old, version) < 0 {
			return old, false, nil
		}
		return e.lastRow(old, patch, set)
	}
}

// aggregation makes of both rows one, each column by its function.
func aggregation(a *row.Aggregator) updateFunc {
	return func(old, patch []byte, set []bool) ([]byte, bool, error) {
		next, err := a.Append(nil, old, patch, set)
		return next, true, err
	}
}
