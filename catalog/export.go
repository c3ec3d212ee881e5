package catalog

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"slices"

	"github.com/klauspost/compress/zstd"

	"github.com/millrace/millrace/errs"
)

// An export is a whole catalog in one piece, little endian:
//
//	+-------+---------+-------+----------+--------+---------+--------+
//	| magic | version | flags | revision | length | payload | crc32c |
//	| "ME"  | u8 = 1  | u8 = 0|   u64    |  u32   |  zstd   |  u32   |
//	+-------+---------+-------+----------+--------+---------+--------+
//
// revision is the number of changes made, length that of the payload without
// compression, and the payload the entries in the order of keys: key and value, each with
// its length, a uvarint, before it. The checksum covers everything before it. Signing
// keys are not in it: who can read it could sign with them.
const (
	exportMagic    = "ME"
	exportVersion  = 1
	exportHeader   = 2 + 1 + 1 + 8 + 4
	exportOverhead = exportHeader + 4
	maxExportBytes = 1 << 30

	// keyImport is there while an import is under way, and when one was not finished.
	keyImport = "!import"
	// importBytes is how much an import commits at a time.
	importBytes = 256 << 10
)

// Export is everything but the signing keys, as of a number of changes.
func (c *Catalog) Export(ctx context.Context) (b []byte, revision int64, err error) {
	entries, _, err := c.kv.Load(ctx)
	if err != nil {
		return nil, 0, err
	}
	var payload []byte
	var head headRecord
	for _, e := range entries {
		switch e.Key {
		case keySigning:
			continue
		case keyHead:
			if err := decodeRecord(e, &head); err != nil {
				return nil, 0, err
			}
		}
		payload = appendText(appendText(payload, e.Key), e.Value)
	}
	if len(payload) > maxExportBytes {
		return nil, 0, errs.New(errs.TooLarge, "the catalog has %d bytes, and an export at most %d", len(payload), maxExportBytes)
	}
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, 0, errs.Wrap(errs.Internal, "catalog.Export", err)
	}
	b = append(b, exportMagic...)
	b = append(b, exportVersion, 0)
	b = binary.LittleEndian.AppendUint64(b, uint64(head.Revision))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	b = enc.EncodeAll(payload, b)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli)), head.Revision, nil
}

// parseExport checks an export completely, as a catalog that is opened.
func parseExport(b []byte) ([]Entry, error) {
	if len(b) < exportOverhead || string(b[:2]) != exportMagic {
		return nil, corrupt("it is not an export of a catalog")
	}
	body := b[:len(b)-4]
	if got, want := crc32.Checksum(body, castagnoli), binary.LittleEndian.Uint32(b[len(body):]); got != want {
		return nil, corrupt("the export has checksum %08x, not %08x", got, want)
	}
	if b[2] != exportVersion || b[3] != 0 {
		return nil, newerRelease("the export has another format version")
	}
	length := binary.LittleEndian.Uint32(b[12:])
	if length > maxExportBytes {
		return nil, corrupt("the export is said to have %d bytes", length)
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxExportBytes))
	if err != nil {
		return nil, errs.Wrap(errs.Internal, "catalog.Import", err)
	}
	defer dec.Close()
	payload, err := dec.DecodeAll(body[exportHeader:], nil)
	if err != nil || len(payload) != int(length) {
		return nil, corrupt("the export does not decompress to %d bytes: %v", length, err)
	}
	var entries []Entry
	for len(payload) > 0 {
		key, rest, ok := cutText(payload)
		if !ok {
			return nil, corrupt("entry %d of the export does not decode", len(entries))
		}
		value, rest, ok := cutText(rest)
		if !ok {
			return nil, corrupt("entry %d of the export does not decode", len(entries))
		}
		entries = append(entries, Entry{Key: string(key), Value: value, Revision: 1})
		payload = rest
	}
	_, err = loadSnapshot(entries)
	return entries, err
}

