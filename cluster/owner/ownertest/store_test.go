package ownertest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/cluster/owner"
	"github.com/millrace/millrace/cluster/owner/ownertest"
	"github.com/millrace/millrace/errs"
)

// The store in memory keeps the contract.
func TestStore(t *testing.T) {
	ownertest.RunSuite(t, func(*testing.T) func() owner.Keys {
		store := ownertest.NewStore()
		return func() owner.Keys { return store.Client() }
	})
}

// A client that is cut off changes and sees nothing, and is then told what is
// different: the last of several changes, and what is gone.
func TestCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, store := t.Context(), ownertest.NewStore()
		a, b := store.Client(), store.Client()
		r1, err := a.Create(ctx, "k.gone", []byte("1"))
		require.NoError(t, err)
		var told []owner.Event
		watching, cancel := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() {
			done <- b.Watch(watching, "k.", func(e owner.Event) error {
				told = append(told, e)
				return nil
			})
		}()
		synctest.Wait()
		require.Len(t, told, 2)

		b.Cut()
		begun := time.Now()
		short, stop := context.WithTimeout(ctx, time.Second)
		_, err = b.Create(short, "k.b", []byte("x"))
		stop()
		require.True(t, errs.Is(err, errs.Unavailable), "%v", err)
		require.Equal(t, time.Second, time.Since(begun))
		require.NoError(t, a.Delete(ctx, "k.gone", r1))
		r3, err := a.Create(ctx, "k.new", []byte("1"))
		require.NoError(t, err)
		r4, err := a.Update(ctx, "k.new", []byte("2"), r3)
		require.NoError(t, err)
		synctest.Wait()
		require.Len(t, told, 2)

		b.Heal()
		synctest.Wait()
		require.Equal(t, []owner.Event{
			{Kind: owner.Deleted, Entry: owner.Entry{Key: "k.gone", Revision: r1 + 1}},
			{Kind: owner.Put, Entry: owner.Entry{Key: "k.new", Value: []byte("2"), Revision: r4}},
		}, told[2:])
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
	})
}

// A change whose answer is lost is made, and the caller does not know.
func TestLostAnswer(t *testing.T) {
	ctx, store := t.Context(), ownertest.NewStore()
	a := store.Client()
	a.LoseAnswers(1)
	_, err := a.Create(ctx, "k", []byte("1"))
	require.True(t, errs.Is(err, errs.UnknownOutcome), "%v", err)
	require.Len(t, store.Entries(), 1)
	_, err = a.Update(ctx, "k", []byte("2"), store.Entries()[0].Revision)
	require.NoError(t, err)
}
