package objstoretest_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/objstore"
	"github.com/millrace/millrace/objstore/objstoretest"
)

func faulty(t *testing.T) *objstoretest.Faulty {
	t.Helper()
	s, err := objstore.Open(t.Context(), "file://"+t.TempDir(), objstore.Options{})
	require.NoError(t, err)
	return objstoretest.NewFaulty(s)
}

// Without faults it is the store below.
func TestFaultyWithoutFaults(t *testing.T) {
	dir := t.TempDir()
	objstoretest.Run(t, func(t *testing.T) objstore.Store {
		s, err := objstore.Open(t.Context(), "file://"+dir, objstore.Options{})
		require.NoError(t, err)
		return objstoretest.NewFaulty(s)
	}, 1<<20)
}

// The calls that a fault names go wrong, the others do not; with and without effect.
func TestFaults(t *testing.T) {
	ctx, f := t.Context(), faulty(t)
	f.Add(objstoretest.Fault{Ops: []objstoretest.Op{objstoretest.OpCreate}, Key: "v2", After: 1, Times: 2, Happens: true})
	f.Add(objstoretest.Fault{Ops: []objstoretest.Op{objstoretest.OpGet}, Err: objstore.ErrNotExist})
	require.NoError(t, f.Create(ctx, "v1", nil))
	require.NoError(t, f.Create(ctx, "v2", nil))
	require.ErrorIs(t, f.Create(ctx, "v2", nil), objstore.ErrExists, "what it takes effect as comes first")
	require.ErrorIs(t, f.Create(ctx, "v2b", []byte("there")), objstoretest.ErrInjected)
	_, err := f.Get(ctx, "v2b")
	require.ErrorIs(t, err, objstore.ErrNotExist)
	body, err := f.Get(ctx, "v2b")
	require.NoError(t, err)
	require.Equal(t, "there", string(body))
	require.NoError(t, f.Create(ctx, "v2c", nil))
	require.Equal(t, []objstoretest.Call{{Op: "create", Key: "v1"}, {Op: "create", Key: "v2"}, {Op: "create", Key: "v2"}, {Op: "create", Key: "v2b"}, {Op: "create", Key: "v2c"}}, f.Calls(objstoretest.OpCreate))
	require.Len(t, f.Calls(), 7)

	f.Add(objstoretest.Fault{Ops: objstoretest.Writes, Times: -1})
	require.ErrorIs(t, f.Put(ctx, "x", nil), objstoretest.ErrInjected)
	require.ErrorIs(t, f.Remove(ctx, "v1"), objstoretest.ErrInjected)
	w, err := f.Writer(ctx, "x")
	require.NoError(t, err)
	require.ErrorIs(t, w.Close(), objstoretest.ErrInjected)
	_, err = f.Stat(ctx, "x")
	require.ErrorIs(t, err, objstore.ErrNotExist)
	_, err = f.Stat(ctx, "v1")
	require.NoError(t, err)
	f.Heal()
	require.NoError(t, f.Put(ctx, "x", nil))
}

// A fault may only delay, or let others act at the moment of the call.
func TestFaultsThatHappenMeanwhile(t *testing.T) {
	ctx, f := t.Context(), faulty(t)
	f.Add(objstoretest.Fault{Ops: []objstoretest.Op{objstoretest.OpCreate}, Do: func() { require.NoError(t, f.Store.Create(ctx, "a", []byte("theirs"))) }})
	require.ErrorIs(t, f.Create(ctx, "a", nil), objstore.ErrExists)

	synctest.Test(t, func(t *testing.T) {
		f.Add(objstoretest.Fault{Ops: objstoretest.Reads, Times: -1, Delay: time.Minute})
		begin := time.Now()
		_, err := f.Get(t.Context(), "a")
		require.NoError(t, err)
		require.Equal(t, time.Minute, time.Since(begin))
		f.Add(objstoretest.Fault{Ops: objstoretest.Writes, Delay: time.Second, Err: errors.New("late")})
		require.EqualError(t, f.Put(t.Context(), "a", nil), "late")
		require.Equal(t, time.Minute+time.Second, time.Since(begin))
	})
}
