package iceberg

import (
	"context"
	"errors"
	"io"
	"math"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/apache/arrow-go/v18/arrow/array"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
)

// positionColumns are those of a file of position deletes.
var positionColumns = []millrace.Column{
	{ID: pathFieldID, Name: "file_path", Type: millrace.DataType{Kind: millrace.String}},
	{ID: posFieldID, Name: "pos", Type: millrace.DataType{Kind: millrace.BigInt}},
}

// positions are those that a file of deletes lists, by the paths of data files. They
// are immutable.
type positions map[string]*roaring.Bitmap

// deletedOf are the positions of a file that deletes have taken; nil when there are none.
func (t *lakeTable) deletedOf(ctx context.Context, f *lakeFile) (*roaring.Bitmap, error) {
	var out *roaring.Bitmap
	shared := false
	for _, d := range f.deletes {
		all, err := t.positionsOf(ctx, d)
		if err != nil {
			return nil, err
		}
		switch b := all[f.path]; {
		case b == nil:
		case out == nil:
			out, shared = b, true
		case shared:
			out, shared = roaring.Or(out, b), false
		default:
			out.Or(b)
		}
	}
	if out != nil && f.rows > math.MaxUint32 {
		return nil, errs.New(errs.NotImplemented, "file %s of the lake has %d rows, too many for deletes by position", f.key, f.rows)
	}
	return out, nil
}

// positionsOf reads a file of position deletes, or remembers it.
func (t *lakeTable) positionsOf(ctx context.Context, d *deleteFile) (positions, error) {
	return t.f.positions.get(ctx, d.path, func(ctx context.Context) (positions, int64, error) {
		return t.readPositions(ctx, d)
	})
}

func (t *lakeTable) readPositions(ctx context.Context, d *deleteFile) (positions, int64, error) {
	rs, err := openRows(ctx, t.f.o.Store, d.key, d.bytes, reading{Read: lake.Read{Columns: positionColumns}})
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = rs.Close() }()
	out := positions{}
	last, bitmap := "", (*roaring.Bitmap)(nil)
	for {
		batch, _, err := rs.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, 0, err
		}
		paths, pos := batch.Column(0).(*array.String), batch.Column(1).(*array.Int64)
		for i := range paths.Len() {
			if p := paths.Value(i); bitmap == nil || p != last {
				if bitmap = out[p]; bitmap == nil {
					bitmap = roaring.New()
					out[string([]byte(p))] = bitmap
				}
				last = string([]byte(p))
			}
			if v := pos.Value(i); v >= 0 && v <= math.MaxUint32 {
				bitmap.Add(uint32(v))
			}
		}
		batch.Release()
	}
	size := int64(0)
	for p, b := range out {
		b.RunOptimize()
		size += 64 + int64(len(p)) + int64(b.GetSizeInBytes())
	}
	return out, size, nil
}
