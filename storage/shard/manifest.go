package shard

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/bucket"
	"github.com/millrace/millrace/storage/segment"
	"github.com/millrace/millrace/storage/wal"
)

// FeatureLevel is the level of formats this release writes.
const FeatureLevel = 1

// A manifest, and a tails file, is an envelope around a body
// (docs/formats/manifest.md), little endian:
//
//	0   8  magic "MRMANIF\n" or "MRTAILS\n"
//	8   2  format version (1)
//	10  2  flags (0)
//	12  4  CRC32C of bytes [0,12) and of everything from 16 on
//	16  8  length of the body
//	24  …  body: a manifest's is JSON, a tails file's is batches, each a batch header and its payload
//
// Magic and checksum stay in place in every version, so that the checksum is checked
// before the version is believed.
const (
	manifestMagic   = "MRMANIF\n"
	tailsMagic      = "MRTAILS\n"
	envelopeVersion = 1
	envelopeCRC     = 12 // where it is
	envelopeLen     = 24
	// maxEnvelopeBytes bounds what is read from a file that claims to be larger.
	maxEnvelopeBytes = 1 << 30
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Manifest says what a checkpoint holds.
type Manifest struct {
	Cluster      []byte            `json:"cluster"`
	Shard        millrace.ShardID  `json:"shard"`
	Number       uint64            `json:"number"`
	LSN          millrace.LSN      `json:"lsn"`  // everything up to here is in the checkpoint
	Tail         wal.Tail          `json:"tail"` // of the log, at LSN
	FeatureLevel int               `json:"feature_level"`
	Tables       []*millrace.Table `json:"tables"`  // the newest descriptor of each
	Schemas      []TableSchemas    `json:"schemas"` // all versions of each
	Buckets      []BucketManifest  `json:"buckets"`
	Sealed       []SealedPartition `json:"sealed,omitempty"`
	Tails        string            `json:"tails,omitempty"` // file name; none when all tails are empty
	// Remote is what of the checkpoint lies in the object store; nil without one.
	Remote *RemotePart `json:"remote,omitempty"`
}

// SealedPartition is a partition that takes no more writes.
type SealedPartition struct {
	Table     millrace.TableID     `json:"table"`
	Partition millrace.PartitionID `json:"partition"`
}

// TableSchemas are the schema versions of a table.
type TableSchemas struct {
	Table   millrace.TableID   `json:"table"`
	Schemas []*millrace.Schema `json:"schemas"`
}

// BucketManifest says what a checkpoint holds of a bucket; what is in no file is
// in the tails file.
type BucketManifest struct {
	ID    millrace.BucketID  `json:"id"`
	Start millrace.Offset    `json:"start"`
	End   millrace.Offset    `json:"end"`
	Files []bucket.FileState `json:"files,omitempty"`
	// Kept is where the files and the tail begin; nil when that is Start.
	Kept *millrace.Offset `json:"kept,omitempty"`
	// Passed is where Start was at PassedMicros, from when on a last time runs for what
	// lies below; 0 when nothing waits for that.
	Passed       millrace.Offset `json:"passed,omitempty"`
	PassedMicros int64           `json:"passed_micros,omitempty"`
	// Spans are the bucket's parts of tails objects, in a manifest in the object store.
	Spans []TailSpan `json:"spans,omitempty"`
}

func bucketManifest(id millrace.BucketID, st *bucket.State) BucketManifest {
	m := BucketManifest{ID: id, Start: st.Start, End: st.End, Files: st.Files, Passed: st.Passed, PassedMicros: st.PassedMicros}
	if st.Kept != st.Start {
		m.Kept = &st.Kept
	}
	return m
}

func (m *BucketManifest) kept() millrace.Offset {
	if m.Kept != nil {
		return *m.Kept
	}
	return m.Start
}

// manifestInfo is what a shard remembers of its newest manifest.
type manifestInfo struct {
	number uint64
	lsn    millrace.LSN
	tail   wal.Tail
}

func (m *Manifest) addTable(t *tableState) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	m.Tables = append(m.Tables, t.table)
	s := values(t.schemas)
	slices.SortFunc(s, func(a, b *millrace.Schema) int { return int(a.ID) - int(b.ID) })
	m.Schemas = append(m.Schemas, TableSchemas{Table: t.table.ID, Schemas: s})
}

