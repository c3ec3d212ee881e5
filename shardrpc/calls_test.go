package shardrpc

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/storage"
	"github.com/millrace/millrace/storage/shard"
)

type wall struct{}

func (wall) Now() time.Time { return time.Now() }

// owning is one process that owns a shard, and what another one reaches it by.
type owning struct {
	t      *testing.T
	table  *millrace.Table
	w      *storage.Worker
	server *Server
	http   *httptest.Server
	rem    router.Remote

	here  atomic.Bool                                               // the process owns the shard
	small atomic.Int64                                              // calls by the transport
	large atomic.Int64                                              // requests by HTTP
	lose  atomic.Pointer[func(kind, []byte, error) ([]byte, error)] // what becomes of answers
	knows atomic.Bool                                               // the catalog there knows the table
	token atomic.Pointer[string]
}

// Shards implements router.Owners.
func (*owning) Shards() int { return 1 }

// Owner implements router.Owners.
func (o *owning) Owner(millrace.ShardID) (*shard.Shard, router.Remote) {
	if !o.here.Load() {
		return nil, nil
	}
	return o.w.Shards()[0], nil
}

// Call implements Transport.
func (o *owning) Call(ctx context.Context, id millrace.ShardID, request []byte) ([]byte, error) {
	o.small.Add(1)
	answer := o.server.Answer(ctx, id, bytes.Clone(request))
	if lose := o.lose.Load(); lose != nil {
		return (*lose)(kind(request[1]), answer, nil)
	}
	return answer, nil
}

func newOwning(t *testing.T) *owning {
	o := &owning{t: t, table: &millrace.Table{
		ID: 7, Version: 1, Path: millrace.TablePath{Database: "d", Table: "t"}, Kind: millrace.KeyedTable, Buckets: 2, Shards: []millrace.ShardID{0, 0},
		PrimaryKey: []millrace.ColumnID{1}, BucketKey: []millrace.ColumnID{1},
		Schema: &millrace.Schema{ID: 1, Columns: []millrace.Column{
			{ID: 1, Name: "k", Type: millrace.DataType{Kind: millrace.BigInt}}, {ID: 2, Name: "v", Type: millrace.DataType{Kind: millrace.String}, Nullable: true},
		}},
	}}
	o.here.Store(true)
	o.knows.Store(true)
	o.token.Store(new("secret"))
	quiet := slog.New(slog.DiscardHandler)
	var err error
	o.w, err = storage.Open(t.Context(), storage.Options{Dir: "data", Shards: 1, FS: vfs.NewMem(), Clock: wall{}, Logger: quiet, Registerer: prometheus.NewRegistry()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, o.w.Close(context.Background())) })
	o.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.large.Add(1)
		o.server.ServeHTTP(w, r)
	}))
	t.Cleanup(o.http.Close)
	o.server = NewServer(ServerOptions{
		Address: o.http.URL, Owners: o, Logger: quiet,
		Table: func(context.Context, millrace.TableID) (*millrace.Table, error) {
			if o.knows.Load() {
				return o.table, nil
			}
			return nil, errs.New(errs.TableNotFound, "not yet")
		},
		Verify: func(token string) error {
			if token != "secret" {
				return errs.New(errs.Unauthenticated, "no")
			}
			return nil
		},
	})
	c := NewClient(ClientOptions{Transport: o, HTTP: HTTP{Client: o.http.Client(), Token: func() (string, error) { return *o.token.Load(), nil }}})
	o.rem = c.Shard(0)
	return o
}

// upsert is an op of one row.
func (o *owning) upsert(k int64, v string) *shard.Op {
	rows, keys := encoded(o.table, k, v)
	return &shard.Op{Bucket: o.table.BucketID(0), Table: o.table, Rows: [][]byte{rows}, Keys: [][]byte{keys}}
}

func (o *owning) lookup(k int64) []byte {
	_, key := encoded(o.table, k, "")
	rows, err := o.rem.Lookup(o.t.Context(), []router.BucketKeys{{Bucket: o.table.BucketID(0), Keys: [][]byte{key}}}, 1<<30)
	require.NoError(o.t, err)
	require.Len(o.t, rows, 1)
	return rows[0]
}

