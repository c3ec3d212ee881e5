package remote

import (
	"bufio"
	"context"
	"encoding/binary"
	"hash/crc32"
	"io"
	"maps"
	"slices"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/storage/bucket"
	"github.com/millrace/millrace/storage/segment"
	"github.com/millrace/millrace/storage/shard"
)

// A tails object holds what of the logs is in no sealed segment: a header, then
// batches, each a batch header and its payload, those of a bucket behind each other.
// Each checkpoint writes what is new since the one before into one object and names
// those of before as long as they hold something.
//
//	0   8  magic "MRTAILO\n"
//	8   2  format version (1)
//	10  2  flags (0)
//	12  4  CRC32C of bytes [0,12)
const (
	tailsMagic   = "MRTAILO\n"
	tailsVersion = 1
	tailsHeader  = 16
	// A checkpoint names at most so many tails objects; then the older half is written
	// anew.
	maxTails = 64
)

func appendTailsHeader(dst []byte) []byte {
	start := len(dst)
	dst = append(dst, tailsMagic...)
	dst = binary.LittleEndian.AppendUint16(dst, tailsVersion)
	dst = binary.LittleEndian.AppendUint16(dst, 0)
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

// fresh is what of a bucket goes into a new tails object.
type fresh struct {
	bucket int // index in the manifest
	from   millrace.Offset
}

// tails sends what of the logs is in no sealed segment and in no tails object of this
// owner.
func (u *upload) tails(ctx context.Context) error {
	spans := u.keptSpans()
	var todo []fresh
	for i := range u.m.Buckets {
		b := &u.m.Buckets[i]
		b.Spans = nil
		from := sealedEnd(b, u.c.Buckets[i])
		for _, s := range spans[b.ID] {
			if s.End > from {
				b.Spans = append(b.Spans, s)
			}
		}
		if n := len(b.Spans); n > 0 {
			from = b.Spans[n-1].End
		}
		if from < b.End {
			todo = append(todo, fresh{i, from})
		}
	}
	u.keepObjects()
	if len(todo) == 0 {
		return nil
	}
	key := u.r.key("tails", u.tag+"-"+u.attempt)
	var added []shard.TailSpan
	o, err := u.r.s.put(ctx, "tails", key, func(w io.Writer) error {
		return bufferedWrite(w, func(b *bufio.Writer) (err error) {
			added, err = u.writeTails(b, todo)
			return err
		})
	})
	if err != nil {
		return err
	}
	for i, s := range added {
		s.Object = len(u.m.Remote.Tails)
		b := &u.m.Buckets[todo[i].bucket]
		b.Spans = append(b.Spans, s)
	}
	u.m.Remote.Tails = append(u.m.Remote.Tails, o)
	return nil
}

// keptSpans are the spans of the newest manifest, when it is one of this owner's: only
// then the batches here are those there, or merged from whole ones. When there are too
// many objects, those with a span in the older half begin anew.
func (u *upload) keptSpans() map[millrace.BucketID][]shard.TailSpan {
	out := map[millrace.BucketID][]shard.TailSpan{}
	if u.last == nil || u.last.Tail.LogID != u.m.Tail.LogID || u.last.Tail.Epoch != u.m.Tail.Epoch {
		return out
	}
	oldest := 0
	if len(u.last.Remote.Tails) >= maxTails {
		oldest = maxTails / 2
	}
	for i := range u.last.Buckets {
		b := &u.last.Buckets[i]
		if len(b.Spans) > 0 && b.Spans[0].Object >= oldest {
			out[b.ID] = b.Spans
		}
	}
	return out
}

// keepObjects names the tails objects that spans lie in, and no others.
func (u *upload) keepObjects() {
	used := map[int]bool{}
	for i := range u.m.Buckets {
		for _, s := range u.m.Buckets[i].Spans {
			used[s.Object] = true
		}
	}
	index := map[int]int{}
	var kept []shard.RemoteObject
	for _, at := range slices.Sorted(maps.Keys(used)) {
		index[at] = len(kept)
		kept = append(kept, u.last.Remote.Tails[at])
	}
	for i := range u.m.Buckets {
		for k := range u.m.Buckets[i].Spans {
			s := &u.m.Buckets[i].Spans[k]
			s.Object = index[s.Object]
		}
	}
	u.m.Remote.Tails = kept
}

// sealedEnd is where the sealed files of a bucket end.
func sealedEnd(b *shard.BucketManifest, p *bucket.Pinned) millrace.Offset {
	end := b.From()
	for i, f := range p.Open {
		if settled(b.Files, i) {
			end = max(end, f.End())
		}
	}
	return end
}

// writeTails writes the batches that end behind the given places, and says where they
// lie.
func (u *upload) writeTails(w *bufio.Writer, todo []fresh) ([]shard.TailSpan, error) {
	pos := int64(tailsHeader)
	if _, err := w.Write(appendTailsHeader(nil)); err != nil {
		return nil, err
	}
	var out []shard.TailSpan
	var head []byte
	for _, t := range todo {
		s := shard.TailSpan{Position: pos, Base: -1}
		err := eachBatch(u.c.Buckets[t.bucket], t.from, func(h *segment.BatchHeader, payload []byte) error {
			head = segment.AppendBatchHeader(head[:0], h)
			if _, err := w.Write(head); err != nil {
				return err
			}
			if _, err := w.Write(payload); err != nil {
				return err
			}
			if s.Base < 0 {
				s.Base = h.Base
			}
			s.End = h.End()
			pos += int64(len(head) + len(payload))
			return nil
		})
		if err != nil {
			return nil, err
		}
		s.Bytes = pos - s.Position
		out = append(out, s)
	}
	return out, nil
}

// eachBatch gives the batches of a log that end behind an offset, in order.
func eachBatch(b *bucket.Pinned, from millrace.Offset, give func(*segment.BatchHeader, []byte) error) error {
	for i, f := range b.Open {
		if settled(b.Files, i) || f.End() <= from {
			continue
		}
		for _, ref := range f.Batches() {
			if ref.End() <= from || ref.Position >= b.Files[i].Length {
				continue
			}
			h, payload, err := f.ReadBatch(ref)
			if err != nil {
				return err
			}
			if err := give(&h, payload); err != nil {
				return err
			}
		}
	}
	for i := range b.Tail {
		t := &b.Tail[i]
		if t.Header.End() <= from {
			continue
		}
		if err := give(&t.Header, t.Payload); err != nil {
			return err
		}
	}
	return nil
}
