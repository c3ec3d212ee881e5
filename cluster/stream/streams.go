package stream

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/cluster"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/wal"
)

// Clock tells the time.
type Clock interface{ Now() time.Time }

// Options are the settings and components of [Streams].
type Options struct {
	// Settings.
	ClusterID wal.ClusterID
	// Replicas of each stream; default 1.
	Replicas int
	// MaxBytes is what a stream may hold, which the servers set aside; default 8 GiB.
	MaxBytes int64
	// AnswerTimeout is how long one publish is waited for; default 3 s.
	AnswerTimeout time.Duration
	// Patience is how long an Append goes on when the servers do not answer; default 30 s.
	Patience time.Duration

	// Components; each may be nil.
	Clock      Clock // for the duration of appends; without one they are not measured
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Random     io.Reader // where log ids and writers' names come from; default crypto/rand
}

const (
	defaultMaxBytes      = 8 << 30
	defaultAnswerTimeout = 3 * time.Second
	defaultPatience      = 30 * time.Second
)

func (o *Options) ensureDefaults() error {
	if o.Replicas == 0 {
		o.Replicas = 1
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = defaultMaxBytes
	}
	if o.AnswerTimeout == 0 {
		o.AnswerTimeout = defaultAnswerTimeout
	}
	if o.Patience == 0 {
		o.Patience = defaultPatience
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Random == nil {
		o.Random = rand.Reader
	}
	if o.Replicas < 0 || o.MaxBytes < 0 || o.AnswerTimeout < 0 || o.Patience < 0 {
		return errs.New(errs.InvalidRequest, "a setting of the log's streams is below 0")
	}
	return nil
}

// Streams are the logs of a cluster's shards.
type Streams struct {
	conn  *cluster.Conn
	names cluster.Names
	opts  Options
	met   *metrics
}

// New makes Streams over a connection, which stays the caller's.
func New(conn *cluster.Conn, opts Options) (*Streams, error) {
	if err := opts.ensureDefaults(); err != nil {
		return nil, err
	}
	return &Streams{conn, cluster.NamesOf(opts.ClusterID), opts, newMetrics(opts.Registerer)}, nil
}

// What the metadata of a stream says.
const (
	metaLogID   = "millrace_log_id"
	metaCluster = "millrace_cluster_id"
	metaFormat  = "millrace_format"
	formatNow   = "1"
)

// Shard opens the log of a shard, and makes its stream where there is none. Each call
// makes a Log of its own: who opens a shard anew takes a new one.
func (s *Streams) Shard(ctx context.Context, shard millrace.ShardID) (*Log, error) {
	id, err := s.random()
	if err != nil {
		return nil, err
	}
	st, err := s.conn.OpenStream(ctx, s.config(shard, id))
	if err != nil {
		return nil, err
	}
	l, err := s.log(shard, st)
	if err != nil {
		return nil, err
	}
	if _, err := l.Refresh(ctx); err != nil {
		return nil, err
	}
	l.mustRaise = false
	return l, nil
}

// config is how the stream of a shard is.
func (s *Streams) config(shard millrace.ShardID, logID uint64) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: s.names.LogStream(shard), Subjects: []string{s.names.LogSubject(shard)},
		Description: fmt.Sprintf("Millrace: log of shard %d", shard),
		Storage:     jetstream.FileStorage, Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew,
		MaxBytes: s.opts.MaxBytes, Replicas: s.opts.Replicas, Compression: jetstream.NoCompression,
		Metadata: map[string]string{metaLogID: fmt.Sprintf("%016x", logID), metaCluster: hex.EncodeToString(s.opts.ClusterID[:]), metaFormat: formatNow},
	}
}

// log makes a Log over a stream; where it ends is not known yet.
func (s *Streams) log(shard millrace.ShardID, st jetstream.Stream) (*Log, error) {
	writer, err := s.random()
	if err != nil {
		return nil, err
	}
	l := &Log{
		s: s, shard: shard, name: s.names.LogStream(shard), subject: s.names.LogSubject(shard), writer: fmt.Sprintf("%016x", writer), st: st,
		enc: wal.NewEncoder(s.opts.ClusterID, shard), noop: wal.NewEncoder(s.opts.ClusterID, shard),
		size: s.met.size.WithLabelValues(fmt.Sprint(shard)),
	}
	l.logID, err = l.readMetadata(st.CachedInfo().Config.Metadata)
	return l, err
}

// random draws a number that is not 0.
func (s *Streams) random() (uint64, error) {
	for {
		var b [8]byte
		if _, err := io.ReadFull(s.opts.Random, b[:]); err != nil {
			return 0, errs.Wrap(errs.Internal, "stream.Shard", err)
		}
		if n := binary.LittleEndian.Uint64(b[:]); n != 0 {
			return n, nil
		}
	}
}

// readMetadata reads the log's id, which was drawn when the stream was made.
func (l *Log) readMetadata(m map[string]string) (uint64, error) {
	var id uint64
	if _, err := fmt.Sscanf(m[metaLogID], "%016x", &id); err != nil || id == 0 {
		return 0, errs.New(errs.CorruptData, "stream %s has no %s in its metadata: it is not a log", l.name, metaLogID)
	}
	if f := m[metaFormat]; f != formatNow {
		return 0, errs.New(errs.NotImplemented, "stream %s has %s %q: written by a newer release", l.name, metaFormat, f)
	}
	if c := m[metaCluster]; c != hex.EncodeToString(l.s.opts.ClusterID[:]) {
		return 0, errs.New(errs.InvalidRequest, "stream %s belongs to the cluster %s, not to %x", l.name, c, l.s.opts.ClusterID)
	}
	return id, nil
}