// What is written elsewhere is there, the second time by the same number once; long calls,
// and long answers, go by HTTP.
func TestCalls(t *testing.T) {
	o := newOwning(t)
	ctx := t.Context()
	op := o.upsert(1, "a")
	op.Writer = &shard.Sequence{Scope: "0:w", Seq: 1}
	for i := range 2 {
		out, err := o.rem.Write(ctx, []*shard.Op{op})
		require.NoError(t, err)
		require.NoError(t, out[0].Err)
		require.Equal(t, shard.Result{Start: 0, End: 1, Duplicate: i > 0}, out[0].Result)
	}
	require.Equal(t, op.Rows[0], o.lookup(1))
	require.Nil(t, o.lookup(2))
	require.Zero(t, o.large.Load())

	long := strings.Repeat("x", 600<<10)
	out, err := o.rem.Write(ctx, []*shard.Op{o.upsert(2, long)})
	require.NoError(t, err)
	require.NoError(t, out[0].Err)
	require.EqualValues(t, 1, o.large.Load())
	require.Greater(t, len(o.lookup(2)), 600<<10)
	require.EqualValues(t, 1, o.large.Load(), "an answer that fits comes by the transport")
	_, err = o.rem.Write(ctx, []*shard.Op{o.upsert(3, long)})
	require.NoError(t, err)
	_, k2 := encoded(o.table, 2, "")
	_, k3 := encoded(o.table, 3, "")
	rows, err := o.rem.Lookup(ctx, []router.BucketKeys{{Bucket: o.table.BucketID(0), Keys: [][]byte{k2, k3}}}, 1<<30)
	require.NoError(t, err)
	require.Len(t, rows, 2)
	require.EqualValues(t, 3, o.large.Load())
	_, err = o.rem.Lookup(ctx, []router.BucketKeys{{Bucket: o.table.BucketID(0), Keys: [][]byte{k2, k3}}}, 1<<20)
	require.True(t, errs.Is(err, errs.TooLarge))
	lists, err := o.rem.Prefixes(ctx, []router.BucketPrefix{{Bucket: o.table.BucketID(0)}, {Bucket: o.table.BucketID(1)}}, 1, 1<<20)
	require.NoError(t, err)
	require.Equal(t, [][][]byte{{op.Rows[0]}, {}}, lists)

	l, err := o.rem.Look(ctx, &router.Question{Table: 7, Buckets: []millrace.BucketID{o.table.BucketID(0), o.table.BucketID(1)}, Snapshot: true})
	require.NoError(t, err)
	require.EqualValues(t, 3, l.Buckets[0].Rows)
	require.EqualValues(t, 3, l.Buckets[0].Next)
	require.False(t, l.Buckets[1].There)
	require.NoError(t, o.rem.Rehold(ctx, l.Snapshot, time.Hour, time.Hour))
	require.NoError(t, o.rem.LetGo(ctx, l.Snapshot))
	require.True(t, errs.Is(o.rem.Rehold(ctx, l.Snapshot, time.Hour, 0), errs.SnapshotGone))
	schemas, err := o.rem.Schemas(ctx, 7)
	require.NoError(t, err)
	require.Equal(t, []*millrace.Schema{o.table.Schema}, schemas)
	st, err := o.rem.Status(ctx)
	require.NoError(t, err)
	require.Equal(t, o.w.Shards()[0].Status(), st)
	require.NoError(t, o.rem.Tell(ctx, o.table))
	require.NoError(t, o.rem.Tiered(ctx, map[millrace.BucketID]millrace.Offset{o.table.BucketID(0): 1}))
	require.NoError(t, o.rem.End(ctx, router.Ending{Table: 7}))
	l, err = o.rem.Look(ctx, &router.Question{Table: 7, Buckets: []millrace.BucketID{o.table.BucketID(0)}})
	require.NoError(t, err)
	require.False(t, l.Buckets[0].There)
}

// A descriptor that who answers does not know, as of a table that was just made, comes with
// the rows.
func TestDescriptorGoesAlong(t *testing.T) {
	o := newOwning(t)
	o.knows.Store(false)
	for k := range 2 {
		before := o.small.Load()
		out, err := o.rem.Write(t.Context(), []*shard.Op{o.upsert(int64(k), "a")})
		require.NoError(t, err)
		require.NoError(t, out[0].Err)
		require.EqualValues(t, 2-k, o.small.Load()-before, "once is enough")
	}
}

