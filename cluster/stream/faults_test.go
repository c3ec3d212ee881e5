package stream_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/cluster"
	"github.com/millrace/millrace/cluster/natstest"
	"github.com/millrace/millrace/cluster/stream"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/wal"
	"github.com/millrace/millrace/storage/wal/waltest"
)

// Servers are killed and paused under an owner that appends, the leader of its stream,
// and then all at once: appends go on by themselves, and the log is what was
// acknowledged (T1, T2).
func TestServersFail(t *testing.T) {
	t.Parallel()
	srv, err := natstest.Start(t.Context(), natstest.Options{Servers: 3, Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(srv.Close)
	id, hasty := newID(t), newID(t)
	name := cluster.NamesOf(id).LogStream(0)
	h, hastyH := newHistory(), newHistory()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	run := func(opts stream.Options, h *history) {
		o := &owner{log: open(t, streams(t, srv.URLs(), opts)), epochs: new(atomic.Uint64), pause: 100 * time.Millisecond}
		wg.Go(func() {
			if err := o.run(ctx, h, 3, 600_000); err != nil {
				t.Error(err)
			}
		})
	}
	run(options(srv, id), h)
	opts := options(srv, hasty) // one that gives up soon, and does not know
	opts.AnswerTimeout, opts.Patience = 100*time.Millisecond, time.Second
	run(opts, hastyH)
	more := func(what string) {
		from, begun := h.acknowledged(), time.Now()
		require.Eventually(t, func() bool { return h.acknowledged() > from+10 }, time.Minute, 5*time.Millisecond, what)
		t.Logf("%s: going on after %v", what, time.Since(begun).Round(time.Millisecond))
	}
	leader := func() *natstest.Server {
		var l *natstest.Server
		require.Eventually(t, func() bool {
			l, err = srv.StreamLeader(t.Context(), name)
			return err == nil && l != nil
		}, time.Minute, 20*time.Millisecond)
		return l
	}
	more("at first")
	l := leader()
	l.Kill()
	more("leader killed")
	require.NoError(t, l.Start())
	require.NoError(t, srv.Ready(t.Context()))
	more("leader is back")

	l = leader()
	require.NoError(t, l.Pause())
	more("leader paused")
	require.NoError(t, l.Resume())
	more("leader resumed")

	for i := range srv.Len() {
		srv.Server(i).Kill()
	}
	for i := range srv.Len() {
		require.NoError(t, srv.Server(i).Start())
	}
	require.NoError(t, srv.Ready(t.Context()))
	more("all killed")
	cancel()
	wg.Wait()
	h.check(t, open(t, streams(t, srv.URLs(), options(srv, id))))
	hastyH.check(t, open(t, streams(t, srv.URLs(), options(srv, hasty))))
}

// Two owners fight for a log: whoever begins an epoch fences the other, of which
// nothing comes behind it.
func TestTwoOwners(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		srv := servers(t, n)
		id := newID(t)
		h, epochs := newHistory(), new(atomic.Uint64)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var wg sync.WaitGroup
		for range 2 {
			o := &owner{log: open(t, streams(t, srv.URLs(), options(srv, id))), epochs: epochs}
			wg.Go(func() {
				for ctx.Err() == nil {
					turn, done := context.WithTimeout(ctx, 20*time.Millisecond)
					if err := o.run(turn, h, 3, 3000); err != nil {
						t.Error(err)
					}
					done()
				}
			})
		}
		require.Eventually(t, func() bool { return h.acknowledged() > 200 && epochs.Load() > 30 && h.refused(errs.NotOwner) > 2 }, 2*time.Minute, 5*time.Millisecond)
		cancel()
		wg.Wait()
		h.check(t, open(t, streams(t, srv.URLs(), options(srv, id))))
	}
}

// The same while one message in twenty is lost, either way.
func TestTwoOwnersAndLosses(t *testing.T) {
	t.Parallel()
	srv, id := servers(t, 1), newID(t)
	h, epochs := newHistory(), new(atomic.Uint64)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	var all []stream.Options
	for range 2 {
		log, p, opts := proxied(t, srv, id, 400*time.Millisecond)
		all = append(all, opts)
		p.Lose(func(bool, string) bool { return rand.IntN(20) == 0 })
		o := &owner{log: log, epochs: epochs}
		wg.Go(func() {
			for ctx.Err() == nil {
				turn, done := context.WithTimeout(ctx, 200*time.Millisecond)
				if err := o.run(turn, h, 3, 3000); err != nil {
					t.Error(err)
				}
				done()
			}
		})
	}
	settled := func(outcome string) (n float64) {
		for _, o := range all {
			n += value(t, o, "millrace_stream_settled_total", outcome)
		}
		return n
	}
	require.Eventually(t, func() bool { return settled("landed") > 10 && settled("lost") > 10 && settled("fenced") > 10 }, time.Minute, 10*time.Millisecond)
	cancel()
	wg.Wait()
	h.check(t, open(t, streams(t, srv.URLs(), options(srv, id))))
}

// proxied is a log through a proxy, whose publishes are waited for a short time.
func proxied(t *testing.T, srv *natstest.Servers, id wal.ClusterID, patience time.Duration) (*stream.Log, *natstest.Proxy, stream.Options) {
	t.Helper()
	p, err := natstest.StartProxy(srv.Server(0))
	require.NoError(t, err)
	t.Cleanup(p.Close)
	opts := options(srv, id)
	opts.AnswerTimeout, opts.Patience = 100*time.Millisecond, patience
	return open(t, streams(t, p.URL(), opts)), p, opts
}

// once is a rule of what is lost: the first n for which is says so.
func once(n int, is func(toServer bool, subject string) bool) func(bool, string) bool {
	return func(toServer bool, subject string) bool {
		if n == 0 || !is(toServer, subject) {
			return false
		}
		n--
		return true
	}
}

func answers(toServer bool, _ string) bool { return !toServer }

// An answer that is lost is settled: the record is found where it is. So are the
// answers to the settling.
func TestAnswersLost(t *testing.T) {
	t.Parallel()
	srv, id := servers(t, 1), newID(t)
	log, p, opts := proxied(t, srv, id, 20*time.Second)
	h := newHistory()
	for n := range 5 {
		p.Lose(once(n, answers))
		require.NoError(t, h.append(log, 0, 3, 500_000))
	}
	require.EqualValues(t, 4, value(t, opts, "millrace_stream_settled_total", "landed"))
	require.Zero(t, value(t, opts, "millrace_stream_settled_total", "lost"))
	h.check(t, open(t, streams(t, srv.URLs(), options(srv, id))))
}

// A record that is lost on its way is found missing, a noop in its place, and it goes
// behind it; entries that were in the log before are not written again. So it is when
// noops are lost as well.
func TestRecordsLost(t *testing.T) {
	t.Parallel()
	srv, id := servers(t, 1), newID(t)
	log, p, opts := proxied(t, srv, id, 20*time.Second)
	publishes := func(toServer bool, subject string) bool {
		return toServer && subject == cluster.NamesOf(id).LogSubject(0)
	}
	h := newHistory()
	for n := range 4 {
		p.Lose(once(n, publishes))
		require.NoError(t, h.append(log, 0, 3, 500_000))
	}
	require.EqualValues(t, 3, value(t, opts, "millrace_stream_settled_total", "lost"))

	// The third record of one append, in which the second entry goes on.
	skip := 2
	p.Lose(once(1, func(toServer bool, subject string) bool {
		if !publishes(toServer, subject) {
			return false
		}
		skip--
		return skip < 0
	}))
	entries := []wal.Entry{{Kind: wal.Data, Data: waltest.Pattern(1, wal.MaxRecordBytes-2000)}, {Kind: wal.Data, Data: waltest.Pattern(2, 3*wal.MaxRecordBytes)}, {Kind: wal.Data, Data: waltest.Pattern(3, 10)}}
	before := log.Tail().LSN
	last, err := log.Append(t.Context(), entries)
	require.NoError(t, err)
	got, err := waltest.ReadAll(open(t, streams(t, srv.URLs(), options(srv, id))), before)
	require.NoError(t, err)
	require.Len(t, got, 4, "with the noop")
	require.Equal(t, entries[0].Data, got[0].Entry.Data)
	require.Equal(t, wal.Noop, got[1].Entry.Kind)
	require.Equal(t, entries[1].Data, got[2].Entry.Data)
	require.Equal(t, entries[2].Data, got[3].Entry.Data)
	require.Equal(t, last, got[3].LSN)
}

// While nothing goes through, an append ends in unknown_outcome when patience does,
// and the log takes no more; read anew, an epoch comes first.
func TestUnknownOutcome(t *testing.T) {
	t.Parallel()
	srv, id := servers(t, 1), newID(t)
	for _, lose := range []func(bool, string) bool{answers, func(bool, string) bool { return true }} {
		log, p, opts := proxied(t, srv, id, 400*time.Millisecond)
		_, err := log.Append(t.Context(), []wal.Entry{wal.EpochEntry(log.Tail().Epoch + 1), {Kind: wal.Data, Data: []byte("before")}})
		require.NoError(t, err)
		p.Lose(lose)
		_, err = log.Append(t.Context(), []wal.Entry{{Kind: wal.Data, Data: []byte("?")}})
		require.Equal(t, errs.UnknownOutcome, errs.CodeOf(err))
		require.ErrorIs(t, err, wal.ErrStopped)
		require.EqualValues(t, 1, value(t, opts, "millrace_stream_settled_total", "unknown"))
		p.Lose(nil)
		_, err = log.Append(t.Context(), []wal.Entry{{Kind: wal.Data, Data: []byte("after")}})
		require.Equal(t, errs.Unavailable, errs.CodeOf(err), "it is certain that this is not in the log")
		require.ErrorIs(t, err, wal.ErrStopped)
		_, err = log.Refresh(t.Context())
		require.NoError(t, err)
		_, err = log.Append(t.Context(), []wal.Entry{{Kind: wal.Data, Data: []byte("after")}})
		require.Equal(t, errs.NotOwner, errs.CodeOf(err), "an epoch comes first")
		_, err = log.Append(t.Context(), []wal.Entry{wal.EpochEntry(log.Tail().Epoch + 1), {Kind: wal.Data, Data: []byte("after")}})
		require.NoError(t, err)
		_, err = log.Append(t.Context(), []wal.Entry{{Kind: wal.Data, Data: []byte("more")}})
		require.NoError(t, err)
	}
}

// A connection that is closed for good while an append waits leaves its outcome unknown:
// it is not said that nothing was written, which would be written again then.
func TestConnectionClosedAmidAppend(t *testing.T) {
	t.Parallel()
	srv, id := servers(t, 1), newID(t)
	p, err := natstest.StartProxy(srv.Server(0))
	require.NoError(t, err)
	t.Cleanup(p.Close)
	opts := options(srv, id)
	opts.Patience = 300 * time.Millisecond
	conn := connect(t, p.URL())
	s, err := stream.New(conn, opts)
	require.NoError(t, err)
	log, watching := open(t, s), open(t, streams(t, srv.URLs(), options(srv, id)))
	p.Lose(answers)
	ended := make(chan error, 1)
	go func() {
		_, err := log.Append(context.Background(), []wal.Entry{wal.EpochEntry(1)})
		ended <- err
	}()
	require.Eventually(t, func() bool {
		tail, err := watching.Refresh(t.Context())
		return err == nil && tail.LSN == 1
	}, time.Minute, time.Millisecond)
	conn.NATS().Close()
	require.Equal(t, errs.UnknownOutcome, errs.CodeOf(<-ended))
}

// A record of this Log's own from before it was read anew, that comes only now, is not
// taken for the noop that would settle the next one.
func TestOwnRecordComesLate(t *testing.T) {
	t.Parallel()
	srv, id := servers(t, 1), newID(t)
	log := open(t, streams(t, srv.URLs(), options(srv, id)))
	_, err := log.Append(t.Context(), []wal.Entry{wal.EpochEntry(1)})
	require.NoError(t, err)
	conn := connect(t, srv.URLs())
	st, err := conn.JetStream().Stream(t.Context(), cluster.NamesOf(id).LogStream(0))
	require.NoError(t, err)
	first, err := st.GetMsg(t.Context(), 1)
	require.NoError(t, err)
	enc := wal.NewEncoder(id, 0)
	require.NoError(t, enc.Encode(log.Tail(), []wal.Entry{{Kind: wal.Data, Data: []byte("late")}}))
	for _, rec := range enc.Records() {
		_, err = conn.JetStream().PublishMsg(t.Context(), &nats.Msg{Subject: cluster.NamesOf(id).LogSubject(0), Data: rec, Header: nats.Header{"Millrace-Writer": first.Header["Millrace-Writer"]}})
		require.NoError(t, err)
	}
	_, err = log.Append(t.Context(), []wal.Entry{wal.EpochEntry(2)})
	require.Equal(t, errs.NotOwner, errs.CodeOf(err))
	_, err = log.Refresh(t.Context())
	require.NoError(t, err)
	_, err = log.Append(t.Context(), []wal.Entry{wal.EpochEntry(2)})
	require.NoError(t, err)
	n := 0
	require.NoError(t, log.Replay(t.Context(), 0, func(millrace.LSN, millrace.Epoch, wal.Entry) error { n++; return nil }))
	require.Equal(t, 3, n)
}

// What a deposed owner had sent, and the servers get only when the next has begun, is
// refused, and it is told so. What they get before is part of the log: then the next
// owner's epoch is refused, and it reads the end anew.
func TestLatePublish(t *testing.T) {
	t.Parallel()
	srv, id := servers(t, 1), newID(t)
	old, p, _ := proxied(t, srv, id, 20*time.Second)
	next := open(t, streams(t, srv.URLs(), options(srv, id)))
	add := func(l *stream.Log, entries ...wal.Entry) error {
		_, err := l.Append(context.Background(), entries)
		return err
	}
	data := func(s string) wal.Entry { return wal.Entry{Kind: wal.Data, Data: []byte(s)} }
	require.NoError(t, add(old, wal.EpochEntry(1), data("a")))

	p.Hold()
	late := make(chan error, 1)
	go func() { late <- add(old, data("late")) }()
	time.Sleep(250 * time.Millisecond) // its record and the first noops are on their way
	tail, err := next.Refresh(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, tail.LSN)
	require.NoError(t, add(next, wal.EpochEntry(2), data("b")))
	p.Release()
	err = <-late
	require.Equal(t, errs.NotOwner, errs.CodeOf(err))
	require.ErrorIs(t, err, wal.ErrStopped)
	require.NoError(t, add(next, data("c")))
	err = add(old, data("later"))
	require.Equal(t, errs.NotOwner, errs.CodeOf(err))

	// The other way round: it lands between the next owner's look at the end and its epoch.
	_, err = old.Refresh(t.Context())
	require.NoError(t, err)
	require.NoError(t, add(next, data("d")))
	require.Equal(t, errs.NotOwner, errs.CodeOf(add(old, wal.EpochEntry(3))))
	tail, err = old.Refresh(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2, tail.Epoch)
	require.NoError(t, add(old, wal.EpochEntry(3), data("e")))

	got, err := waltest.ReadAll(open(t, streams(t, srv.URLs(), options(srv, id))), 0)
	require.NoError(t, err)
	var all string
	for _, g := range got {
		if g.Entry.Kind == wal.Data {
			all += string(g.Entry.Data)
		}
		require.NotEqual(t, wal.Noop, g.Entry.Kind)
	}
	require.Equal(t, "abcde", all)
}

// Two that write the very same record do not both succeed (T4).
func TestSameRecord(t *testing.T) {
	t.Parallel()
	srv, id := servers(t, 1), newID(t)
	a, b := open(t, streams(t, srv.URLs(), options(srv, id))), open(t, streams(t, srv.URLs(), options(srv, id)))
	_, err := a.Append(t.Context(), []wal.Entry{wal.EpochEntry(1)})
	require.NoError(t, err)
	_, err = b.Append(t.Context(), []wal.Entry{wal.EpochEntry(1)})
	require.Equal(t, errs.NotOwner, errs.CodeOf(err))
}

// A full stream refuses what does not fit, keeps what is in it, and goes on after a
// purge; a large append that meets the end half way leaves nothing that shows.
func TestFull(t *testing.T) {
	t.Parallel()
	srv, id := servers(t, 1), newID(t)
	opts := options(srv, id)
	opts.MaxBytes, opts.Patience = 4<<20, 2*time.Second
	log := open(t, streams(t, srv.URLs(), opts))
	h := newHistory()
	large := slices.Repeat([]wal.Entry{{Kind: wal.Data, Data: make([]byte, 1<<20)}}, 5)
	_, err := log.Append(t.Context(), large)
	require.Equal(t, errs.StorageFull, errs.CodeOf(err))
	require.Zero(t, log.Tail().LSN, "nothing of it was written")
	for err = nil; err == nil; {
		err = h.append(log, 0, 2, 200_000)
	}
	require.Equal(t, errs.StorageFull, errs.CodeOf(err))
	require.NoError(t, log.Writes())
	require.Equal(t, errs.StorageFull, errs.CodeOf(h.append(log, 0, 30, 400_000)))
	h.check(t, log)

	require.NoError(t, log.Purge(t.Context(), log.Tail().LSN))
	before := log.Tail().LSN
	_, err = log.Append(t.Context(), []wal.Entry{{Kind: wal.Data, Data: make([]byte, 3<<20)}})
	require.NoError(t, err)
	got, err := waltest.ReadAll(log, before)
	require.NoError(t, err)
	require.Len(t, got, 1)

	// Another fills it behind our back: the server says that it is full.
	opts.Registerer = nil
	other := open(t, streams(t, srv.URLs(), opts))
	_, err = other.Append(t.Context(), []wal.Entry{{Kind: wal.Data, Data: make([]byte, 600<<10)}})
	require.NoError(t, err)
	_, err = log.Append(t.Context(), []wal.Entry{{Kind: wal.Data, Data: make([]byte, 300<<10)}})
	require.Contains(t, []errs.Code{errs.StorageFull, errs.NotOwner}, errs.CodeOf(err))
}

// A stream that is removed, made anew, or emptied below a log is corrupt_data for who
// appends and who reads, and not begun again in silence.
func TestStreamTampered(t *testing.T) {
	t.Parallel()
	srv := servers(t, 1)
	js := connect(t, srv.URLs()).JetStream()
	for what, harm := range map[string]func(name string) error{
		"removed": func(name string) error { return js.DeleteStream(t.Context(), name) },
		"made anew": func(name string) error {
			st, err := js.Stream(t.Context(), name)
			if err != nil {
				return err
			}
			cfg := st.CachedInfo().Config
			cfg.Metadata = map[string]string{"millrace_log_id": "0000000000000001", "millrace_cluster_id": cfg.Metadata["millrace_cluster_id"], "millrace_format": "1"}
			if err := js.DeleteStream(t.Context(), name); err != nil {
				return err
			}
			_, err = js.CreateStream(t.Context(), cfg)
			return err
		},
		"emptied": func(name string) error {
			st, err := js.Stream(t.Context(), name)
			if err != nil {
				return err
			}
			return st.Purge(t.Context())
		},
		"holed": func(name string) error {
			st, err := js.Stream(t.Context(), name)
			if err != nil {
				return err
			}
			return st.DeleteMsg(t.Context(), 15)
		},
		"cut": func(name string) error {
			st, err := js.Stream(t.Context(), name)
			if err != nil {
				return err
			}
			return st.DeleteMsg(t.Context(), 20)
		},
		"purged": func(name string) error {
			st, err := js.Stream(t.Context(), name)
			if err != nil {
				return err
			}
			return st.Purge(t.Context(), jetstream.WithPurgeSequence(10))
		},
		"written to": func(name string) error {
			_, err := js.Publish(t.Context(), "mr."+name[3:11]+".wal.0", []byte("hello"))
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			id := newID(t)
			opts := options(srv, id)
			opts.Patience = 5 * time.Second
			log := open(t, streams(t, srv.URLs(), opts))
			for i := range 20 {
				_, err := log.Append(t.Context(), []wal.Entry{{Kind: wal.Data, Data: waltest.Pattern(uint64(i), 100)}})
				require.NoError(t, err)
			}
			require.NoError(t, harm(cluster.NamesOf(id).LogStream(0)))
			got, err := waltest.ReadAll(log, 0)
			require.Equal(t, errs.CodeOf(err), errs.CorruptData)
			require.ErrorContains(t, err, cluster.NamesOf(id).LogStream(0))
			require.Equal(t, map[string]int{"holed": 14, "cut": 19, "written to": 20}[what], len(got), "what comes before it")
			require.Equal(t, what == "emptied" || what == "purged", errors.Is(err, wal.ErrPurged), err)
			_, err = log.Append(t.Context(), []wal.Entry{{Kind: wal.Data, Data: []byte("x")}})
			switch what {
			case "removed", "made anew":
				require.Equal(t, errs.CorruptData, errs.CodeOf(err))
			case "written to":
				require.Equal(t, errs.NotOwner, errs.CodeOf(err))
			default:
				require.NoError(t, err, "its place is known")
				return
			}
			_, err = log.Refresh(t.Context())
			require.Equal(t, errs.CorruptData, errs.CodeOf(err))
		})
	}
}

