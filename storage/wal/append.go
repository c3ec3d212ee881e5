package wal

import (
	"context"
	"encoding/binary"
	"sync"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// shardLog is the Log of one shard of a Files.
type shardLog struct {
	f     *Files
	shard millrace.ShardID

	mu  sync.Mutex // held by Append: one at a time
	enc encoder
	req request
}

var _ Log = (*shardLog)(nil)

// request is an Append on its way through the committer.
type request struct {
	shard  millrace.ShardID
	pieces [][]byte // what to write: frames, each with its record
	frames [][]byte // of pieces: what is to be stamped
	size   int64
	tail   Tail       // of the shard when this is durable
	done   chan error // capacity 1
}

// Append makes entries durable. The records are encoded here, while the committer
// may be in the fsync of others.
func (l *shardLog) Append(ctx context.Context, entries []Entry) (millrace.LSN, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	h := l.f.head(l.shard)
	if h.damage.file != 0 {
		return 0, l.damaged(h)
	}
	if len(entries) == 0 {
		return h.LSN, nil
	}
	if err := l.enc.encode(h.Tail, entries); err != nil {
		return 0, err
	}
	defer l.enc.release()
	r := &l.req
	defer func() { r.pieces, r.frames = nil, nil }()
	r.pieces, r.frames, r.size, r.tail = l.enc.out, l.enc.frames, sizeOf(l.enc.out), l.enc.tail
	if err := l.f.submit(r); err != nil {
		return 0, err
	}
	if err := <-r.done; err != nil {
		return 0, err
	}
	return r.tail.LSN, nil
}

// Refresh is Tail: nobody else writes the files.
func (l *shardLog) Refresh(ctx context.Context) (Tail, error) { return l.Tail(), ctx.Err() }

// Tail is the end of the shard's log.
func (l *shardLog) Tail() Tail { return l.f.head(l.shard).Tail }

func (f *Files) head(s millrace.ShardID) head {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.heads[s]
}

// submit queues a request for the committer, which answers on r.done.
func (f *Files) submit(r *request) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.dead != nil {
		return f.mu.dead
	}
	if f.mu.closed {
		return &errs.Error{Code: errs.Draining, Message: "the log is closed", Err: ErrStopped}
	}
	f.mu.queue = append(f.mu.queue, r)
	select {
	case f.wake <- struct{}{}:
	default:
	}
	return nil
}

// stamper fills in the frames of one write.
type stamper struct {
	file      uint64
	off       int64
	group     int64
	ordinal   uint32
	prevShard millrace.ShardID
}

// stamp fills in the frame before a record, of which the header is enough.
func (s *stamper) stamp(b []byte) {
	rec := b[frameSize:]
	size := recordHeaderSize + int(binary.LittleEndian.Uint32(rec[68:]))
	shard := millrace.ShardID(binary.LittleEndian.Uint16(rec[76:]))
	fr := frame{
		file: s.file, offset: uint32(s.off), group: uint32(s.group), ordinal: s.ordinal,
		size: uint32(size), shard: shard, prevShard: s.prevShard,
	}
	fr.put(b)
	s.off, s.ordinal, s.prevShard = s.off+int64(frameSize+size), s.ordinal+1, shard
}

func sizeOf(pieces [][]byte) int64 {
	var n int64
	for _, p := range pieces {
		n += int64(len(p))
	}
	return n
}

// framesOf are the frames in what holds records one after the other.
func framesOf(buf []byte) [][]byte {
	var frames [][]byte
	for len(buf) > 0 {
		frames = append(frames, buf)
		buf = buf[frameSize+recordHeaderSize+int(binary.LittleEndian.Uint32(buf[frameSize+68:])):]
	}
	return frames
}
