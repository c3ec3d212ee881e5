package router

import (
	"context"
	"time"

	"github.com/millrace/millrace/storage/shard"
)

// Quotas bound how much the caller of a context writes and reads, in bytes as they are
// stored. What they refuse has errs.QuotaExceeded.
type Quotas interface {
	// Write charges what is to be written, and may hold it up for a while.
	Write(ctx context.Context, rows int, bytes int64) error
	// MayRead says whether a read may begin.
	MayRead(ctx context.Context) error
	// Read charges bytes that were read. A stream waits then until it may read more, for
	// most, and is told whether it may.
	Read(ctx context.Context, bytes int64, most time.Duration) (may bool, err error)
}

// chargeWrite charges the parts of a write, encoded, when it may be done.
func (r *Router) chargeWrite(ctx context.Context, split []bucketRows, ops []*shard.Op) error {
	if r.o.Quotas == nil {
		return nil
	}
	rows, bytes := 0, int64(0)
	for i, op := range ops {
		rows += len(split[i].rows)
		for _, c := range op.Columns {
			bytes += int64(len(c.Payload))
		}
		for _, enc := range op.Rows {
			bytes += int64(len(enc))
		}
		for _, key := range op.Keys {
			bytes += int64(len(key))
		}
	}
	return r.o.Quotas.Write(ctx, rows, bytes)
}

// chargeFound charges rows that were looked up.
func (r *Router) chargeFound(ctx context.Context, rows [][]byte) error {
	if r.o.Quotas == nil {
		return nil
	}
	bytes := int64(0)
	for _, enc := range rows {
		bytes += int64(len(enc))
	}
	_, err := r.o.Quotas.Read(ctx, bytes, 0)
	return err
}

// WaitRead waits until a stream of lookups may read more.
func (r *Router) WaitRead(ctx context.Context, p interface{ Still() error }) error {
	for r.o.Quotas != nil {
		may, err := r.o.Quotas.Read(ctx, 0, PassEvery)
		if err != nil {
			return err
		}
		if may {
			break
		}
		if err := p.Still(); err != nil {
			return err
		}
	}
	return nil
}

// charge charges what was read since, and waits until more may be read: of a plan that
// follows the log for wait at most, and else as long as it takes.
func (rd *Reader) charge(ctx context.Context, wait time.Duration) (may bool, err error) {
	q := rd.r.o.Quotas
	if q == nil || rd.background {
		return true, nil
	}
	rd.payer = ctx
	most := PassEvery
	if rd.plan.Follow {
		most = min(most, max(wait, 0))
	}
	for {
		read := rd.stats.BytesRead
		may, err = q.Read(ctx, read-rd.charged, most)
		rd.charged = read
		if may || err != nil || rd.plan.Follow {
			return may, err
		}
		if err := still(rd.plan.pass); err != nil {
			return false, err
		}
	}
}

// settle charges what was read since the reader was last asked for a chunk.
func (rd *Reader) settle() {
	if q := rd.r.o.Quotas; q != nil && rd.payer != nil && rd.stats.BytesRead > rd.charged {
		// It charges also when the payer has gone.
		_, _ = q.Read(rd.payer, rd.stats.BytesRead-rd.charged, 0)
		rd.charged = rd.stats.BytesRead
	}
}