// A server without room for a stream refuses to make it, and says so.
func TestNoRoom(t *testing.T) {
	t.Parallel()
	srv, err := natstest.Start(t.Context(), natstest.Options{Dir: filepath.Join(t.TempDir(), "n"), MaxStore: 100 << 20})
	require.NoError(t, err)
	t.Cleanup(srv.Close)
	opts := options(srv, newID(t))
	opts.MaxBytes = 64 << 20
	s := streams(t, srv.URLs(), opts)
	_, err = s.Shard(t.Context(), 0)
	require.NoError(t, err)
	_, err = s.Shard(t.Context(), 1)
	require.Equal(t, errs.StorageFull, errs.CodeOf(err))
}

// Steps of a purge are cut where this log knows how much lies, and are short where it
// does not; all of it goes, but for the last record and what an entry needs that ends
// behind.
func TestPurgeInSteps(t *testing.T) {
	t.Parallel()
	srv, id := servers(t, 1), newID(t)
	log := open(t, streams(t, srv.URLs(), options(srv, id)))
	var ends []millrace.LSN
	for i := range 700 {
		size := 1000
		if i%100 == 50 {
			size = 5 << 20
		}
		lsn, err := log.Append(t.Context(), []wal.Entry{{Kind: wal.Data, Data: waltest.Pattern(uint64(i), size)}})
		require.NoError(t, err)
		ends = append(ends, lsn)
	}
	all, err := waltest.ReadAll(log, 0)
	require.NoError(t, err)
	require.Len(t, all, 700)
	for _, fresh := range []bool{false, true} {
		for _, n := range []int{20, 50, 51, 150, 280} {
			if fresh {
				log, n = open(t, streams(t, srv.URLs(), options(srv, id))), n+300
			}
			require.NoError(t, log.Purge(t.Context(), ends[n]))
			got, err := waltest.ReadAll(log, ends[n])
			require.NoError(t, err)
			require.Len(t, got, 699-n)
			require.Equal(t, all[n+1].Entry.Data, got[0].Entry.Data)
			if n > 51 {
				_, err = waltest.ReadAll(log, 10)
				require.ErrorIs(t, err, wal.ErrPurged)
			}
		}
	}
	// In the middle of an entry: what it needs stays.
	require.NoError(t, log.Purge(t.Context(), ends[650]-2))
	got, err := waltest.ReadAll(log, ends[650]-2)
	require.NoError(t, err)
	require.Len(t, got, 50)
	require.Equal(t, all[650].Entry.Data, got[0].Entry.Data)
	require.NoError(t, log.Purge(t.Context(), ends[699]+100))
	info, err := connect(t, srv.URLs()).JetStream().Stream(t.Context(), cluster.NamesOf(id).LogStream(0))
	require.NoError(t, err)
	require.EqualValues(t, 1, info.CachedInfo().State.Msgs)
	tail, err := open(t, streams(t, srv.URLs(), options(srv, id))).Refresh(t.Context())
	require.NoError(t, err)
	require.Equal(t, log.Tail(), tail)
}

