package server

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/cluster"
	"github.com/millrace/millrace/cluster/keyvalue"
	"github.com/millrace/millrace/cluster/owner"
	"github.com/millrace/millrace/cluster/stream"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/shardrpc"
	"github.com/millrace/millrace/storage/shard"
)

const (
	// workerFile holds the name that was drawn for the process.
	workerFile = "worker-name"
	// incarnationFile holds the last incarnation of the process's session.
	incarnationFile = "incarnation"
	// clusterShards is the number of shards of a new cluster.
	clusterShards = 16
	// leaveTime is how long a process that stops takes to hand over its shards.
	leaveTime = 60 * time.Second
	// lastCheckpointTime is how long the last checkpoints of a process may take to get into
	// the object store.
	lastCheckpointTime = 15 * time.Second
	// openTime is how long a start waits for NATS, and openPause between two tries.
	openTime  = 2 * time.Minute
	openPause = 500 * time.Millisecond
)

// member is what a process of a cluster has that a single node has not.
type member struct {
	name     string // of the process
	conn     *cluster.Conn
	replicas int
	logs     *stream.Streams
	manager  atomic.Pointer[owner.Manager] // nil until it joins
	host     *shardHost                    // nil without the role worker
	teller   *teller
	ends     endings
	away     *shardrpc.Client
}

// openNATS connects to NATS and sees that it would lose nothing.
func (s *Server) openNATS(ctx context.Context) error {
	if !s.settings.clustered() {
		return nil
	}
	name, err := s.processName()
	if err != nil {
		return err
	}
	conn, err := cluster.Connect(ctx, cluster.Options{
		URLs: s.settings.NATSURL, Credentials: s.settings.NATSCreds, CA: s.settings.NATSCA, Cert: s.settings.NATSCert, Key: s.settings.NATSKey,
		Name: "millrace " + name, Logger: s.log, Registerer: s.metrics.registry,
	})
	if err != nil {
		return err
	}
	s.onStop("nats", func(context.Context) error { conn.Close(); return nil })
	found, err := conn.Check(ctx, cluster.Demands{
		Insecure: s.settings.InsecureNATS, SystemURLs: s.settings.NATSSystemURL, SystemCredentials: s.settings.NATSSystemCreds,
	})
	if err != nil {
		return err
	}
	for _, w := range found.Warnings {
		s.log.WarnContext(ctx, "nats is not set as it should be", slog.String("found", w))
	}
	s.member = &member{name: name, conn: conn, replicas: found.Replicas, ends: endings{s: s}}
	return nil
}

// processName is the name that was set, or else the one in the data directory.
func (s *Server) processName() (string, error) {
	if s.settings.WorkerName != "" {
		return s.settings.WorkerName, nil
	}
	path := filepath.Join(s.dir, workerFile)
	b, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		b = []byte("w-" + draw(5) + "\n")
		err = writeFile(path, b)
	}
	if err != nil {
		return "", err
	}
	name := strings.TrimSpace(string(b))
	if err := owner.CheckWorkerName(name); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return name, nil
}

// lastIncarnation is the incarnation that a session had last in a data directory, "" if none.
func lastIncarnation(dir string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, incarnationFile))
	if err != nil && !os.IsNotExist(err) {
		return "", err
	}
	return strings.TrimSpace(string(b)), nil
}

