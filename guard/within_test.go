package guard

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/assert"
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
	for _, c := range changes {
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
				assert.NoError(t, err)
			})
			<-dropping
			both.Go(func() { _, err := cat.CreateDatabase(system, "d", "new"); assert.NoError(t, err) })
		} else {
			both.Go(func() {
				_, err := cat.DropTableIf(system, path, false, false, func(*millrace.Table) error { close(dropping); <-asked; return nil })
				assert.NoError(t, err)
			})
			<-dropping
			both.Go(func() { _, _, err := cat.CreateTable(system, "d", spec("t"), false); assert.NoError(t, err) })
		}
		waiting(t, 1) // that the successor is the first to wait; else there is nothing to see
		both.Go(func() { assert.Error(t, c.change(ann)) })
		waiting(t, 2)
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

// Who waits to make a change while what allowed it is taken back does not make it.
func TestRevokedWithinTheChange(t *testing.T) {
	clock := func() time.Time { return time.Unix(1000, 0) }
	cat, err := catalog.Open(t.Context(), catalog.Options{Dir: "c", FS: vfs.NewMem(), Clock: clock, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer cat.Close()
	g := New(cat, auth.NewPolicy(auth.PolicyOptions{Clock: clock}), clock)
	ann := auth.With(t.Context(), auth.NewPrincipal("ann", nil, time.Unix(2000, 0)))
	system := auth.With(t.Context(), auth.System)
	_, err = cat.CreateDatabase(system, "d", "")
	require.NoError(t, err)
	table, _, err := cat.CreateTable(system, "d", catalog.Spec{
		Name: "t", Columns: []catalog.ColumnSpec{{Name: "a", Type: "STRING"}}, PartitionBy: []string{"a"},
	}, false)
	require.NoError(t, err)
	_, _, err = g.CreateGrant(system, Grant{Principal: "user:ann", On: everything, Verbs: []string{"admin"}})
	require.NoError(t, err)
	other, _, err := g.CreateGrant(system, Grant{Principal: "user:bob", On: "d", Verbs: []string{"read"}})
	require.NoError(t, err)
	_, err = g.SetQuota(system, "user:bob", millrace.Limits{Streams: 1})
	require.NoError(t, err)
	for name, change := range map[string]func() error{
		"grant": func() error {
			_, _, err := g.CreateGrant(ann, Grant{Principal: "user:eve", On: "d.t", Verbs: []string{"read"}})
			return err
		},
		"grant on everything": func() error {
			_, _, err := g.CreateGrant(ann, Grant{Principal: "user:eve", On: everything, Verbs: []string{"admin"}})
			return err
		},
		"revocation":    func() error { return g.DeleteGrant(ann, other.ID) },
		"quota":         func() error { _, err := g.SetQuota(ann, "user:ann", millrace.Limits{}); return err },
		"quota deleted": func() error { return g.DeleteQuota(ann, "user:bob") },
		"partition":     func() error { _, _, err := g.EnsurePartition(ann, table.ID, []string{"x"}); return err },
	} {
		held, asked := make(chan struct{}), make(chan struct{})
		var both sync.WaitGroup
		both.Go(func() { // changes nothing, and takes its time
			_, err := cat.DropDatabaseIf(system, "d", true, func(catalog.Database) error { close(held); <-asked; return errors.New("kept") })
			assert.Error(t, err)
		})
		<-held
		var changed error
		both.Go(func() { changed = change() })
		waiting(t, 1)
		g.policy.Set(nil)
		close(asked)
		both.Wait()
		if name != "revocation" { // of what the caller may not know of: no error, and nothing is done
			assert.Error(t, changed, name)
		}
		g.take()
	}
	require.Len(t, cat.Grants(), 2)
	require.Len(t, cat.Quotas(), 1)
	partitions, err := cat.Partitions(system, table.ID)
	require.NoError(t, err)
	require.Empty(t, partitions)
}

// waiting waits until so many changes of a catalog wait for the one that is being made.
func waiting(t *testing.T, n int) {
	t.Helper()
	stacks := make([]byte, 1<<20)
	require.Eventually(t, func() bool {
		have := 0
		for of := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			if strings.Contains(of, "[sync.Mutex.Lock") && strings.Contains(of, "catalog.(*Catalog).store(") {
				have++
			}
		}
		return have == n
	}, time.Minute, time.Millisecond)
}