// Who does not own the shard did nothing, and says so, by either way; the address that was
// told before is asked for anew (P1, P5).
func TestNotOwner(t *testing.T) {
	o := newOwning(t)
	long := o.upsert(1, strings.Repeat("x", 300<<10))
	_, err := o.rem.Write(t.Context(), []*shard.Op{long})
	require.NoError(t, err)
	o.here.Store(false)
	for _, op := range []*shard.Op{o.upsert(2, "a"), long} {
		_, err := o.rem.Write(t.Context(), []*shard.Op{op})
		require.True(t, errs.Is(err, errs.NotOwner), "%v", err)
	}
	_, err = o.rem.Read(t.Context(), []byte("{}"))
	require.True(t, errs.Is(err, errs.NotOwner), "%v", err)
	o.here.Store(true)
	require.Nil(t, o.lookup(2))
	out, err := o.rem.Write(t.Context(), []*shard.Op{long})
	require.NoError(t, err)
	require.NoError(t, out[0].Err)

	o.http.Close()
	_, err = o.rem.Write(t.Context(), []*shard.Op{long})
	require.True(t, errs.Is(err, errs.NotOwner), "nobody took it: %v", err)
}

// A write whose answer is lost is of unknown outcome; what only asks may be asked again.
func TestLostAnswers(t *testing.T) {
	o := newOwning(t)
	o.lose.Store(new(func(kind, []byte, error) ([]byte, error) { return nil, errors.New("connection reset") }))
	_, err := o.rem.Write(t.Context(), []*shard.Op{o.upsert(1, "a")})
	require.True(t, errs.Is(err, errs.UnknownOutcome), "%v", err)
	_, err = o.rem.Status(t.Context())
	require.True(t, errs.Is(err, errs.NotOwner), "%v", err)
	for _, answer := range [][]byte{{}, {9}, {statusOK}, {statusOK, 1, 7}, {statusError}} {
		o.lose.Store(new(func(kind, []byte, error) ([]byte, error) { return answer, nil }))
		_, err = o.rem.Write(t.Context(), []*shard.Op{o.upsert(1, "a")})
		require.Error(t, err)
		require.False(t, errs.Is(err, errs.NotOwner), "%v: %v", answer, err)
	}
	o.lose.Store(nil)
	require.NotNil(t, o.lookup(1))
}

// A write is not made a second time to get an answer that is too long for the first way.
func TestLongAnswerOfAWrite(t *testing.T) {
	o := newOwning(t)
	o.lose.Store(new(func(k kind, answer []byte, err error) ([]byte, error) {
		if k == kindWrite {
			answer = []byte{statusByHTTP}
		}
		return answer, err
	}))
	_, err := o.rem.Write(t.Context(), []*shard.Op{o.upsert(1, "a")})
	require.True(t, errs.Is(err, errs.UnknownOutcome), "%v", err)
	require.Zero(t, o.large.Load())
}

// An owner that stands still while a long call is with it is not waited for when the shard
// has another one.
func TestOwnerStandsStill(t *testing.T) {
	o := newOwning(t)
	stopped := make(chan struct{})
	still := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-stopped }))
	defer still.Close()
	defer close(stopped)
	var moved atomic.Bool
	at := func(k kind, answer []byte, err error) ([]byte, error) {
		if k == kindWhere && !moved.Load() {
			answer = appendBytes([]byte{statusOK}, still.URL)
		}
		return answer, err
	}
	o.lose.Store(&at)
	rem := NewClient(ClientOptions{
		Transport: o, Again: 10 * time.Millisecond, HTTP: HTTP{Client: http.DefaultClient, Token: func() (string, error) { return "secret", nil }},
	}).Shard(0)
	long := []*shard.Op{o.upsert(1, strings.Repeat("x", 300<<10))}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	time.AfterFunc(100*time.Millisecond, func() { moved.Store(true) })
	_, err := rem.Write(ctx, long)
	require.True(t, errs.Is(err, errs.UnknownOutcome), "%v", err)
	require.NoError(t, ctx.Err())
	out, err := rem.Write(ctx, long)
	require.NoError(t, err)
	require.NoError(t, out[0].Err)
}

