package segment

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/millrace/errs"
)

// limitedAllocator panics when more than left bytes are asked for.
type limitedAllocator struct {
	memory.Allocator
	left int
}

func (a *limitedAllocator) Allocate(n int) []byte {
	if a.left -= n; a.left < 0 {
		panic("allocated too much")
	}
	return a.Allocator.Allocate(n)
}

// sealChecksums makes every checksum of a payload right, so that what lies behind
// them is reached.
func sealChecksums(b []byte) {
	if len(b) < payloadHeader {
		return
	}
	n, err := metaLenOf(b, int64(len(b)))
	if err != nil {
		return
	}
	h := payloadHead{flags: b[3], rows: int(le.Uint32(b[8:])), columns: int(le.Uint32(b[12:])), metaLen: n}
	data := b[n:]
	if Encoding(b[1]) == Columns {
		data = data[:min(len(data), ceil(h.changesLen(), chunkAlign))]
		for i := range min(h.columns, (n-payloadHeader)/entryBytes) {
			e := entryAt(b, i)
			if e.pos+e.len <= len(b) {
				le.PutUint32(b[payloadHeader+i*entryBytes+12:], crcOf(b[e.pos:e.pos+e.len]))
			}
		}
	}
	le.PutUint32(b[32:], crcOf(data))
	le.PutUint32(b[crcAt:], metaCRC(b[:n]))
}

func fuzzError(t *testing.T, err error) {
	switch errs.CodeOf(err) {
	case "", errs.CorruptData, errs.NotImplemented, errs.SchemaChanged, errs.TooLarge:
	default:
		t.Fatalf("%v", err)
	}
}

// FuzzOpen opens any bytes as a payload and reads all there is in it, with the
// checksums as they are and made right. Nothing panics, memory is bounded, and
// what could be read can be written and read again.
func FuzzOpen(f *testing.F) {
	s := makeSchema(1, "BIGINT", "STRING", "BOOLEAN", "DECIMAL(10,2)", "ARRAY<STRING>", "MAP<STRING, ROW<a INT, b BINARY(2)>>")
	rec := randomRecord(newRand(1), s, 20, 2)
	for _, codec := range codecs {
		f.Add(encoded(f, s, rec, randomChanges(newRand(2), 20), codec))
	}
	f.Add(rowPayload(s, rec, nil))
	f.Add(rowPayload(s, rec, randomChanges(newRand(3), 20)))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, err := OpenBytes(b)
		fuzzError(t, err)
		b = append([]byte(nil), b...)
		sealChecksums(b)
		p, err := OpenBytes(b)
		fuzzError(t, err)
		if err != nil {
			return
		}
		for _, c := range s.Columns {
			p.Stats(c.ID)
		}
		changes, err := p.Changes()
		fuzzError(t, err)
		for _, codec := range []Codec{Stored, None, LZ4} {
			_, err = p.Message(only(s), s.Columns, nil, codec)
			fuzzError(t, err)
		}
		mem := &limitedAllocator{memory.NewGoAllocator(), 512 << 20}
		rec, err := p.Record(mem, only(s), s.Columns)
		fuzzError(t, err)
		if err != nil {
			return
		}
		defer rec.Release()
		again, err := AppendColumns(nil, s, rec, changes, EncodeOptions{})
		fuzzError(t, err)
		if err == nil {
			got := must(must(OpenBytes(again)).Record(memory.DefaultAllocator, only(s), s.Columns))
			requireSame(t, rec, got)
			got.Release()
		}
	})
}

// FuzzParseBatchHeader reads any bytes as a batch header, with the checksum as it
// is and made right: no panic, and what can be read comes out the same.
func FuzzParseBatchHeader(f *testing.F) {
	f.Add(AppendBatchHeader(nil, &BatchHeader{Bucket: testBucket, Base: 9, Rows: 5, Times: []TimeRun{{2, -5}, {3, 1e15}}, PayloadLen: 500}))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, err := ParseBatchHeader(b)
		fuzzError(t, err)
		if n, err := batchHeaderLen(b); err == nil && n <= len(b) {
			b = append([]byte(nil), b[:n]...)
			le.PutUint32(b[4:], crcOf(b[8:]))
		}
		h, _, err := ParseBatchHeader(b)
		fuzzError(t, err)
		if err == nil {
			h.TimeAt(h.Rows - 1)
			again, _, err := ParseBatchHeader(AppendBatchHeader(nil, &h))
			if err != nil || again.MaxTime() != h.MaxTime() || again.Rows != h.Rows {
				t.Fatalf("%v: %v, then %v", err, h, again)
			}
		}
	})
}

// FuzzOpenFile opens any bytes as a segment file, sealed and unsealed, and reads
// its batches.
func FuzzOpenFile(f *testing.F) {
	fs := vfs.NewMem()
	must(0, fs.MkdirAll("dir", 0o755))
	writeFile(f, fs, testBatches(f, 3), true)
	f.Add(fileBytes(f, fs), false)
	f.Add(fileBytes(f, fs), true)
	f.Fuzz(func(t *testing.T, b []byte, reseal bool) {
		b = append([]byte(nil), b...)
		if n := len(b) - fileTrailer; reseal && n >= fileHeader {
			le.PutUint32(b[60:], crcOf(b[:60]))
			if n, err := indexLen(b[n:], int64(len(b))); err == nil {
				index := b[int64(len(b))-n:]
				le.PutUint32(index[n-8:], crcOf(index[:n-8]))
			}
		}
		fs := withBytes(t, b)
		for _, open := range []func() (*File, error){
			func() (*File, error) { return OpenSealed(fs, "dir", testID) },
			func() (*File, error) { return OpenUnsealed(fs, "dir", testID, int64(len(b))) },
		} {
			file, err := open()
			fuzzError(t, err)
			if err == nil {
				_, err = readAll(file)
				fuzzError(t, err)
				must(0, file.Close())
			}
		}
	})
}
