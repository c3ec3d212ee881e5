package guard

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/auth"
	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
)

// Lists are full pages of what may be described, whose tokens name no other, and the end of
// a table and of a token ends what is allowed.
func TestGuard(t *testing.T) {
	now := time.Unix(1000, 0)
	clock := func() time.Time { return now }
	cat, err := catalog.Open(t.Context(), catalog.Options{Dir: "c", FS: vfs.NewMem(), Clock: clock, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer cat.Close()
	g := New(cat, auth.NewPolicy(auth.PolicyOptions{Admins: []string{"user:root"}, Clock: clock}), clock)
	as := func(name string) context.Context {
		return auth.With(t.Context(), auth.NewPrincipal(name, nil, now.Add(time.Minute)))
	}
	root, ann := as("root"), as("ann")
	_, err = g.CreateDatabase(root, "d", "")
	require.NoError(t, err)
	for i := range 9 {
		name := fmt.Sprintf("t%d", i)
		_, _, err := g.CreateTable(root, "d", catalog.Spec{Name: name, Columns: []catalog.ColumnSpec{{Name: "a", Type: "INT"}}}, false)
		require.NoError(t, err)
		if i%3 == 1 {
			_, created, err := g.CreateGrant(root, Grant{Principal: "user:ann", On: "d." + name, Verbs: []string{"write"}})
			require.NoError(t, err)
			require.True(t, created)
		}
	}
	var seen []string
	for token := ""; ; {
		page, next, err := g.Tables(ann, "d", 2, token)
		require.NoError(t, err)
		for _, tbl := range page {
			seen = append(seen, tbl.Path.Table)
		}
		if token = next; token == "" {
			break
		}
		require.Equal(t, catalog.PageToken(seen[len(seen)-1]), token)
	}
	require.Equal(t, []string{"t1", "t4", "t7"}, seen)
	require.Len(t, g.AllTables(ann), 3)
	none, _, err := g.Grants(ann, 0, "")
	require.NoError(t, err)
	require.Empty(t, none)
	require.NoError(t, g.DeleteGrant(ann, "99"))
	require.Equal(t, errs.PermissionDenied, errs.CodeOf(g.DeleteGrant(ann, "1")))
	_, err = g.Table(t.Context(), millrace.TablePath{Database: "d", Table: "t1"})
	require.Equal(t, errs.Unauthenticated, errs.CodeOf(err), "nobody calls")

	tbl, err := g.Table(ann, millrace.TablePath{Database: "d", Table: "t1"})
	require.NoError(t, err)
	p, err := g.Write(ann, tbl)
	require.NoError(t, err)
	_, err = g.Read(ann, tbl, nil)
	require.Equal(t, errs.PermissionDenied, errs.CodeOf(err))
	require.NoError(t, p.Still())
	require.NoError(t, g.DeleteGrant(root, "1"))
	require.Equal(t, errs.TableNotFound, errs.CodeOf(p.Still()))
	_, err = g.TableByID(ann, tbl.ID)
	require.EqualError(t, err, errs.NoTableID(uint32(tbl.ID)).Error())

	other, err := g.Table(ann, millrace.TablePath{Database: "d", Table: "t4"})
	require.NoError(t, err)
	p, err = g.Write(ann, other)
	require.NoError(t, err)
	now = now.Add(time.Minute)
	require.ErrorIs(t, p.Still(), auth.ErrExpired)
}

// older is a store that an earlier release wrote, under a name that is refused now.
type older struct {
	catalog.KV
	name string
}

func (o older) Load(ctx context.Context) ([]catalog.Entry, uint64, error) {
	entries, revision, err := o.KV.Load(ctx)
	for i := range entries {
		entries[i].Value = bytes.ReplaceAll(entries[i].Value, []byte("user:was"), []byte(o.name))
	}
	return entries, revision, err
}

// What an earlier release stored under a name that is refused now is listed, shown and taken
// away; nothing new is made under it.
func TestNamesOfEarlierReleases(t *testing.T) {
	opts := catalog.Options{Clock: time.Now, Logger: slog.New(slog.DiscardHandler)}
	for _, name := range []string{"user: ann", "group:a\ufffd", "user:a\u00a0b", "group:" + strings.Repeat("a", millrace.MaxPrincipalName)} {
		fs := vfs.NewMem()
		kv, err := catalog.OpenPebble(fs, "c", opts.Logger)
		require.NoError(t, err)
		cat, err := catalog.OpenKV(t.Context(), kv, opts)
		require.NoError(t, err)
		limits := millrace.Limits{Streams: 3}
		_, err = cat.SetQuota(t.Context(), "user:was", limits)
		require.NoError(t, err)
		_, _, err = cat.CreateGrant(t.Context(), millrace.Grant{Principal: "user:was", Verbs: millrace.VerbsOf(millrace.VerbRead)})
		require.NoError(t, err)
		require.NoError(t, cat.Close())
		kv, err = catalog.OpenPebble(fs, "c", opts.Logger)
		require.NoError(t, err)
		cat, err = catalog.OpenKV(t.Context(), older{kv, name}, opts)
		require.NoError(t, err)
		g := New(cat, auth.NewPolicy(auth.PolicyOptions{Admins: []string{"user:root"}, Clock: time.Now}), time.Now)
		root := auth.With(t.Context(), auth.NewPrincipal("root", nil, time.Time{}))

		quotas, _, err := g.Quotas(root, 0, "")
		require.NoError(t, err)
		require.Equal(t, []*millrace.Quota{{ID: 1, Principal: name, Limits: limits}}, quotas)
		q, err := g.Quota(root, name)
		require.NoError(t, err, name)
		require.Equal(t, limits, q.Limits)
		_, err = g.SetQuota(root, name, limits)
		require.Equal(t, errs.InvalidValue, errs.CodeOf(err))
		for range 2 { // the second time there is none
			require.NoError(t, g.DeleteQuota(root, name))
			q, err = g.Quota(root, name)
			require.NoError(t, err)
			require.Equal(t, &millrace.Quota{Principal: name}, q)
		}
		grants, _, err := g.Grants(root, 0, "")
		require.NoError(t, err)
		require.Len(t, grants, 1)
		require.Equal(t, name, grants[0].Principal)
		_, _, err = g.CreateGrant(root, grants[0])
		require.Equal(t, errs.InvalidValue, errs.CodeOf(err))
		require.NoError(t, g.DeleteGrant(root, grants[0].ID))
		require.Empty(t, cat.Grants())
		for _, wrong := range []string{"ann", "role:x"} { // what nobody has ever had a quota under
			_, err = g.Quota(root, wrong)
			require.Equal(t, errs.InvalidValue, errs.CodeOf(err))
			require.Equal(t, errs.InvalidValue, errs.CodeOf(g.DeleteQuota(root, wrong)))
		}
		require.NoError(t, cat.Close())
	}
}
