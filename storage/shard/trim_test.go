package shard

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/bucket"
)

func goldenTrim() *trimEntry {
	return &trimEntry{micros: 1_796_000_000_000_001, trims: []trim{
		{millrace.BucketID{Table: 7, Partition: 0, Bucket: 3}, 12},
		{millrace.BucketID{Table: 9, Partition: 70_000, Bucket: 4095}, 1 << 40},
	}}
}

// goldenExpiring has a bucket of which records wait to be let go of, and one that
// let go of all.
func goldenExpiring() *Manifest {
	m := goldenManifest()
	kept := millrace.Offset(0)
	m.Buckets[0].Start, m.Buckets[0].Kept = 10, &kept
	m.Buckets[0].Passed, m.Buckets[0].PassedMicros = 8, 1_796_000_000_000_001
	empty := goldenBucket
	empty.Bucket++
	m.Buckets = append(m.Buckets, BucketManifest{ID: empty, Start: 99, End: 99})
	return m
}

// Shows that trim entries, and what a manifest says of records that expire, are
// written as they were and read as what they were made of.
func TestGoldenRetention(t *testing.T) {
	raw := golden(t, "retention-v1/trim.entry", goldenTrim().encode())
	e, err := decodeTrim(raw)
	require.NoError(t, err)
	require.Equal(t, goldenTrim(), e)
	require.Equal(t, raw, e.encode())
	for n := range raw {
		_, err := decodeTrim(raw[:n])
		require.True(t, errs.Is(err, errs.CorruptData), "cut at %d", n)
	}

	golden(t, "retention-v1/manifest.json", encodeJSON(goldenExpiring()))
	fs := vfs.NewMem()
	want := goldenExpiring()
	want.Number = 1
	require.NoError(t, writeManifest(fs, "", want))
	got, err := readManifest(fs, "")
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// Shows that a manifest whose places are not in order is refused.
func TestManifestPlaces(t *testing.T) {
	for _, change := range []func(b *BucketManifest){
		func(b *BucketManifest) { *b.Kept = -1 },
		func(b *BucketManifest) { *b.Kept = b.Start + 1 },
		func(b *BucketManifest) { b.Start = b.End + 1 },
		func(b *BucketManifest) { b.Passed = b.Start + 1 },
	} {
		m := goldenExpiring()
		require.NoError(t, m.check("m"))
		change(&m.Buckets[0])
		require.True(t, errs.Is(m.check("m"), errs.CorruptData))
	}
}

// Shows what one state of a log becomes in a manifest, and back.
func TestBucketManifest(t *testing.T) {
	st := &bucket.State{Start: 5, Kept: 5, End: 9}
	m := bucketManifest(goldenBucket, st)
	require.Nil(t, m.Kept)
	require.EqualValues(t, 5, m.kept())
	st.Kept = 0
	m = bucketManifest(goldenBucket, st)
	require.EqualValues(t, 0, m.kept())
}

func FuzzDecodeTrim(f *testing.F) {
	f.Add(goldenTrim().encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if e, err := decodeTrim(b); err == nil {
			require.Equal(t, b, e.encode(), "what reads is what is written")
		}
	})
}
