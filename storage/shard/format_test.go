package shard

// These tests hold that any changed bit of a manifest or tails file is found before it
// is believed, and that no bytes make a decoder panic.

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/segment"
)

// Every changed bit, and every cut, is found and named with the file.
func TestEveryChangedBitIsFound(t *testing.T) {
	for _, file := range []string{"shard-v1/" + manifestName(9), "shard-v1/" + tailsName(9), "manifest-v1/" + manifestName(12), "manifest-v1/" + tailsName(12)} {
		name, magic := filepath.Base(file), manifestMagic
		if strings.HasPrefix(name, "tails") {
			magic = tailsMagic
		}
		all, err := os.ReadFile(filepath.Join(formats, file))
		require.NoError(t, err)
		for bit := range 8 * len(all) {
			all[bit/8] ^= 1 << (bit % 8)
			_, err := openEnvelope(name, magic, all)
			require.True(t, errs.Is(err, errs.CorruptData), "bit %d of %s: %v", bit, name, err)
			require.Contains(t, err.Error(), name)
			all[bit/8] ^= 1 << (bit % 8)
		}
		for n := range all {
			_, err := openEnvelope(name, magic, all[:n])
			require.True(t, errs.Is(err, errs.CorruptData), "%s cut at %d: %v", name, n, err)
		}
	}
}

func FuzzDecodeData(f *testing.F) {
	f.Add(goldenEntry().encode())
	f.Add(hashedData().encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if e, err := decodeData(b); err == nil {
			require.Equal(t, b, e.encode(), "what reads is what is written")
		}
	})
}

// The bodies are fuzzed below their checksum, which random bytes do not pass.
func FuzzManifestBody(f *testing.F) {
	f.Add(encodeJSON(goldenManifest()))
	f.Fuzz(func(_ *testing.T, body []byte) {
		fs := vfs.NewMem()
		if publishFile(fs, "", manifestName(1), func(file vfs.File) error { return writeEnvelope(file, manifestMagic, [][]byte{body}) }) == nil {
			_, _ = readManifest(fs, "") // an error or a manifest, no panic
		}
	})
}

func FuzzTailsBody(f *testing.F) {
	b := goldenTails(f)[0]
	f.Add(append(segment.AppendBatchHeader(nil, &b.Header), b.Payload...))
	f.Fuzz(func(_ *testing.T, body []byte) {
		fs := vfs.NewMem()
		if publishFile(fs, "", tailsName(1), func(file vfs.File) error { return writeEnvelope(file, tailsMagic, [][]byte{body}) }) == nil {
			_, _ = readTails(fs, "", tailsName(1)) // an error or batches, no panic
		}
	})
}

// encode is the entry's bytes as they are replayed.
func (d *dataEntry) encode() []byte {
	e := d.logEntry()
	return slices.Concat(append([][]byte{e.Data}, e.More...)...)
}
