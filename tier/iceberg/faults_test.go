package iceberg

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/lake"
	"github.com/millrace/millrace/objstore/objstoretest"
)

// script is what the tests of faults do: two rounds, of which the second takes out some of
// what the first wrote, as a tier does it: whoever does not know whether a round happened asks
// the lake.
type script struct {
	w *world
	d *millrace.Table
}

func newScript(t *testing.T) *script {
	d := testTable(1, []string{"k"}, nil, 300, "k BIGINT NOT NULL", "s STRING")
	return &script{w: newWorld(t), d: d}
}

const scriptRounds = 2

// offsets are those after a round: too many for a summary.
func (s *script) offsets(round int64) lake.Offsets {
	out := lake.Offsets{}
	for b := range 300 {
		out[s.d.BucketID(uint16(b))] = millrace.Offset(round * 1_000_000_000)
	}
	return out
}

// step does the round that comes next, by a process that knows nothing yet.
func (s *script) step() (done bool, err error) {
	ctx := s.w.ctx()
	lt, err := s.w.another().open(ctx, s.d)
	if err != nil {
		return false, err
	}
	r, err := lt.begin(ctx, s.d)
	if err != nil {
		return false, err
	}
	defer r.Abort(ctx)
	if r.base != nil {
		require.Equal(s.w.t, s.offsets(r.base.round), r.base.offsets)
	}
	if r.number > scriptRounds {
		return true, nil
	}
	if r.number == 2 {
		if err := r.Clear(ctx, lake.Slice{Bucket: 1}); err != nil {
			return false, err
		}
	}
	for _, b := range []int{1, 2} {
		if err := appendTo(s.w.t, r, lake.Slice{Bucket: b}, fmt.Sprintf(`{"k":%d,"s":"r%d"}`, int64(b)+10*r.number, r.number)); err != nil {
			return false, err
		}
	}
	_, err = r.commit(ctx, s.offsets(r.number))
	return false, err
}

// run steps until all rounds are there. Errors must be of a kind that says what to do.
func (s *script) run(heal int) {
	t := s.w.t
	t.Helper()
	for i := range 20 {
		if i == heal {
			s.w.store.Heal()
		}
		done, err := s.step()
		if done {
			return
		}
		if err != nil && !errors.Is(err, lake.ErrConflict) {
			require.True(t, errs.Is(err, errs.Unavailable), err)
		}
	}
	t.Fatal("the rounds do not come to an end")
}

// check compares what is there with what two rounds leave, each row once.
func (s *script) check() {
	t := s.w.t
	t.Helper()
	s.w.store.Heal()
	require.Equal(t, []string{`{"k":12,"s":"r1"}`, `{"k":21,"s":"r2"}`, `{"k":22,"s":"r2"}`}, s.w.scan(s.d))
	n, err := s.w.another().newest(t.Context(), s.d)
	require.NoError(t, err)
	require.EqualValues(t, scriptRounds, n.round)
	require.Equal(t, s.offsets(scriptRounds), n.offsets)
	// No version was made twice: each follows from the one before.
	require.EqualValues(t, 3, n.Totals().Rows)
	require.Equal(t, "3", s.w.hint(s.d))
}

// TestFailingCalls makes every single call of the store go wrong, in three ways: it does
// not happen, its answer is lost, or from then on nothing happens for a while.
func TestFailingCalls(t *testing.T) {
	s := newScript(t)
	s.run(-1)
	calls := s.w.store.Calls()
	require.Empty(t, s.w.orphans(s.d))
	for k, call := range calls {
		for _, f := range []objstoretest.Fault{{After: k}, {After: k, Happens: true}, {After: k, Times: -1}} {
			if f.Times < 0 && k%4 != 0 || f.Happens && slices.Contains(objstoretest.Reads, call.Op) {
				continue
			}
			t.Run(fmt.Sprintf("%d happens=%t times=%d", k, f.Happens, f.Times), func(t *testing.T) {
				s := newScript(t)
				s.w.store.Add(f)
				s.run(3)
				s.check()
			})
		}
	}
}

