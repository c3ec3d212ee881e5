package owncatalog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/apache/iceberg-go/table"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/objstore"
	"github.com/millrace/millrace/row/jsonrow"
	"github.com/millrace/millrace/tier/iceberg"
)

type realClock struct{}

func (realClock) Now() time.Time { return time.Now() }

// process is one that commits to a lake, whose files are in memory: none are on disk.
type process struct {
	t      *testing.T
	format *iceberg.Format
	desc   *millrace.Table
}

func memoryStore(t *testing.T) objstore.Store {
	t.Helper()
	s, err := objstore.Open(t.Context(), "file:///lake", objstore.Options{FS: vfs.NewMem()})
	require.NoError(t, err)
	return s
}

func newProcess(t *testing.T, o Options, store objstore.Store) *process {
	t.Helper()
	o.Store = store
	c, err := New(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	typ, err := millrace.ParseType("BIGINT")
	require.NoError(t, err)
	return &process{
		t:      t,
		format: iceberg.New(iceberg.Options{Store: store, Catalog: c, Cluster: [16]byte{1}, Clock: realClock{}, Logger: slog.New(slog.DiscardHandler)}),
		desc: &millrace.Table{
			ID: 1, Path: millrace.TablePath{Database: "Shop", Table: "Orders"}, Kind: millrace.LogTable, Buckets: 1, LastColumnID: 1,
			Schema:  &millrace.Schema{ID: 1, Columns: []millrace.Column{{ID: 1, Name: "k", Type: typ}}},
			Options: millrace.TableOptions{Lake: &millrace.LakeOptions{Enabled: true, Format: millrace.Iceberg, TargetFileBytes: 1 << 20}},
		},
	}
}

// round commits a row.
func (p *process) round() error {
	lt, err := p.format.Open(p.t.Context(), p.desc)
	if err != nil {
		return err
	}
	r, err := lt.Begin(p.t.Context(), p.desc)
	if err != nil {
		return err
	}
	defer r.Abort(p.t.Context())
	a, err := r.Append(p.t.Context(), lake.Slice{Bucket: lake.NoBucket})
	if err != nil {
		return err
	}
	next := int64(1)
	if b := r.Base(); b != nil {
		next = int64(b.Offsets()[p.desc.BucketID(0)]) + 1
	}
	d := jsonrow.NewDecoder(p.desc.Schema.Columns, jsonrow.Options{})
	if err := d.AddObject(fmt.Appendf(nil, `{"k":%d}`, next), 0); err != nil {
		return err
	}
	rec := d.Finish().Record
	defer rec.Release()
	if err := errors.Join(a.Write(rec), a.Close()); err != nil {
		return err
	}
	_, err = r.Commit(p.t.Context(), lake.Offsets{p.desc.BucketID(0): millrace.Offset(next)})
	return err
}

// rounds commits rows, each anew when another process was first.
func (p *process) rounds(n int) error {
	for range n {
		err := p.round()
		for errors.Is(err, lake.ErrConflict) {
			err = p.round()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// has checks that the lake has so many rows, each from a round of its own.
func (p *process) has(rows int64) {
	p.t.Helper()
	lt, err := p.format.Open(p.t.Context(), p.desc)
	require.NoError(p.t, err)
	s, err := lt.Newest(p.t.Context())
	require.NoError(p.t, err)
	require.Equal(p.t, rows, s.Totals().Rows)
	require.Equal(p.t, rows, s.Round())
	require.Equal(p.t, millrace.Offset(rows), s.Offsets()[p.desc.BucketID(0)])
}

// once is true the first time that it is asked about an action, before it or after.
func once(action string, after bool) func(string, bool) bool {
	done := false
	return func(a string, d bool) bool {
		if done || a != action || d != after {
			return false
		}
		done = true
		return true
	}
}

// TestLostAnswers loses requests that change something, and answers to them: each round is
// in the lake once.
func TestLostAnswers(t *testing.T) {
	for _, after := range []bool{false, true} {
		for _, action := range []string{"CreateTable", "UpdateTable"} {
			t.Run(fmt.Sprintf("glue %s %v", action, after), func(t *testing.T) {
				g := newGlueServer(t)
				store := memoryStore(t)
				p := newProcess(t, g.options(), store)
				for range 3 {
					lose := once(action, after)
					g.set(func(a string, done bool) (int, string) {
						if lose(a, done) {
							return http.StatusInternalServerError, "InternalServiceException"
						}
						return 0, ""
					})
					require.NoError(t, p.round())
				}
				p.has(3)
			})
		}
		for _, action := range []string{"create", "alter"} {
			t.Run(fmt.Sprintf("hive %s %v", action, after), func(t *testing.T) {
				h := newHiveServer(t)
				p := newProcess(t, h.options(), memoryStore(t))
				for range 3 {
					h.mu.Lock()
					h.lose = once(action, after)
					h.mu.Unlock()
					require.NoError(t, p.round())
				}
				p.has(3)
				require.Zero(t, h.expire(), "locks are given back")
			})
		}
	}
}

// TestTwoProcesses commit to one table: no round is lost, none is there twice.
func TestTwoProcesses(t *testing.T) {
	for kind, options := range map[string]func(*testing.T) Options{
		Glue: func(t *testing.T) Options { return newGlueServer(t).options() },
		Hive: func(t *testing.T) Options {
			o := newHiveServer(t).options()
			o.Properties["lock-check-retries"] = "20"
			return o
		},
	} {
		t.Run(kind, func(t *testing.T) {
			o, store := options(t), memoryStore(t)
			first := newProcess(t, o, store)
			require.NoError(t, first.rounds(1))
			var wg sync.WaitGroup
			failed := make([]error, 2)
			for i := range failed {
				p := newProcess(t, o, store)
				wg.Go(func() { failed[i] = p.rounds(6) })
			}
			wg.Wait()
			require.NoError(t, errors.Join(failed...))
			first.has(13)
		})
	}
}

// TestLateChange is of a metastore that carries out a change after its client has given up
// waiting. One that compares pointers refuses it when another has come in between; of one
// that does not, the lock keeps others out until it has happened.
func TestLateChange(t *testing.T) {
	for version, compares := range map[string]bool{"4.0.1": true, "3.1.3": false} {
		t.Run(version, func(t *testing.T) {
			h := newHiveServer(t)
			h.version = version
			store := memoryStore(t)
			p := newProcess(t, h.options(), store)
			require.NoError(t, p.round())
			var late func()
			h.mu.Lock()
			h.hold = func(change func()) { late = change }
			h.mu.Unlock()
			err := p.round()
			other := newProcess(t, h.options(), store)
			if compares {
				require.NoError(t, err)
				require.NoError(t, other.round())
				late()
				other.has(3)
				require.Zero(t, h.expire())
				return
			}
			require.True(t, errs.Is(err, errs.Unavailable), "%v", err)
			err = other.round()
			require.True(t, errs.Is(err, errs.Unavailable), "%v", err)
			require.Contains(t, err.Error(), "lock")
			late()
			other.has(2)
			require.Equal(t, 1, h.expire())
			require.NoError(t, other.round())
			p.has(3)
		})
	}
}

// TestMetastoreOverDerby cannot compare pointers, and says so: the lock has to do.
func TestMetastoreOverDerby(t *testing.T) {
	h := newHiveServer(t)
	h.derby = true
	p := newProcess(t, h.options(), memoryStore(t))
	require.NoError(t, p.rounds(3))
	p.has(3)
}

// TestRefusedCredentials says what is wrong, and goes on when they are taken again.
func TestRefusedCredentials(t *testing.T) {
	g := newGlueServer(t)
	p := newProcess(t, g.options(), memoryStore(t))
	require.NoError(t, p.round())
	g.set(func(string, bool) (int, string) { return http.StatusBadRequest, "ExpiredTokenException" })
	err := p.round()
	require.True(t, errs.Is(err, errs.Unavailable), "%v", err)
	require.Contains(t, err.Error(), "refuses the credentials, or they have expired")
	g.set(nil)
	require.NoError(t, p.round())
	p.has(2)
}

// TestNamespaceThatMayNotBeMade is used when it is there.
func TestNamespaceThatMayNotBeMade(t *testing.T) {
	g := newGlueServer(t)
	p := newProcess(t, g.options(), memoryStore(t))
	g.set(func(a string, _ bool) (int, string) {
		if a == "CreateDatabase" {
			return http.StatusBadRequest, "AccessDeniedException"
		}
		return 0, ""
	})
	err := p.round()
	require.True(t, errs.Is(err, errs.Unavailable), "%v", err)
	g.mu.Lock()
	g.databases["shop"] = true
	g.mu.Unlock()
	require.NoError(t, p.round())
}

// TestElsewhere is a table whose metadata is not in the lake, or gone.
func TestElsewhere(t *testing.T) {
	g := newGlueServer(t)
	p := newProcess(t, g.options(), memoryStore(t))
	require.NoError(t, p.round())
	lt, err := p.format.Open(t.Context(), p.desc)
	require.NoError(t, err)
	for location, code := range map[string]errs.Code{"s3://other/t/metadata/00001-a.metadata.json": errs.InvalidValue, lt.Location() + "/metadata/00009-gone.metadata.json": errs.CorruptData} {
		g.mu.Lock()
		g.tables["shop.orders"]["Parameters"].(map[string]any)["metadata_location"] = location
		g.mu.Unlock()
		_, err = lt.Newest(t.Context())
		require.True(t, errs.Is(err, code), "%s: %v", location, err)
	}
}

// TestDropped tables are out of the catalog, and only they.
func TestDropped(t *testing.T) {
	h := newHiveServer(t)
	p := newProcess(t, h.options(), memoryStore(t))
	require.NoError(t, p.round())
	require.NoError(t, p.format.Purge(t.Context(), p.desc.ID, p.desc.Path))
	require.Empty(t, h.tables)
	require.NoError(t, p.format.Purge(t.Context(), p.desc.ID, p.desc.Path))
}

// A catalog that does not answer is given up after its time, here the caller's.
func TestNoAnswer(t *testing.T) {
	h := newHiveServer(t)
	c, err := New(Options{Kind: Hive, URI: "thrift://127.0.0.1:1,thrift://" + h.addr})
	require.NoError(t, err)
	_, err = c.LoadTable(t.Context(), table.Identifier{"db", "t"})
	require.ErrorContains(t, err, "does not exist", "the second address answers")
	h.mu.Lock()
	defer h.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = c.LoadTable(ctx, table.Identifier{"db", "t"})
	require.ErrorIs(t, err, context.DeadlineExceeded)
}
