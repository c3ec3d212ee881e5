package iceberg

import (
	"testing"

	ice "github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/table"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
)

// TestProgressStays commits as maintenance does, and as another writer would, on top of a
// round: how far the lake is stays known, also when the round's snapshot has expired, and
// is an error when nobody says it any more.
func TestProgressStays(t *testing.T) {
	w := newWorld(t)
	d := testTable(1, nil, nil, 1, "k BIGINT NOT NULL")
	w.committed(d, 2)
	lt, err := w.f.open(t.Context(), d)
	require.NoError(t, err)
	v, round, err := lt.current(t.Context())
	require.NoError(t, err)
	spec := v.meta.PartitionSpec()
	_, id, _, err := lt.publish(t.Context(), &commit{at: v, base: round, spec: &spec, operation: table.OpReplace})
	require.NoError(t, err)
	_, ours, err := lt.current(t.Context())
	require.NoError(t, err)
	require.Equal(t, id, ours.ID())
	require.Equal(t, round.progress, ours.progress)
	expire := func(ids ...int64) {
		_, err := lt.pointer.publish(t.Context(), change{updates: []table.Update{table.NewRemoveSnapshotsUpdate(ids, false)}})
		require.NoError(t, err)
	}
	expire(round.ID(), *round.snap.ParentSnapshotID)
	got, err := w.another().newest(t.Context(), d)
	require.NoError(t, err)
	require.Equal(t, round.progress, got.progress)
	_, err = lt.byID(t.Context(), round.ID())
	require.True(t, errs.Is(err, errs.SnapshotGone), err)

	// Another writer's snapshot says nothing of us.
	foreign := ours.snap
	foreign.SnapshotID, foreign.ParentSnapshotID, foreign.SequenceNumber = 5, &ours.snap.SnapshotID, foreign.SequenceNumber+1
	foreign.Summary = &table.Summary{Operation: table.OpReplace, Properties: ice.Properties{}}
	_, err = lt.pointer.publish(t.Context(), change{updates: []table.Update{
		table.NewAddSnapshotUpdate(&foreign), table.NewSetSnapshotRefUpdate(table.MainBranch, 5, table.BranchRef, 0, 0, 0),
	}})
	require.NoError(t, err)
	got, err = w.another().newest(t.Context(), d)
	require.NoError(t, err)
	require.EqualValues(t, 5, got.ID())
	require.Equal(t, round.progress, got.progress)
	expire(ours.ID())
	_, err = w.another().newest(t.Context(), d)
	require.True(t, errs.Is(err, errs.CorruptData), err)
}

// TestOffsetsText writes offsets and reads them back, and refuses what is none.
func TestOffsetsText(t *testing.T) {
	in := lake.Offsets{
		{Table: 3, Partition: 2, Bucket: 1}: 0, {Table: 3, Bucket: 4095}: 1 << 62,
		{Table: 3, Partition: 4294967295}: 7,
	}
	raw := appendOffsets(nil, in)
	require.Equal(t, `{"0/4095":4611686018427387904,"2/1":0,"4294967295/0":7}`, string(raw))
	out, err := parseOffsets(3, raw)
	require.NoError(t, err)
	require.Equal(t, in, out)
	require.Equal(t, `{}`, string(appendOffsets(nil, nil)))
	for _, bad := range []string{``, `[]`, `{"1":2}`, `{"a/0":1}`, `{"0/4096":1}`, `{"0/-1":1}`, `{"4294967296/0":1}`, `{"0/0":-1}`, `{"0/0":1.5}`, `{"0/0":"1"}`, `{"0/0":9223372036854775808}`} {
		_, err := parseOffsets(millrace.TableID(3), []byte(bad))
		require.Error(t, err, bad)
	}
}
