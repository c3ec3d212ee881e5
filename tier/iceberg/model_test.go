package iceberg

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/iceberg-go/table"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/filter"
	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/objstore"
	"github.com/millrace/millrace/row"
	"github.com/millrace/millrace/row/jsonrow"
)

// readLake reads a snapshot with our reader: its rows as JSON objects, sorted.
func (w *world) readLake(s lake.Snapshot, cols []millrace.Column, scope lake.Scope) []string {
	w.t.Helper()
	files, err := s.Files(w.ctx(), scope)
	require.NoError(w.t, err)
	out := []string{}
	for i := range files {
		rs, err := s.Rows(w.ctx(), &files[i], lake.Read{Columns: cols, Schema: scope.Schema, Filter: scope.Filter})
		require.NoError(w.t, err)
		n := int64(0)
		for {
			b, _, err := rs.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(w.t, err)
			n += b.NumRows()
			enc := jsonrow.NewEncoder(cols, jsonrow.EncodeOptions{})
			enc.Bind(b)
			for j := range int(b.NumRows()) {
				out = append(out, string(enc.AppendObject(nil, j)))
			}
			b.Release()
		}
		require.NoError(w.t, rs.Close())
		if files[i].Deleted >= 0 && scope.Filter == nil {
			require.Equal(w.t, files[i].Rows-files[i].Deleted, n, files[i].Path)
		}
	}
	slices.Sort(out)
	return out
}

// datedStore gives its files times of the test's clock: when they were first listed.
type datedStore struct {
	objstore.Store
	clock *testClock
	seen  map[string]time.Time
}

func (s *datedStore) List(ctx context.Context, prefix string, give func(objstore.Info) error) error {
	return s.Store.List(ctx, prefix, func(i objstore.Info) error {
		if _, ok := s.seen[i.Key]; !ok {
			s.seen[i.Key] = s.clock.now
		}
		i.Modified = s.seen[i.Key]
		return give(i)
	})
}

// keyOfRow is the primary key of a row.
func (w *world) keyOfRow(d *millrace.Table, line string) string {
	b := batch(w.t, d.Schema.Columns, line)
	defer b.Release()
	return string(row.AppendKey(nil, b, d.KeyIndexes(d.PrimaryKey), 0))
}

// keyedModel is a keyed table in the lake, and what is in it by partition and key.
type keyedModel struct {
	w     *world
	d     *millrace.Table
	parts []*millrace.Partition       // one that is nil when the table has none
	rows  map[string]map[int64]string // by partition name, then key
	next  int64
	wide  int // how many buckets have offsets; 0: one
	rng   *rand.Rand
}

func (m *keyedModel) line(part, key int64) string {
	text := strings.Repeat(fmt.Sprintf("%x", m.rng.Uint64()), 1+m.rng.IntN(8))
	return fmt.Sprintf(`{"dt":"2026-01-%02d","id":%d,"region":"region-%d","v":%q}`, part+1, key, key%7, text)
}

// slice is that of a row.
func (m *keyedModel) slice(part int64, line string) lake.Slice {
	b := batch(m.w.t, m.d.Schema.Columns, line)
	defer b.Release()
	bucket := row.NewBucketer(m.d.Columns(m.d.BucketKey), m.d.Buckets).Buckets(b, m.d.KeyIndexes(m.d.BucketKey), nil)[0]
	return lake.Slice{Partition: m.parts[part], Bucket: int(bucket)}
}

// rowsOf are the rows of a partition.
func (m *keyedModel) rowsOf(p *millrace.Partition) map[int64]string {
	name := ""
	if p != nil {
		name = p.Name
	}
	if m.rows[name] == nil {
		m.rows[name] = map[int64]string{}
	}
	return m.rows[name]
}

