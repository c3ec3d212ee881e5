package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/cluster"
	"github.com/millrace/millrace/cluster/keyvalue"
	"github.com/millrace/millrace/cluster/owner"
	"github.com/millrace/millrace/cluster/stream"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/objstore"
	"github.com/millrace/millrace/storage/remote"
	"github.com/millrace/millrace/storage/shard"
	"github.com/millrace/millrace/storage/wal"
)

// reachTime is how long a command waits for NATS.
const reachTime = 30 * time.Second

// offline is a cluster that nobody serves, as a command has it: its data directory, the
// object store, and NATS.
type offline struct {
	s       *Settings
	dir     string
	log     *slog.Logger
	clock   wallClock
	objects objstore.Store
	id      [16]byte
	conn    *cluster.Conn
	found   cluster.Findings
	kv      *keyvalue.Store
	logs    *stream.Streams
	remote  *remote.Store
	inLake  map[millrace.ShardID][]shard.InLake // what the lake has

	undo []func() error
}

// openOffline opens all of it. The cluster is that of the object store.
func openOffline(ctx context.Context, s *Settings, log *slog.Logger) (_ *offline, err error) {
	o := &offline{s: s, log: log}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.close())
		}
	}()
	for _, open := range []func(context.Context) error{o.openObjects, o.openDir, o.openNATS, o.openLogs} {
		if err := open(ctx); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// close closes what is open.
func (o *offline) close() error {
	var err error
	for _, undo := range slices.Backward(o.undo) {
		err = errors.Join(err, undo())
	}
	o.undo = nil
	return err
}

func (o *offline) openObjects(ctx context.Context) (err error) {
	o.objects, o.id, err = openRestoreSource(ctx, o.s, o.s.RemoteURI)
	return err
}

// openRestoreSource opens an object store with checkpoints, and says whose they are.
func openRestoreSource(ctx context.Context, s *Settings, uri string) (objstore.Store, [16]byte, error) {
	objects, err := objstore.Open(ctx, uri, objstore.Options{S3: objstore.S3{Endpoint: s.S3Endpoint, Region: s.S3Region, PathStyle: s.S3PathStyle}})
	if err != nil {
		return nil, [16]byte{}, err
	}
	id, err := remote.ClusterOf(ctx, objects)
	if errors.Is(err, objstore.ErrNotExist) {
		err = errs.New(errs.InvalidRequest, "%s is no place of checkpoints: there is no %s", objects.URI(), remote.ClusterFile)
	}
	return objects, id, err
}

func (o *offline) openDir(context.Context) error {
	dir, err := filepath.Abs(o.s.DataDir)
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	if err := makeDataDir(dir); err != nil {
		return err
	}
	lock, err := lockDir(dir)
	if err != nil {
		return err
	}
	o.dir, o.undo = dir, append(o.undo, lock.release)
	return guardCluster(dir, o.id)
}

func (o *offline) openNATS(ctx context.Context) error {
	reach, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	var err error
	o.conn, err = cluster.Connect(reach, cluster.Options{
		URLs: o.s.NATSURL, Credentials: o.s.NATSCreds, CA: o.s.NATSCA, Cert: o.s.NATSCert, Key: o.s.NATSKey, Name: "millrace, a command", Logger: o.log,
	})
	if err != nil {
		return err
	}
	o.undo = append(o.undo, func() error { o.conn.Close(); return nil })
	o.found, err = o.conn.Check(ctx, cluster.Demands{Insecure: o.s.InsecureNATS, SystemURLs: o.s.NATSSystemURL, SystemCredentials: o.s.NATSSystemCreds})
	if err != nil {
		return err
	}
	o.kv, err = keyvalue.Open(ctx, keyvalue.Options{
		Cluster: o.s.ClusterName, Process: "command-" + draw(4), Replicas: o.found.Replicas, Conn: o.conn, Clock: o.clock, Logger: o.log,
	})
	if err == nil {
		o.undo = append(o.undo, o.kv.Close)
	}
	return err
}

func (o *offline) openLogs(context.Context) error {
	size, err := sizeOf("log-max-size", o.s.LogMaxSize)
	if err != nil {
		return err
	}
	o.logs, err = stream.New(o.conn, stream.Options{ClusterID: o.id, Replicas: o.found.Replicas, MaxBytes: size, Logger: o.log})
	if err != nil {
		return err
	}
	o.remote, err = remote.Open(remote.Options{Cluster: o.id, Objects: o.objects, Clock: o.clock, Logger: o.log, Registerer: prometheus.NewRegistry()})
	if err == nil {
		o.undo = append(o.undo, func() error { o.remote.Close(); return nil })
	}
	return err
}

// nobody makes sure that no process of the cluster is there.
func (o *offline) nobody(ctx context.Context) error {
	keys, err := keyvalue.OpenKeys(ctx, keyvalue.KeysOptions{
		Bucket: cluster.NamesOf(o.id).KeysBucket(), Replicas: o.found.Replicas, Conn: o.conn, Logger: o.log,
	})
	if err != nil {
		return err
	}
	alive, err := owner.Alive(ctx, keys)
	if err == nil && len(alive) > 0 {
		err = errs.New(errs.InvalidRequest, "processes of the cluster are running (%s): stop all of them first", strings.Join(alive, ", "))
	}
	return err
}

// scratchDir is where a command makes shards anew, below the data directory.
const scratchDir = "scratch"

// shard are options to look at a shard with, in a directory.
func (o *offline) shard(id millrace.ShardID, dir string, log wal.Log) shard.Options {
	return shard.Options{
		ID: id, Dir: filepath.Join(o.dir, dir, fmt.Sprintf("%05d", id)), Cluster: o.id, KeepExpired: keepExpired,
		FS: vfs.Default, Clock: o.clock, Logger: o.log, Remote: o.remote.Shard(id), Log: log, InLake: o.inLake[id],
	}
}

// begin makes the log of a shard anew, instead of what there is.
func (o *offline) begin(ctx context.Context, id millrace.ShardID, behind wal.Tail) error {
	if err := o.logs.Remove(ctx, id); err != nil {
		return err
	}
	return o.logs.Begin(ctx, id, behind)
}

// clear removes what the command has made to work in.
func (o *offline) clear() error { return os.RemoveAll(filepath.Join(o.dir, scratchDir)) }