// TestLostAnswers loses the answer of every attempt to publish, and has another process
// commit before the answer would have come: whoever asks finds its own commit.
func TestLostAnswers(t *testing.T) {
	w := newWorld(t)
	d := testTable(1, nil, nil, 1, "k BIGINT NOT NULL")
	w.committed(d, 1)
	w.store.Add(objstoretest.Fault{Ops: []objstoretest.Op{objstoretest.OpCreate}, Key: "/metadata/v", Happens: true, Times: 2})
	s, err := w.append(w.f, d, noBucket, at(d, 2), `{"k":2}`)
	require.NoError(t, err)
	require.EqualValues(t, 2, s.Round())
	w.store.Heal()

	// The answer is lost for good; what is published meanwhile builds on it.
	lt, err := w.f.open(t.Context(), d)
	require.NoError(t, err)
	r, err := lt.begin(t.Context(), d)
	require.NoError(t, err)
	require.NoError(t, appendTo(t, r, noBucket, `{"k":3}`))
	w.store.Add(objstoretest.Fault{Ops: []objstoretest.Op{objstoretest.OpCreate}, Key: "/metadata/v", Happens: true})
	w.store.Add(objstoretest.Fault{Ops: []objstoretest.Op{objstoretest.OpCreate, objstoretest.OpGet}, Key: "/metadata/v", Times: -1})
	_, err = r.commit(t.Context(), at(d, 3))
	require.True(t, errs.Is(err, errs.Unavailable), err)
	r.Abort(t.Context()) // which must not remove what may be published
	w.store.Heal()
	require.Len(t, w.scan(d), 3)
	s, err = w.append(w.another(), d, noBucket, at(d, 4), `{"k":4}`)
	require.NoError(t, err)
	require.EqualValues(t, 4, s.Round())
	require.Len(t, w.scan(d), 4)
}

// TestMetadataOnlyChange lets a change without a snapshot come between a round and its
// commit: the round still holds, on the newer version.
func TestMetadataOnlyChange(t *testing.T) {
	w := newWorld(t)
	d := testTable(1, nil, nil, 1, "k BIGINT NOT NULL")
	w.committed(d, 1)
	lt, err := w.f.open(t.Context(), d)
	require.NoError(t, err)
	r, err := lt.begin(t.Context(), d)
	require.NoError(t, err)
	require.NoError(t, appendTo(t, r, noBucket, `{"k":2}`))
	_, err = w.another().handle(d.ID, d.Path).pointer.publish(t.Context(), change{updates: propertyUpdate("x", "y")})
	require.NoError(t, err)
	s, err := r.commit(t.Context(), at(d, 2))
	require.NoError(t, err)
	require.Equal(t, "y", s.meta.Properties()["x"])
	require.Len(t, w.scan(d), 2)
	require.Equal(t, "4", w.hint(d))
}

// TestAbort gives up a round at each point: nothing of it stays.
func TestAbort(t *testing.T) {
	w := newWorld(t)
	d := testTable(1, nil, nil, 1, "k BIGINT NOT NULL")
	w.committed(d, 1)
	before := w.files()
	lt, err := w.f.open(t.Context(), d)
	require.NoError(t, err)
	r, err := lt.begin(t.Context(), d)
	require.NoError(t, err)
	require.NoError(t, appendTo(t, r, noBucket, `{"k":2}`))
	a, err := r.Append(t.Context(), noBucket)
	require.NoError(t, err)
	b := batch(t, d.Schema.Columns, `{"k":3}`)
	defer b.Release()
	require.NoError(t, a.Write(b))
	r.Abort(t.Context())
	require.Error(t, a.Close())
	_, err = r.commit(t.Context(), at(d, 2))
	require.Error(t, err)
	require.Equal(t, before, w.files())

	// So it is when its context has ended.
	ctx, cancel := context.WithCancel(t.Context())
	r, err = lt.begin(ctx, d)
	require.NoError(t, err)
	require.NoError(t, appendTo(t, r, noBucket, `{"k":2}`))
	cancel()
	r.Abort(ctx)
	require.Equal(t, before, w.files())

	// A commit that fails before it publishes leaves nothing either.
	r, err = lt.begin(t.Context(), d)
	require.NoError(t, err)
	require.NoError(t, appendTo(t, r, noBucket, `{"k":2}`))
	w.store.Add(objstoretest.Fault{Ops: []objstoretest.Op{objstoretest.OpPut}, Key: "/metadata/snap-"})
	_, err = r.commit(t.Context(), at(d, 2))
	require.True(t, errs.Is(err, errs.Unavailable), err)
	r.Abort(t.Context())
	require.Equal(t, before, w.files())
	require.False(t, strings.Contains(fmt.Sprint(w.scan(d)), `"k":2`))
}
