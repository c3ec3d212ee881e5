package wal

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// encoded is the records of one Append, with unstamped frames.
func encoded(t testing.TB, tail Tail, entries ...Entry) ([]byte, Tail) {
	t.Helper()
	e := encoder{cluster: ClusterID{1}, shard: 3}
	require.NoError(t, e.encode(tail, entries))
	return slices.Concat(e.out...), e.tail
}

func stampAll(s *stamper, buf []byte) {
	for _, frame := range framesOf(buf) {
		s.stamp(frame)
	}
}

// Any bytes in place of a record, its frame, its body or a file's header are refused
// or read, without a panic and without allocating what a length claims; a header that
// is read is written again as the same bytes.
func FuzzDecodeRecord(f *testing.F) {
	buf, _ := encoded(f, Tail{LogID: 5}, Entry{Kind: Data, Data: []byte("abc")}, EpochEntry(4), Entry{Kind: 99, Ignorable: true})
	st := stamper{file: 1, off: 8192, group: 8192, prevShard: noShard}
	stampAll(&st, buf)
	f.Add(buf)
	f.Add(buf[frameSize:])
	f.Add(buf[frameSize+recordHeaderSize:])
	large, _ := encoded(f, Tail{}, Entry{Kind: Data, Data: make([]byte, MaxRecordBytes)})
	f.Add(large[len(large)-300:])
	h := fileHeader{number: 1, heads: make([]head, 3), files: []fileEnd{{1, 2}}}
	f.Add(h.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if fr, ok := parseFrame(b, 1, 8192); ok {
			var again [frameSize]byte
			fr.put(again[:])
			if !bytes.Equal(again[:36], b[:36]) {
				t.Fatal("frame differs")
			}
		}
		if rh, ok := parseRecordHeader(b); ok && !rh.newer() {
			var again [recordHeaderSize]byte
			rh.put(again[:])
			if !bytes.Equal(again[:78], b[:78]) && b[78] == 0 && b[79] == 0 {
				t.Fatal("record header differs")
			}
		}
		var a assembler
		for n := range uint32(4) {
			_ = a.feed(&recordHeader{entries: n}, b, func(millrace.LSN, millrace.Epoch, Entry) error { return nil })
		}
		if fh, err := parseFileHeader(b, 1); err == nil {
			_ = fh.encode()
		} else if c := errs.CodeOf(err); c != errs.CorruptData && c != errs.NotImplemented {
			t.Fatal(err)
		}
	})
}

// fixSums makes the checksums of everything that looks like a frame or a record right,
// so that the fuzzer gets behind them.
func fixSums(b []byte) {
	le := binary.LittleEndian
	for i := 0; i+frameSize+recordHeaderSize <= len(b); i++ {
		if le.Uint32(b[i:]) != frameMagic {
			continue
		}
		le.PutUint32(b[i+4:], checksum(b[i+8:i+frameSize]))
		rec := b[i+frameSize:]
		if n := recordHeaderSize + int(le.Uint32(rec[68:])); le.Uint32(rec) == recordMagic && n <= len(rec) {
			le.PutUint32(rec[64:], checksum(rec[recordHeaderSize:n]))
			le.PutUint32(rec[4:], checksum(rec[8:recordHeaderSize]))
		}
	}
}

// Any bytes behind the header of the newest file leave a log that opens, or is refused
// as corrupt or of a newer release, and that goes on.
func FuzzOpen(f *testing.F) {
	heads := []head{{Tail: Tail{LogID: 5}}, {Tail: Tail{LogID: 6}}, {Tail: Tail{LogID: 7}}, {Tail: Tail{LogID: 8}}}
	h := fileHeader{cluster: ClusterID{1}, number: 1, heads: heads}
	h.born = h.dataStart()
	one, tail := encoded(f, heads[3].Tail, Entry{Kind: Data, Data: []byte("abc")})
	two, _ := encoded(f, tail, Entry{Kind: Data, Data: make([]byte, 300)})
	st := stamper{file: 1, off: h.born, group: h.born, prevShard: noShard}
	stampAll(&st, one)
	st.group = st.off
	stampAll(&st, two)
	both := append(slices.Clone(one), two...)
	f.Add(both, false)
	f.Add(both, true)
	f.Add(append(append(slices.Clone(one), make([]byte, 50)...), two...), true)
	f.Add(two, true)
	f.Add(append(bytes.Repeat(frameMagicBytes, 100), both...), true)
	f.Fuzz(func(t *testing.T, b []byte, fix bool) {
		if fix {
			b = slices.Clone(b)
			fixSums(b)
		}
		fs := vfs.NewMem()
		require.NoError(t, fs.MkdirAll("wal", 0o755))
		file, err := fs.Create("wal/00000000000000000001.wal", vfs.WriteCategoryUnspecified)
		require.NoError(t, err)
		_, err = file.Write(append(h.encode(), b...))
		require.NoError(t, err)
		require.NoError(t, file.Close())
		fl, err := OpenFiles(fs, "wal", Options{ClusterID: ClusterID{1}, Shards: 4})
		if err != nil {
			require.Equal(t, errs.NotImplemented, errs.CodeOf(err))
			return
		}
		for s := range fl.logs {
			log := fl.logs[s]
			err := log.Replay(t.Context(), 0, func(millrace.LSN, millrace.Epoch, Entry) error { return nil })
			if err != nil && !errs.Is(err, errs.CorruptData) && !errs.Is(err, errs.NotImplemented) {
				t.Fatal(err)
			}
			if _, aerr := log.Append(t.Context(), []Entry{{Kind: Data}}); aerr != nil && !errs.Is(aerr, errs.CorruptData) {
				t.Fatal(aerr)
			}
		}
		require.NoError(t, fl.Close())
	})
}
