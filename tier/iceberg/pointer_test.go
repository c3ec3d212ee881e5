package iceberg

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/objstore"
)

var noBucket = lake.Slice{Bucket: lake.NoBucket}

// committed makes a log table with rounds of one row each.
func (w *world) committed(d *millrace.Table, rounds int) {
	w.t.Helper()
	for i := range rounds {
		_, err := w.append(w.f, d, noBucket, at(d, int64(i+1)), fmt.Sprintf(`{"k":%d}`, i))
		require.NoError(w.t, err)
	}
}

func (w *world) key(d *millrace.Table, name string) string { return w.f.folder(d.ID) + "/" + name }

func (w *world) hint(d *millrace.Table) string {
	w.t.Helper()
	b, err := w.store.Get(w.ctx(), w.key(d, "metadata/version-hint.text"))
	require.NoError(w.t, err)
	return string(b)
}

// TestConflict begins two rounds on one snapshot, in two processes: one of them commits,
// the other is told that it did not and leaves nothing behind.
func TestConflict(t *testing.T) {
	w := newWorld(t)
	d := testTable(1, nil, nil, 1, "k BIGINT NOT NULL")
	for i := range 3 {
		var rounds []*round
		for range 2 {
			lt, err := w.another().open(t.Context(), d)
			require.NoError(t, err)
			r, err := lt.begin(t.Context(), d)
			require.NoError(t, err)
			require.NoError(t, appendTo(t, r, noBucket, fmt.Sprintf(`{"k":%d}`, i)))
			rounds = append(rounds, r)
		}
		_, err := rounds[1].commit(t.Context(), at(d, int64(i+1)))
		require.NoError(t, err)
		before := w.files()
		_, err = rounds[0].commit(t.Context(), at(d, int64(i+1)))
		require.ErrorIs(t, err, lake.ErrConflict)
		rounds[0].Abort(t.Context())
		rounds[1].Abort(t.Context())
		for _, key := range rounds[0].mu.keys {
			t.Error(key, "is still remembered")
		}
		require.Less(t, len(w.files()), len(before))
		require.Len(t, w.scan(d), i+1)
		require.Empty(t, w.orphans(d))
	}
}

// TestEmpty commits rounds without rows: the first one of a table, and one that only moves
// offsets.
func TestEmpty(t *testing.T) {
	w := newWorld(t)
	d := testTable(1, nil, nil, 1, "k BIGINT NOT NULL")
	lt, err := w.f.open(t.Context(), d)
	require.NoError(t, err)
	_, s, err := lt.current(t.Context())
	require.NoError(t, err)
	require.Nil(t, s)
	require.Empty(t, w.scan(d))
	for i := range 3 {
		r, err := lt.begin(t.Context(), d)
		require.NoError(t, err)
		s, err := r.commit(t.Context(), at(d, int64(i)))
		require.NoError(t, err)
		require.EqualValues(t, i+1, s.Round())
		require.Equal(t, at(d, int64(i)), s.Offsets())
		require.Empty(t, w.scan(d))
	}
	_, err = w.append(w.f, d, noBucket, at(d, 3), `{"k":1}`)
	require.NoError(t, err)
	require.Equal(t, []string{`{"k":1}`}, w.scan(d))
}

// TestLongOffsets commits offsets of more buckets than a summary holds.
func TestLongOffsets(t *testing.T) {
	w := newWorld(t)
	d := testTable(1, nil, nil, 500, "k BIGINT NOT NULL")
	next := make([]int64, 500)
	for i := range next {
		next[i] = int64(i) * 1_000_000_007
	}
	s, err := w.append(w.f, d, noBucket, at(d, next...), `{"k":1}`)
	require.NoError(t, err)
	require.Empty(t, s.snap.Summary.Properties[keyOffsets])
	require.Equal(t, at(d, next...), s.Offsets())
	lt, err := w.another().open(t.Context(), d)
	require.NoError(t, err)
	_, s, err = lt.current(t.Context())
	require.NoError(t, err)
	require.Equal(t, at(d, next...), s.Offsets())

	// A file that was lost or damaged is told, with its name.
	file := w.key(d, "metadata/"+s.snap.Summary.Properties[keyOffsetsFile])
	require.NoError(t, w.store.Put(t.Context(), file, []byte(`{"0/0":`)))
	_, err = w.another().newest(t.Context(), d)
	require.True(t, errs.Is(err, errs.CorruptData), err)
	require.NoError(t, w.store.Remove(t.Context(), file))
	_, err = w.another().newest(t.Context(), d)
	require.True(t, errs.Is(err, errs.CorruptData), err)
	require.ErrorContains(t, err, s.snap.Summary.Properties[keyOffsetsFile])
}

