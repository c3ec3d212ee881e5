package router

import (
	"context"
	"sync"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/shard"
)

// Numbers of auto-increment columns are taken from the catalog in blocks, whose size
// doubles with each: a table that is written to a lot asks seldom, one that is not
// leaves few out. What a router holds when it ends is left out.
const (
	firstNumbers = 1_000
	mostNumbers  = 100_000
)

// numbers are the values that a router may give to auto-increment columns, by table.
type numbers struct {
	blocks sync.Map // millrace.TableID → *numberBlock
}

// numberBlock is [next, end) of a table's numbers.
type numberBlock struct {
	mu        sync.Mutex
	next, end int64
	size      int // of the last block
}

// checkNumber refuses values of the clients' own in the column that is numbered.
func checkNumber(req *WriteRequest) error {
	at := -1
	for i, c := range req.Rows.Columns {
		if c.AutoIncrement {
			at = i
		}
	}
	if at < 0 || req.Mode == Delete {
		return nil
	}
	col := req.Rows.Record.Column(at)
	if col.NullN() == col.Len() {
		return nil
	}
	for i := range col.Len() {
		if col.IsValid(i) && (req.Rows.Changes == nil || req.Rows.Changes[i] == millrace.Insert || req.Rows.Changes[i] == millrace.UpdateAfter) {
			name := req.Rows.Columns[at].Name
			return errs.Row(errs.InvalidValue, req.rowNumber(i), name, "the server numbers this column: leave it out, or send NULL")
		}
	}
	return nil
}

// number gives each row that may turn out to be new a value for the table's
// auto-increment column, rising in the order of the rows.
func (r *Router) number(ctx context.Context, req *WriteRequest, split []bucketRows, ops []*shard.Op) error {
	if !req.Table.Keyed() || req.Mode == Delete || req.Table.Schema.AutoIncrement() < 0 {
		return nil
	}
	ids := make([]int64, req.Rows.Len())
	if err := r.numbers.of(req.Table.ID).take(ids, func(n int) (int64, error) {
		return r.o.Catalog.ReserveIDs(ctx, req.Table.ID, n)
	}); err != nil {
		return err
	}
	for k, s := range split {
		ops[k].IDs = make([]int64, len(s.rows))
		for j, i := range s.rows {
			ops[k].IDs[j] = ids[i]
		}
	}
	return nil
}

func (n *numbers) of(t millrace.TableID) *numberBlock {
	b, ok := n.blocks.Load(t)
	if !ok {
		b, _ = n.blocks.LoadOrStore(t, &numberBlock{size: firstNumbers / 2})
	}
	return b.(*numberBlock)
}

// take fills ids with the next numbers. Those who come meanwhile wait, so that one
// block is reserved for all of them.
func (b *numberBlock) take(ids []int64, reserve func(n int) (first int64, err error)) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range ids {
		if b.next == b.end {
			if err := b.refill(len(ids)-i, reserve); err != nil {
				return err
			}
		}
		ids[i] = b.next
		b.next++
	}
	return nil
}

// refill reserves a block of need numbers at least. Near the end of the column's type
// it asks for what is needed only.
// REQUIRES: b.mu is held.
func (b *numberBlock) refill(need int, reserve func(n int) (first int64, err error)) error {
	size := max(need, min(2*b.size, mostNumbers))
	first, err := reserve(size)
	if errs.Is(err, errs.IntegerOverflow) && size > need {
		size = need
		first, err = reserve(size)
	}
	if err != nil {
		return err
	}
	b.next, b.end, b.size = first, first+int64(size), min(size, mostNumbers)
	return nil
}