func manifestName(n uint64) string { return fmt.Sprintf("manifest-%020d", n) }

func tailsName(n uint64) string { return fmt.Sprintf("tails-%020d", n) }

// parseNumbered reads the name of a manifest or tails file, also of one that was
// not published (".tmp").
func parseNumbered(name string) (kind string, n uint64, ok bool) {
	kind, num, found := strings.Cut(strings.TrimSuffix(name, ".tmp"), "-")
	if !found || len(num) != 20 || kind != "manifest" && kind != "tails" {
		return "", 0, false
	}
	n, err := strconv.ParseUint(num, 10, 64)
	return kind, n, err == nil
}

func writeManifest(fs vfs.FS, dir string, m *Manifest) error {
	err := publishFile(fs, dir, manifestName(m.Number), func(f vfs.File) error {
		return writeEnvelope(f, manifestMagic, [][]byte{encodeJSON(m)})
	})
	if err != nil {
		return fmt.Errorf("shard.writeManifest: %w", err)
	}
	return nil
}

// writeTails writes the tails of all buckets into one file and returns its name,
// "" when there is nothing to write.
func writeTails(fs vfs.FS, dir string, number uint64, tails []bucket.TailBatch) (string, error) {
	if len(tails) == 0 {
		return "", nil
	}
	parts := make([][]byte, 0, 2*len(tails))
	for i := range tails {
		parts = append(parts, segment.AppendBatchHeader(nil, &tails[i].Header), tails[i].Payload)
	}
	err := publishFile(fs, dir, tailsName(number), func(f vfs.File) error {
		return writeEnvelope(f, tailsMagic, parts)
	})
	if err != nil {
		return "", fmt.Errorf("shard.writeTails: %w", err)
	}
	return tailsName(number), nil
}

func writeEnvelope(w io.Writer, magic string, parts [][]byte) error {
	var n uint64
	for _, p := range parts {
		n += uint64(len(p))
	}
	h := append(make([]byte, 0, envelopeLen), magic...)
	h = binary.LittleEndian.AppendUint16(h, envelopeVersion)
	h = binary.LittleEndian.AppendUint32(h, 0)[:envelopeCRC]
	crc := crc32.Checksum(h, castagnoli)
	h = binary.LittleEndian.AppendUint64(h[:envelopeCRC+4], n)
	crc = crc32.Update(crc, castagnoli, h[envelopeCRC+4:])
	for _, p := range parts {
		crc = crc32.Update(crc, castagnoli, p)
	}
	binary.LittleEndian.PutUint32(h[envelopeCRC:], crc)
	buf := bytes.NewBuffer(h)
	for _, p := range parts {
		buf.Write(p)
		if buf.Len() >= 1<<20 {
			if _, err := w.Write(buf.Bytes()); err != nil {
				return err
			}
			buf.Reset()
		}
	}
	_, err := w.Write(buf.Bytes())
	return err
}

func readEnvelope(fs vfs.FS, file, magic string) ([]byte, error) {
	all, err := readWhole(fs, file)
	if err != nil {
		return nil, err
	}
	return openEnvelope(file, magic, all)
}

