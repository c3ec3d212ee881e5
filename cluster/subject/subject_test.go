package subject_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/cluster"
	"github.com/millrace/millrace/cluster/natstest"
	"github.com/millrace/millrace/cluster/subject"
	"github.com/millrace/millrace/shardrpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// process connects like a process of its own.
func process(t *testing.T, servers *natstest.Servers) *subject.Calls {
	t.Helper()
	return processAt(t, servers.URLs())
}

// processAt connects to some servers.
func processAt(t *testing.T, urls string) *subject.Calls {
	t.Helper()
	conn, err := cluster.Connect(t.Context(), cluster.Options{URLs: urls, Name: t.Name()})
	require.NoError(t, err)
	c := subject.New(conn, cluster.NamesOf([16]byte{1}), subject.Options{Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() {
		c.Close()
		conn.Close()
	})
	return c
}

func echo(who string) func(context.Context, millrace.ShardID, []byte) []byte {
	return func(_ context.Context, id millrace.ShardID, b []byte) []byte {
		return fmt.Appendf(nil, "%s %d %s", who, id, b)
	}
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestCallsFindTheOwner(t *testing.T) {
	servers := natstest.StartT(t, 1)
	front, a, b := process(t, servers), process(t, servers), process(t, servers)

	_, err := front.Call(within(t, longTime), 3, []byte("x"))
	require.ErrorIs(t, err, shardrpc.ErrNobody)

	stop, err := a.Serve(3, echo("a"))
	require.NoError(t, err)
	_, err = b.Serve(4, echo("b"))
	require.NoError(t, err)
	require.Equal(t, "a 3 x", eventually(t, front, 3, "x"))
	require.Equal(t, "b 4 y", eventually(t, front, 4, "y"))

	// It moves: calls in between are taken by nobody, or by one of them.
	stop()
	_, err = b.Serve(3, echo("b"))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return eventually(t, front, 3, "z") == "b 3 z" }, time.Minute, time.Millisecond)
}

// eventually calls until somebody takes the call.
func eventually(t *testing.T, c *subject.Calls, id millrace.ShardID, text string) string {
	t.Helper()
	ctx := within(t, longTime)
	for {
		b, err := c.Call(ctx, id, []byte(text))
		if err == nil {
			return string(b)
		}
		require.ErrorIs(t, err, shardrpc.ErrNobody)
		time.Sleep(5 * time.Millisecond)
	}
}

// TestCallIsTakenOnce: while an old owner and a new one both listen, each call is done by
// one of them.
func TestCallIsTakenOnce(t *testing.T) {
	servers := natstest.StartT(t, 1)
	front, a, b := process(t, servers), process(t, servers), process(t, servers)
	var done [2]atomic.Int64
	for i, p := range []*subject.Calls{a, b} {
		_, err := p.Serve(0, func(context.Context, millrace.ShardID, []byte) []byte {
			done[i].Add(1)
			return []byte("done")
		})
		require.NoError(t, err)
	}
	const n = 500
	for range n {
		require.Equal(t, "done", eventually(t, front, 0, "x"))
	}
	require.EqualValues(t, n, done[0].Load()+done[1].Load())
}

// TestOwnerThatHangs: a call to an owner that does not answer is given up when there is
// another, and later ones go there.
func TestOwnerThatHangs(t *testing.T) {
	servers := natstest.StartT(t, 1)
	front, a, b := process(t, servers), process(t, servers), process(t, servers)
	taken, hang := make(chan struct{}), make(chan struct{})
	stop, err := a.Serve(0, func(context.Context, millrace.ShardID, []byte) []byte {
		close(taken)
		<-hang
		return nil
	})
	require.NoError(t, err)
	t.Cleanup(func() { close(hang) })
	failed := make(chan error, 1)
	go func() {
		ctx := within(t, 4*longTime)
		for {
			_, err := front.Call(ctx, 0, []byte("x"))
			select {
			case <-taken:
				failed <- err
				return
			case <-time.After(5 * time.Millisecond): // nobody has heard of the owner yet
			}
		}
	}()
	<-taken
	stop() // as when it is found dead
	_, err = b.Serve(0, echo("b"))
	require.NoError(t, err)
	select {
	case err = <-failed:
		require.Error(t, err)
		require.False(t, errors.Is(err, shardrpc.ErrNobody), "it was taken: %v", err)
	case <-time.After(longTime):
		t.Fatal("the call waits for an owner that is none any more")
	}
	require.Equal(t, "b 0 y", eventually(t, front, 0, "y"))
}

// TestServerGone: while no server can be reached, nobody takes calls, and later they go.
func TestServerGone(t *testing.T) {
	servers := natstest.StartT(t, 1)
	front, a := process(t, servers), process(t, servers)
	_, err := a.Serve(0, echo("a"))
	require.NoError(t, err)
	require.Equal(t, "a 0 x", eventually(t, front, 0, "x"))
	servers.Server(0).Kill()
	require.Eventually(t, func() bool {
		_, err := front.Call(within(t, longTime), 0, []byte("y"))
		return errors.Is(err, shardrpc.ErrNobody)
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, servers.Server(0).Start())
	require.Equal(t, "a 0 z", eventually(t, front, 0, "z"))
}

// TestMovesLoseNoCall: while a shard goes to and fro between processes at different servers, every call is answered, or
// taken by nobody: none is lost between a server that has been told that the owner listens no more and one that has not.
func TestMovesLoseNoCall(t *testing.T) {
	servers := natstest.StartT(t, 3)
	at := func(i int) *subject.Calls { return processAt(t, servers.Server(i).URL()) }
	fronts := []*subject.Calls{at(0), at(0)}
	owners := []*subject.Calls{at(1), at(2)}
	stop, err := owners[0].Serve(0, echo("x"))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for i := range 16 {
		callers.Go(func() {
			for ctx.Err() == nil {
				call := within(t, longTime)
				b, err := fronts[i%2].Call(call, 0, []byte("y"))
				switch {
				case errors.Is(err, shardrpc.ErrNobody):
					time.Sleep(time.Millisecond)
				case err != nil:
					t.Errorf("a call was lost: %v", err)
					return
				case string(b) != "x 0 y":
					t.Errorf("an answer is %q", b)
				}
			}
		})
	}
	for i := range 60 {
		time.Sleep(30 * time.Millisecond)
		stop()
		stop, err = owners[(i+1)%2].Serve(0, echo("x"))
		require.NoError(t, err)
	}
	time.Sleep(4 * time.Second) // as long as a call that is lost is not given up
	cancel()
	callers.Wait()
	stop()
}
