package iceberg

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	ice "github.com/apache/iceberg-go"

	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/objstore"
)

// maxSwept is how many files one sweep removes.
const maxSwept = 10_000

// oursInMetadata matches the names that we give to files in metadata/, but for the
// versions.
var oursInMetadata = regexp.MustCompile(`^(snap-\d+-[0-9a-f-]{36}\.avro|[0-9a-f-]{36}-m\.avro|offsets-[0-9a-f-]{36}\.json)$`)

// sweep removes files with names of ours that are old and that nothing refers to, and
// old versions of the metadata. What may go is listed before the newest version is
// loaded, so that whatever a commit in between refers to stays.
func (t *lakeTable) sweep(ctx context.Context, done *lake.Maintained) error {
	files, versions, err := t.oldFiles(ctx)
	if err != nil {
		return err
	}
	if len(files)+len(versions) == 0 {
		return nil
	}
	v, err := t.load(ctx)
	if err != nil || v == nil {
		return err
	}
	used, err := t.referred(ctx, v)
	if err != nil {
		return err
	}
	files = slices.DeleteFunc(files, func(key string) bool { return used[key] })
	for part := range slices.Chunk(files, purgeKeys) {
		if err := t.f.o.Store.Remove(ctx, part...); err != nil {
			return storeError(err, "remove files of lake table %s", t.location)
		}
		done.FilesRemoved += len(part)
	}
	// One by one from below: whoever looks for the newest version upward from one that
	// he knows sees by that one's absence that he has to look anew.
	for _, n := range versions {
		if n >= v.number {
			break
		}
		if err := t.f.o.Store.Remove(ctx, t.folder+versionPrefix+strconv.FormatInt(n, 10)+versionSuffix); err != nil {
			return storeError(err, "remove version %d of lake table %s", n, t.location)
		}
		done.FilesRemoved++
	}
	return nil
}

// oldFiles lists the files with names of ours that are old enough to go, and the
// versions that were replaced that long ago, rising.
func (t *lakeTable) oldFiles(ctx context.Context) (files []string, versions []int64, err error) {
	before := t.f.o.Clock.Now().Add(-keepFor)
	written := map[int64]time.Time{}
	err = t.f.o.Store.List(ctx, t.folder+"/", func(i objstore.Info) error {
		if n, ok := t.versionOf(i.Key); ok {
			written[n] = i.Modified
			return nil
		}
		if i.Modified.Before(before) && len(files) < maxSwept && t.isOurs(i.Key) {
			files = append(files, i.Key)
		}
		return nil
	})
	if err != nil {
		return nil, nil, storeError(err, "list %s", t.location)
	}
	for n := range written {
		if next, ok := written[n+1]; ok && next.Before(before) {
			versions = append(versions, n)
		}
	}
	slices.Sort(versions)
	return files, versions[:min(len(versions), purgeKeys)], nil
}

// versionOf is the number of the version that a key is the file of.
func (t *lakeTable) versionOf(key string) (int64, bool) {
	text, ok := strings.CutPrefix(key, t.folder+versionPrefix)
	text, ends := strings.CutSuffix(text, versionSuffix)
	n, err := strconv.ParseInt(text, 10, 64)
	return n, ok && ends && err == nil && text == strconv.FormatInt(n, 10)
}

// isOurs says whether a file is one that we have written, by its place and name.
func (t *lakeTable) isOurs(key string) bool {
	if name, ok := strings.CutPrefix(key, t.folder+"/data/"); ok {
		return ours.MatchString(name)
	}
	name, ok := strings.CutPrefix(key, t.folder+"/metadata/")
	return ok && oursInMetadata.MatchString(name)
}

// referred are the keys of all files that the snapshots of a version refer to.
func (t *lakeTable) referred(ctx context.Context, v *version) (map[string]bool, error) {
	used := map[string]bool{}
	add := func(uri string) {
		if key, err := keyOf(t.f.o.Store, uri); err == nil {
			used[key] = true
		}
	}
	m := &manifestSet{ctx: ctx, t: t, io: &storeIO{ctx: ctx, store: t.f.o.Store}, meta: v.meta}
	for _, s := range v.meta.Snapshots() {
		if s.Summary != nil {
			if name := s.Summary.Properties[keyOffsetsFile]; name != "" {
				used[t.folder+"/metadata/"+name] = true
			}
		}
		add(s.ManifestList)
		var list []ice.ManifestFile
		manifests, err := t.f.referred.get(ctx, s.ManifestList, func(context.Context) ([]string, int64, error) {
			var err error
			if list, err = s.Manifests(m.io); err != nil {
				return nil, 0, metaError(err, "read the manifests of lake table %s", t.location)
			}
			return uris(list, ice.ManifestFile.FilePath)
		})
		if err != nil {
			return nil, err
		}
		for _, uri := range manifests {
			key, err := keyOf(t.f.o.Store, uri)
			if err != nil || used[key] {
				continue
			}
			used[key] = true
			files, err := t.f.referred.get(ctx, uri, func(context.Context) ([]string, int64, error) {
				mf, err := manifestOf(list, uri, func() ([]ice.ManifestFile, error) { return s.Manifests(m.io) })
				if err != nil {
					return nil, 0, metaError(err, "read the manifests of lake table %s", t.location)
				}
				entries, err := m.entries(mf)
				if err != nil {
					return nil, 0, err
				}
				return uris(entries, func(e ice.ManifestEntry) string { return e.DataFile().FilePath() })
			})
			if err != nil {
				return nil, err
			}
			for _, f := range files {
				add(f)
			}
		}
	}
	return used, nil
}

// manifestOf finds a manifest in a list, which is read when it was not.
func manifestOf(list []ice.ManifestFile, uri string, read func() ([]ice.ManifestFile, error)) (ice.ManifestFile, error) {
	if list == nil {
		var err error
		if list, err = read(); err != nil {
			return nil, err
		}
	}
	return list[slices.IndexFunc(list, func(mf ice.ManifestFile) bool { return mf.FilePath() == uri })], nil
}

// uris are those of files, and how much memory they take.
func uris[T any](files []T, uri func(T) string) (out []string, size int64, err error) {
	for _, f := range files {
		out = append(out, uri(f))
		size += 16 + int64(len(uri(f)))
	}
	return out, size, nil
}
