package router

import (
	"context"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/kv"
	"github.com/millrace/millrace/storage/shard"
)

// prefixFetch fetches the rows of a batch of prefixes: of each shard from one snapshot.
type prefixFetch struct {
	l     *PrefixLookups
	asks  []prefixAsk
	snaps map[millrace.ShardID]*shard.Snapshot // of shards that are here
}

// prefixAsk is one prefix, and its rows when its shard is elsewhere.
type prefixAsk struct {
	BucketPrefix
	index int32
	shard millrace.ShardID
	rows  [][]byte
}

// open takes the snapshots of shards that are here, and asks the others for their rows.
func (f *prefixFetch) open(ctx context.Context) error {
	byShard := map[millrace.ShardID][]*prefixAsk{}
	var ids []millrace.ShardID
	for i := range f.asks {
		id := f.asks[i].shard
		if byShard[id] == nil {
			ids = append(ids, id)
		}
		byShard[id] = append(byShard[id], &f.asks[i])
	}
	snaps := make([]*shard.Snapshot, len(ids))
	err := f.l.r.onEach(ids, func(i int) error {
		return f.l.r.on(ctx, ids[i], func(sh *shard.Shard) (err error) {
			snaps[i], err = sh.Snapshot()
			return err
		}, func(rem Remote) error { return f.ask(ctx, rem, byShard[ids[i]]) })
	})
	for i, sn := range snaps {
		if sn != nil {
			f.snaps[ids[i]] = sn
		}
	}
	return err
}

// ask gets the rows of a shard that is elsewhere.
func (f *prefixFetch) ask(ctx context.Context, rem Remote, asks []*prefixAsk) error {
	of := make([]BucketPrefix, len(asks))
	for i, a := range asks {
		of[i] = a.BucketPrefix
	}
	rows, err := rem.Prefixes(ctx, of, f.l.limit, int64(f.l.most))
	if err != nil {
		return err
	}
	if len(rows) != len(asks) {
		return errs.New(errs.Internal, "a shard was asked for %d prefixes and answers for %d", len(asks), len(rows))
	}
	for i, a := range asks {
		a.rows = rows[i]
	}
	return nil
}

// close lets go of the snapshots.
func (f *prefixFetch) close() {
	for _, sn := range f.snaps {
		sn.Release()
	}
}

// read adds the rows of one prefix.
func (f *prefixFetch) read(ctx context.Context, res *PrefixResult, a *prefixAsk) (err error) {
	sn := f.snaps[a.shard]
	if sn == nil {
		for _, row := range a.rows {
			if err := f.take(res, a, row); err != nil {
				return err
			}
		}
		return nil
	}
	return eachOfPrefix(ctx, sn, a.BucketPrefix, f.l.limit, func(row []byte) error { return f.take(res, a, row) })
}

// take adds a row.
func (f *prefixFetch) take(res *PrefixResult, a *prefixAsk, row []byte) error {
	if err := f.l.rd.Append(row); err != nil {
		return err
	}
	res.Index = append(res.Index, a.index)
	if f.l.rd.Bytes()+4*len(res.Index) > f.l.most {
		return tooManyOfPrefixes(int64(f.l.most))
	}
	return nil
}

func tooManyOfPrefixes(most int64) error {
	return errs.New(errs.TooLarge, "the rows of these prefixes take more than %d bytes; ask for fewer prefixes at once, for fewer columns, or with a limit", most)
}

// eachOfPrefix gives the rows of a prefix, which are valid for the call; at most limit of
// them, -1: all.
func eachOfPrefix(ctx context.Context, sn *shard.Snapshot, p BucketPrefix, limit int64, give func(row []byte) error) error {
	rows, err := sn.Rows(ctx, p.Bucket, p.Prefix, nil)
	if err != nil {
		return err
	}
	err = walkRows(ctx, rows, limit, give)
	if cerr := rows.Close(); err == nil {
		err = cerr
	}
	return err
}

func walkRows(ctx context.Context, rows *kv.Rows, limit int64, give func(row []byte) error) error {
	for n := int64(0); (limit < 0 || n < limit) && rows.Next(); n++ {
		if n%1024 == 1023 && ctx.Err() != nil {
			return ctx.Err()
		}
		if err := give(rows.Row()); err != nil {
			return err
		}
	}
	return nil
}
