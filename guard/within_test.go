package guard

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/auth"
	"github.com/millrace/millrace/catalog"
)

// Between the question and the change what has the name is made anew by somebody else: the
// new one is not altered, dropped or made in with what was granted on the old.
func TestAskedWithinTheChange(t *testing.T) {
	clock := func() time.Time { return time.Unix(1000, 0) }
	cat, err := catalog.Open(t.Context(), catalog.Options{Dir: "c", FS: vfs.NewMem(), Clock: clock, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer cat.Close()
	g := New(cat, auth.NewPolicy(auth.PolicyOptions{Clock: clock}), clock)
	ann := auth.With(t.Context(), auth.NewPrincipal("ann", nil, time.Unix(2000, 0)))
	system := auth.With(t.Context(), auth.System)
	spec := func(name string) catalog.Spec {
		return catalog.Spec{Name: name, Columns: []catalog.ColumnSpec{{Name: "a", Type: "INT"}}}
	}
	path := millrace.TablePath{Database: "d", Table: "t"}
	changes := []struct {
		on     string
		change func(ctx context.Context) error
	}{
		{"d.t", func(ctx context.Context) error {
			_, err := g.AlterTable(ctx, path, []catalog.AlterStep{{Op: "set_comment", Comment: new("x")}}, nil)
			return err
		}},
		{"d.t", func(ctx context.Context) error { _, err := g.DropTable(ctx, path, false, false); return err }},
		{"d", func(ctx context.Context) error { _, _, err := g.CreateTable(ctx, "d", spec("u"), false); return err }},
		{"d", func(ctx context.Context) error { _, err := g.DropDatabase(ctx, "d", true); return err }},
	}
	for round := range 40 {
		c := changes[round%len(changes)]
		_, err := cat.CreateDatabase(system, "d", "")
		require.NoError(t, err)
		_, _, err = cat.CreateTable(system, "d", spec("t"), false)
		require.NoError(t, err)
		_, _, err = g.CreateGrant(system, Grant{Principal: "user:ann", On: c.on, Verbs: []string{"alter", "drop", "create"}})
		require.NoError(t, err)
		// While the old one is being dropped, its successor waits to be made, and then ann with
		// what she may do to the old one.
		dropping, asked := make(chan struct{}), make(chan struct{})
		var both sync.WaitGroup
		if c.on == "d" {
			both.Go(func() {
				_, err := cat.DropDatabaseIf(system, "d", true, func(catalog.Database) error { close(dropping); <-asked; return nil })
				require.NoError(t, err)
			})
			<-dropping
			both.Go(func() { _, err := cat.CreateDatabase(system, "d", "new"); require.NoError(t, err) })
		} else {
			both.Go(func() {
				_, err := cat.DropTableIf(system, path, false, false, func(*millrace.Table) error { close(dropping); <-asked; return nil })
				require.NoError(t, err)
			})
			<-dropping
			both.Go(func() { _, _, err := cat.CreateTable(system, "d", spec("t"), false); require.NoError(t, err) })
		}
		time.Sleep(time.Millisecond) // that the successor is the first to wait; else there is nothing to see
		both.Go(func() { require.Error(t, c.change(ann)) })
		time.Sleep(time.Millisecond)
		close(asked)
		both.Wait()
		if c.on == "d" {
			d, err := cat.Database(system, "d")
			require.NoError(t, err)
			require.Equal(t, "new", d.Comment)
			tables, _, err := cat.Tables(system, "d", 0, "")
			require.NoError(t, err)
			require.Empty(t, tables)
		} else {
			made, err := cat.Table(system, path)
			require.NoError(t, err)
			require.Empty(t, made.Comment)
		}
		_, err = cat.DropDatabase(system, "d", true)
		require.NoError(t, err)
	}
}
