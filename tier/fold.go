package tier

import (
	"context"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/router"
	"github.com/millrace/millrace/row"
)

// fold makes one change a key of the records of a keyed bucket's log from an offset on:
// keys that were there before are deleted from the base, what they are now is appended.
// When the fold gets full, the round ends with what it has: at a record where a batch
// ends, so that a -U and its +U stay together.
func (r *round) fold(ctx context.Context, p *piece, id millrace.BucketID, from millrace.Offset) (done bool, err error) {
	f := folding{key: r.desc.KeyIndexes(r.desc.PrimaryKey), most: r.t.m.o.FoldBytes, keys: map[string]folded{}}
	defer f.release()
	at, err := r.each(ctx, r.src.OpenLog(r.desc, p.partition, p.bucket, from, p.end), from, func(c *router.Chunk, rec arrow.RecordBatch) (bool, error) {
		changes, err := c.Changes()
		if err != nil {
			return false, err
		}
		return f.add(rec, changes), nil
	})
	if err != nil {
		return false, err
	}
	if gone := f.gone(); len(gone) > 0 {
		if _, err := r.lr.Delete(ctx, p.slice(r.desc), gone); err != nil {
			return false, err
		}
		if err := r.t.m.step(StepWritten); err != nil {
			return false, err
		}
		if err := r.rest.pause(ctx); err != nil {
			return false, err
		}
	}
	for rec := range f.rows() {
		err := r.write(ctx, p.slice(r.desc), rec)
		rec.Release()
		if err != nil {
			return false, err
		}
	}
	r.move(id, at)
	return at >= p.end, nil
}

// folding is changes of keys being folded.
type folding struct {
	key     []int
	most    int64
	keys    map[string]folded
	batches []arrow.RecordBatch
	bytes   int64 // of batches
	keep    int64 // of keys
	buf     []byte
}

// folded is what became of a key.
type folded struct {
	batch, row int32 // of the row it has now; of one that is gone the batch is -1
	before     bool  // it was there before
}

// keyOverhead is about what a key takes in a map besides its bytes.
const keyOverhead = 64

// add folds the rows of a batch in; false when no more should be. changes is nil when
// all are +I.
func (f *folding) add(rec arrow.RecordBatch, changes []millrace.ChangeType) bool {
	at := int32(len(f.batches))
	for i := range int(rec.NumRows()) {
		change := millrace.Insert
		if changes != nil {
			change = changes[i]
		}
		f.buf = row.AppendKey(f.buf[:0], rec, f.key, i)
		was, known := f.keys[string(f.buf)]
		if !known {
			was.before = change != millrace.Insert
			f.keep += int64(len(f.buf)) + keyOverhead
		}
		switch {
		case change != millrace.Delete: // of a -U too: its +U, which follows, takes its place
			was.batch, was.row = at, int32(i)
		case was.before:
			was.batch = -1
		default: // come and gone
			f.keep -= int64(len(f.buf)) + keyOverhead
			delete(f.keys, string(f.buf))
			continue
		}
		f.keys[string(f.buf)] = was
	}
	rec.Retain()
	f.batches = append(f.batches, rec)
	f.bytes += sizeOf(rec)
	if f.bytes+f.keep <= f.most {
		return true
	}
	f.shrink()
	return f.bytes+f.keep <= f.most/2
}

// live are the rows that are the last of their key, by batch, rising.
func (f *folding) live() [][]int32 {
	out := make([][]int32, len(f.batches))
	for _, k := range f.keys {
		if k.batch >= 0 {
			out[k.batch] = append(out[k.batch], k.row)
		}
	}
	for _, rows := range out {
		slices.Sort(rows)
	}
	return out
}

// shrink lets go of rows that others have taken the place of.
func (f *folding) shrink() {
	live := f.live()
	var batches []arrow.RecordBatch
	to := make([]int32, len(f.batches)) // the place of a batch among those that stay
	f.bytes = 0
	for i, rows := range live {
		to[i] = int32(len(batches))
		if len(rows) > 0 {
			rec := row.Take(memory.DefaultAllocator, f.batches[i], rows)
			batches = append(batches, rec)
			f.bytes += sizeOf(rec)
		}
		f.batches[i].Release()
	}
	f.batches = batches
	for k, v := range f.keys {
		if v.batch < 0 {
			continue
		}
		at, _ := slices.BinarySearch(live[v.batch], v.row)
		v.row, v.batch = int32(at), to[v.batch]
		f.keys[k] = v
	}
}

// gone are the keys whose rows in the base are not what they are now.
func (f *folding) gone() map[string]struct{} {
	out := make(map[string]struct{})
	for k, v := range f.keys {
		if v.before {
			out[k] = struct{}{}
		}
	}
	return out
}

// rows gives the rows that keys have now. The caller releases each.
func (f *folding) rows() func(yield func(arrow.RecordBatch) bool) {
	return func(yield func(arrow.RecordBatch) bool) {
		for i, rows := range f.live() {
			if len(rows) > 0 && !yield(row.Take(memory.DefaultAllocator, f.batches[i], rows)) {
				return
			}
		}
	}
}

func (f *folding) release() {
	for _, rec := range f.batches {
		rec.Release()
	}
	f.batches = nil
}

// sizeOf is about what a record takes in memory.
func sizeOf(rec arrow.RecordBatch) int64 {
	var n int64
	for _, c := range rec.Columns() {
		n += dataSize(c.Data())
	}
	return n
}

func dataSize(d arrow.ArrayData) int64 {
	var n int64
	for _, b := range d.Buffers() {
		if b != nil {
			n += int64(b.Len())
		}
	}
	for _, c := range d.Children() {
		n += dataSize(c)
	}
	return n
}
