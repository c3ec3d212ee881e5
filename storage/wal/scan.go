package wal

import (
	"bytes"
	"errors"
	"io"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// scanWindow is how much is read at a time: more than any record with its frame.
const scanWindow = 2 << 20

// scanner walks the frames of one file. A place that is not a frame does not end
// the walk: the next frame is looked for behind it.
type scanner struct {
	f       io.ReaderAt
	name    string
	number  uint64
	cluster ClusterID
	off     int64 // of the next frame
	end     int64 // of what belongs to the log

	buf     []byte // window: the bytes at [at, at+len(buf))
	at      int64
	ordinal int64 // expected of the next frame
}

// item is a frame with a record whose header checks, or a bad stretch of bytes.
type item struct {
	off, end int64
	bad      bool
	chained  bool // the chain goes through it all the same
	// shard is whose record it is; noShard when a bad stretch does not tell.
	shard millrace.ShardID
	// lost is how many records are in a bad stretch; 0 when that is not known.
	lost  int64
	group int64 // of a frame
	rec   recordHeader
}

func newScanner(f io.ReaderAt, name string, number uint64, cluster ClusterID, from, end int64) *scanner {
	return &scanner{f: f, name: name, number: number, cluster: cluster, off: from, end: end}
}

// view returns the bytes at [off, off+n), fewer at the end. They are valid until the next view.
func (s *scanner) view(off int64, n int) ([]byte, error) {
	b, err := s.peek(off, n)
	return b[:min(n, len(b))], err
}

// peek is view with everything more that happens to be in the window.
func (s *scanner) peek(off int64, n int) ([]byte, error) {
	n = int(min(int64(n), s.end-off))
	lo := off - s.at
	if lo >= 0 && lo+int64(n) <= int64(len(s.buf)) {
		return s.buf[lo:], nil
	}
	var left []byte
	if lo >= 0 && lo < int64(len(s.buf)) {
		left = s.buf[lo:]
	}
	size := int(min(scanWindow, s.end-off))
	if cap(s.buf) < size {
		s.buf = make([]byte, size)
	}
	kept := copy(s.buf[:size], left)
	s.at, s.buf = off, s.buf[:size]
	got, err := s.f.ReadAt(s.buf[kept:], off+int64(kept))
	s.buf = s.buf[:kept+got]
	if err != nil && !errors.Is(err, io.EOF) {
		s.buf = s.buf[:0]
		return nil, errs.New(errs.Unavailable, "reading %s at byte %d: %v", s.name, off+int64(kept), err)
	}
	if len(s.buf) < n { // the file is shorter than it should be
		s.end = off + int64(len(s.buf))
	}
	return s.buf, nil
}

// next returns the next item; false at the end, which zeros up to the end are too.
func (s *scanner) next() (item, bool, error) {
	if s.off >= s.end {
		return item{}, false, nil
	}
	b, err := s.view(s.off, frameSize+recordHeaderSize)
	if err != nil || len(b) == 0 {
		return item{}, false, err
	}
	it := item{off: s.off, shard: noShard}
	fr, frameOK := parseFrame(b, s.number, s.off)
	var recOK bool
	if len(b) == frameSize+recordHeaderSize {
		it.rec, recOK = parseRecordHeader(b[frameSize:])
		recOK = recOK && it.rec.cluster == s.cluster
	}
	switch {
	case frameOK:
		it.shard, it.group, it.end = fr.shard, int64(fr.group), s.off+frameSize+int64(fr.size)
		s.ordinal = int64(fr.ordinal)
	case recOK: // the frame alone is damaged
		it.shard, it.end = it.rec.shard, s.off+frameSize+int64(it.rec.size())
	default:
		return s.resync(it)
	}
	it.lost = 1
	it.bad = !frameOK || !recOK || it.rec.shard != fr.shard || it.rec.size() != int(fr.size) || it.end > s.end
	it.end = min(it.end, s.end)
	s.off = it.end
	s.ordinal++
	return it, true, nil
}

// record returns the whole record of an item; false when its body does not check.
func (s *scanner) record(it item) ([]byte, bool, error) {
	b, err := s.view(it.off+frameSize, it.rec.size())
	if err != nil {
		return nil, false, err
	}
	return b, len(b) == it.rec.size() && checksum(b[recordHeaderSize:]) == it.rec.bodyCRC, nil
}

// resync looks for the first frame behind a place where there is none.
func (s *scanner) resync(it item) (item, bool, error) {
	it.bad, it.rec = true, recordHeader{}
	for p := it.off + 1; p < s.end; {
		b, err := s.peek(p, frameSize)
		if err != nil {
			return item{}, false, err
		}
		i := bytes.Index(b, frameMagicBytes)
		if i < 0 {
			p += int64(max(len(b)-len(frameMagicBytes)+1, 1))
			continue
		}
		p += int64(i)
		if len(b)-i < frameSize && p+frameSize <= s.end {
			continue // look at it whole
		}
		if fr, ok := parseFrame(b[i:], s.number, p); ok {
			lost := int64(fr.ordinal) - s.ordinal
			if lost == 1 {
				it.shard = fr.prevShard
			}
			it.end, it.lost, s.off = p, max(lost, 1), p
			return it, true, nil
		}
		p++
	}
	it.end, s.off = s.end, s.end
	zero, err := s.zero(it.off)
	return it, !zero, err
}

// zero says whether there are only zeros from off on.
func (s *scanner) zero(off int64) (bool, error) {
	for off < s.end {
		b, err := s.view(off, scanWindow)
		if err != nil {
			return false, err
		}
		if len(bytes.TrimLeft(b, "\x00")) > 0 {
			return false, nil
		}
		off += int64(len(b))
	}
	return true, nil
}
