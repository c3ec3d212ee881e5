package flightsvc_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/auth"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/flightsvc"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/storage"
	"github.com/millrace/millrace/trace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is the real one, set ahead by what a test says.
type clock struct{ ahead atomic.Int64 }

func (c *clock) Now() time.Time           { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *clock) forward(by time.Duration) { c.ahead.Add(int64(by)) }

// catalog holds tables in memory.
type catalog struct {
	router.Catalog // of how partitions end there is nothing
	parted         map[millrace.TableID]partitions
	lastPartition  millrace.PartitionID
	mu             sync.Mutex
	tables         map[millrace.TablePath]*millrace.Table
	lastID         millrace.TableID
	// schemas are all versions, of tables that were altered.
	schemas map[millrace.TableID][]*millrace.Schema
}

func (c *catalog) Table(_ context.Context, p millrace.TablePath) (*millrace.Table, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.tables[p]; t != nil {
		return t, nil
	}
	return nil, errs.New(errs.TableNotFound, "there is no table %s", p)
}

func (c *catalog) TableByID(_ context.Context, id millrace.TableID) (*millrace.Table, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.tables {
		if t.ID == id {
			return t, nil
		}
	}
	return nil, errs.New(errs.TableNotFound, "there is no table with id %d", id)
}

// Schemas are the versions that alter made.
func (c *catalog) Schemas(_ context.Context, id millrace.TableID) ([]*millrace.Schema, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.schemas[id], nil
}

// alter makes a version of a table the newest.
func (c *catalog) alter(from, to *millrace.Table) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.tables, from.Path)
	c.tables[to.Path] = to
	if c.schemas == nil {
		c.schemas = map[millrace.TableID][]*millrace.Schema{to.ID: {from.Schema}}
	}
	c.schemas[to.ID] = append(c.schemas[to.ID], to.Schema)
}

func (c *catalog) AllTables(context.Context) []*millrace.Table {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.SortedFunc(maps.Values(c.tables), func(a, b *millrace.Table) int { return int(a.ID) - int(b.ID) })
}

// actions answers with what it was asked.
type actions struct{}

func (actions) Do(_ context.Context, id string, body []byte) ([]byte, error) {
	switch id {
	case "get_database":
		return nil, errs.New(errs.DatabaseNotFound, "there is no database")
	case "drop_table":
		return nil, nil
	case "list_tables":
		return []byte(strings.Repeat("x", 7<<20)), nil
	case "get_cluster":
		panic("a bug")
	}
	return fmt.Appendf(nil, `{"did":%q,"with":%s}`, id, body), nil
}

const nShards = 3

// fixture is a Flight server over a real worker on a file system in memory.
type fixture struct {
	t      testing.TB
	clock  *clock
	cat    *catalog
	worker *storage.Worker
	router *router.Router
	svc    *flightsvc.Service
	server *grpc.Server
	addr   string
	logs   *lockedBuffer
	reg    *prometheus.Registry
}

func newFixture(t testing.TB, set ...func(*flightsvc.Options)) *fixture {
	f := &fixture{t: t, clock: &clock{}, cat: &catalog{tables: map[millrace.TablePath]*millrace.Table{}}, logs: &lockedBuffer{}, reg: prometheus.NewRegistry()}
	quiet := slog.New(slog.DiscardHandler)
	var err error
	f.worker, err = storage.Open(t.Context(), storage.Options{
		Dir: "data", Shards: nShards, FS: vfs.NewMem(), Clock: f.clock, Logger: quiet, Registerer: prometheus.NewRegistry(),
	})
	require.NoError(t, err)
	require.NoError(t, f.worker.Err())
	signer := auth.NewSigner(auth.Options{Purpose: "ticket", Life: 2 * time.Hour, Clock: f.clock.Now, Keys: func() ([]auth.Key, error) { return []auth.Key{{ID: 1}}, nil }})
	f.router = router.New(router.Options{Catalog: f.cat, Owners: router.Local(f.worker.Shards()), Signer: signer, Clock: f.clock, Logger: quiet, Registerer: prometheus.NewRegistry()})
	o := flightsvc.Options{Callers: auth.Off{}, Router: f.router, Catalog: f.cat, Actions: actions{}, Clock: f.clock, Logger: slog.New(trace.NewHandler(slog.NewTextHandler(f.logs, nil))), Registerer: f.reg}
	for _, s := range set {
		s(&o)
	}
	f.svc = flightsvc.New(o)
	f.server = grpc.NewServer(f.svc.ServerOptions()...)
	f.svc.Register(f.server)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f.addr = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- f.server.Serve(l) }()
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(f.logs.String())
		}
		f.server.Stop()
		f.svc.Close()
		require.NoError(t, <-served)
		require.NoError(t, f.worker.Close(context.Background()))
	})
	return f
}