// A record that does not belong where it is, or was changed, is found before an entry
// of it is given out (T5), by who replays and by who opens the log at it.
func TestForeignRecords(t *testing.T) {
	t.Parallel()
	srv := servers(t, 1)
	js := connect(t, srv.URLs()).JetStream()
	for what, forge := range map[string]func(id wal.ClusterID, tail wal.Tail) []byte{
		"another chain":   func(id wal.ClusterID, tail wal.Tail) []byte { tail.Hash++; return encode(id, 0, tail) },
		"another log":     func(id wal.ClusterID, tail wal.Tail) []byte { tail.LogID++; return encode(id, 0, tail) },
		"another number":  func(id wal.ClusterID, tail wal.Tail) []byte { tail.LSN++; return encode(id, 0, tail) },
		"another shard":   func(id wal.ClusterID, tail wal.Tail) []byte { return encode(id, 1, tail) },
		"another cluster": func(id wal.ClusterID, tail wal.Tail) []byte { id[3]++; return encode(id, 0, tail) },
		"an epoch before": func(id wal.ClusterID, tail wal.Tail) []byte { tail.Epoch--; return encode(id, 0, tail) },
		"a flipped bit":   func(id wal.ClusterID, tail wal.Tail) []byte { b := encode(id, 0, tail); b[len(b)-1] ^= 1; return b },
		"cut short":       func(id wal.ClusterID, tail wal.Tail) []byte { b := encode(id, 0, tail); return b[:len(b)-1] },
	} {
		id := newID(t)
		log := open(t, streams(t, srv.URLs(), options(srv, id)))
		for range 12 {
			_, err := log.Append(t.Context(), []wal.Entry{wal.EpochEntry(log.Tail().Epoch + 1)})
			require.NoError(t, err)
		}
		names := cluster.NamesOf(id)
		_, err := js.Publish(t.Context(), names.LogSubject(0), forge(id, log.Tail()))
		require.NoError(t, err)
		for _, after := range []millrace.LSN{0, 11} { // by a consumer, and one by one
			got, err := waltest.ReadAll(log, after)
			require.Equal(t, errs.CorruptData, errs.CodeOf(err), what)
			require.ErrorContains(t, err, names.LogStream(0)+" at sequence 13", what)
			require.Len(t, got, 12-int(after), what)
		}
		if _, err = log.Refresh(t.Context()); what != "another chain" && what != "an epoch before" { // the last record by itself does not tell
			require.Equal(t, errs.CorruptData, errs.CodeOf(err), what)
		}
	}
}