// newest opens a table and asks for its newest snapshot.
func (f *Format) newest(ctx context.Context, d *millrace.Table) (*snapshot, error) {
	lt, err := f.open(ctx, d)
	if err != nil {
		return nil, err
	}
	_, s, err := lt.current(ctx)
	return s, err
}

// TestDamagedMetadata loses and damages what the pointer is made of: what cannot be told
// from an older state is an error that names the file, and nothing is written.
func TestDamagedMetadata(t *testing.T) {
	get := func(w *world, key string) []byte {
		b, err := w.store.Get(w.ctx(), key)
		require.NoError(w.t, err)
		return b
	}
	for _, c := range []struct {
		name   string
		damage func(w *world, d *millrace.Table)
		code   errs.Code // ""; the table works
		text   string
	}{
		{"hint lost", func(w *world, d *millrace.Table) {
			require.NoError(w.t, w.store.Remove(w.ctx(), w.key(d, "metadata/version-hint.text")))
		}, "", ""},
		{"hint behind", func(w *world, d *millrace.Table) {
			require.NoError(w.t, w.store.Put(w.ctx(), w.key(d, "metadata/version-hint.text"), []byte("2")))
		}, "", ""},
		{"hint of someone else", func(w *world, d *millrace.Table) {
			require.NoError(w.t, w.store.Put(w.ctx(), w.key(d, "metadata/version-hint.text"), []byte("00001-abc")))
		}, "", ""},
		{"newest lost", func(w *world, d *millrace.Table) {
			require.NoError(w.t, w.store.Remove(w.ctx(), w.key(d, "metadata/v4.metadata.json")))
		}, errs.CorruptData, "metadata/v4.metadata.json"},
		{"newest truncated", func(w *world, d *millrace.Table) {
			key := w.key(d, "metadata/v4.metadata.json")
			b := get(w, key)
			require.NoError(w.t, w.store.Put(w.ctx(), key, b[:len(b)/2]))
		}, errs.CorruptData, "metadata/v4.metadata.json"},
		{"newest empty", func(w *world, d *millrace.Table) {
			require.NoError(w.t, w.store.Put(w.ctx(), w.key(d, "metadata/v4.metadata.json"), nil))
		}, errs.CorruptData, "metadata/v4.metadata.json"},
		{"all versions lost", func(w *world, _ *millrace.Table) {
			for _, k := range w.files() {
				if strings.HasSuffix(k, ".metadata.json") || strings.HasSuffix(k, "hint.text") {
					require.NoError(w.t, w.store.Remove(w.ctx(), k))
				}
			}
		}, errs.CorruptData, "not empty"},
		{"manifest list lost", func(w *world, _ *millrace.Table) {
			for _, k := range w.files() {
				if strings.Contains(k, "/snap-") {
					require.NoError(w.t, w.store.Remove(w.ctx(), k))
				}
			}
		}, errs.CorruptData, "/snap-"},
		{"manifests damaged", func(w *world, _ *millrace.Table) {
			for _, k := range w.files() {
				if strings.Contains(k, "/snap-") {
					require.NoError(w.t, w.store.Put(w.ctx(), k, []byte("Obj")))
				}
			}
		}, errs.CorruptData, "damaged"},
		{"of another cluster", func(w *world, d *millrace.Table) {
			other := New(Options{Store: w.store, Cluster: [16]byte{9}, Clock: w.clock, Logger: w.f.o.Logger})
			_, err := other.open(w.ctx(), d)
			require.NoError(w.t, err)
			key := other.folder(d.ID) + "/metadata/v1.metadata.json"
			require.NoError(w.t, w.store.Put(w.ctx(), w.key(d, "metadata/v5.metadata.json"), get(w, key)))
		}, errs.Unavailable, "someone else"},
		{"of another table", func(w *world, d *millrace.Table) {
			other := testTable(d.ID+1, nil, nil, 1, "k BIGINT NOT NULL")
			_, err := w.f.open(w.ctx(), other)
			require.NoError(w.t, err)
			require.NoError(w.t, w.store.Put(w.ctx(), w.key(d, "metadata/v5.metadata.json"), get(w, w.key(other, "metadata/v1.metadata.json"))))
		}, errs.Unavailable, "someone else"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			d := testTable(1, nil, nil, 1, "k BIGINT NOT NULL")
			w.committed(d, 3)
			require.Equal(t, "4", w.hint(d))
			c.damage(w, d)
			before := w.files()
			_, err := w.append(w.another(), d, noBucket, at(d, 4), `{"k":9}`)
			if c.code == "" {
				require.NoError(t, err)
				require.Len(t, w.scan(d), 4)
				require.Equal(t, "5", w.hint(d))
				return
			}
			require.True(t, errs.Is(err, c.code), err)
			require.ErrorContains(t, err, c.text)
			require.Equal(t, before, w.files())
		})
	}
}

