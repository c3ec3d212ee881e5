package tier_test

// The tests of this package drive the manager with a real catalog, router and storage on
// a crashable file system. What must come out is said by the logs: they are kept for
// ever, and are read through the router as any client reads them.

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/lake/laketest"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/row/jsonrow"
	"github.com/millrace/millrace/storage"
	"github.com/millrace/millrace/storage/storagetest"
	"github.com/millrace/millrace/tier"
)

// tb is what tests, benchmarks and rapid have in common.
type tb interface {
	require.TestingT
	Helper()
	Cleanup(f func())
}

// plainSigner seals nothing: signing is auth's affair.
type plainSigner struct{}

func (plainSigner) Sign(p []byte) (string, error)   { return string(p), nil }
func (plainSigner) Verify(s string) ([]byte, error) { return []byte(s), nil }

// node is a node that tiers.
type node struct {
	t      tb
	fs     *vfs.MemFS
	clock  *storagetest.Clock
	format lake.Format
	o      tier.Options // settings and the hook of its manager
	cat    *catalog.Catalog
	w      *storage.Worker
	r      *router.Router
	reg    *prometheus.Registry
	m      *tier.Manager
}

func newNode(t tb, set ...func(*node)) *node {
	n := &node{t: t, fs: vfs.NewCrashableMem(), clock: storagetest.NewClock(), format: laketest.New()}
	for _, f := range set {
		f(n)
	}
	n.open()
	_, err := n.cat.CreateDatabase(context.Background(), "d", "")
	require.NoError(t, err)
	t.Cleanup(func() { n.close() })
	return n
}

func (n *node) open() {
	var err error
	ctx, quiet := context.Background(), slog.New(slog.DiscardHandler)
	n.cat, err = catalog.Open(ctx, catalog.Options{Dir: "catalog", Shards: 3, FS: n.fs, Clock: n.clock.Now, Logger: quiet})
	require.NoError(n.t, err)
	n.reg = prometheus.NewRegistry()
	n.w, err = storage.Open(ctx, storage.Options{Dir: "data", Shards: 3, FS: n.fs, Clock: n.clock, Logger: quiet, Registerer: n.reg})
	require.NoError(n.t, err)
	require.NoError(n.t, n.w.Err())
	n.m = n.manager(n.reg)
	n.r = router.New(router.Options{Catalog: n.cat, Owners: router.Local(n.w.Shards()), Lake: n.m, Signer: plainSigner{}, Clock: n.clock, Logger: quiet, Registerer: n.reg})
	n.m.Attach(n.r)
}

// manager is another manager of the node's tables; Attach is the caller's.
func (n *node) manager(reg prometheus.Registerer) *tier.Manager {
	o := n.o
	o.Format, o.Catalog, o.Clock, o.Logger, o.Registerer = n.format, n.cat, n.clock, slog.New(slog.DiscardHandler), reg
	for _, s := range n.w.Shards() {
		o.Shards = append(o.Shards, s)
	}
	return tier.New(context.Background(), o)
}

func (n *node) close() {
	require.NoError(n.t, n.m.Close())
	require.NoError(n.t, n.w.Close(context.Background()))
	require.NoError(n.t, n.cat.Close())
}

// copyAll is a copy of everything, as an operator makes of a data directory.
var copyAll = vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))}

// crash drops everything that is not synced and opens again.
func (n *node) crash() {
	clone := n.fs.CrashClone(vfs.CrashCloneCfg{})
	n.close()
	n.fs = clone
	n.open()
}

// tiered are the properties of a table in the lake.
func tiered(more ...string) map[string]string {
	out := map[string]string{"table.datalake.enabled": "true", "table.log.ttl": "0"}
	for i := 0; i < len(more); i += 2 {
		out[more[i]] = more[i+1]
	}
	return out
}