// deaf is a transport that loses the first calls without a word.
type deaf struct {
	Transport
	loses atomic.Int64
	calls atomic.Int64
}

func (d *deaf) Call(ctx context.Context, id millrace.ShardID, request []byte) ([]byte, error) {
	d.calls.Add(1)
	if d.loses.Add(-1) >= 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return d.Transport.Call(ctx, id, request)
}

// What only asks is asked again when nothing is heard, long before the caller gives up; a
// write is sent once.
func TestUnansweredIsAskedAgain(t *testing.T) {
	o := newOwning(t)
	d := &deaf{Transport: o}
	rem := NewClient(ClientOptions{Transport: d, Again: 20 * time.Millisecond}).Shard(0)
	d.loses.Store(2)
	_, err := rem.Status(t.Context())
	require.NoError(t, err)
	require.GreaterOrEqual(t, d.calls.Load(), int64(3))

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	d.loses.Store(1 << 30)
	_, err = rem.Status(ctx)
	require.True(t, errs.Is(err, errs.Unavailable), "%v", err)
	require.ErrorContains(t, err, "did not answer in time")

	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	d.calls.Store(0)
	_, err = rem.Write(ctx, []*shard.Op{o.upsert(1, "a")})
	require.True(t, errs.Is(err, errs.UnknownOutcome), "%v", err)
	require.EqualValues(t, 1, d.calls.Load())
}

// A router sends a numbered batch again until its outcome is known, and one without a
// number never.
func TestRouterSendsNumberedAgain(t *testing.T) {
	o := newOwning(t)
	front := router.New(router.Options{Owners: far{o.rem}, Clock: wall{}, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	lost := 0
	o.lose.Store(new(func(k kind, answer []byte, err error) ([]byte, error) {
		if k == kindWrite && lost < 3 {
			lost++
			return nil, errors.New("connection reset")
		}
		return answer, err
	}))
	write := func(k int64, w *router.WriterSequence) (*router.WriteResult, error) {
		rows := record(o.table, k, "a")
		defer rows.Release()
		return front.Write(t.Context(), &router.WriteRequest{Table: o.table, Mode: router.Upsert, Rows: rows, Writer: w})
	}
	res, err := write(1, &router.WriterSequence{ID: "w", Seq: 1})
	require.NoError(t, err)
	require.Equal(t, 3, lost)
	require.EqualValues(t, 1, res.Replayed, "it had been taken at once")
	lost = 0
	_, err = write(2, nil)
	require.True(t, errs.Is(err, errs.UnknownOutcome), "%v", err)
	require.Equal(t, 1, lost)

	// While the shard moves, both wait.
	o.here.Store(false)
	time.AfterFunc(100*time.Millisecond, func() { o.here.Store(true) })
	lost = 3
	_, err = write(3, nil)
	require.NoError(t, err)
	o.here.Store(false)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // of a call that it ends the outcome is unknown: more time between calls than in one
	defer cancel()
	rows := record(o.table, 4, "a")
	defer rows.Release()
	_, err = front.Write(ctx, &router.WriteRequest{Table: o.table, Mode: router.Upsert, Rows: rows})
	require.True(t, errs.Is(err, errs.Unavailable), "%v", err)
}

// far says that the shard is elsewhere.
type far struct{ rem router.Remote }

func (far) Shards() int                                            { return 1 }
func (f far) Owner(millrace.ShardID) (*shard.Shard, router.Remote) { return nil, f.rem }

// By HTTP nobody is answered without a token of the cluster (P5).
func TestToken(t *testing.T) {
	o := newOwning(t)
	o.token.Store(new("wrong"))
	_, err := o.rem.Write(t.Context(), []*shard.Op{o.upsert(1, strings.Repeat("x", 300<<10))})
	require.True(t, errs.Is(err, errs.Unavailable), "%v", err)
	require.Nil(t, o.lookup(1))
	for _, path := range []string{"call/0", "read/0", "call/9", "x"} {
		resp, err := http.Post(o.http.URL+Root+path, "", strings.NewReader("x"))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusUnauthorized, resp.StatusCode)
	}
}

// finishes says whether something does in a while; what waits for room does not.
func finishes(of <-chan struct{}) bool {
	select {
	case <-of:
		return true
	case <-time.After(100 * time.Millisecond):
		return false
	}
}

// Calls by HTTP, whose answers are held, are so many at a time; one more waits (P4).
func TestPostsAreBounded(t *testing.T) {
	o := newOwning(t)
	require.NoError(t, o.server.posts.Acquire(t.Context(), maxPosts))
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, pathCall+"0", bytes.NewReader(appendHead(nil, kindStatus, 0)))
	r.Header.Set("Authorization", "Bearer secret")
	w, done := httptest.NewRecorder(), make(chan struct{})
	go func() {
		defer close(done)
		o.server.ServeHTTP(w, r)
	}()
	require.False(t, finishes(done))
	o.server.posts.Release(maxPosts)
	<-done
	require.Equal(t, http.StatusOK, w.Code, w.Body)
}

