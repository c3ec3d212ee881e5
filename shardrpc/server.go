package shardrpc

import (
	"context"
	"encoding/json"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/storage/segment"
	"github.com/millrace/millrace/storage/shard"
	"github.com/millrace/millrace/trace"
)

// ServerOptions are a server's settings and components.
type ServerOptions struct {
	// Address is where other processes reach this one by HTTP: "http://host:port".
	Address string
	// Bytes bounds the calls being answered; 256 MiB unless set.
	Bytes int64

	Owners router.Owners
	// Router opens reads; nil: there are none.
	Router *router.Router
	// Table finds a table by number, as the catalog has it.
	Table func(ctx context.Context, id millrace.TableID) (*millrace.Table, error)
	// Verify says whether a token is of the cluster.
	Verify     func(token string) error
	Logger     *slog.Logger
	Registerer prometheus.Registerer // may be nil
	Tracer     *trace.Tracer
}

// Server answers what other processes ask of the shards that are here.
type Server struct {
	o      ServerOptions
	room   *semaphore.Weighted
	posts  *semaphore.Weighted
	reads  *semaphore.Weighted
	tables tables
	m      *serverMetrics
}

// maxReads bounds the streams of rows at a time.
const maxReads = 2048

// maxPosts bounds the calls by HTTP at a time, and with them the answers that are held
// until they are sent.
const maxPosts = 64

// NewServer makes a server.
func NewServer(o ServerOptions) *Server {
	if o.Bytes == 0 {
		o.Bytes = 256 << 20
	}
	return &Server{
		o: o, room: semaphore.NewWeighted(o.Bytes), posts: semaphore.NewWeighted(maxPosts), reads: semaphore.NewWeighted(maxReads),
		m: newServerMetrics(o.Registerer),
	}
}

// Answer answers a call that came by a Transport.
func (s *Server) Answer(ctx context.Context, id millrace.ShardID, request []byte) []byte {
	answer := s.serve(ctx, id, request, false)
	if len(answer) > maxSmallAnswer {
		return []byte{statusByHTTP}
	}
	return answer
}

// serve answers a call; inRoom says that room for it was made. The request must not be
// changed any more.
func (s *Server) serve(ctx context.Context, id millrace.ShardID, request []byte, inRoom bool) (out []byte) {
	defer func() {
		if p := recover(); p != nil { // which ends one call, not the process
			s.o.Logger.ErrorContext(ctx, "a call of another process broke", slog.String("panic", trace.PanicText(p)), slog.String("stack", string(debug.Stack())))
			out = appendFailure([]byte{statusError}, errs.New(errs.Internal, "the call broke: %s", trace.PanicText(p)))
		}
	}()
	d := &decoder{b: request}
	k, left := d.head()
	if d.bad {
		return appendFailure([]byte{statusError}, errBroken)
	}
	if left > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, left)
		defer cancel()
	}
	timer := prometheus.NewTimer(s.m.answers.WithLabelValues(k.String()))
	ctx, span := s.o.Tracer.Serve(ctx, "shardrpc "+k.String())
	answer, err := s.answer(ctx, id, k, d, inRoom)
	span.Int("millrace.shard", int64(id)).End(err)
	timer.ObserveDuration()
	if err != nil {
		s.m.failed.WithLabelValues(string(errs.CodeOf(err))).Inc()
		return appendFailure([]byte{statusError}, err)
	}
	return answer
}

// answer does what a call asks for, when there is room for it.
func (s *Server) answer(ctx context.Context, id millrace.ShardID, k kind, d *decoder, inRoom bool) ([]byte, error) {
	if !inRoom {
		done, err := s.enter(ctx, int64(len(d.b)))
		if err != nil {
			return nil, errs.New(errs.Overloaded, "the owner of shard %d has too much to do: %v", id, err)
		}
		defer done()
	}
	sh, err := s.shard(id)
	if err != nil {
		return nil, err
	}
	return s.do(ctx, sh, k, d)
}

// enter waits for room for a call (P4).
func (s *Server) enter(ctx context.Context, bytes int64) (done func(), err error) {
	room := min(bytes, s.o.Bytes)
	if err := s.room.Acquire(ctx, room); err != nil {
		return nil, err
	}
	s.m.bytes.Add(float64(room))
	return func() {
		s.m.bytes.Sub(float64(room))
		s.room.Release(room)
	}, nil
}

func errAttr(err error) slog.Attr { return slog.Any("err", err) }

// shard is a shard that is here.
func (s *Server) shard(id millrace.ShardID) (*shard.Shard, error) {
	if int(id) < s.o.Owners.Shards() {
		if sh, _ := s.o.Owners.Owner(id); sh != nil {
			return sh, nil
		}
	}
	return nil, errs.New(errs.NotOwner, "shard %d is not owned here", id)
}

