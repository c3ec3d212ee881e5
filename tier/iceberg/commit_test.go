package iceberg

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
)

// TestAppend commits two rounds to a log table and reads them with iceberg-go's reader.
func TestAppend(t *testing.T) {
	w := newWorld(t)
	d := testTable(7, nil, nil, 1, "k BIGINT NOT NULL", "s STRING")
	s, err := w.append(w.f, d, lake.Slice{Bucket: lake.NoBucket}, at(d, 2), `{"k":1,"s":"a"}`, `{"k":2,"s":null}`)
	require.NoError(t, err)
	require.EqualValues(t, 1, s.Round())
	require.Equal(t, []string{`{"k":1,"s":"a"}`, `{"k":2,"s":null}`}, w.scan(d))
	s, err = w.append(w.another(), d, lake.Slice{Bucket: lake.NoBucket}, at(d, 3), `{"k":3,"s":"c"}`)
	require.NoError(t, err)
	require.EqualValues(t, 2, s.Round())
	require.Equal(t, at(d, 3), s.Offsets())
	require.Equal(t, lake.Totals{Rows: 3, DataFiles: 2, Bytes: s.Totals().Bytes}, s.Totals())
	require.Equal(t, []string{`{"k":1,"s":"a"}`, `{"k":2,"s":null}`, `{"k":3,"s":"c"}`}, w.scan(d))

	lt := w.f.handle(d.ID, d.Path)
	again, err := lt.byID(t.Context(), s.ID())
	require.NoError(t, err)
	require.Equal(t, s.Offsets(), again.Offsets())
	_, err = lt.byID(t.Context(), s.ID()+1)
	require.True(t, errs.Is(err, errs.SnapshotGone), err)
}
