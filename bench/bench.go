package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// bench is a whole run: the settings, the server, and what was found.
type bench struct {
	o       *options
	size    sizes
	out     io.Writer // what a person watches
	dir     string    // of this run's data
	began   time.Time
	server  *server
	wide    *table // loaded by the first workload that reads it
	results []*result
	notes   []string // what was left out, and why

	versions map[string]string // as the run began
}

// sizes are how much work the workloads do.
type sizes struct {
	AppendMiB     int `json:"append_mib"`
	WideMiB       int `json:"wide_mib"`
	Repeat        int `json:"repeat"`
	Keys          int `json:"keys"`
	LookupBatches int `json:"lookup_batches"`
	UpsertBatches int `json:"upsert_batches"`
	TailSeconds   int `json:"tail_seconds"`

	IdleBuckets    int `json:"idle_buckets"`
	GrowRows       int `json:"grow_rows"`
	GrowTables     int `json:"grow_tables"`
	GrowPartitions int `json:"grow_partitions"`

	TierRows        int   `json:"tier_rows"`
	TierAppendMiB   int   `json:"tier_append_mib"`
	TierBacklogRows int   `json:"tier_backlog_rows"`
	TierManyRows    int   `json:"tier_many_rows"`
	UnionRows       int   `json:"union_rows"`
	ChangedOf       []int `json:"changed_of"`

	ClusterBuckets    int `json:"cluster_buckets"`
	ClusterPartitions int `json:"cluster_partitions"`
	IdleSeconds       int `json:"idle_seconds"`
	LightSeconds      int `json:"light_seconds"`
}

var (
	fullSizes = sizes{
		AppendMiB: 96, WideMiB: 256, Repeat: 3, Keys: 200_000, LookupBatches: 3_000, UpsertBatches: 1_000, TailSeconds: 10,
		IdleBuckets: 4096, GrowRows: 1_000_000, GrowTables: 1000, GrowPartitions: 10_000,
		TierRows: 1_000_000, TierAppendMiB: 512, TierBacklogRows: 3_000_000, TierManyRows: 10_000_000, UnionRows: 1_000_000,
		ChangedOf:      []int{10_000, 100_000, 1_000_000},
		ClusterBuckets: 4096, ClusterPartitions: 10_000, IdleSeconds: 20, LightSeconds: 300,
	}
	shortSizes = sizes{
		AppendMiB: 16, WideMiB: 16, Repeat: 2, Keys: 20_000, LookupBatches: 500, UpsertBatches: 300, TailSeconds: 2,
		IdleBuckets: 256, GrowRows: 20_000, GrowTables: 100, GrowPartitions: 500,
		TierRows: 100_000, TierAppendMiB: 16, TierBacklogRows: 200_000, TierManyRows: 200_000, UnionRows: 100_000,
		ChangedOf:      []int{10_000, 50_000},
		ClusterBuckets: 128, ClusterPartitions: 200, IdleSeconds: 2, LightSeconds: 5,
	}
)

func newBench(ctx context.Context, o *options, out io.Writer) (*bench, error) {
	b := &bench{o: o, size: fullSizes, out: out, began: time.Now(), versions: versions(ctx)}
	if o.Short {
		b.size = shortSizes
	}
	var err error
	if b.dir, err = os.MkdirTemp(o.Dir, "data-"); err != nil {
		return nil, err
	}
	if b.server, err = startServer(ctx, o, filepath.Join(b.dir, "millrace")); err != nil {
		return nil, errors.Join(err, os.RemoveAll(b.dir))
	}
	return b, b.server.createDatabase(ctx)
}

func (b *bench) close() error {
	return errors.Join(b.server.stop(), os.RemoveAll(b.dir))
}

// path is a path for a yardstick's data, on the same disk as the server's.
func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

func (b *bench) say(format string, args ...any) { fmt.Fprintf(b.out, format+"\n", args...) }

// note tells of something that was not measured, now and in the results.
func (b *bench) note(format string, args ...any) {
	n := fmt.Sprintf(format, args...)
	b.notes = append(b.notes, n)
	b.say("  %s", n)
}
