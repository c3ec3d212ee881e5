package router

import (
	"context"
	"errors"
	"io"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/storage/shard"
)

// BucketInfo describes a bucket.
type BucketInfo struct {
	Key    string            `json:"key"`
	Bucket uint16            `json:"bucket"`
	Shard  millrace.ShardID  `json:"shard"`
	Start  millrace.Offset   `json:"start"`
	End    millrace.Offset   `json:"end"`
	Rows   int64             `json:"rows"`  // of keyed state; of a log table End-Start
	Bytes  int64             `json:"bytes"` // of the log, stored
	ID     millrace.BucketID `json:"-"`
}

// Buckets describes the buckets of a table, in order.
func (r *Router) Buckets(t *millrace.Table) ([]BucketInfo, error) {
	out := make([]BucketInfo, t.Buckets)
	for i := range out {
		n := uint16(i)
		b := BucketInfo{Key: millrace.BucketKey("", n), Bucket: n, Shard: t.Shards[i], ID: t.BucketID(n)}
		_, v, err := r.shard(b.Shard).Log(b.ID)
		if err != nil {
			return nil, err
		}
		if v != nil {
			b.Start, b.End, b.Bytes = v.Start, v.End, v.Bytes()
		}
		b.Rows = int64(b.End - b.Start)
		if t.Keyed() {
			if b.Rows, err = r.shard(b.Shard).Rows(b.ID); err != nil {
				return nil, err
			}
		}
		out[i] = b
	}
	return out, nil
}

// Offsets resolves a position of a table to the offset of each bucket, by bucket
// key: where a changelog read from there would begin after the keyed state.
func (r *Router) Offsets(ctx context.Context, path string, id *millrace.TableID, at Position) (*millrace.Table, map[string]millrace.Offset, error) {
	o := PlanOptions{View: ChangelogView, ViewSet: true, Until: Position{Kind: Latest}}
	p, err := r.Plan(ctx, path, &ReadRequest{TableID: id, From: &at}, o)
	if err != nil {
		return nil, nil, err
	}
	defer p.Close()
	out := make(map[string]millrace.Offset, len(p.Parts))
	for _, part := range p.Parts {
		out[part.Key] = part.Start
	}
	return p.Table, out, nil
}

// Shards tells how each shard stands.
func (r *Router) Shards() []shard.Status {
	out := make([]shard.Status, len(r.o.Shards))
	for i, s := range r.o.Shards {
		out[i] = s.Status()
	}
	return out
}

// Count counts the rows of a table: from what the buckets know of themselves when
// there is no filter, else by a read of the columns that the filter names.
func (r *Router) Count(ctx context.Context, path string, req *ReadRequest) (int64, error) {
	p, err := r.Plan(ctx, path, req, Scan)
	if err != nil {
		return 0, err
	}
	if !p.Filtered() && p.View == RowsView && req.From == nil && req.Until == nil && req.Limit == nil {
		defer p.Close()
		return r.countMeta(p)
	}
	p.Columns = nil
	p.Schema = outputSchema(p.Table, nil)
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

func (r *Router) countMeta(p *Plan) (int64, error) {
	var n int64
	for _, part := range p.Parts {
		if !part.State {
			n += int64(part.End - part.Start)
			continue
		}
		m, err := p.snaps[part.Shard].Meta(part.Bucket)
		if err != nil {
			return 0, err
		}
		n += m.Rows
	}
	return n, nil
}