// draw is n random bytes as hex digits.
func draw(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// openClusterCatalog opens the catalog that all processes share.
func (s *Server) openClusterCatalog(ctx context.Context) (*catalog.Catalog, error) {
	kv, err := patiently(ctx, s, func() (*keyvalue.Store, error) {
		return keyvalue.Open(ctx, keyvalue.Options{
			Cluster: s.settings.ClusterName, Process: s.member.name, Replicas: s.member.replicas,
			Conn: s.member.conn, Clock: s.clock, Logger: s.log, Registerer: s.metrics.registry,
		})
	})
	if err != nil {
		return nil, err
	}
	if err := s.mayBeNew(ctx, kv); err != nil {
		return nil, errors.Join(err, kv.Close())
	}
	c, err := catalog.OpenKV(ctx, kv, catalog.Options{
		Shards: s.settings.Shards, NewShards: clusterShards, Oldest: s.oldest, Clock: s.clock.Now, Logger: s.log,
	})
	if err != nil {
		return nil, errors.Join(err, kv.Close())
	}
	return c, nil
}

// patiently opens something in NATS again while that is not available: a stream that was
// made a moment ago has no leader yet, and servers that were started together elect one.
func patiently[T any](ctx context.Context, s *Server, open func() (T, error)) (T, error) {
	for end := s.clock.Boot() + openTime; ; {
		v, err := open()
		if err == nil || !errs.Is(err, errs.Unavailable) || s.clock.Boot() > end {
			return v, err
		}
		s.log.WarnContext(ctx, "nats is not ready; trying again", slog.Any("err", err))
		t := time.NewTimer(openPause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return v, ctx.Err()
		}
	}
}

// openLogs prepares the logs of the shards.
func (s *Server) openLogs(ctx context.Context) error {
	size, err := sizeOf("log-max-size", s.settings.LogMaxSize)
	if err != nil {
		return err
	}
	if err := s.member.conn.CheckAccount(ctx, size*int64(s.catalog.Shards()), s.member.replicas); err != nil {
		return err
	}
	s.member.logs, err = stream.New(s.member.conn, stream.Options{
		ClusterID: s.catalog.ClusterID(), Replicas: s.member.replicas, MaxBytes: size,
		Clock: s.clock, Logger: s.log, Registerer: s.metrics.registry,
	})
	return err
}

// join makes the process a member that others see, and begins to take shards.
func (s *Server) join(ctx context.Context) error {
	if s.member == nil {
		return nil
	}
	keys, err := patiently(ctx, s, func() (*keyvalue.Keys, error) {
		return keyvalue.OpenKeys(ctx, keyvalue.KeysOptions{
			Bucket: cluster.NamesOf(s.catalog.ClusterID()).KeysBucket(), Replicas: s.member.replicas, Conn: s.member.conn, Logger: s.log,
		})
	})
	if err != nil {
		return err
	}
	o := owner.Options{
		Worker: s.member.name, Keys: keys, Shards: s.catalog.Shards, Clock: s.clock,
		Random: func() string { return draw(8) }, Logger: s.log, Registerer: s.metrics.registry,
		Info: owner.Info{
			HTTP: s.advertisedHTTP(), Flight: s.flightAddress(), Roles: s.settings.Roles, Version: s.version,
			FeatureLevel: int(catalog.FeatureNewest), StartedMicros: s.clock.Now().UnixMicro(),
		},
	}
	if s.member.host != nil {
		o.Host = s.member.host
	}
	if o.Last, err = lastIncarnation(s.dir); err != nil {
		return err
	}
	o.Remember = func(incarnation string) error {
		return writeFile(filepath.Join(s.dir, incarnationFile), []byte(incarnation+"\n"))
	}
	manager := owner.New(o)
	if s.member.host != nil {
		s.member.host.manager = manager
	}
	if err := manager.Start(ctx); err != nil {
		return err
	}
	s.member.manager.Store(manager)
	s.health.watch("cluster", manager.Err)
	s.onStop("membership", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, leaveTime)
		defer cancel()
		manager.Drain(ctx)
		s.lastCheckpoints(ctx)
		return manager.Stop(ctx)
	})
	return nil
}

// lastCheckpoints puts what nobody took over into the object store, as when a whole
// cluster is stopped. What does not get there in time is in the log.
func (s *Server) lastCheckpoints(ctx context.Context) {
	if s.worker == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lastCheckpointTime)
	defer cancel()
	var all errgroup.Group
	for _, sh := range s.worker.Shards() {
		all.Go(func() error {
			if err := sh.CheckpointRemote(ctx); err != nil {
				s.log.InfoContext(ctx, "the last rows of a shard are in its log alone", slog.Int("shard", int(sh.Status().ID)), slog.Any("err", err))
			}
			return nil
		})
	}
	_ = all.Wait() // none fails
}

// advertisedHTTP is where other processes reach this one.
func (s *Server) advertisedHTTP() string {
	if s.settings.AdvertiseHTTP != "" {
		return s.settings.AdvertiseHTTP
	}
	return s.httpAddr.String()
}

// mine says whether thing n of a role's work is this process's.
func (s *Server) mine(role string, n uint64) bool {
	if s.member == nil {
		return true
	}
	m := s.member.manager.Load()
	return m != nil && m.Mine(role, n)
}

// told follows the catalog: shards that are here go by what others change.
func (s *Server) told(c catalog.Changes) {
	if s.worker == nil {
		return
	}
	s.worker.Tell(c.Altered...)
	ends := make([]ending, 0, len(c.Dropped)+len(c.RemovedPartitions))
	for _, t := range c.Dropped {
		ends = append(ends, ending{t.ID, 0})
	}
	for _, p := range c.RemovedPartitions {
		ends = append(ends, ending{p.Table, p.ID})
	}
	if len(ends) > 0 {
		s.member.ends.add(ends)
	}
}

// endings are what was dropped and is to be dropped in the shards that are here, by one
// goroutine at a time. The front that drops asks each owner too; this is for who was away.
type endings struct {
	s       *Server
	mu      sync.Mutex
	left    []ending
	running bool
}

func (e *endings) add(ends []ending) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.left = append(e.left, ends...)
	if !e.running {
		e.running = true
		go e.run()
	}
}

// run drops until nothing is left.
func (e *endings) run() {
	for {
		e.mu.Lock()
		some := e.left
		e.left, e.running = nil, len(some) > 0
		e.mu.Unlock()
		if len(some) == 0 {
			return
		}
		for _, sh := range e.s.worker.Shards() {
			for _, end := range some {
				if err := end.in(sh); err != nil && !errs.Is(err, errs.NotOwner) && !errs.Is(err, errs.Draining) {
					e.s.log.Warn("dropped data is still in a shard", slog.Any("err", err))
				}
			}
		}
	}
}

// ending is a table, or a partition of it, that was dropped.
type ending struct {
	table     millrace.TableID
	partition millrace.PartitionID
}

func (e ending) in(sh *shard.Shard) error {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
	defer cancel()
	if e.partition != 0 {
		return sh.DropPartition(ctx, e.table, e.partition)
	}
	return sh.DropTable(ctx, e.table)
}
