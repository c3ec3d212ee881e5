package router

import (
	"context"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/millrace/millrace/storage/segment"
)

const (
	// lookRoom is what a reader takes of the room before it looks for a chunk: what gathering
	// one of the tail needs.
	lookRoom = 2 << 20
	// packedRoom is how many times its stored bytes a compressed batch is taken to have, until
	// it is decoded.
	packedRoom = 3
	// A read that has given nothing waits for so long, and one in the midst: less than a door
	// gives its client to take something.
	firstPatience = 2 * time.Second
	laterPatience = 10 * time.Second
)

// enterRoom takes room for the chunk that is looked for next.
func (rd *Reader) enterRoom(ctx context.Context) error {
	if rd.r.o.Room == nil || rd.background {
		return nil
	}
	if rd.hold == nil {
		rd.hold = rd.r.o.Room.Hold()
	}
	rd.asking = ctx
	patience := firstPatience
	if rd.stats.RowsShipped > 0 {
		patience = laterPatience
	}
	return rd.hold.Set(ctx, rd.kept+lookRoom, patience)
}

// leaveRoom gives back what the chunk had.
func (rd *Reader) leaveRoom() {
	if rd.hold != nil {
		_ = rd.hold.Set(rd.asking, rd.kept, 0) // less needs no room
	}
}

// fit makes what is held what a chunk takes.
func (rd *Reader) fit(ctx context.Context, c *Chunk) error {
	if rd.hold == nil {
		return nil
	}
	c.room = c.bytes()
	return rd.hold.Set(ctx, rd.kept+c.room, laterPatience)
}

// Keep takes room for what the caller keeps of what was given, so many bytes by now, until
// the reader is closed.
func (rd *Reader) Keep(ctx context.Context, bytes int64) error {
	if rd.hold == nil {
		return nil
	}
	rd.kept = bytes
	return rd.hold.Set(ctx, rd.kept, laterPatience)
}

// Slow is an error when others wait for the memory of a chunk that was given long ago.
func (rd *Reader) Slow() error {
	if rd.hold == nil {
		return nil
	}
	return rd.hold.Slow()
}

// bytes is about what a chunk takes until it is released.
func (c *Chunk) bytes() int64 {
	switch {
	case c.far != nil:
		return 2 * int64(len(c.far.Message.Body))
	case c.state != nil:
		return segment.RecordBytes(c.state)
	case c.batch != nil:
		n := c.batch.Payload.RawBytes()
		if !c.batch.Payload.InMemory() && c.batch.Payload.Codec() != segment.None {
			n *= packedRoom
		}
		return n
	}
	return 0
}

// decoded takes room for what a chunk takes beyond what it was taken to, and gives rec on.
func (c *Chunk) decoded(rec arrow.RecordBatch) (arrow.RecordBatch, error) {
	if c.rd.hold == nil {
		return rec, nil
	}
	if n := segment.RecordBytes(rec); n > c.room {
		c.room = n
		if err := c.rd.hold.Set(c.rd.asking, c.rd.kept+n, laterPatience); err != nil {
			rec.Release()
			return nil, err
		}
	}
	return rec, nil
}
