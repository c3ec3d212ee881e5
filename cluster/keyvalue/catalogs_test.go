package keyvalue_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/cluster/keyvalue"
	"github.com/millrace/millrace/cluster/natstest"
)

// Processes that come later list themselves in the store, by commits of its own: the
// catalogs that are there go on, and each shows at once what any of them changed.
func TestCatalogsOfManyProcesses(t *testing.T) {
	servers := natstest.StartT(t, 1)
	var all []*catalog.Catalog
	for range 4 {
		s := openStore(t, servers, keyvalue.Options{})
		c, err := catalog.OpenKV(t.Context(), s, catalog.Options{Clock: time.Now, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		all = append(all, c)
	}
	for i, c := range all {
		db := string(rune('a' + i))
		_, err := c.CreateDatabase(t.Context(), db, "")
		require.NoError(t, err)
		for _, other := range all {
			require.NoError(t, other.Err())
			got, err := other.Database(t.Context(), db)
			require.NoError(t, err)
			require.Equal(t, db, got.Name)
			_, err = other.Database(t.Context(), "absent")
			require.Error(t, err)
		}
	}
}