// table makes a table of columns such as "k BIGINT, v STRING".
func (n *node) table(name, columns string, set func(*catalog.Spec)) *millrace.Table {
	spec := catalog.Spec{Name: name, Properties: tiered()}
	for c := range strings.SplitSeq(columns, ", ") {
		col, typ, _ := strings.Cut(c, " ")
		spec.Columns = append(spec.Columns, catalog.ColumnSpec{Name: col, Type: typ})
	}
	if set != nil {
		set(&spec)
	}
	t, _, err := n.cat.CreateTable(context.Background(), "d", spec, false)
	require.NoError(n.t, err)
	return t
}

// now is a table as it is now.
func (n *node) now(t *millrace.Table) *millrace.Table {
	out, err := n.cat.TableByID(context.Background(), t.ID)
	require.NoError(n.t, err)
	return out
}

func (n *node) alter(t *millrace.Table, steps string) *millrace.Table {
	n.t.Helper()
	var all []catalog.AlterStep
	require.NoError(n.t, json.Unmarshal([]byte(steps), &all))
	out, err := n.cat.AlterTable(context.Background(), t.Path, all, nil)
	require.NoError(n.t, err)
	n.r.AlteredTable(context.Background(), out)
	return out
}

// write writes rows given as JSON objects one after the other; of deletes, their keys.
func (n *node) write(t *millrace.Table, mode router.Mode, text string) error {
	t = n.now(t)
	o, cols := jsonrow.Options{}, t.Schema.Columns
	if mode == router.Delete {
		o = jsonrow.Options{Key: t.Names(t.PrimaryKey), KeyOnly: true}
	}
	_, err := n.r.Write(context.Background(), &router.WriteRequest{Table: t, Mode: mode, Rows: n.decode(cols, o, text)})
	return err
}

func (n *node) must(t *millrace.Table, mode router.Mode, text string) {
	n.t.Helper()
	require.NoError(n.t, n.write(t, mode, text))
}

// tier tiers a table now.
func (n *node) tier(t *millrace.Table) lake.Status {
	n.t.Helper()
	s, err := n.m.Tier(context.Background(), n.now(t))
	require.NoError(n.t, err)
	return s
}

// partitions are those of a table, a nil one when it has none.
func (n *node) partitions(t *millrace.Table) []*millrace.Partition {
	if !t.Partitioned() {
		return []*millrace.Partition{nil}
	}
	ps, err := n.cat.Partitions(context.Background(), t.ID)
	require.NoError(n.t, err)
	return ps
}

// texts are the rows of a record as JSON.
func texts(t require.TestingT, rec arrow.RecordBatch) []string {
	b, err := rec.MarshalJSON()
	require.NoError(t, err)
	var all []json.RawMessage
	require.NoError(t, json.Unmarshal(b, &all))
	out := make([]string, len(all))
	for i, r := range all {
		out[i] = string(r)
	}
	return out
}