// encode makes the one record of an entry.
func encode(id wal.ClusterID, shard millrace.ShardID, tail wal.Tail) []byte {
	enc := wal.NewEncoder(id, shard)
	if err := enc.Encode(tail, []wal.Entry{{Kind: wal.Data, Data: []byte("forged")}}); err != nil {
		panic(err)
	}
	for _, rec := range enc.Records() {
		return bytes.Clone(rec)
	}
	return nil
}

// One that follows the log from where it stands sees each entry once, in order and
// whole, however the appends fall on its looks.
func TestFollow(t *testing.T) {
	t.Parallel()
	srv, id := servers(t, 1), newID(t)
	log, follower := open(t, streams(t, srv.URLs(), options(srv, id))), open(t, streams(t, srv.URLs(), options(srv, id)))
	const entries = 150
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; i < entries; {
			var batch []wal.Entry
			for ; len(batch) < 3 && i < entries; i++ {
				batch = append(batch, wal.Entry{Kind: wal.Data, Data: waltest.Pattern(uint64(i), []int{10, 5000, 500_000, 2_000_000}[i%4])})
			}
			if _, err := log.Append(context.Background(), batch); err != nil {
				t.Error(err)
				return
			}
		}
	})
	defer wg.Wait()
	var at millrace.LSN
	for n := 0; n < entries && !t.Failed(); {
		_, err := follower.Refresh(t.Context())
		require.NoError(t, err)
		to := at
		err = follower.Replay(t.Context(), at, func(lsn millrace.LSN, _ millrace.Epoch, e wal.Entry) error {
			require.True(t, bytes.Equal(waltest.Pattern(uint64(n), []int{10, 5000, 500_000, 2_000_000}[n%4]), e.Data), "entry %d", n)
			n, to = n+1, lsn
			return nil
		})
		require.NoError(t, err)
		at = max(to, at)
	}
}
