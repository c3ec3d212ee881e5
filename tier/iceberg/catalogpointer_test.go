package iceberg

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	ice "github.com/apache/iceberg-go"
	icecat "github.com/apache/iceberg-go/catalog"
	sqlcat "github.com/apache/iceberg-go/catalog/sql"
	"github.com/apache/iceberg-go/table"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/objstore"
	"github.com/millrace/millrace/objstore/objstoretest"
)

// newCatalogWorld is a lake on disk whose pointers are in a catalog of the user's own:
// iceberg-go's over SQLite.
func newCatalogWorld(t *testing.T) (*world, *flakyCatalog) {
	t.Helper()
	dir := t.TempDir()
	db, err := sql.Open("sqlite", filepath.Join(dir, "catalog.db"))
	require.NoError(t, err)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	c, err := sqlcat.NewCatalog("own", db, sqlcat.SQLite, ice.Properties{})
	require.NoError(t, err)
	s, err := objstore.Open(t.Context(), "file://"+filepath.Join(dir, "lake"), objstore.Options{FS: vfs.Default})
	require.NoError(t, err)
	flaky := &flakyCatalog{Catalog: c}
	w := &world{t: t, store: objstoretest.NewFaulty(s), clock: &testClock{now: time.Now()}, catalog: flaky}
	w.f = w.another()
	return w, flaky
}

// flakyCatalog fails as a test says.
type flakyCatalog struct {
	icecat.Catalog

	before, after func() error // a commit; nil: nothing
}

var errFlaky = errors.New("the catalog is away")

func (c *flakyCatalog) CommitTable(ctx context.Context, name table.Identifier, rs []table.Requirement, us []table.Update) (table.Metadata, string, error) {
	if c.before != nil {
		if err := c.before(); err != nil {
			return nil, "", err
		}
	}
	m, l, err := c.Catalog.CommitTable(ctx, name, rs, us)
	if err == nil && c.after != nil {
		err = c.after()
	}
	return m, l, err
}

// once fails the first time.
func once() func() error {
	failed := false
	return func() error {
		if failed {
			return nil
		}
		failed = true
		return errFlaky
	}
}

// TestOwnCatalog makes a table in a catalog of the user's own, commits rounds there with
// our column ids, and meets commits of others.
func TestOwnCatalog(t *testing.T) {
	w, c := newCatalogWorld(t)
	d := testTable(7, nil, nil, 2, "k BIGINT NOT NULL", "s ROW<a INT, b ARRAY<STRING>>", "v STRING")
	name := table.Identifier{"db", "t7"}
	lt, err := w.f.open(t.Context(), d)
	require.NoError(t, err)
	made, err := c.LoadTable(t.Context(), name)
	require.NoError(t, err)
	require.Equal(t, lt.location, made.Location())
	require.Equal(t, 2, made.Metadata().Version())
	fields := made.Schema().Fields()
	require.Equal(t, []int{1, 2, 6}, []int{fields[0].ID, fields[1].ID, fields[2].ID}, "ids of columns, nested ones counted before")
	w.committed(d, 3)
	_, s, err := lt.current(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(3), s.Round())
	require.Len(t, w.scan(d), 3)

	// Another begins on the same snapshot and is first.
	late, err := lt.begin(t.Context(), d)
	require.NoError(t, err)
	require.NoError(t, appendTo(t, late, noBucket, `{"k":90}`))
	_, err = w.append(w.f, d, noBucket, at(d, 4), `{"k":3}`)
	require.NoError(t, err)
	_, err = late.commit(t.Context(), at(d, 4))
	require.ErrorIs(t, err, lake.ErrConflict)
	late.Abort(t.Context())
	require.Len(t, w.scan(d), 4)

	// Someone else writes a row: its snapshot says nothing of offsets, its parent does.
	foreign, err := c.LoadTable(t.Context(), name)
	require.NoError(t, err)
	tx := foreign.NewTransaction()
	require.NoError(t, tx.SetProperties(ice.Properties{"owner": "someone"}))
	_, err = tx.Commit(t.Context())
	require.NoError(t, err)
	_, s, err = lt.current(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(4), s.Round())
	_, err = w.append(w.f, d, noBucket, at(d, 5), `{"k":4}`)
	require.NoError(t, err)
	after, err := c.LoadTable(t.Context(), name)
	require.NoError(t, err)
	require.Equal(t, "someone", after.Properties()["owner"])
}

// TestOwnCatalogAnswersLost loses requests to the catalog and answers of it: each round
// is there once, or not.
func TestOwnCatalogAnswersLost(t *testing.T) {
	for what, break_ := range map[string]func(*flakyCatalog){
		"request": func(c *flakyCatalog) { c.before = once() },
		"answer":  func(c *flakyCatalog) { c.after = once() },
	} {
		t.Run(what, func(t *testing.T) {
			w, c := newCatalogWorld(t)
			d := testTable(1, nil, nil, 1, "k BIGINT NOT NULL")
			break_(c)
			_, err := w.f.open(t.Context(), d)
			require.NoError(t, err)
			for i := range 3 {
				break_(c)
				_, err := w.append(w.f, d, noBucket, at(d, int64(i+1)), fmt.Sprintf(`{"k":%d}`, i))
				require.NoError(t, err)
			}
			require.Len(t, w.scan(d), 3)
			c.before = func() error { return errFlaky }
			_, err = w.append(w.f, d, noBucket, at(d, 4), `{"k":9}`)
			require.True(t, errs.Is(err, errs.Unavailable), "%v", err)
			c.before = nil
			require.Len(t, w.scan(d), 3)
		})
	}
}

// TestOwnCatalogOfOthers does not touch a table that is not ours, nor that of a dropped
// table of the same name, until it is purged.
func TestOwnCatalogOfOthers(t *testing.T) {
	w, c := newCatalogWorld(t)
	first, again := testTable(1, nil, nil, 1, "k BIGINT NOT NULL"), testTable(2, nil, nil, 1, "k BIGINT NOT NULL")
	again.Path = first.Path
	w.committed(first, 2)
	_, err := w.f.open(t.Context(), again)
	require.True(t, errs.Is(err, errs.Unavailable) && errors.Is(err, errForeign), "%v", err)
	require.NoError(t, w.f.Purge(t.Context(), again.ID, again.Path))
	require.Len(t, w.scan(first), 2, "purging what has only the same name")
	require.NoError(t, w.f.Purge(t.Context(), first.ID, first.Path))
	require.NoError(t, w.f.Purge(t.Context(), first.ID, first.Path))
	_, err = w.f.open(t.Context(), again)
	require.NoError(t, err)
	exists, err := c.CheckTableExists(t.Context(), table.Identifier{"db", "t1"})
	require.NoError(t, err)
	require.True(t, exists)

	_, err = c.CreateTable(t.Context(), table.Identifier{"db", "t3"}, ice.NewSchema(0, ice.NestedField{ID: 1, Name: "x", Type: ice.PrimitiveTypes.Int32}), icecat.WithLocation("file://"+t.TempDir()))
	require.NoError(t, err)
	_, err = w.f.open(t.Context(), testTable(3, nil, nil, 1, "k BIGINT NOT NULL"))
	require.True(t, errs.Is(err, errs.Unavailable) && errors.Is(err, errForeign), "%v", err)
}