// round commits a round as tiering does: of each slice, the keys that changed are
// deleted, then written as they are now.
func (m *keyedModel) round(changes int) {
	w, d := m.w, m.d
	lt, err := w.f.Open(w.ctx(), d)
	require.NoError(w.t, err)
	r, err := lt.Begin(w.ctx(), d)
	require.NoError(w.t, err)
	type change struct {
		part, key int64
		remove    bool
	}
	bySlice := map[lake.Slice][]change{}
	for range changes {
		c := change{int64(m.rng.IntN(len(m.parts))), m.rng.Int64N(300), m.rng.IntN(4) == 0}
		s := m.slice(c.part, m.line(c.part, c.key))
		bySlice[s] = append(bySlice[s], c)
	}
	for s, changes := range bySlice {
		rows := m.rowsOf(s.Partition)
		keys, want := map[string]struct{}{}, map[int64]bool{}
		lines := map[int64]string{}
		for _, c := range changes {
			if _, was := rows[c.key]; was {
				want[c.key] = true
			}
			line := m.line(c.part, c.key)
			keys[w.keyOfRow(d, line)] = struct{}{}
			if delete(lines, c.key); !c.remove {
				lines[c.key] = line
			}
		}
		half := len(keys) / 2 // in two calls, as bounded memory may want it
		n := int64(0)
		for _, part := range [][]string{slices.Collect(maps.Keys(keys))[:half], slices.Collect(maps.Keys(keys))[:]} {
			set := map[string]struct{}{}
			for _, k := range part {
				set[k] = struct{}{}
			}
			got, err := r.Delete(w.ctx(), s, set)
			require.NoError(w.t, err)
			n += got
		}
		require.Equal(w.t, int64(len(want)), n, "deleted rows")
		for _, c := range changes {
			delete(rows, c.key)
		}
		if len(lines) == 0 {
			continue
		}
		a, err := r.Append(w.ctx(), s)
		require.NoError(w.t, err)
		for _, key := range slices.Sorted(maps.Keys(lines)) {
			rows[key] = lines[key]
			b := batch(w.t, d.Schema.Columns, lines[key])
			require.NoError(w.t, a.Write(b))
			b.Release()
		}
		require.NoError(w.t, a.Close())
	}
	m.next++
	_, err = r.Commit(w.ctx(), m.offsets())
	require.NoError(w.t, err)
}

// check compares the lake with the model: by our reader, in parts by scope, and by
// iceberg-go's.
func (m *keyedModel) check() lake.Snapshot {
	w := m.w
	lt, err := w.another().Open(w.ctx(), m.d)
	require.NoError(w.t, err)
	s, err := lt.Newest(w.ctx())
	require.NoError(w.t, err)
	want := []string{}
	for _, rows := range m.rows {
		want = slices.AppendSeq(want, maps.Values(rows))
	}
	slices.Sort(want)
	require.Equal(w.t, want, w.readLake(s, m.d.Schema.Columns, lake.Scope{}))
	require.Equal(w.t, want, w.scan(m.d))
	require.Equal(w.t, int64(len(want)), s.Totals().Rows)
	require.Equal(w.t, m.offsets(), s.Offsets())
	m.checkScopes(s)
	return s
}

// checkScopes reads one partition, one bucket, and what passes a filter.
func (m *keyedModel) checkScopes(s lake.Snapshot) {
	w, part := m.w, int64(m.rng.IntN(len(m.parts)))
	one, bucket := []string{}, uint16(m.rng.IntN(m.d.Buckets))
	for p, rows := range m.parts {
		for _, line := range m.rowsOf(rows) {
			if int64(p) == part && m.slice(part, line).Bucket == int(bucket) {
				one = append(one, line)
			}
		}
	}
	slices.Sort(one)
	scope := lake.Scope{Buckets: []uint16{bucket}}
	if p := m.parts[part]; p != nil {
		scope.Partition = func(v []string) bool { return slices.Equal(v, p.Values) }
	}
	require.Equal(w.t, one, w.readLake(s, m.d.Schema.Columns, scope))
	if len(one) == 0 {
		return
	}
	f, err := filter.Compile("id = ?", []json.RawMessage{fmt.Append(nil, idOf(one[0]))}, m.d.Schema.Columns, time.Now())
	require.NoError(w.t, err)
	scope = lake.Scope{Schema: m.d.Schema, Filter: f}
	require.Contains(w.t, w.readLake(s, m.d.Schema.Columns, scope), one[0])
}

// idOf is the id in a row's JSON.
func idOf(line string) int64 {
	var v struct{ ID int64 }
	if err := json.Unmarshal([]byte(line), &v); err != nil {
		panic(err)
	}
	return v.ID
}

// offsets are those of the table after a round.
func (m *keyedModel) offsets() lake.Offsets {
	out := lake.Offsets{}
	for i := range max(m.wide, 1) {
		out[millrace.BucketID{Table: m.d.ID, Partition: 1, Bucket: uint16(i)}] = millrace.Offset(m.next)
	}
	return out
}

// The shapes of keyed tables in the lake: partitioned by columns or not, by bucket or
// not, their key's columns in any order.
type shape struct {
	key, partitionBy []string
	buckets          int
}

var shapes = []shape{
	{[]string{"dt", "id"}, []string{"dt"}, 1},
	{[]string{"id"}, nil, 4},
	{[]string{"id", "dt"}, []string{"dt"}, 3},
	{[]string{"region", "id"}, nil, 3},
}