// An answer by HTTP that is too long is not read, and what is read at a time is bounded; the
// rest waits (P4).
func TestAnswersAreBounded(t *testing.T) {
	var size atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := size.Load()
		w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
		_, _ = w.Write(make([]byte, min(n, 1000))) // the rest is only promised
	}))
	defer srv.Close()
	c := NewClient(ClientOptions{
		Transport: Processes{Owner: func(millrace.ShardID) *Server { return nil }}, Again: time.Hour,
		HTTP: HTTP{Client: srv.Client(), Token: func() (string, error) { return "secret", nil }}, Registerer: prometheus.NewRegistry(),
	})
	c.peers.set(0, srv.URL)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	size.Store(MaxAnswer + 1)
	_, err := c.post(ctx, 0, []byte("x"))
	require.Equal(t, errs.TooLarge, errs.CodeOf(err), "%v", err)

	size.Store(1000)
	require.NoError(t, c.answers.Acquire(ctx, MaxAnswer-999))
	done := make(chan struct{})
	var answer []byte
	go func() {
		defer close(done)
		answer, err = c.post(ctx, 0, []byte("x"))
	}()
	require.False(t, finishes(done))
	c.answers.Release(MaxAnswer - 999)
	<-done
	require.NoError(t, err)
	require.Len(t, answer, 1000)
}

// buggy panics with what it knows.
type buggy struct{}

func (buggy) Shards() int                                          { return 1 }
func (buggy) Owner(millrace.ShardID) (*shard.Shard, router.Remote) { panic("a canary") }

// A call that meets a bug ends alone, and what it brought is in neither its answer nor the log.
func TestPanic(t *testing.T) {
	var log bytes.Buffer
	s := NewServer(ServerOptions{Owners: buggy{}, Logger: slog.New(slog.NewTextHandler(&log, nil)), Registerer: prometheus.NewRegistry()})
	answer := s.Answer(t.Context(), 0, append(appendHead(nil, kindStatus, 0), "a canary"...))
	require.Equal(t, byte(statusError), answer[0])
	require.NotContains(t, string(answer)+log.String(), "canary")
	require.Contains(t, log.String(), "a value of type string")
	require.Contains(t, log.String(), "calls_test.go:")
}

// record is one row.
func record(tbl *millrace.Table, k int64, v string) row.Rows {
	rb := array.NewRecordBuilder(memory.DefaultAllocator, row.ArrowSchema(tbl.Schema.Columns))
	defer rb.Release()
	rb.Field(0).(*array.Int64Builder).Append(k)
	rb.Field(1).(*array.StringBuilder).Append(v)
	return row.Rows{Record: rb.NewRecordBatch(), Columns: tbl.Schema.Columns}
}

// encoded is one row, and its key.
func encoded(tbl *millrace.Table, k int64, v string) (enc, key []byte) {
	rows := record(tbl, k, v)
	defer rows.Release()
	return row.NewCodec(tbl.Schema).AppendRow(nil, rows.Record, 0), row.AppendKey(nil, rows.Record, []int{0}, 0)
}
