package iceberg

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
)

// A file that is lost from a snapshot which is kept is damage, told with its name until it
// is back; that of a snapshot which was let go of means to read again.
func TestLostFile(t *testing.T) {
	w := newWorld(t)
	d := testTable(1, nil, nil, 1, "k BIGINT NOT NULL")
	w.committed(d, 2)
	lt, err := w.f.Open(t.Context(), d)
	require.NoError(t, err)
	s, err := lt.Newest(t.Context())
	require.NoError(t, err)
	files, err := s.Files(t.Context(), lake.Scope{})
	require.NoError(t, err)
	read := func() error {
		for i := range files {
			rs, err := s.Rows(t.Context(), &files[i], lake.Read{Columns: lakeColumns(d)})
			for err == nil {
				_, _, err = rs.Next()
			}
			if !errors.Is(err, io.EOF) {
				return err
			}
		}
		return nil
	}
	require.NoError(t, read())
	require.Nil(t, lt.Damage(t.Context()))

	lost := files[1].Handle.(*lakeFile).key
	body, err := w.store.Get(t.Context(), lost)
	require.NoError(t, err)
	require.NoError(t, w.store.Remove(t.Context(), lost))
	for range 2 {
		err := read()
		require.Equal(t, errs.CorruptData, errs.CodeOf(err), "%v", err)
		require.ErrorContains(t, err, lost)
		f := lt.Damage(t.Context())
		require.NotNil(t, f)
		require.Equal(t, errs.CorruptData, f.Code)
		require.Contains(t, f.Detail, lost)
		require.Equal(t, w.clock.now, f.Since)
	}
	require.NoError(t, w.store.Put(t.Context(), lost, body))
	require.Nil(t, lt.Damage(t.Context()))
	require.NoError(t, read())

	require.NoError(t, w.store.Remove(t.Context(), lost))
	require.Equal(t, errs.CorruptData, errs.CodeOf(read()))
	// A snapshot that clears the table, after which the one with the file is expired.
	r, err := lt.Begin(t.Context(), d)
	require.NoError(t, err)
	require.NoError(t, r.Clear(t.Context(), noBucket))
	_, err = r.Commit(t.Context(), at(d, 3))
	require.NoError(t, err)
	require.NotNil(t, lt.Damage(t.Context()), "it is kept yet")
	w.clock.now = w.clock.now.Add(48 * time.Hour)
	d.Options.Lake.Expire = true
	for range 2 {
		_, err = lt.Maintain(t.Context(), d)
		require.NoError(t, err)
	}
	require.Equal(t, errs.SnapshotGone, errs.CodeOf(read()))
	require.Nil(t, lt.Damage(t.Context()))
}
