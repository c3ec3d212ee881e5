package natstest_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/millrace/millrace/cluster/natstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What was published is there after a kill -9 and a start, at the same address; a
// store that was removed is gone.
func TestOneServer(t *testing.T) {
	s := natstest.StartT(t, 1)
	nc, err := nats.Connect(s.URLs(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	require.NoError(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "a", Subjects: []string{"a"}})
	require.NoError(t, err)
	_, err = js.Publish(t.Context(), "a", []byte("x"))
	require.NoError(t, err)
	leader, err := s.StreamLeader(t.Context(), "a")
	require.NoError(t, err)
	require.Same(t, s.Server(0), leader)

	restart := func() {
		require.NoError(t, s.Server(0).Start())
		require.NoError(t, s.Ready(t.Context()))
		require.Eventually(t, nc.IsConnected, time.Minute, 10*time.Millisecond)
	}
	s.Server(0).Kill()
	require.False(t, s.Server(0).Running())
	restart()
	st, err := js.Stream(t.Context(), "a")
	require.NoError(t, err)
	require.EqualValues(t, 1, st.CachedInfo().State.Msgs)

	require.Error(t, s.Server(0).RemoveStore(), "while it runs")
	s.Server(0).Stop()
	require.NoError(t, s.Server(0).RemoveStore())
	restart()
	_, err = js.Stream(t.Context(), "a")
	require.ErrorIs(t, err, jetstream.ErrStreamNotFound)
}

// Three servers elect a leader of a stream; while it is paused it answers nothing, and
// another leads.
func TestThreeServers(t *testing.T) {
	s := natstest.StartT(t, 3)
	require.Len(t, strings.Split(s.URLs(), ","), 3)
	nc, err := nats.Connect(s.URLs())
	require.NoError(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "a", Subjects: []string{"a"}, Replicas: 3})
	require.NoError(t, err)
	leader, err := s.StreamLeader(t.Context(), "a")
	require.NoError(t, err)
	require.NotNil(t, leader)
	leader.Kill()
	require.Eventually(t, func() bool {
		next, err := s.StreamLeader(t.Context(), "a")
		return err == nil && next != nil && next != leader
	}, time.Minute, 50*time.Millisecond)
	require.NoError(t, leader.Start())
	require.NoError(t, s.Ready(t.Context()))

	one := s.Server(0)
	require.NoError(t, one.Pause())
	conn, err := net.Dial("tcp", one.Address())
	require.NoError(t, err, "the kernel takes it")
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(200*time.Millisecond)))
	_, err = conn.Read(make([]byte, 1))
	require.ErrorContains(t, err, "timeout")
	require.NoError(t, one.Resume())
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
	_, err = conn.Read(make([]byte, 1))
	require.NoError(t, err)
}

// A server that cannot start is an error with its log.
func TestBadSettings(t *testing.T) {
	_, err := natstest.Start(t.Context(), natstest.Options{Dir: t.TempDir(), Extra: "no_such_setting: 1"})
	require.ErrorContains(t, err, "no_such_setting")
	_, err = natstest.Start(t.Context(), natstest.Options{Dir: t.TempDir(), Servers: 2})
	require.ErrorContains(t, err, fmt.Sprint(2))
}
