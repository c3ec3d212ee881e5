package stream_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/cluster"
	"github.com/millrace/millrace/cluster/natstest"
	"github.com/millrace/millrace/cluster/stream"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/wal"
	"github.com/millrace/millrace/storage/wal/waltest"
)

// A log that begins behind a tail goes on from there: sequences are LSNs, the chain
// begins at the tail's hash, and what stood before is said to be purged. It is so on
// servers that were killed, and on one that comes back without its disk.
func TestBegin(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		t.Run(map[int]string{1: "R1", 3: "R3"}[n], func(t *testing.T) {
			t.Parallel()
			srv := natstest.StartT(t, n)
			id := newID(t)
			s := streams(t, srv.URLs(), options(srv, id))
			found, err := s.Find(t.Context(), 0)
			require.NoError(t, err)
			require.Nil(t, found)
			none, err := s.Inspect(t.Context(), 0)
			require.NoError(t, err)
			require.Nil(t, none, "nothing was made")

			behind := wal.Tail{LogID: 0xabcdef, LSN: 7 << 32, Epoch: 12}
			require.NoError(t, s.Begin(t.Context(), 0, behind))
			found, err = s.Find(t.Context(), 0)
			require.NoError(t, err)
			require.Equal(t, &stream.Found{LogID: behind.LogID, First: behind.LSN + 1, Last: behind.LSN + 1, Records: 1}, found)
			require.True(t, errs.Is(s.Begin(t.Context(), 0, behind), errs.InvalidRequest), "it is there")

			check := func(l *stream.Log, entries int) {
				hash, ok, err := l.HashAt(t.Context(), behind.LSN)
				require.NoError(t, err)
				require.True(t, ok)
				require.Equal(t, behind.Hash, hash)
				got, err := waltest.ReadAll(l, behind.LSN)
				require.NoError(t, err)
				require.Len(t, got, entries)
				_, err = waltest.ReadAll(l, behind.LSN-1)
				require.ErrorIs(t, err, wal.ErrPurged)
			}
			l := open(t, s)
			require.Equal(t, behind.LSN+1, l.Tail().LSN)
			require.Equal(t, millrace.Epoch(12), l.Tail().Epoch)
			check(l, 1)
			lsn, err := l.Append(t.Context(), []wal.Entry{wal.EpochEntry(13)})
			require.NoError(t, err)
			require.Equal(t, behind.LSN+2, lsn)
			for i := range srv.Len() {
				srv.Server(i).Kill()
			}
			if n == 3 {
				require.NoError(t, srv.Server(0).RemoveStore())
			}
			for i := range srv.Len() {
				require.NoError(t, srv.Server(i).Start())
			}
			require.NoError(t, srv.Ready(t.Context()))
			s = streams(t, srv.URLs(), options(srv, id)) // over a connection that is up
			l = open(t, s)
			check(l, 2)
			_, err = l.Append(t.Context(), []wal.Entry{{Kind: wal.Data, Data: []byte("x")}})
			require.NoError(t, err)
			check(l, 3)
			require.NoError(t, s.Remove(t.Context(), 0))
			require.NoError(t, s.Remove(t.Context(), 0))
			found, err = s.Find(t.Context(), 0)
			require.NoError(t, err)
			require.Nil(t, found)
		})
	}
}

// A log that is looked at may end in a record that does not read; what comes before it
// is read.
func TestInspect(t *testing.T) {
	t.Parallel()
	srv := servers(t, 1)
	id := newID(t)
	s := streams(t, srv.URLs(), options(srv, id))
	l := open(t, s)
	for range 3 {
		_, err := l.Append(t.Context(), []wal.Entry{{Kind: wal.Data, Data: []byte("x")}})
		require.NoError(t, err)
	}
	st, err := connect(t, srv.URLs()).JetStream().Stream(t.Context(), cluster.NamesOf(id).LogStream(0))
	require.NoError(t, err)
	require.NoError(t, st.DeleteMsg(t.Context(), 3))
	_, err = s.Shard(t.Context(), 0)
	require.True(t, errs.Is(err, errs.CorruptData))
	l, err = s.Inspect(t.Context(), 0)
	require.NoError(t, err)
	require.Equal(t, wal.Tail{LogID: l.Tail().LogID, LSN: 3}, l.Tail())
	got, err := waltest.ReadAll(l, 0)
	require.True(t, errs.Is(err, errs.CorruptData))
	require.Len(t, got, 2)
}