func newKeyedModel(w *world, seed uint64, sh shape, deletes millrace.LakeDeletes) *keyedModel {
	d := testTable(1, sh.key, sh.partitionBy, sh.buckets, "dt DATE NOT NULL", "id BIGINT NOT NULL", "region STRING NOT NULL", "v STRING")
	d.Options.Lake.Deletes, d.Options.Lake.Compact, d.Options.Lake.Expire = deletes, true, true
	m := &keyedModel{w: w, d: d, parts: []*millrace.Partition{nil}, rows: map[string]map[int64]string{}, rng: rand.New(rand.NewPCG(seed, 1))}
	if sh.partitionBy == nil {
		return m
	}
	m.parts = nil
	for i := range 3 {
		v := fmt.Sprintf("2026-01-%02d", i+1)
		m.parts = append(m.parts, &millrace.Partition{ID: millrace.PartitionID(i + 1), Table: d.ID, Name: "dt=" + v, Values: []string{v}})
	}
	return m
}

// Rounds that change and remove rows of a keyed table leave its last rows, however
// rows that are no more are kept, and maintenance in between changes none of them:
// files, deletes, manifests and snapshots stay few, totals are right, readers of a
// snapshot go on.
func TestKeyedRounds(t *testing.T) {
	for i, sh := range shapes {
		deletes := []millrace.LakeDeletes{millrace.PositionDeletes, millrace.PositionDeletes, millrace.RewriteFiles, millrace.PositionDeletes}[i]
		t.Run(fmt.Sprint(sh, deletes), func(t *testing.T) {
			w := newWorld(t)
			m := newKeyedModel(w, 7, sh, deletes)
			var done lake.Maintained
			m.round(200)
			before := m.check()
			beforeRows := w.readLake(before, m.d.Schema.Columns, lake.Scope{})
			for i := range 16 {
				if i == 12 { // the other way from now on
					m.d.Options.Lake.Deletes = map[millrace.LakeDeletes]millrace.LakeDeletes{
						millrace.PositionDeletes: millrace.RewriteFiles, millrace.RewriteFiles: millrace.PositionDeletes,
					}[deletes]
				}
				m.round(1 + m.rng.IntN(30))
				if i == 12 || i == 13 {
					m.check()
				}
				if i%4 == 3 {
					w.clock.now = w.clock.now.Add(10 * time.Minute)
					lt, err := w.f.Open(w.ctx(), m.d)
					require.NoError(t, err)
					n, err := lt.Maintain(w.ctx(), m.d)
					require.NoError(t, err)
					done.Commits += n.Commits
					done.FilesMerged += n.FilesMerged
					done.DeletesMerged += n.DeletesMerged
					m.check()
				}
			}
			s := m.check()
			require.Equal(t, beforeRows, w.readLake(before, m.d.Schema.Columns, lake.Scope{}))
			require.Positive(t, done.Commits)
			require.Greater(t, done.FilesMerged, 12)
			parts := int64(len(m.parts) * sh.buckets)
			require.LessOrEqual(t, s.Totals().DataFiles, parts*2*tierFiles)
			require.LessOrEqual(t, s.Totals().DeleteFiles, parts*2*tierFiles)
			if deletes == millrace.PositionDeletes {
				require.Positive(t, done.DeletesMerged)
			}
		})
	}
}

// Snapshots go 24 hours after they were replaced and the files that only they need
// with them; version files and unfinished files too, those of others never.
func TestExpire(t *testing.T) {
	w := newWorld(t)
	dated := &datedStore{w.store, w.clock, map[string]time.Time{}}
	w.f = New(Options{Store: dated, Cluster: w.f.o.Cluster, Clock: w.clock, Logger: w.f.o.Logger})
	m := newKeyedModel(w, 3, shapes[0], millrace.PositionDeletes)
	m.wide = 300 // whose offsets are a file
	m.round(50)
	old := m.check()
	foreign := w.f.folder(m.d.ID) + "/data/of-someone-else.parquet"
	orphan := w.f.folder(m.d.ID) + "/data/p1-b0-r9-0123456789abcdef.parquet"
	for _, key := range []string{foreign, orphan} {
		require.NoError(t, w.store.Put(w.ctx(), key, []byte("x")))
	}
	maintain := func() lake.Maintained {
		require.NoError(t, dated.List(w.ctx(), "", func(objstore.Info) error { return nil }))
		lt, err := w.f.Open(w.ctx(), m.d)
		require.NoError(t, err)
		n, err := lt.Maintain(w.ctx(), m.d)
		require.NoError(t, err)
		return n
	}
	for range 12 {
		m.round(20)
		maintain()
	}
	for maintain().Commits > 0 { // iceberg-go's own times are real: no commit is in the future
	}
	w.clock.now = w.clock.now.Add(23 * time.Hour)
	n := maintain()
	require.Zero(t, n.SnapshotsExpired)
	require.Zero(t, n.FilesRemoved)
	_, err := w.store.Stat(w.ctx(), orphan)
	require.NoError(t, err)
	w.clock.now = w.clock.now.Add(3 * time.Hour)
	n = maintain()
	m.check()
	require.Greater(t, n.SnapshotsExpired, 10)
	require.Greater(t, n.FilesRemoved, 30)
	_, err = w.store.Stat(w.ctx(), foreign)
	require.NoError(t, err)
	_, err = w.store.Stat(w.ctx(), orphan)
	require.Error(t, err)
	lt, err := w.another().Open(w.ctx(), m.d)
	require.NoError(t, err)
	_, err = lt.Snapshot(w.ctx(), old.ID())
	require.Equal(t, errs.SnapshotGone, errs.CodeOf(err))

	m.round(5)
	m.check()
	require.Zero(t, maintain().SnapshotsExpired)
}

