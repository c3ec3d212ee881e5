package flightsvc_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// partitions are those of one table, by name.
type partitions []*millrace.Partition

func (c *catalog) Partitions(_ context.Context, id millrace.TableID) ([]*millrace.Partition, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.parted[id], nil
}

func (c *catalog) find(id millrace.TableID, is func(*millrace.Partition) bool) (*millrace.Partition, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.IndexFunc(c.parted[id], is); i >= 0 {
		return c.parted[id][i], nil
	}
	return nil, errs.New(errs.PartitionNotFound, "there is no such partition")
}

func (c *catalog) Partition(_ context.Context, id millrace.TableID, name string) (*millrace.Partition, error) {
	return c.find(id, func(p *millrace.Partition) bool { return p.Name == name })
}

func (c *catalog) PartitionByID(_ context.Context, id millrace.TableID, partition millrace.PartitionID) (*millrace.Partition, error) {
	return c.find(id, func(p *millrace.Partition) bool { return p.ID == partition })
}

func (c *catalog) EnsurePartition(ctx context.Context, id millrace.TableID, values []string) (*millrace.Partition, bool, error) {
	t, err := c.TableByID(ctx, id)
	if err != nil {
		return nil, false, err
	}
	name := millrace.PartitionName(t.Names(t.PartitionBy), values)
	if p, err := c.Partition(ctx, id, name); err == nil {
		return p, false, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastPartition++
	p := &millrace.Partition{ID: c.lastPartition, Table: id, Name: name, Values: values, State: millrace.PartitionOpen}
	for i := range t.Buckets {
		p.Shards = append(p.Shards, millrace.ShardID(i%nShards))
	}
	next := append(slices.Clone(c.parted[id]), p)
	slices.SortFunc(next, func(a, b *millrace.Partition) int { return strings.Compare(a.Name, b.Name) })
	if c.parted == nil {
		c.parted = map[millrace.TableID]partitions{}
	}
	c.parted[id] = next
	return p, true, nil
}

// parted makes a log table of k, v, n that is partitioned by n.
func (f *fixture) parted(name string, buckets int) *millrace.Table {
	t := f.table(name, false, buckets)
	t.PartitionBy, t.Shards = []millrace.ColumnID{3}, nil
	return t
}

// A tail names the partition of each bucket, and takes in those that are made while it
// runs: first a batch without rows that says where they begin, or their rows.
func TestTailOfPartitions(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	f.parted("t", 2)
	f.mustWrite(c, pathOf("d.t"), rows(0, 3, "a"))
	r, err := f.open(c, jsonOf(obj{"op": "scan", "table": "d.t", "from": "earliest", "until": "never", "heartbeat_ms": 100}))
	require.NoError(t, err)
	seen := map[string]bool{}
	next := map[string]int64{}
	read := func(rows, buckets int) {
		t.Helper()
		for len(seen) < rows || len(next) < buckets {
			g := r.must()
			require.NotNil(t, g.meta.Partition)
			key := fmt.Sprintf("%s/%d", *g.meta.Partition, *g.meta.Bucket)
			if g.rec.NumRows() > 0 {
				require.Equal(t, next[key], *g.meta.Base)
			}
			next[key] = *g.meta.Next
			for _, row := range texts(t, g.rec) {
				require.False(t, seen[row])
				seen[row] = true
			}
		}
	}
	read(3, 6)
	f.mustWrite(c, pathOf("d.t"), rows(3, 10, "b"))
	read(10, 20)
	f.mustWrite(c, pathOf("d.t"), rows(10, 30, "c"))
	read(30, 20)
	require.Contains(t, next, "n=7/1")
	r.cancel()

	r, err = f.open(c, jsonOf(obj{"op": "scan", "table": "d.t", "from": next, "until": "never", "filter": "n >= 8", "heartbeat_ms": 100}))
	require.NoError(t, err)
	for range 4 {
		g := r.must()
		require.Contains(t, []string{"n=8", "n=9"}, *g.meta.Partition)
		require.Equal(t, next[fmt.Sprintf("%s/%d", *g.meta.Partition, *g.meta.Bucket)], *g.meta.Next)
	}
}

// An endpoint says its bucket's partition; those of a table with so many partitions of
// long names that their offsets are more than an info can hold have none, and the
// streams tell them.
func TestInfoOfManyPartitions(t *testing.T) {
	f := newFixture(t)
	c := f.dial()
	tbl := f.parted("t", 4)
	f.mustWrite(c, pathOf("d.t"), rows(0, 3, "a"))
	info, err := c.GetFlightInfo(f.ctx(), pathOf("d.t"))
	require.NoError(t, err)
	require.Len(t, info.Endpoint, 12)
	require.Contains(t, string(info.Endpoint[5].AppMetadata), `{"bucket_key":"n=1/1","partition":"n=1","bucket":1,"start":0,`)

	tbl.Schema.Columns[2].Name = strings.Repeat("n", 190)
	for i := range 4000 {
		_, _, err := f.cat.EnsurePartition(f.ctx(), tbl.ID, []string{fmt.Sprint(i + 100)})
		require.NoError(t, err)
	}
	info, err = c.GetFlightInfo(f.ctx(), pathOf("d.t"))
	require.NoError(t, err)
	info.FlightDescriptor = nil
	require.LessOrEqual(t, proto.Size(info), 3<<20)
	require.Contains(t, string(info.Endpoint[0].AppMetadata), `{"bucket_key":null,"buckets":`)
	n, offsets := 0, 0
	for _, ep := range info.Endpoint {
		r, err := f.open(c, ep.Ticket.Ticket)
		require.NoError(t, err)
		got, last := r.drain()
		n += len(got)
		offsets += len(last.Offsets)
	}
	require.Equal(t, 3, n)
	require.Equal(t, 4*4003, offsets)
}