// dial opens a stock client, whose limits nothing raises.
func (f *fixture) dial(opts ...grpc.DialOption) flight.Client {
	c, err := flight.NewClientWithMiddleware(f.addr, nil, nil, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	require.NoError(f.t, err)
	f.t.Cleanup(func() { require.NoError(f.t, c.Close()) })
	return c
}

// table makes a table in database d of columns "k BIGINT, v STRING NULL, n INT NULL",
// keyed by k or a log.
func (f *fixture) table(name string, keyed bool, buckets int) *millrace.Table {
	return f.tableOf(name, keyed, buckets,
		millrace.Column{ID: 1, Name: "k", Type: millrace.DataType{Kind: millrace.BigInt}},
		millrace.Column{ID: 2, Name: "v", Type: millrace.DataType{Kind: millrace.String}, Nullable: true},
		millrace.Column{ID: 3, Name: "n", Type: millrace.DataType{Kind: millrace.Int}, Nullable: true})
}

func (f *fixture) tableOf(name string, keyed bool, buckets int, cols ...millrace.Column) *millrace.Table {
	f.cat.mu.Lock()
	defer f.cat.mu.Unlock()
	f.cat.lastID++
	t := &millrace.Table{
		ID: f.cat.lastID, Path: millrace.TablePath{Database: "d", Table: name}, Kind: millrace.LogTable, Buckets: buckets,
		Schema: &millrace.Schema{ID: 1, Columns: cols}, BucketKey: []millrace.ColumnID{1},
	}
	if keyed {
		t.Kind, t.PrimaryKey = millrace.KeyedTable, []millrace.ColumnID{1}
	}
	for i := range buckets {
		t.Shards = append(t.Shards, millrace.ShardID(i%nShards))
	}
	f.cat.tables[t.Path] = t
	return t
}

// drop drops a table as DDL does.
func (f *fixture) drop(t *millrace.Table) {
	f.cat.mu.Lock()
	delete(f.cat.tables, t.Path)
	f.cat.mu.Unlock()
	require.NoError(f.t, f.router.DropTable(context.Background(), t))
}

type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// ctx ends after a time that no test needs.
func (f *fixture) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 120*time.Second)
	f.t.Cleanup(cancel)
	return ctx
}

func pathOf(parts ...string) *flight.FlightDescriptor {
	return &flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: parts}
}

type obj = map[string]any

func commandOf(cmd obj) *flight.FlightDescriptor {
	return &flight.FlightDescriptor{Type: flight.DescriptorCMD, Cmd: jsonOf(cmd)}
}

func jsonOf(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

var knSchema = arrow.NewSchema([]arrow.Field{
	{Name: "k", Type: arrow.PrimitiveTypes.Int64},
	{Name: "v", Type: arrow.BinaryTypes.String, Nullable: true},
	{Name: "n", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
}, nil)

// rows are rows [from, to) of k, v = tag and k, n = k mod 10.
func rows(from, to int, tag string) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, knSchema)
	defer b.Release()
	for i := from; i < to; i++ {
		b.Field(0).(*array.Int64Builder).Append(int64(i))
		b.Field(1).(*array.StringBuilder).Append(fmt.Sprintf("%s%d", tag, i))
		b.Field(2).(*array.Int32Builder).Append(int32(i % 10))
	}
	return b.NewRecordBatch()
}