// A process that saw a version which is gone since, as the next ones are, finds the
// newest all the same, and its round follows that.
func TestVersionsGone(t *testing.T) {
	w := newWorld(t)
	m := newKeyedModel(w, 4, shapes[0], millrace.PositionDeletes)
	m.round(5)
	lt, err := w.another().open(w.ctx(), m.d)
	require.NoError(t, err)
	_, err = lt.Newest(w.ctx())
	require.NoError(t, err)
	for range 5 {
		m.round(5)
	}
	for n := range 5 {
		require.NoError(t, w.store.Remove(w.ctx(), fmt.Sprintf("%s/metadata/v%d.metadata.json", w.f.folder(m.d.ID), n+1)))
	}
	s, err := lt.Newest(w.ctx())
	require.NoError(t, err)
	require.Equal(t, m.offsets(), s.Offsets())
	require.EqualValues(t, 6, s.Round())
}

// A merge that is overtaken by a commit is given up, with its files, and the commit
// stays.
func TestMergeGivesWay(t *testing.T) {
	w := newWorld(t)
	m := newKeyedModel(w, 5, shapes[0], millrace.PositionDeletes)
	for range 10 {
		m.round(30)
	}
	lt, err := w.f.open(w.ctx(), m.d)
	require.NoError(t, err)
	r, err := lt.begin(w.ctx(), m.d)
	require.NoError(t, err)
	merged, err := r.merge(w.ctx())
	require.NoError(t, err)
	require.True(t, merged)
	m.round(30)
	var done lake.Maintained
	require.ErrorIs(t, r.publishMerge(w.ctx(), &done), errConflict)
	r.Abort(w.ctx())
	require.Zero(t, done)
	m.check()
}

// Surplus snapshots go earlier, but not while a reader may hold them; what says how far
// the table is stays, and what others have named.
func TestExpired(t *testing.T) {
	w := newWorld(t)
	m := newKeyedModel(w, 9, shapes[0], millrace.PositionDeletes)
	for range 4 {
		m.round(3)
	}
	lt, err := w.f.open(w.ctx(), m.d)
	require.NoError(t, err)
	v, err := lt.load(w.ctx())
	require.NoError(t, err)
	day := w.clock.now.Add(24*time.Hour + time.Minute)
	ids, late := expired(v.meta, day, 1000)
	require.Len(t, ids, 3)
	require.False(t, late)
	_, late = expired(v.meta, w.clock.now.Add(26*time.Hour), 1000)
	require.True(t, late)
	ids, _ = expired(v.meta, w.clock.now.Add(23*time.Hour), 1000)
	require.Empty(t, ids)
	ids, _ = expired(v.meta, w.clock.now.Add(lake.ReadGrace+time.Minute), 2)
	require.Len(t, ids, 2)
	ids, _ = expired(v.meta, w.clock.now.Add(lake.ReadGrace-time.Minute), 2)
	require.Empty(t, ids)

	// Of others: a commit that does not say how far the table is, and a tag.
	b, err := table.MetadataBuilderFromBase(v.meta, v.location)
	require.NoError(t, err)
	head := v.meta.CurrentSnapshot()
	next := *head
	next.SnapshotID, next.ParentSnapshotID, next.SequenceNumber, next.Summary = 99, &head.SnapshotID, head.SequenceNumber+1, &table.Summary{Operation: table.OpReplace}
	first := v.meta.Snapshots()[0].SnapshotID
	for _, u := range []table.Update{
		table.NewAddSnapshotUpdate(&next), table.NewSetSnapshotRefUpdate(table.MainBranch, 99, table.BranchRef, 0, 0, 0),
		table.NewSetSnapshotRefUpdate("kept", first, table.TagRef, 0, 0, 0),
	} {
		require.NoError(t, u.Apply(b))
	}
	foreign, err := b.Build()
	require.NoError(t, err)
	ids, _ = expired(foreign, day, 1000)
	require.Len(t, ids, 2)
	require.NotContains(t, ids, head.SnapshotID)
	require.NotContains(t, ids, first)

	require.Equal(t, []int{0, 1, 1, 2, 2}, []int{tier(1, 10), tier(10, 10), tier(39, 10), tier(40, 10), tier(159, 10)})
	require.Negative(t, cmp.Compare(lake.ReadGrace, keepFor))
}
