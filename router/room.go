package router

import (
	"context"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/millrace/millrace/storage/segment"
)

const (
	// lookRoom is what a reader takes of the room before it reads something here: what gathering
	// a chunk of the tail needs.
	lookRoom = 2 << 20
	// packedRoom is how many times its stored bytes a compressed batch is taken to have, until
	// it is decoded.
	packedRoom = 3
	// A read that has got to nothing waits for so long, and one in the midst: less than a door
	// gives its client to take something.
	firstPatience = 2 * time.Second
	laterPatience = 10 * time.Second
)

// counted says whether what the reader reads is counted.
func (rd *Reader) counted() bool {
	if rd.hold == nil && rd.r.o.Room != nil && !rd.background {
		rd.hold = rd.r.o.Room.Hold()
	}
	return rd.hold != nil
}

// enterRoom takes room for what is about to be read here, of which there is something: who
// waits for others or for records has none. Nothing has moved on yet, so that a reader that is
// refused can go on later.
func (rd *Reader) enterRoom(ctx context.Context) error {
	if !rd.counted() {
		return nil
	}
	patience := rd.r.firstPatience
	if rd.midst() {
		patience = rd.r.laterPatience
	}
	return rd.hold.Set(ctx, rd.kept+lookRoom, patience)
}

// midst says whether the read has got to something.
func (rd *Reader) midst() bool { return rd.begun || rd.stats.RowsRead > 0 || rd.stats.RowsShipped > 0 }

// leaveRoom gives back what the chunk had.
func (rd *Reader) leaveRoom() {
	if rd.hold != nil {
		rd.hold.Less(rd.kept)
	}
}

// fit makes what is held what a chunk takes. The reader stands behind its rows, which must not
// be lost: so a chunk of more than was taken to look for it waits for the difference, and goes
// out all the same when there is none, or the caller's time is over. What is held stays then,
// too little by that chunk at most.
func (rd *Reader) fit(ctx context.Context, c *Chunk) {
	if rd.counted() {
		c.room = c.bytes()
		rd.hold.Fit(ctx, rd.kept+c.room, rd.r.laterPatience)
	}
}

// Keep takes room for what the caller keeps of what was given, so many bytes by now, until
// the reader is closed. Who is refused has none any more, and should not go on.
func (rd *Reader) Keep(ctx context.Context, bytes int64) error {
	if rd.hold == nil {
		return nil
	}
	if err := rd.hold.Set(ctx, bytes, rd.r.laterPatience); err != nil {
		rd.kept = 0
		return err
	}
	rd.kept = bytes
	return nil
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

// decoded takes room for what a chunk takes beyond what it was taken to: as fit does, so one
// that is small does not wait.
func (c *Chunk) decoded(rec arrow.RecordBatch) {
	if c.rd.hold == nil {
		return
	}
	n := segment.RecordBytes(rec)
	if n <= c.room {
		return
	}
	c.room = n
	patience := c.rd.r.laterPatience
	if n <= lookRoom {
		patience = 0
	}
	c.rd.hold.Fit(c.rd.asking, c.rd.kept+n, patience)
}