// Import makes a catalog of an export in a store that has none. The number of changes goes on above both the export's and above. An import that
// was not finished is begun anew; until one is finished the store does not open as a catalog.
func Import(ctx context.Context, kv KV, b []byte, above int64) error {
	entries, err := parseExport(b)
	if err != nil {
		return err
	}
	there, _, err := kv.Load(ctx)
	if err != nil {
		return err
	}
	guard := uint64(0)
	for _, e := range there {
		if e.Key == keyImport {
			guard = e.Revision
		}
	}
	if len(there) > 0 && guard == 0 {
		return errs.New(errs.InvalidRequest, "there is a catalog already; an import goes into a cluster that has none")
	}
	im := importer{kv: kv, guard: guard}
	wanted := make(map[string]bool, len(entries))
	for _, e := range entries {
		wanted[e.Key] = true
	}
	for _, e := range there { // of an import of something else
		if e.Key != keyImport && !wanted[e.Key] {
			if err := im.write(ctx, Write{Key: e.Key}); err != nil {
				return err
			}
		}
	}
	var head Write
	for _, e := range entries {
		w := Write{Key: e.Key, Value: e.Value}
		if e.Key == keyHead {
			if head, err = raised(w, above); err != nil {
				return err
			}
			continue
		}
		if err := im.write(ctx, w); err != nil {
			return err
		}
	}
	if err := im.flush(ctx); err != nil {
		return err
	}
	// The head makes a catalog of it.
	_, err = kv.Commit(ctx, 0, head, Write{Key: keyImport})
	return importError(err)
}

// BeginImport marks a store that has no catalog as one that an import goes into, unless it
// is marked already: until that is finished it does not open as a catalog, and none is made
// in it. Whoever has other things to restore does so between.
func BeginImport(ctx context.Context, kv KV) error {
	there, _, err := kv.Load(ctx)
	if err != nil || Importing(there) {
		return err
	}
	if len(there) > 0 {
		return errs.New(errs.InvalidRequest, "there is a catalog already; an import goes into a cluster that has none")
	}
	im := importer{kv: kv}
	return im.flush(ctx)
}

// Importing says whether entries are of a store with an import that is not finished.
func Importing(entries []Entry) bool {
	return slices.ContainsFunc(entries, func(e Entry) bool { return e.Key == keyImport })
}

// raised is the head with a number of changes above another.
func raised(w Write, above int64) (Write, error) {
	var head headRecord
	if err := json.Unmarshal(w.Value, &head); err != nil {
		return w, corrupt("key %q does not decode: %v", w.Key, err)
	}
	head.Revision = max(head.Revision, above) + 1
	w.Value = encodeRecord(head)
	return w, nil
}

// importer commits an import piece by piece.
type importer struct {
	kv     KV
	guard  uint64 // revision of keyImport
	writes []Write
	bytes  int
}

func (im *importer) write(ctx context.Context, w Write) error {
	im.writes = append(im.writes, w)
	im.bytes += len(w.Key) + len(w.Value)
	if im.bytes < importBytes {
		return nil
	}
	return im.flush(ctx)
}

// flush commits what there is; also nothing, since keyImport must be there.
func (im *importer) flush(ctx context.Context) error {
	mark := Write{Key: keyImport, Value: []byte("{}")}
	revision, err := im.kv.Commit(ctx, im.guard, append([]Write{mark}, im.writes...)...)
	if err != nil {
		return importError(err)
	}
	im.guard, im.writes, im.bytes = revision, nil, 0
	return nil
}

func importError(err error) error {
	if _, conflict := errors.AsType[*ConflictError](err); conflict {
		return errs.New(errs.InvalidRequest, "another process makes a catalog in the same place: %v", err)
	}
	return err
}

// unfinished says that an import has to be finished before the store is a catalog.
func unfinished(entries []Entry) error {
	if Importing(entries) {
		return errs.New(errs.Unavailable, "an import of the catalog was not finished; run it again")
	}
	return nil
}

func appendText[T string | []byte](b []byte, s T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func cutText(b []byte) (s, rest []byte, ok bool) {
	n, size := binary.Uvarint(b)
	if size <= 0 || n > uint64(len(b)-size) {
		return nil, nil, false
	}
	return b[size : size+int(n) : size+int(n)], b[size+int(n):], true
}
