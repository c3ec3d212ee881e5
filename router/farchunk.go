package router

import (
	"bytes"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/row/arrowrow"
	"github.com/millrace/millrace/storage/segment"
)

// farChunk makes a chunk of a frame, cut to the limit, and puts its part behind it.
func (rd *Reader) farChunk(pr *partReader, f *Frame) *Chunk {
	cut := false
	if rd.left >= 0 && int64(f.Rows) > rd.left {
		n := int(rd.left)
		if f.Changes != nil && n > 0 && f.Changes[n-1] == millrace.UpdateBefore && runAt(f.At, n, 1) == runAt(f.At, n-1, 1)+1 {
			n++ // R3
		}
		if cut = n < f.Rows; cut {
			f.cut(n)
		}
	}
	pr.enter(&f.Place)
	pr.cut = cut
	pr.born = pr.born || f.Kind == LogRows
	c := &Chunk{
		BucketKey: pr.Key, PartitionName: pr.Partition, Bucket: pr.Bucket.Bucket, Base: f.Base, Next: f.Next, HighWatermark: f.High,
		Rows: f.Rows, Micros: f.Micros, rd: rd, part: pr, far: f,
	}
	if f.Kind == LakeRows {
		c.at = make([]int64, 0, f.Rows)
		for _, r := range f.At {
			for i := range min(r.Rows, f.Rows-len(c.at)) {
				c.at = append(c.at, r.First+int64(i))
			}
		}
	}
	if f.Kind == StateRows {
		c.keys = &stateGroup{keys: f.Keys, ends: f.Ends}
	}
	return c
}

// farRecord decodes a chunk that came from elsewhere.
func (c *Chunk) farRecord() (arrow.RecordBatch, error) {
	d, err := c.rd.farDecoder()
	if err != nil {
		return nil, err
	}
	rec, err := d.Decode(c.far.Message.Header, c.far.Message.Body)
	if err != nil {
		return nil, errs.Wrap(errs.Internal, "router: rows of another process do not read", err)
	}
	schema := c.rd.plan.Schema
	bad := int(rec.NumRows()) < c.Rows || int(rec.NumCols()) != schema.NumFields()
	for i := 0; !bad && i < schema.NumFields(); i++ {
		bad = !arrow.TypeEqual(rec.Column(i).DataType(), schema.Field(i).Type)
	}
	if bad {
		rec.Release()
		return nil, errs.New(errs.Internal, "rows of another process are not of the columns that were asked for")
	}
	return c.withSchema(sliceRecord(rec, 0, c.Rows)), nil
}

// farDecoder decodes messages of the plan's columns.
func (rd *Reader) farDecoder() (*arrowrow.Decoder, error) {
	if rd.decoder != nil {
		return rd.decoder, nil
	}
	p := ipc.GetSchemaPayload(rd.plan.Schema, memory.DefaultAllocator)
	defer p.Release()
	var b bytes.Buffer
	if _, err := p.WritePayload(&b); err != nil {
		return nil, errs.Wrap(errs.Internal, "router: the schema does not encode", err)
	}
	const mark = 8 // continuation and length
	d, err := arrowrow.NewDecoder(b.Bytes()[mark:], arrowrow.Limits{MaxMessageBytes: segment.MaxPayloadBytes + farBody})
	if err != nil {
		return nil, errs.Wrap(errs.Internal, "router: the schema does not read", err)
	}
	rd.decoder = d
	return d, nil
}

// farShip hands the message on as it came, when that is what is asked for.
func (c *Chunk) farShip(codec segment.Codec, most int) ([]Shipment, error) {
	m := c.far.Message
	if (codec == segment.Stored || codec == m.Codec) && len(m.Body) <= most && m.Rows == c.Rows {
		out := *m
		return []Shipment{{Message: &out, Rows: c.Rows, Base: c.Base, Next: c.Next, Micros: c.Micros}}, nil
	}
	rec, err := c.farRecord()
	if err != nil {
		return nil, err
	}
	defer rec.Release()
	if codec == segment.Stored {
		codec = m.Codec
	}
	var out []Shipment
	start := 0
	for _, rng := range segment.SplitRows(rec, most) {
		end := rng.End
		if end <= start {
			continue // the piece before took this row along
		}
		if ch := c.far.Changes; ch != nil && end < c.Rows && ch[end-1] == millrace.UpdateBefore && runAt(c.far.At, end, 1) == runAt(c.far.At, end-1, 1)+1 {
			end++
		}
		piece := rec.NewSlice(int64(start), int64(end))
		msg, err := segment.EncodeMessage(piece, codec)
		piece.Release()
		if err != nil {
			return nil, err
		}
		s := Shipment{Message: msg, Rows: end - start, Base: c.Base, Next: c.Next, Micros: c.Micros}
		if c.far.Kind == LogRows {
			if start > 0 {
				s.Base = millrace.Offset(runAt(c.far.At, start, 1))
			}
			s.Micros = runAt(c.far.Times, end-1, 0)
			if end < c.Rows {
				s.Next = millrace.Offset(runAt(c.far.At, end-1, 1)) + 1
			}
		}
		out = append(out, s)
		start = end
	}
	return out, nil
}