func readWhole(fs vfs.FS, file string) ([]byte, error) {
	f, err := fs.Open(file)
	if err != nil {
		return nil, fmt.Errorf("shard: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	all, err := io.ReadAll(io.LimitReader(f, maxEnvelopeBytes))
	if err != nil {
		return nil, fmt.Errorf("shard: %s: %w", file, err)
	}
	return all, nil
}

func openEnvelope(file, magic string, all []byte) ([]byte, error) {
	if len(all) < envelopeLen || string(all[:8]) != magic {
		return nil, corrupt(file, "the first %d bytes are not the header of such a file", envelopeLen)
	}
	crc := crc32.Update(crc32.Checksum(all[:envelopeCRC], castagnoli), castagnoli, all[envelopeCRC+4:])
	if crc != binary.LittleEndian.Uint32(all[envelopeCRC:]) {
		return nil, corrupt(file, "the checksum at byte %d does not match the other %d bytes", envelopeCRC, len(all)-4)
	}
	if v, flags := binary.LittleEndian.Uint16(all[8:]), binary.LittleEndian.Uint16(all[10:]); v != envelopeVersion || flags != 0 {
		return nil, errs.New(errs.NotImplemented, "%s: format version %d, flags %#x, was written by a newer release; this one reads %d", file, v, flags, envelopeVersion)
	}
	body := all[envelopeLen:]
	if n := binary.LittleEndian.Uint64(all[16:]); n != uint64(len(body)) {
		return nil, corrupt(file, "the body should have %d bytes and has %d", n, len(body))
	}
	return body, nil
}

// readManifest reads the newest manifest; nil when there is none.
func readManifest(fs vfs.FS, dir string) (*Manifest, error) {
	names, err := fs.List(dir)
	if err != nil {
		return nil, fmt.Errorf("shard: %w", err)
	}
	var newest uint64
	for _, name := range names {
		if kind, n, ok := parseNumbered(name); ok && kind == "manifest" && !strings.HasSuffix(name, ".tmp") {
			newest = max(newest, n)
		}
	}
	if newest == 0 {
		return nil, nil
	}
	file := path.Join(dir, manifestName(newest))
	all, err := readWhole(fs, file)
	if err != nil {
		return nil, err
	}
	m, err := DecodeManifest(file, all)
	if err == nil && m.Number != newest {
		err = corrupt(file, "it says that it is manifest %d", m.Number)
	}
	return m, err
}

// check refuses what a sound release never writes.
func (m *Manifest) check(file string) error {
	if m.FeatureLevel > FeatureLevel {
		return errs.New(errs.NotImplemented, "%s: feature level %d was written by a newer release; this one reads %d", file, m.FeatureLevel, FeatureLevel)
	}
	known := map[millrace.TableID]bool{}
	for _, t := range m.Tables {
		if t == nil || t.Schema == nil {
			return corrupt(file, "a table has no schema")
		}
		known[t.ID] = true
	}
	for _, b := range m.Buckets {
		if !known[b.ID.Table] || b.kept() < 0 || b.Start < b.kept() || b.End < b.Start || b.Passed > b.Start {
			return corrupt(file, "bucket %s does not make sense", b.ID)
		}
	}
	return nil
}

// readTails reads a tails file into the batches of each bucket.
func readTails(fs vfs.FS, dir, name string) (map[millrace.BucketID][]bucket.TailBatch, error) {
	out := map[millrace.BucketID][]bucket.TailBatch{}
	if name == "" {
		return out, nil
	}
	file := path.Join(dir, name)
	body, err := readEnvelope(fs, file, tailsMagic)
	if err != nil {
		return nil, err
	}
	for at := 0; at < len(body); {
		h, n, err := segment.ParseBatchHeader(body[at:])
		if err != nil {
			return nil, corrupt(file, "at byte %d: %v", envelopeLen+at, err)
		}
		at += n
		if h.PayloadLen < 0 || h.PayloadLen > int64(len(body)-at) {
			return nil, corrupt(file, "at byte %d: a payload of %d bytes does not fit", envelopeLen+at, h.PayloadLen)
		}
		// A copy, so that one small batch does not keep the whole file in memory.
		b, err := bucket.Check(h, bytes.Clone(body[at:at+int(h.PayloadLen)]))
		if err != nil {
			return nil, corrupt(file, "at byte %d: %v", envelopeLen+at, err)
		}
		out[h.Bucket] = append(out[h.Bucket], b)
		at += int(h.PayloadLen)
	}
	return out, nil
}

// EncodeManifest is a manifest as it is stored.
func EncodeManifest(m *Manifest) []byte {
	var b bytes.Buffer
	if err := writeEnvelope(&b, manifestMagic, [][]byte{encodeJSON(m)}); err != nil {
		panic(err) // a buffer takes everything
	}
	return b.Bytes()
}

// DecodeManifest reads a manifest; where names it in errors.
func DecodeManifest(where string, b []byte) (*Manifest, error) {
	body, err := openEnvelope(where, manifestMagic, b)
	if err != nil {
		return nil, err
	}
	m := &Manifest{}
	if err := json.Unmarshal(body, m); err != nil {
		return nil, corrupt(where, "the body does not read: %v", err)
	}
	return m, m.check(where)
}

// From is the earliest offset that a bucket's files and tail hold for readers.
func (m *BucketManifest) From() millrace.Offset { return m.kept() }
