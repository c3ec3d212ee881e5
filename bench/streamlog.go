package main

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/cluster"
	"github.com/millrace/millrace/cluster/natstest"
	"github.com/millrace/millrace/cluster/stream"
	"github.com/millrace/millrace/storage/wal"
)

// streamAppend is what one append of the log brings: a group of a busy shard.
const streamAppend = 1 << 20

// appendToStreams is the log of R1c by itself: groups of 1 MiB appended to the log on
// JetStream, against messages of the same sizes that a stock client publishes, each
// when the one before is answered; on one server and on three that sync every write.
func (b *bench) appendToStreams(ctx context.Context) error {
	for _, servers := range []int{1, 3} {
		if err := b.appendToServers(ctx, servers); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) appendToServers(ctx context.Context, servers int) error {
	srv, err := natstest.Start(ctx, natstest.Options{Servers: servers, Dir: b.path(fmt.Sprintf("nats-%d", servers))})
	if err != nil {
		return err
	}
	defer srv.Close()
	conn, err := cluster.Connect(ctx, cluster.Options{URLs: srv.URLs(), Name: "bench"})
	if err != nil {
		return err
	}
	defer conn.Close()
	logs, err := stream.New(conn, stream.Options{ClusterID: wal.ClusterID{1}, Replicas: servers})
	if err != nil {
		return err
	}
	for _, shards := range []int{1, 4} {
		s := &streamAppender{conn: conn, logs: logs, shards: shards, replicas: servers, n: max(b.size.AppendMiB/shards, 1)}
		if err := b.compare(ctx, &comparison{
			id: "R1CL", what: fmt.Sprintf("durable append of %d MiB to the logs of %d shard(s), %d server(s)", streamAppend>>20, shards, servers), disk: true,
			ours:    side{name: "cluster/stream", prepare: s.empty, work: s.appendEntries},
			yard:    side{name: "JetStream publishes of the same sizes, one in flight a stream", prepare: s.empty, work: s.publish},
			metrics: []metric{{name: "MB/s", unit: "MB/s", target: 0.80, of: func(s *sample, _ bool) float64 { return s.perSecond() }}},
		}); err != nil {
			return err
		}
	}
	return nil
}

// streamAppender is both sides on the same servers.
type streamAppender struct {
	conn     *cluster.Conn
	logs     *stream.Streams
	shards   int
	replicas int
	n        int // groups for each shard
}

func (s *streamAppender) megabytes() float64 {
	return float64(s.shards*s.n*streamAppend) / 1e6
}

// empty purges what the run before has left.
func (s *streamAppender) empty(ctx context.Context) error {
	names := s.conn.JetStream().StreamNames(ctx)
	for name := range names.Name() {
		st, err := s.conn.JetStream().Stream(ctx, name)
		if err != nil {
			return err
		}
		if err := st.Purge(ctx, jetstream.WithPurgeKeep(1)); err != nil {
			return err
		}
	}
	return names.Err()
}

func (s *streamAppender) appendEntries(ctx context.Context) (float64, int64, error) {
	var eg errgroup.Group
	for shard := range s.shards {
		log, err := s.logs.Shard(ctx, millrace.ShardID(shard))
		if err != nil {
			return 0, 0, err
		}
		body := make([]byte, streamAppend)
		fill(random(shard), body)
		eg.Go(func() error {
			for range s.n {
				if _, err := log.Append(ctx, []wal.Entry{{Kind: wal.Data, Data: body}}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return s.megabytes(), 0, eg.Wait()
}

func (s *streamAppender) publish(ctx context.Context) (float64, int64, error) {
	var eg errgroup.Group
	js := s.conn.JetStream()
	for shard := range s.shards {
		subject := fmt.Sprintf("raw.%d", shard)
		if _, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
			Name: fmt.Sprintf("raw_%d", shard), Subjects: []string{subject}, Storage: jetstream.FileStorage,
			Discard: jetstream.DiscardNew, MaxBytes: 8 << 30, Replicas: s.replicas,
		}); err != nil {
			return 0, 0, err
		}
		body := make([]byte, wal.MaxRecordBytes)
		fill(random(shard), body)
		eg.Go(func() error {
			for range s.n {
				for left := streamAppend; left > 0; left -= len(body) {
					if _, err := js.Publish(ctx, subject, body[:min(left, len(body))]); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	return s.megabytes(), 0, eg.Wait()
}