// TestForeignFolder opens a table whose folder holds someone else's files.
func TestForeignFolder(t *testing.T) {
	for _, name := range []string{"readme.txt", "data/x.parquet", "metadata/00000-abc.metadata.json", "metadata/version-hint.text"} {
		w := newWorld(t)
		d := testTable(1, nil, nil, 1, "k BIGINT NOT NULL")
		require.NoError(t, w.store.Put(t.Context(), w.key(d, name), []byte("1")))
		_, err := w.f.open(t.Context(), d)
		require.True(t, errs.Is(err, errs.CorruptData), err)
		require.Equal(t, []string{w.key(d, name)}, w.files())

		require.NoError(t, w.f.Purge(t.Context(), d.ID, d.Path))
		w.committed(d, 1)
		require.Len(t, w.scan(d), 1)
	}
}

// TestPurge removes a table's files and those of no other table.
func TestPurge(t *testing.T) {
	w := newWorld(t)
	d, other := testTable(1, nil, nil, 1, "k BIGINT NOT NULL"), testTable(10, nil, nil, 1, "k BIGINT NOT NULL")
	w.committed(d, 2)
	w.committed(other, 2)
	require.NoError(t, w.f.Purge(t.Context(), d.ID, d.Path))
	require.NoError(t, w.f.Purge(t.Context(), d.ID, d.Path))
	require.False(t, slices.ContainsFunc(w.files(), func(k string) bool { return strings.HasPrefix(k, w.key(d, "")) }))
	require.Len(t, w.scan(other), 2)
}

// TestUnchanged asks for the newest snapshot again: two looks at the store, for a newer
// version and whether this one is still there.
func TestUnchanged(t *testing.T) {
	w := newWorld(t)
	d := testTable(1, nil, nil, 1, "k BIGINT NOT NULL")
	w.committed(d, 2)
	lt, err := w.f.open(t.Context(), d)
	require.NoError(t, err)
	_, first, err := lt.current(t.Context())
	require.NoError(t, err)
	calls := len(w.store.Calls())
	_, again, err := lt.current(t.Context())
	require.NoError(t, err)
	require.Same(t, first, again)
	require.Len(t, w.store.Calls(), calls+2)
}

// TestManyRounds commits many rounds: manifests are merged, every row stays, and what is
// listed again and again does not grow with the rounds.
func TestManyRounds(t *testing.T) {
	w := newWorld(t)
	d := testTable(1, nil, nil, 1, "k BIGINT NOT NULL")
	const rounds = 2*mergeCount + 5
	w.committed(d, rounds)
	require.Len(t, w.scan(d), rounds)
	lt, err := w.f.open(t.Context(), d)
	require.NoError(t, err)
	_, s, err := lt.current(t.Context())
	require.NoError(t, err)
	list, err := s.snap.Manifests(&storeIO{ctx: t.Context(), store: w.store})
	require.NoError(t, err)
	require.LessOrEqual(t, len(list), mergeCount)
	require.EqualValues(t, rounds, s.Totals().Rows)
	require.EqualValues(t, rounds, s.Totals().DataFiles)
}

// orphans are the files of a table that its newest version does not need, other than
// older versions: what rounds that were given up should not leave.
func (w *world) orphans(d *millrace.Table) []string {
	w.t.Helper()
	lt, err := w.another().open(w.ctx(), d)
	require.NoError(w.t, err)
	v, err := lt.load(w.ctx())
	require.NoError(w.t, err)
	need := map[string]bool{}
	io := &storeIO{ctx: w.ctx(), store: w.store.Store}
	for _, s := range v.meta.Snapshots() {
		need[s.ManifestList] = true
		list, err := s.Manifests(io)
		require.NoError(w.t, err)
		for _, mf := range list {
			need[mf.FilePath()] = true
			for e, err := range mf.Entries(io, false) {
				require.NoError(w.t, err)
				need[e.DataFile().FilePath()] = true
			}
		}
		if name := s.Summary.Properties[keyOffsetsFile]; name != "" {
			need[lt.location+"/metadata/"+name] = true
		}
	}
	return slices.DeleteFunc(w.files(), func(k string) bool {
		return need[uriOf(w.store, k)] || strings.Contains(k, "/metadata/v") || !strings.HasPrefix(k, lt.folder+"/")
	})
}

// files are the keys of all objects, sorted.
func (w *world) files() (out []string) {
	w.t.Helper()
	require.NoError(w.t, w.store.Store.List(w.ctx(), "", func(i objstore.Info) error {
		out = append(out, i.Key)
		return nil
	}))
	return out
}