// batchOf makes a batch from JSON rows.
func batchOf(t testing.TB, schema *arrow.Schema, rows string) arrow.RecordBatch {
	rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader(rows))
	require.NoError(t, err)
	return rec
}

func schemaOf(fields ...arrow.Field) *arrow.Schema { return arrow.NewSchema(fields, nil) }

func field(name string, t arrow.DataType) arrow.Field {
	return arrow.Field{Name: name, Type: t, Nullable: true}
}

// texts are the rows of a batch as JSON.
func texts(t testing.TB, rec arrow.RecordBatch) []string {
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

// meta is the app_metadata of a batch.
type meta struct {
	Partition *string
	Bucket    *int
	Base      *int64
	Rows      int
	Next      *int64
	HW        *int64
	TS        *int64
	State     bool
	Stats     *router.Stats
	// Of the last batch.
	Offsets map[string]int64
}

type got struct {
	rec  arrow.RecordBatch
	meta meta
}

// reader is an open DoGet.
type reader struct {
	t      testing.TB
	r      *flight.Reader
	cancel context.CancelFunc
}

func (f *fixture) open(c flight.Client, ticket []byte) (*reader, error) {
	ctx, cancel := context.WithCancel(f.ctx())
	f.t.Cleanup(cancel)
	st, err := c.DoGet(ctx, &flight.Ticket{Ticket: ticket})
	require.NoError(f.t, err)
	r, err := flight.NewRecordReader(st)
	if err != nil {
		cancel()
		return nil, err
	}
	return &reader{f.t, r, cancel}, nil
}

// next is the next batch; io.EOF at the end.
func (r *reader) next() (got, error) {
	if !r.r.Next() {
		if err := r.r.Err(); err != nil && !errors.Is(err, io.EOF) {
			return got{}, err
		}
		return got{}, io.EOF
	}
	g := got{rec: r.r.RecordBatch()}
	g.rec.Retain()
	require.NoError(r.t, json.Unmarshal(r.r.LatestAppMetadata(), &g.meta), "%s", r.r.LatestAppMetadata())
	return g, nil
}

func (r *reader) must() got {
	g, err := r.next()
	require.NoError(r.t, err)
	return g
}

// drain reads to the end, checks what must hold of any stream, and returns all
// rows and the last batch's metadata.
func (r *reader) drain() (rows []string, last meta) {
	next := map[string]int64{}
	for {
		g, err := r.next()
		if errors.Is(err, io.EOF) {
			require.NotNil(r.t, last.Stats, "the last batch has the statistics")
			require.EqualValues(r.t, len(rows), last.Stats.RowsShipped)
			return rows, last
		}
		require.NoError(r.t, err)
		if last = g.meta; last.Stats != nil {
			require.Zero(r.t, g.rec.NumRows())
			continue
		}
		require.EqualValues(r.t, g.rec.NumRows(), g.meta.Rows)
		require.Equal(r.t, g.meta.State, g.meta.Base == nil)
		if g.meta.Base != nil {
			b := strconv.Itoa(*g.meta.Bucket)
			if g.meta.Partition != nil {
				b = *g.meta.Partition + "/" + b
			}
			if at, ok := next[b]; ok {
				require.GreaterOrEqual(r.t, *g.meta.Base, at, "batches of a bucket go on")
			}
			next[b] = *g.meta.Next
			require.GreaterOrEqual(r.t, *g.meta.HW, *g.meta.Next)
		}
		rows = append(rows, texts(r.t, g.rec)...)
	}
}

// scan plans a read and reads all its endpoints.
func (f *fixture) scan(c flight.Client, d *flight.FlightDescriptor) []string {
	info, err := c.GetFlightInfo(f.ctx(), d)
	require.NoError(f.t, err)
	schema, err := flight.DeserializeSchema(info.Schema, nil)
	require.NoError(f.t, err)
	var out []string
	for _, ep := range info.Endpoint {
		r, err := f.open(c, ep.Ticket.Ticket)
		require.NoError(f.t, err)
		require.True(f.t, r.r.Schema().Equal(schema), "an endpoint has exactly the info's schema")
		md := r.r.Schema().Metadata()
		require.Equal(f.t, schema.Metadata(), md)
		rows, _ := r.drain()
		out = append(out, rows...)
	}
	return out
}

func (f *fixture) sorted(c flight.Client, d *flight.FlightDescriptor) []string {
	out := f.scan(c, d)
	slices.Sort(out)
	return out
}

// putter is an open DoPut.
type putter struct {
	t  testing.TB
	st flight.FlightService_DoPutClient
	w  *flight.Writer
}

func (f *fixture) put(c flight.Client, d *flight.FlightDescriptor, schema *arrow.Schema, opts ...ipc.Option) *putter {
	st, err := c.DoPut(f.ctx())
	require.NoError(f.t, err)
	w := flight.NewRecordWriter(st, append(opts, ipc.WithSchema(schema))...)
	w.SetFlightDescriptor(d)
	return &putter{f.t, st, w}
}

// result is the metadata of a PutResult.
type result struct {
	Rows    int64
	AckSeq  uint64 `json:"ack_seq"`
	LastSeq uint64 `json:"last_seq"`
	AckRows int64  `json:"ack_rows"`
	Offsets map[string]router.Range
}

func (p *putter) recv() (result, error) {
	r, err := p.st.Recv()
	if err != nil {
		return result{}, err
	}
	var res result
	require.NoError(p.t, json.Unmarshal(r.AppMetadata, &res))
	return res, nil
}

// finish ends the stream and returns all results.
func (p *putter) finish() ([]result, error) {
	if err := p.w.Close(); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	require.NoError(p.t, p.st.CloseSend())
	var out []result
	for {
		r, err := p.recv()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out = append(out, r)
	}
}

// write writes batches in one stream and returns its one result.
func (f *fixture) write(c flight.Client, d *flight.FlightDescriptor, recs ...arrow.RecordBatch) (result, error) {
	p := f.put(c, d, recs[0].Schema())
	for _, r := range recs {
		if p.w.Write(r) != nil {
			break // finish says why
		}
	}
	all, err := p.finish()
	if err != nil {
		return result{}, err
	}
	require.Len(f.t, all, 1, "there is one result")
	return all[0], nil
}

func (f *fixture) mustWrite(c flight.Client, d *flight.FlightDescriptor, recs ...arrow.RecordBatch) result {
	r, err := f.write(c, d, recs...)
	require.NoError(f.t, err)
	return r
}

// refused checks an error's gRPC code and the reason in its ErrorInfo, which it returns.
func refused(t testing.TB, err error, code codes.Code, reason errs.Code) *errdetails.ErrorInfo {
	t.Helper()
	require.Error(t, err)
	st, ok := status.FromError(err)
	require.True(t, ok, "%v", err)
	require.Equal(t, code.String(), st.Code().String(), "%v", err)
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			require.Equal(t, string(reason), info.Reason, "%v", err)
			require.Equal(t, "millrace", info.Domain)
			return info
		}
	}
	t.Fatalf("no ErrorInfo in %v (%v)", err, st.Details())
	return nil
}

func stallAfter(d time.Duration) func(*flightsvc.Options) {
	return func(o *flightsvc.Options) { o.StallTimeout = d }
}

// metric is the sum of a metric over its labels.
func (f *fixture) metric(name string) float64 {
	all, err := f.reg.Gather()
	require.NoError(f.t, err)
	sum := 0.0
	for _, fam := range all {
		if fam.GetName() == name {
			for _, m := range fam.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}
