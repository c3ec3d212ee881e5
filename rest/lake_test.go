package rest

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/openapi"
	"github.com/millrace/millrace/router"
)

// saidLake answers what it is given.
type saidLake struct {
	status lake.Status
	purges []lake.Purging
	err    error
}

func (l *saidLake) Status(_ context.Context, t *millrace.Table) (lake.Status, error) {
	l.status.Table = t.ID
	return l.status, l.err
}

func (l *saidLake) Purges() []lake.Purging { return l.purges }

func (l *saidLake) Tier(ctx context.Context, t *millrace.Table) (lake.Status, error) {
	l.status.Tiered = 0
	if _, bounded := ctx.Deadline(); bounded {
		l.status.Tiered = 7
	}
	return l.Status(ctx, t)
}

// What tiering says of a table is the answer, a failing lake too; tables that are not in
// the lake, and servers that do not tier, are refused with what to do.
func TestLake(t *testing.T) {
	ctx, quiet := context.Background(), slog.New(slog.DiscardHandler)
	cat, err := catalog.Open(ctx, catalog.Options{Dir: "catalog", FS: vfs.NewMem(), Clock: time.Now, Logger: quiet})
	require.NoError(t, err)
	defer func() { require.NoError(t, cat.Close()) }()
	_, err = cat.CreateDatabase(ctx, "d", "")
	require.NoError(t, err)
	for name, props := range map[string]map[string]string{"t": {"table.datalake.enabled": "true"}, "plain": nil} {
		_, _, err = cat.CreateTable(ctx, "d", catalog.Spec{Name: name, Columns: []catalog.ColumnSpec{{Name: "a", Type: "INT"}}, Properties: props}, false)
		require.NoError(t, err)
	}
	lk := &saidLake{}
	o := Options{Catalog: cat, Router: router.New(router.Options{Catalog: cat, Logger: quiet, Registerer: prometheus.NewRegistry()}), Lake: lk, LakeLocation: "s3://b/p", Logger: quiet}
	call := func(method, path string) (int, map[string]any) {
		w := httptest.NewRecorder()
		New(o).ServeHTTP(w, httptest.NewRequest(method, "/v1/"+path, nil))
		var out map[string]any
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &out), w.Body.String())
		return w.Code, out
	}
	zeros := map[string]any{"rows": 0.0, "deleted_rows": 0.0, "data_files": 0.0, "delete_files": 0.0, "bytes": 0.0}
	at := time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC)
	path := "databases/d/tables/t/lake"
	tbl, err := cat.Table(ctx, millrace.TablePath{Database: "d", Table: "t"})
	require.NoError(t, err)

	lk.status = lake.Status{Enabled: true, Format: millrace.Iceberg, State: lake.StateEmpty, Location: "file:///l"}
	code, got := call(http.MethodGet, path)
	require.Equal(t, http.StatusOK, code)
	want := map[string]any{
		"table_id": float64(tbl.ID), "enabled": true, "format": "iceberg", "location": "file:///l", "state": "empty", "lag_ms": 0.0, "offsets": map[string]any{},
		"pending_rows": 0.0, "skipped_rows": 0.0, "totals": zeros,
	}
	require.Equal(t, want, got)

	lk.status = lake.Status{
		Format: millrace.Iceberg, State: lake.StateFailing, Failure: &lake.Failure{Code: errs.Unavailable, Detail: "away", Since: at},
		Snapshot: 4871360235712044617, Round: 12, CommittedAt: at, Lag: 41 * time.Second, Pending: 5, Skipped: 2, Offsets: map[string]millrace.Offset{"0": 9},
		Totals: lake.Totals{Rows: 1, DeletedRows: 2, DataFiles: 3, DeleteFiles: 4, Bytes: 5},
	}
	code, got = call(http.MethodPost, path+"/tier?timeout=5s")
	require.Equal(t, http.StatusOK, code)
	want = map[string]any{
		"table_id": float64(tbl.ID), "enabled": false, "format": "iceberg", "location": "", "state": "failing",
		"error":       map[string]any{"code": "unavailable", "detail": "away", "since": "2026-11-29T10:00:00Z"},
		"snapshot_id": "4871360235712044617", "round": 12.0, "committed_at": "2026-11-29T10:00:00Z", "lag_ms": 41000.0, "offsets": map[string]any{"0": 9.0},
		"pending_rows": 5.0, "skipped_rows": 2.0, "totals": map[string]any{"rows": 1.0, "deleted_rows": 2.0, "data_files": 3.0, "delete_files": 4.0, "bytes": 5.0},
		"rows_tiered": 7.0,
	}
	require.Equal(t, want, got)

	refused := func(status int, code errs.Code, says, method, path string) {
		t.Helper()
		got, problem := call(method, path)
		require.Equal(t, status, got, problem)
		require.Equal(t, string(code), problem["code"])
		require.Contains(t, problem["detail"], says)
	}
	plain := "databases/d/tables/plain/lake"
	refused(422, errs.InvalidValue, "set its property table.datalake.enabled to true", http.MethodGet, plain)
	refused(422, errs.InvalidValue, "set its property table.datalake.enabled to true", http.MethodPost, plain+"/tier")
	refused(404, errs.TableNotFound, "none", http.MethodGet, "databases/d/tables/none/lake")
	refused(422, errs.UnknownField, "x", http.MethodGet, path+"?x=1")
	refused(422, errs.ReadOnlyTable, "view", http.MethodPost, "databases/d/tables/t$changelog/lake/tier")
	lk.err = context.DeadlineExceeded
	refused(503, errs.Unavailable, "?timeout=", http.MethodPost, path+"/tier")
	_, info := call(http.MethodGet, "info")
	require.Equal(t, "s3://b/p", info["lake_location"])
	o.Lake = nil
	refused(503, errs.Unavailable, "role tier", http.MethodGet, path)
}

// What is still to be removed from the lake is told with the cluster, the first of them.
func TestLakePurges(t *testing.T) {
	ctx, quiet := context.Background(), slog.New(slog.DiscardHandler)
	cat, err := catalog.Open(ctx, catalog.Options{Dir: "catalog", FS: vfs.NewMem(), Clock: time.Now, Logger: quiet})
	require.NoError(t, err)
	defer func() { require.NoError(t, cat.Close()) }()
	lk := &saidLake{}
	h := New(Options{Catalog: cat, Router: router.New(router.Options{Catalog: cat, Logger: quiet, Registerer: prometheus.NewRegistry()}), Lake: lk, Logger: quiet, Members: func() Members { return Members{} }})
	ask := func() (out openapi.Cluster) {
		w := httptest.NewRecorder()
		h.GetCluster(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/cluster", nil))
		require.Equal(t, http.StatusOK, w.Code, w.Body)
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &out))
		return out
	}
	require.Empty(t, ask().LakePurges)
	at := time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC)
	for i := range 1200 {
		lk.purges = append(lk.purges, lake.Purging{Purge: millrace.Purge{Table: millrace.TableID(i + 7), Path: millrace.TablePath{Database: "d", Table: "t"}, DroppedAt: at}})
	}
	lk.purges[0].Failure = &lake.Failure{Code: errs.Unavailable, Detail: "away", Since: at}
	got := ask().LakePurges
	require.Len(t, got, 1000)
	require.Equal(t, openapi.LakePurge{TableID: 7, Table: "d.t", DroppedAt: at, Error: &openapi.LakeError{Code: errs.Unavailable, Detail: "away", Since: at}}, got[0])
	require.Nil(t, got[1].Error)
}