// wanted is what the lake must hold of a bucket when it has its log up to an offset: of
// a log table every record, of a keyed table the last row of each key.
func (n *node) wanted(t *millrace.Table, p *millrace.Partition, bucket uint16, until millrace.Offset) []string {
	rd := n.r.OpenLog(t, p, bucket, 0, until)
	defer func() { require.NoError(n.t, rd.Close()) }()
	var out []string
	state := map[string]string{}
	for at := millrace.Offset(0); ; {
		c, err := rd.Next(context.Background(), 0)
		if errors.Is(err, io.EOF) {
			require.Equal(n.t, until, at)
			break
		}
		require.NoError(n.t, err)
		at = c.Next
		rec, err := c.Record()
		require.NoError(n.t, err)
		rows := texts(n.t, rec)
		changes, err := c.Changes()
		require.NoError(n.t, err)
		for i, text := range rows {
			if !t.Keyed() {
				out = append(out, text)
				continue
			}
			key := string(row.AppendKey(nil, rec, t.KeyIndexes(t.PrimaryKey), i))
			if changes != nil && changes[i] == millrace.Delete {
				delete(state, key)
			} else {
				state[key] = text
			}
		}
		rec.Release()
		c.Release()
	}
	for _, text := range state {
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}

// lakeRows are the rows of a snapshot, by partition name; a filter says which files.
func lakeRows(t require.TestingT, s lake.Snapshot, desc *millrace.Table) map[string][]string {
	out := map[string][]string{}
	if s == nil {
		return out
	}
	files, err := s.Files(context.Background(), lake.Scope{})
	require.NoError(t, err)
	for i := range files {
		name := ""
		if desc.Partitioned() {
			name = millrace.PartitionName(desc.Names(desc.PartitionBy), files[i].Values)
		}
		rows, err := s.Rows(context.Background(), &files[i], lake.Read{Columns: desc.Schema.Columns})
		require.NoError(t, err)
		for {
			rec, _, err := rows.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			out[name] = append(out[name], texts(t, rec)...)
			rec.Release()
		}
		require.NoError(t, rows.Close())
	}
	for _, rows := range out {
		slices.Sort(rows)
	}
	return out
}

// newest is the newest snapshot, as the lake says.
func (n *node) newest(t *millrace.Table) lake.Snapshot {
	lt, err := n.format.Open(context.Background(), t)
	require.NoError(n.t, err)
	s, err := lt.Newest(context.Background())
	require.NoError(n.t, err)
	return s
}

// check compares the lake with the logs at the lake's offsets (T1).
func (n *node) check(t *millrace.Table) {
	n.t.Helper()
	t = n.now(t)
	s := n.newest(t)
	got := lakeRows(n.t, s, t)
	var offsets lake.Offsets
	if s != nil {
		offsets = s.Offsets()
	}
	seen := map[string]bool{}
	for _, p := range n.partitions(t) {
		name := ""
		if p != nil {
			name = p.Name
		}
		seen[name] = true
		var want []string
		for b := range uint16(t.Buckets) {
			id := t.BucketID(b)
			if p != nil {
				id = p.BucketID(b)
			}
			want = append(want, n.wanted(t, p, b, offsets[id])...)
		}
		slices.Sort(want)
		if len(want)+len(got[name]) > 0 {
			require.Equal(n.t, want, got[name], "partition %q at %v", name, offsets)
		}
	}
	for name := range got {
		require.True(n.t, seen[name], "the lake has rows of partition %q, which is gone", name)
	}
	n.union(t)
}

// complete checks that all that is in the logs is in the lake.
func (n *node) complete(t *millrace.Table) {
	n.t.Helper()
	t = n.now(t)
	var have lake.Offsets
	if s := n.newest(t); s != nil {
		have = s.Offsets()
	}
	for _, p := range n.partitions(t) {
		for b := range uint16(t.Buckets) {
			lr, err := n.r.LogRange(context.Background(), t, p, b)
			if p != nil && p.State == millrace.PartitionExpired || errs.Is(err, errs.PartitionNotFound) {
				continue
			}
			require.NoError(n.t, err)
			id := t.BucketID(b)
			if p != nil {
				id = p.BucketID(b)
			}
			require.GreaterOrEqual(n.t, have[id], lr.End, "bucket %s", id)
		}
	}
	n.check(t)
}

// update writes some columns of rows of a keyed table.
func (n *node) update(t *millrace.Table, columns []string, text string) error {
	var cols []millrace.Column
	for _, c := range columns {
		cols = append(cols, t.Schema.Columns[t.Schema.Index(c)])
	}
	_, err := n.r.Write(context.Background(), &router.WriteRequest{Table: t, Mode: router.Upsert, Rows: n.decode(cols, jsonrow.Options{}, text), Partial: true})
	return err
}

func (n *node) decode(cols []millrace.Column, o jsonrow.Options, text string) row.Rows {
	d := jsonrow.NewDecoder(cols, o)
	dec := json.NewDecoder(strings.NewReader(text))
	for i := int64(0); dec.More(); i++ {
		var raw json.RawMessage
		require.NoError(n.t, dec.Decode(&raw))
		require.NoError(n.t, d.AddObject(raw, i))
	}
	return d.Finish()
}

// dropPartition drops a partition as a client does.
func (n *node) dropPartition(t *millrace.Table, p *millrace.Partition) error {
	return n.r.DropPartition(context.Background(), t, p.Name)
}