// do does what a call asks for. Whatever it does is done after the whole call was read.
func (s *Server) do(ctx context.Context, sh *shard.Shard, k kind, d *decoder) ([]byte, error) {
	ok := []byte{statusOK}
	switch k {
	case kindLook:
		q := d.question()
		if err := d.end(); err != nil {
			return nil, err
		}
		l, err := q.Answer(sh)
		if err != nil {
			return nil, err
		}
		return appendLooks(ok, l), nil
	case kindRehold:
		snapshot, idle, ttl := string(d.bytes()), time.Duration(d.int()), time.Duration(d.int())
		if err := d.end(); err != nil {
			return nil, err
		}
		return ok, sh.Rehold(snapshot, idle, ttl)
	case kindLetGo:
		snapshot := string(d.bytes())
		if err := d.end(); err != nil {
			return nil, err
		}
		sh.LetGo(snapshot)
		return ok, nil
	case kindLookup:
		of, most := d.keys()
		if err := d.end(); err != nil {
			return nil, err
		}
		rows, err := router.LookupHere(ctx, sh, of, most)
		return appendRows(ok, rows), err
	case kindPrefixes:
		of, limit, most := d.prefixes()
		if err := d.end(); err != nil {
			return nil, err
		}
		lists, err := router.PrefixesHere(ctx, sh, of, limit, most)
		return appendRowLists(ok, lists), err
	case kindWrite:
		return s.write(ctx, sh, d)
	case kindEnd:
		e := router.Ending{Table: millrace.TableID(d.int()), Partition: d.bucket(0).Partition, Seal: d.bool()}
		if err := d.end(); err != nil {
			return nil, err
		}
		return ok, e.Answer(ctx, sh)
	case kindSchemas:
		table := millrace.TableID(d.int())
		if err := d.end(); err != nil {
			return nil, err
		}
		text, err := json.Marshal(sh.AllSchemas(table))
		return append(ok, text...), err
	case kindTell:
		t := &millrace.Table{}
		if err := json.Unmarshal(d.bytes(), t); err != nil || d.end() != nil || t.Schema == nil {
			return nil, errBroken
		}
		sh.Tell(t)
		return ok, nil
	case kindTiered:
		next := d.offsets()
		if err := d.end(); err != nil {
			return nil, err
		}
		sh.Tiered(next)
		return ok, nil
	case kindStatus:
		st := sh.Status()
		return appendStatus(ok, &st), d.end()
	case kindWhere:
		return appendBytes(ok, s.o.Address), d.end()
	default:
		return nil, errBroken
	}
}

// write writes ops, when it is known what their table is.
func (s *Server) write(ctx context.Context, sh *shard.Shard, d *decoder) ([]byte, error) {
	id, version, told := d.writeHead()
	if d.bad {
		return nil, errBroken
	}
	t := s.tables.find(ctx, s.o.Table, id, version, told)
	if t == nil {
		return []byte{statusTable}, nil
	}
	ops := d.ops(t)
	if err := d.end(); err != nil {
		return nil, err
	}
	for _, op := range ops { // a payload that does not read would stop the shard
		for _, c := range op.Columns {
			p, err := segment.OpenBytes(c.Payload)
			if err != nil || p.Rows() != c.Records {
				return nil, errBroken
			}
		}
	}
	return appendWritten([]byte{statusOK}, router.WriteHere(ctx, sh, ops)), nil
}

// tables are descriptors that ops are of. A shard compares them by their places in memory
// first, so each version is kept once.
type tables struct {
	mu    sync.Mutex
	known map[tableVersion]*millrace.Table
}

type tableVersion struct {
	id      millrace.TableID
	version int64
}

// maxTables bounds the descriptors that are kept.
const maxTables = 4096

// find is the descriptor of a version: as known, as told, or as the catalog has it.
func (t *tables) find(ctx context.Context, catalog func(context.Context, millrace.TableID) (*millrace.Table, error), id millrace.TableID, version int64, told *millrace.Table) *millrace.Table {
	key := tableVersion{id, version}
	t.mu.Lock()
	known := t.known[key]
	t.mu.Unlock()
	if known != nil {
		return known
	}
	if told == nil && catalog != nil {
		if now, err := catalog(ctx, id); err == nil && now.Version == version {
			told = now
		}
	}
	if told == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if known := t.known[key]; known != nil {
		return known
	}
	if t.known == nil || len(t.known) >= maxTables {
		t.known = map[tableVersion]*millrace.Table{}
	}
	t.known[key] = told
	return told
}
