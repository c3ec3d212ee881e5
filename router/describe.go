package router

import (
	"context"
	"errors"
	"io"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/bucket"
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

// Offsets resolves a position to the offset of each bucket, by bucket key.
func (r *Router) Offsets(t *millrace.Table, pos Position) (map[string]millrace.Offset, error) {
	switch pos.Kind {
	case Never, AtCursor, AtOffsets:
		return nil, errs.New(errs.InvalidValue, "at is earliest, latest, full or a time")
	case Full:
		// The offsets that the whole table stands for: of keyed state the end, of a
		// log its begin.
		if t.Keyed() {
			pos.Kind = Latest
		}
	}
	out := make(map[string]millrace.Offset, t.Buckets)
	for i := range t.Buckets {
		part := r.newPart(t, uint16(i))
		lg, v, err := r.shard(part.Shard).Log(part.Bucket)
		if err != nil {
			return nil, err
		}
		if v == nil {
			v = &bucket.View{}
		}
		if out[part.Key], err = r.offsetOf(lg, v, part.Key, pos); err != nil {
			return nil, err
		}
	}
	return out, nil
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
