package sql_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/row/jsonrow"
	"github.com/millrace/millrace/sql"
	"github.com/millrace/millrace/storage"
	"github.com/millrace/millrace/storage/storagetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is an engine over a catalog, a router and a worker, all in memory.
type world struct {
	t      testing.TB
	engine *sql.Engine
	reg    *prometheus.Registry
	clock  *storagetest.Clock
	db     string // of the statements
}

type plainSigner struct{}

func (plainSigner) Sign(b []byte) (string, error)      { return string(b), nil }
func (plainSigner) Verify(text string) ([]byte, error) { return []byte(text), nil }

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, reg: prometheus.NewRegistry(), clock: storagetest.NewClock(), db: "shop"}
	fs, log, ctx := vfs.NewMem(), slog.New(slog.DiscardHandler), context.Background()
	require.NoError(t, fs.MkdirAll("data", 0o755))
	cat, err := catalog.Open(ctx, catalog.Options{Dir: "data/catalog", FS: fs, Clock: w.clock.Now, Logger: log})
	require.NoError(t, err)
	worker, err := storage.Open(ctx, storage.Options{Dir: "data", Cluster: cat.ClusterID(), Shards: cat.Shards(), FS: fs, Clock: w.clock, Logger: log, Registerer: prometheus.NewRegistry(), CacheBytes: 8 << 20})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, worker.Close(ctx))
		require.NoError(t, cat.Close())
	})
	r := router.New(router.Options{Catalog: cat, Owners: router.Local(worker.Shards()), Signer: plainSigner{}, Clock: w.clock, Logger: log, Registerer: w.reg})
	w.engine = sql.New(sql.Options{Catalog: cat, Router: r, Clock: w.clock})
	w.exec("CREATE DATABASE shop")
	return w
}

// run gives the answer of a statement: a line for each row, as a JSON array, or
// "affected n".
func (w *world) run(text string, params ...any) (string, error) {
	w.t.Helper()
	req := sql.Request{Text: text, Database: w.db}
	for _, p := range params {
		b, err := json.Marshal(p)
		require.NoError(w.t, err)
		req.Params = append(req.Params, b)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	res, err := w.engine.Execute(ctx, req)
	if err != nil {
		return "", err
	}
	defer func() { require.NoError(w.t, res.Close()) }()
	if res.Columns == nil {
		return fmt.Sprintf("affected %d", res.Affected), nil
	}
	var out strings.Builder
	enc := jsonrow.NewEncoder(res.Columns, jsonrow.EncodeOptions{})
	for {
		rec, err := res.Next(ctx)
		if errors.Is(err, io.EOF) {
			return out.String(), nil
		}
		if err != nil {
			return "", err
		}
		enc.Bind(rec)
		for i := range int(rec.NumRows()) {
			out.Write(append(enc.AppendArray(nil, i), '\n'))
		}
		rec.Release()
	}
}

func (w *world) exec(text string, params ...any) string {
	w.t.Helper()
	out, err := w.run(text, params...)
	require.NoError(w.t, err, text)
	return out
}

// is sees that a statement answers these rows.
func (w *world) is(text string, want ...string) {
	w.t.Helper()
	require.Equal(w.t, strings.Join(append(want, ""), "\n"), w.exec(text), text)
}

// fails sees that a statement is refused with this code and these words.
func (w *world) fails(text string, code errs.Code, words ...string) {
	w.t.Helper()
	_, err := w.run(text)
	require.Error(w.t, err, text)
	require.Equal(w.t, code, errs.CodeOf(err), "%s: %v", text, err)
	for _, s := range words {
		require.Contains(w.t, err.Error(), s, text)
	}
}
