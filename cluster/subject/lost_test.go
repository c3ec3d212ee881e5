package subject_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/cluster/natstest"
	"github.com/millrace/millrace/cluster/subject"
	"github.com/millrace/millrace/shardrpc"
)

// proxied is an owner of shard 0 behind a proxy, and how many calls it did.
func proxied(t *testing.T, server *natstest.Server, answer func()) (*natstest.Proxy, *subject.Calls, *atomic.Int64) {
	t.Helper()
	proxy, err := natstest.StartProxy(server)
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	owner := processAt(t, proxy.URL())
	var did atomic.Int64
	_, err = owner.Serve(0, func(context.Context, millrace.ShardID, []byte) []byte {
		did.Add(1)
		answer()
		return []byte("done")
	})
	require.NoError(t, err)
	return proxy, owner, &did
}

// onceThat loses the first message that it is asked about for which is says so.
func onceThat(is func(toServer bool, subject string) bool) func(bool, string) bool {
	var lost atomic.Bool
	return func(toServer bool, subject string) bool {
		return is(toServer, subject) && lost.CompareAndSwap(false, true)
	}
}

const longTime = 30 * time.Second

// A call that never gets to its owner is told to have been taken by nobody, long before its time is over.
func TestCallIsLost(t *testing.T) {
	servers := natstest.StartT(t, 1)
	front := process(t, servers)
	proxy, _, did := proxied(t, servers.Server(0), func() {})
	require.Equal(t, "done", eventually(t, front, 0, "x"))
	proxy.Lose(onceThat(func(toServer bool, subject string) bool {
		return !toServer && strings.Contains(subject, ".shard.0.") && !strings.HasSuffix(subject, ".fate")
	}))
	began := time.Now()
	_, err := front.Call(within(t, longTime), 0, []byte("y"))
	require.ErrorIs(t, err, shardrpc.ErrNobody)
	require.Less(t, time.Since(began), longTime)
	require.EqualValues(t, 1, did.Load())
	require.Equal(t, "done", eventually(t, front, 0, "z"))
	require.EqualValues(t, 2, did.Load())
}

// A call whose answer is lost is done once, and its caller gets the answer all the same.
func TestAnswerIsLost(t *testing.T) {
	servers := natstest.StartT(t, 1)
	front := process(t, servers)
	var lose atomic.Bool
	proxy, _, did := proxied(t, servers.Server(0), func() { lose.Store(true) })
	proxy.Lose(onceThat(func(toServer bool, subject string) bool {
		return toServer && lose.Load() && strings.HasPrefix(subject, "_INBOX.")
	}))
	require.Equal(t, "done", eventually(t, front, 0, "x"))
	require.EqualValues(t, 1, did.Load())
}

// While calls are under way the owner's connection breaks, and comes back: each is done once.
func TestOwnerIsCutOff(t *testing.T) {
	servers := natstest.StartT(t, 1)
	front := process(t, servers)
	cut, hold := make(chan struct{}), make(chan struct{})
	var under atomic.Int64
	proxy, _, did := proxied(t, servers.Server(0), func() {
		if under.Add(1) == 4 {
			close(cut)
		}
		<-hold
	})
	var calls sync.WaitGroup
	for range 4 {
		calls.Go(func() {
			b, err := front.Call(within(t, longTime), 0, []byte("x"))
			if err != nil || string(b) != "done" {
				t.Errorf("a call is answered %q, %v", b, err)
			}
		})
	}
	<-cut
	proxy.Cut()
	close(hold)
	calls.Wait()
	require.EqualValues(t, 4, did.Load())
}

// The server that a caller is connected to dies while a call is under way: the answer comes by another one.
func TestServerOfTheCallerDies(t *testing.T) {
	servers := natstest.StartT(t, 3)
	front, owner := processAt(t, servers.Server(0).URL()), processAt(t, servers.Server(1).URL())
	began, hold := make(chan struct{}), make(chan struct{})
	_, err := owner.Serve(0, func(context.Context, millrace.ShardID, []byte) []byte {
		close(began)
		<-hold
		return []byte("done")
	})
	require.NoError(t, err)
	answered := make(chan string, 1)
	go func() {
		for {
			b, err := front.Call(within(t, longTime), 0, []byte("x"))
			if err == nil {
				answered <- string(b)
				return
			}
			if !strings.Contains(err.Error(), shardrpc.ErrNobody.Error()) {
				answered <- err.Error()
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	<-began
	servers.Server(0).Kill()
	close(hold)
	select {
	case got := <-answered:
		require.Equal(t, "done", got)
	case <-time.After(longTime):
		t.Fatal("the call is not answered")
	}
}
