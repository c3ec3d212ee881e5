package bucket

import (
	"cmp"
	"slices"
	"sort"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/segment"
)

// Batch is a stored batch, opened. Release it when its columns have been read.
type Batch struct {
	Header  segment.BatchHeader
	Payload *segment.Payload
	file    *segment.File // nil for the tail
}

// Release lets go of the batch's file.
func (b *Batch) Release() error {
	if b.file == nil {
		return nil
	}
	f := b.file
	b.file = nil
	return f.Close()
}

// At opens the batch of the view that holds an offset in [Kept, End).
func (l *Log) At(v *View, off millrace.Offset) (*Batch, error) {
	if off < v.Kept || off >= v.End {
		return nil, errs.New(errs.OffsetOutOfRange, "offset %d of bucket %s is outside [%d, %d)", off, l.id, v.Kept, v.End)
	}
	if off >= v.tailStart() {
		i := sort.Search(len(v.tail), func(i int) bool { return v.tail[i].Header.End() > off })
		p, err := segment.OpenBytes(v.tail[i].Payload)
		if err != nil {
			return nil, err
		}
		return &Batch{Header: v.tail[i].Header, Payload: p}, nil
	}
	i := sort.Search(len(v.files), func(i int) bool { return v.files[i].ID().Base > off }) - 1
	f := l.retain(v.files[i].ID().Base)
	if f == nil {
		if err := l.closed.Load(); err != nil {
			return nil, *err
		}
		return nil, errs.New(errs.OffsetOutOfRange, "offset %d of bucket %s is no longer kept", off, l.id)
	}
	p, h, err := openBatch(f, off)
	if err != nil {
		if cerr := f.Close(); cerr != nil {
			return nil, cerr
		}
		return nil, err
	}
	return &Batch{Header: *h, Payload: p, file: f}, nil
}

func openBatch(f *segment.File, off millrace.Offset) (*segment.Payload, *segment.BatchHeader, error) {
	if err := f.Load(); err != nil {
		return nil, nil, err
	}
	return f.Payload(f.Batches()[f.Find(off)])
}

// Gather opens the batch of the view that holds an offset, as At does; small
// batches of the tail are read together as one, since a table that is written a
// row at a time would else be read a row at a time. schemas and to are the table's.
func (l *Log) Gather(v *View, off millrace.Offset, schemas segment.Schemas, to *millrace.Schema) (*Batch, error) {
	if off < v.tailStart() || off >= v.End {
		return l.At(v, off)
	}
	i := sort.Search(len(v.tail), func(i int) bool { return v.tail[i].Header.End() > off })
	run := nextRun(v.tail[i:], v.End, gatherTarget)
	if run < 2 {
		return l.At(v, off)
	}
	// Read once and thrown away: compressing it would be a waste.
	h, payload, _, err := encodeRun(l.id, v.tail[i:i+run], schemas, to, segment.None)
	if err != nil {
		return nil, err
	}
	p, err := segment.OpenBytes(payload)
	if err != nil {
		return nil, err
	}
	return &Batch{Header: h, Payload: p}, nil
}

// retain adds a use of the file that begins at base; nil when the log has let go of
// it. It may be another copy than the one in an older view.
func (l *Log) retain(base millrace.Offset) *segment.File {
	l.mu.Lock()
	defer l.mu.Unlock()
	files := l.view.Load().files
	i, ok := slices.BinarySearchFunc(files, base, func(f *segment.File, base millrace.Offset) int { return cmp.Compare(f.ID().Base, base) })
	if !ok {
		return nil
	}
	files[i].Retain()
	return files[i]
}

// OffsetAt is the first record at or after a time (µs), from Start on; End when there
// is none.
func (l *Log) OffsetAt(v *View, micros int64) (millrace.Offset, error) {
	for _, f := range v.files {
		if f.MaxTime() < micros {
			continue
		}
		if err := f.Load(); err != nil {
			return 0, err
		}
		refs := f.Batches()
		i := f.FindTime(micros)
		if i == len(refs) || refs[i].Base >= v.tailStart() {
			continue
		}
		if refs[i].End() <= v.Start {
			return v.Start, nil // what follows is no older
		}
		b, err := l.At(v, max(refs[i].Base, v.Start))
		if err != nil {
			return 0, err
		}
		off := b.Header.Base + millrace.Offset(b.Header.FirstRowAtOrAfter(micros))
		return max(off, v.Start), b.Release()
	}
	i := sort.Search(len(v.tail), func(i int) bool { return v.tail[i].Header.MaxTime() >= micros })
	if i == len(v.tail) {
		return v.End, nil
	}
	h := &v.tail[i].Header
	return max(h.Base+millrace.Offset(h.FirstRowAtOrAfter(micros)), v.Start), nil
}
