package router

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/shard"
)

// BucketInfo describes a bucket.
type BucketInfo struct {
	Key       string            `json:"key"`
	Partition string            `json:"partition,omitempty"` // its name
	Bucket    uint16            `json:"bucket"`
	Shard     millrace.ShardID  `json:"shard"`
	Start     millrace.Offset   `json:"start"`
	End       millrace.Offset   `json:"end"`
	Rows      int64             `json:"rows"`  // of keyed state; of a log table End-Start
	Bytes     int64             `json:"bytes"` // of the log, stored
	ID        millrace.BucketID `json:"-"`
}

// Buckets describes at most n buckets of a table, in the order of partitions and
// numbers, from the one with a key on; "" is the first. next is the key of the one after
// them, "" when there is none. A key that is none of the table's is
// errs.PartitionNotFound or errs.InvalidValue.
func (r *Router) Buckets(ctx context.Context, t *millrace.Table, from string, n int) (out []BucketInfo, next string, err error) {
	ps := []*millrace.Partition{nil}
	if t.Partitioned() {
		if ps, err = r.o.Catalog.Partitions(ctx, t.ID); err != nil {
			return nil, "", err
		}
	}
	at, err := bucketAt(t, ps, from)
	if err != nil {
		return nil, "", err
	}
	var parts []Part
	for ; at < len(ps)*t.Buckets; at++ {
		part := newPart(t, ps[at/t.Buckets], uint16(at%t.Buckets))
		if len(parts) == n {
			next = part.Key
			break
		}
		parts = append(parts, part)
	}
	if err := r.look(ctx, &Plan{Table: t}, Question{Rows: t.Keyed()}, refs(parts, nil)); err != nil {
		return nil, "", err
	}
	for i := range parts {
		out = append(out, parts[i].describe(t))
	}
	return out, next, nil
}

// bucketAt is the place of a bucket among all buckets of a table. One of a partition
// that has ended since stands for the next that there is.
func bucketAt(t *millrace.Table, ps []*millrace.Partition, key string) (int, error) {
	if key == "" {
		return 0, nil
	}
	name, n, err := millrace.ParseBucketKey(key)
	if err != nil || (name != "") != t.Partitioned() || int(n) >= t.Buckets {
		return 0, errs.New(errs.InvalidValue, "%q is not the key of a bucket of table %s", clip(key), t.Path)
	}
	if name == "" {
		return int(n), nil
	}
	i, found := slices.BinarySearchFunc(ps, name, func(p *millrace.Partition, name string) int { return strings.Compare(p.Name, name) })
	if !found {
		return i * t.Buckets, nil
	}
	return i*t.Buckets + int(n), nil
}

// describe is a part that was looked at.
func (p *Part) describe(t *millrace.Table) BucketInfo {
	l := &p.look
	b := BucketInfo{
		Key: p.Key, Partition: p.Partition, Bucket: p.Bucket.Bucket, Shard: p.Shard, ID: p.Bucket,
		Start: l.Start, End: l.End, Bytes: l.Bytes, Rows: int64(l.End - l.Start),
	}
	if t.Keyed() {
		b.Rows = l.Rows
	}
	return b
}

// Offsets resolves a position of a table to the offset of each bucket, by bucket
// key: where a changelog read from there would begin after the keyed state.
func (r *Router) Offsets(ctx context.Context, path string, id *millrace.TableID, at Position) (*millrace.Table, map[string]millrace.Offset, error) {
	o := PlanOptions{View: ChangelogView, ViewSet: true, Until: Position{Kind: Latest}, places: true}
	p, err := r.Plan(ctx, path, &ReadRequest{TableID: id, From: &at}, o)
	if err != nil {
		return nil, nil, err
	}
	defer p.Close()
	out := make(map[string]millrace.Offset, len(p.Parts))
	for _, part := range p.Parts {
		if part.Bucket.Bucket != NoBucket {
			out[part.Key] = part.Start
		}
	}
	return p.Table, out, nil
}

// statusTime bounds what is waited for an owner to tell how its shard stands.
const statusTime = 2 * time.Second

// Shards tells how each shard stands. One that does not tell has why as its error.
func (r *Router) Shards(ctx context.Context) []shard.Status {
	ids := r.shards()
	out := make([]shard.Status, len(ids))
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	_ = r.onEach(ids, func(i int) error { // each error is in its status
		err := r.on(ctx, ids[i], func(sh *shard.Shard) error {
			out[i] = sh.Status()
			return nil
		}, func(rem Remote) (err error) {
			out[i], err = rem.Status(ctx)
			return err
		})
		if err != nil {
			out[i] = shard.Status{ID: ids[i], Err: err, Trouble: err}
		}
		return nil
	})
	return out
}

// Count counts the rows of a table: from what the buckets know of themselves when
// there is no filter, else by a read of the columns that the filter names.
func (r *Router) Count(ctx context.Context, path string, req *ReadRequest) (n int64, err error) {
	err = Anew(ctx, func() error {
		n, err = r.count(ctx, path, req)
		return err
	})
	return n, err
}

func (r *Router) count(ctx context.Context, path string, req *ReadRequest) (int64, error) {
	o := Scan
	o.counts = true
	p, err := r.Plan(ctx, path, req, o)
	if err != nil {
		return 0, err
	}
	if !p.Filtered() && p.View == RowsView && req.From == nil && req.Until == nil && req.Limit == nil {
		if n, ok := r.countMeta(p); ok {
			p.Close()
			return n, nil
		}
	}
	rd := r.Open(p)
	n, err := countChunks(ctx, rd)
	return n, errors.Join(err, rd.Close())
}

func countChunks(ctx context.Context, rd *Reader) (int64, error) {
	var n int64
	for {
		c, err := rd.Next(ctx, time.Hour)
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return 0, err
		}
		n += int64(c.Rows)
		c.Release()
	}
}

// countMeta counts by what buckets and files know of themselves; not ok when a file of
// the lake does not know how many of its rows were deleted.
func (r *Router) countMeta(p *Plan) (n int64, ok bool) {
	for i := range p.Parts {
		part := &p.Parts[i]
		if part.Lake && !part.Overlay {
			rows, _, ok := p.lakeSize(part)
			if !ok {
				return 0, false
			}
			n += rows
		}
		if !part.State && !part.Overlay {
			n += int64(part.End - part.Start)
			continue
		}
		n += part.look.Rows
	}
	return n, true
}
