package keyvalue_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/catalog/catalogtest"
	"github.com/millrace/millrace/cluster/keyvalue"
	"github.com/millrace/millrace/cluster/natstest"
	"github.com/millrace/millrace/errs"
)

// While the leader of the stream is killed or paused and started again, what clients are
// told could have happened one after the other, and commits go on.
func TestLeaderFaults(t *testing.T) {
	t.Parallel()
	servers := natstest.StartT(t, 3)
	var stores []*keyvalue.Store
	for range 3 {
		stores = append(stores, openStore(t, servers, keyvalue.Options{}))
	}
	h, made := &catalogtest.History{}, catalogtest.Made(t, stores[0])
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i, s := range stores {
		wg.Go(func() { h.Run(ctx, i, s) })
	}
	for _, fault := range []string{"kill", "pause"} {
		time.Sleep(200 * time.Millisecond)
		leader, err := servers.StreamLeader(ctx, "mr_"+name(t)+"_catalog")
		require.NoError(t, err)
		if leader == nil {
			continue
		}
		if fault == "kill" {
			leader.Kill()
			time.Sleep(500 * time.Millisecond)
			require.NoError(t, leader.Start())
		} else {
			require.NoError(t, leader.Pause())
			time.Sleep(2 * time.Second)
			require.NoError(t, leader.Resume())
		}
		require.NoError(t, servers.Ready(ctx))
	}
	time.Sleep(500 * time.Millisecond)
	cancel()
	wg.Wait()
	time.Sleep(time.Second) // what was sent and not answered may come still
	h.Check(t, made(), 50)
	for _, s := range stores {
		require.NoError(t, s.Err())
	}
}

// commits makes n commits, each with a new value of "guard" and of one of seven keys.
func commits(t testing.TB, s *keyvalue.Store, revision uint64, n int) uint64 {
	t.Helper()
	for i := range n {
		var err error
		revision, err = s.Commit(t.Context(), revision, catalog.Write{Key: "guard", Value: fmt.Appendf(nil, "%d", i)}, catalog.Write{Key: fmt.Sprint("k", i%7), Value: fmt.Appendf(nil, "%d", i)})
		require.NoError(t, err)
	}
	return revision
}

func entries(t testing.TB, s *keyvalue.Store) []catalog.Entry {
	t.Helper()
	all, _, err := s.Load(t.Context())
	require.NoError(t, err)
	return all
}

// messages counts the messages of subjects below mr.<name>.catalog.
func messages(t testing.TB, servers *natstest.Servers, below string) uint64 {
	t.Helper()
	stream := streamOf(t, servers)
	info, err := stream.Info(t.Context(), jetstream.WithSubjectFilter("mr."+name(t)+".catalog."+below))
	require.NoError(t, err)
	n := uint64(0)
	for _, of := range info.State.Subjects {
		n += of
	}
	return n
}

func streamOf(t testing.TB, servers *natstest.Servers) jetstream.Stream {
	t.Helper()
	stream, err := connect(t, servers).JetStream().Stream(t.Context(), "mr_"+name(t)+"_catalog")
	require.NoError(t, err)
	return stream
}

// Compaction keeps two snapshots and the commits after the older one, and who opens the
// store then finds everything; so does one that was behind.
func TestCompaction(t *testing.T) {
	servers := natstest.StartT(t, 1)
	a := openStore(t, servers, keyvalue.Options{})
	revision := uint64(0)
	for round := range 4 {
		revision = commits(t, a, revision, 10)
		require.NoError(t, a.Compact(t.Context()))
		require.EqualValues(t, min(2, round+1)*2, messages(t, servers, "snapshot.>"), "a part and an end each")
		require.EqualValues(t, 10, messages(t, servers, "commit"), "round %d", round)
	}
	require.Equal(t, entries(t, a), entries(t, openStore(t, servers, keyvalue.Options{})))
}

// Wherever a process ends in the middle of a compaction, also when another compacts at
// the same time, the store opens with everything, and the next compaction cleans up.
func TestCompactionCutShort(t *testing.T) {
	servers := natstest.StartT(t, 1)
	a, b := openStore(t, servers, keyvalue.Options{}), openStore(t, servers, keyvalue.Options{})
	cut := errors.New("cut short")
	revision, steps := uint64(0), map[string]int{}
	for at := 0; ; at++ {
		revision = commits(t, a, revision, 5)
		_, err := b.Sync(t.Context())
		require.NoError(t, err)
		n, done := 0, false
		keyvalue.FailCompaction(a, func(step string) error {
			if n++; n > at {
				return cut
			}
			steps[step]++
			return nil
		})
		var wg sync.WaitGroup
		if at%2 == 0 {
			wg.Go(func() {
				if err := b.Compact(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		if err := a.Compact(t.Context()); err == nil {
			done = true
		} else {
			require.ErrorIs(t, err, cut)
		}
		wg.Wait()
		fresh := openStore(t, servers, keyvalue.Options{})
		require.Equal(t, entries(t, a), entries(t, fresh), "step %d", at)
		require.NoError(t, fresh.Close())
		if done && at > 5 {
			break
		}
		require.Less(t, at, 50)
	}
	keyvalue.FailCompaction(a, nil)
	for range 2 {
		revision = commits(t, a, revision, 5)
		require.NoError(t, a.Compact(t.Context()))
	}
	require.EqualValues(t, 4, messages(t, servers, "snapshot.>"), "what was left half done is gone")
	for _, step := range []string{"part", "purge commits", "purge snapshot", "purge parts"} {
		require.Positive(t, steps[step], step)
	}
}

// A process that was cut off while commits were purged begins with the snapshot, and its
// followers get everything instead of the commits.
func TestBehindPurge(t *testing.T) {
	servers := natstest.StartT(t, 1)
	a, b := openStore(t, servers, keyvalue.Options{}), openStore(t, servers, keyvalue.Options{})
	revision := commits(t, a, 0, 5)
	_, err := b.Sync(t.Context())
	require.NoError(t, err)
	hear := keyvalue.Deafen(b)
	for range 3 {
		revision = commits(t, a, revision, 5)
		require.NoError(t, a.Compact(t.Context()))
	}
	got := make(chan catalog.Committed, 100)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- b.Follow(ctx, 5, func(c catalog.Committed) error {
			got <- c
			return nil
		})
	}()
	hear()
	_, err = b.Sync(t.Context())
	require.NoError(t, err)
	require.Equal(t, entries(t, a), entries(t, b))
	whole := false
	for c := (catalog.Committed{}); c.Revision < revision; {
		c = <-got
		whole = whole || c.Whole
	}
	require.True(t, whole)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}

// damage publishes b in the place of a message of a subject: the stream has it as the
// subject's last one.
func damage(t *testing.T, servers *natstest.Servers, subject string, change func([]byte) []byte) uint64 {
	t.Helper()
	m, err := streamOf(t, servers).GetLastMsgForSubject(t.Context(), subject)
	require.NoError(t, err)
	ack, err := connect(t, servers).JetStream().Publish(t.Context(), subject, change(bytes.Clone(m.Data)))
	require.NoError(t, err)
	return ack.Sequence
}

// logged is a log that a test reads.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A commit that is damaged stops whoever follows, and whoever opens the store, with
// corrupt_data, stream and sequence; its writes are not applied.
func TestDamagedCommit(t *testing.T) {
	servers := natstest.StartT(t, 1)
	for i, change := range []func([]byte) []byte{
		func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		func(b []byte) []byte { return b[:len(b)-1] },
		func([]byte) []byte { return nil },
		func(b []byte) []byte { return b }, // whole, and not behind the one before
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			a := openStore(t, servers, keyvalue.Options{})
			commits(t, a, 0, 3)
			before := entries(t, a)
			followed := make(chan error, 1)
			go func() { followed <- a.Follow(t.Context(), 0, func(catalog.Committed) error { return nil }) }()
			sequence := damage(t, servers, "mr."+name(t)+".catalog.commit", change)
			_, err := a.Sync(t.Context())
			for _, err := range []error{err, a.Err(), <-followed} {
				require.True(t, errs.Is(err, errs.CorruptData), "%v", err)
				require.ErrorContains(t, err, fmt.Sprintf("message %d of stream mr_%s_catalog", sequence, name(t)))
			}
			_, err = a.Commit(t.Context(), before[0].Revision, catalog.Write{Key: "guard", Value: []byte("x")})
			require.True(t, errs.Is(err, errs.Unavailable), "%v", err)
			_, err = keyvalue.Open(t.Context(), keyvalue.Options{
				Cluster: name(t), Replicas: 1, Conn: connect(t, servers), Clock: clock{}, Logger: slog.New(slog.DiscardHandler),
			})
			require.True(t, errs.Is(err, errs.CorruptData), "%v", err)
		})
	}
}

// A newest snapshot that is damaged is passed over for the one before, loudly.
func TestDamagedSnapshot(t *testing.T) {
	servers := natstest.StartT(t, 1)
	for _, part := range []string{"00001", "end", "missing"} {
		t.Run(part, func(t *testing.T) {
			a := openStore(t, servers, keyvalue.Options{})
			revision := commits(t, a, 0, 5)
			require.NoError(t, a.Compact(t.Context()))
			revision = commits(t, a, revision, 5)
			require.NoError(t, a.Compact(t.Context()))
			commits(t, a, revision, 5)
			stream := streamOf(t, servers)
			info, err := stream.Info(t.Context(), jetstream.WithSubjectFilter("mr."+name(t)+".catalog.snapshot.>"))
			require.NoError(t, err)
			newest := ""
			for subject := range info.State.Subjects {
				if strings.HasSuffix(subject, map[bool]string{true: "00001", false: part}[part == "missing"]) {
					newest = max(newest, subject)
				}
			}
			if part == "missing" {
				require.NoError(t, stream.Purge(t.Context(), jetstream.WithPurgeSubject(newest)))
			} else {
				damage(t, servers, newest, func(b []byte) []byte {
					b[rand.IntN(len(b))] ^= 1 << rand.IntN(8)
					return b
				})
			}
			said := &logged{}
			fresh := openStore(t, servers, keyvalue.Options{Logger: slog.New(slog.NewTextHandler(said, nil))})
			require.Equal(t, entries(t, a), entries(t, fresh))
			require.Contains(t, said.String(), "level=ERROR")
			require.Contains(t, said.String(), "mr_"+name(t)+"_catalog")
			// A compaction does not count it among the two that stay.
			require.NoError(t, fresh.Compact(t.Context()))
			require.Equal(t, entries(t, a), entries(t, openStore(t, servers, keyvalue.Options{})))
			require.EqualValues(t, 10, messages(t, servers, "commit"), "those since the older one that can be read")
		})
	}
}

// Of processes that make the first commit at the same time one wins, and all go by it.
func TestFirstCommit(t *testing.T) {
	servers := natstest.StartT(t, 3)
	ids, wg := make(chan [16]byte, 4), sync.WaitGroup{}
	for range 4 {
		s := openStore(t, servers, keyvalue.Options{})
		wg.Go(func() {
			c, err := catalog.OpenKV(t.Context(), s, catalog.Options{Clock: time.Now, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Error(err)
				return
			}
			ids <- c.ClusterID()
			t.Cleanup(func() { require.NoError(t, c.Close()) })
		})
	}
	wg.Wait()
	first := <-ids
	for range 3 {
		require.Equal(t, first, <-ids)
	}
}

// A commit whose answer is lost is settled: it is there once, or another is in its place,
// and its caller knows which.
func TestLostAnswers(t *testing.T) {
	servers := natstest.StartT(t, 1)
	a, b := openStore(t, servers, keyvalue.Options{}), openStore(t, servers, keyvalue.Options{})
	for i, s := range []*keyvalue.Store{a, b} {
		rng := rand.New(rand.NewPCG(uint64(i), 1))
		keyvalue.LoseAnswers(s, func() bool { return rng.IntN(2) == 0 })
	}
	h, made := &catalogtest.History{}, catalogtest.Made(t, a)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for i, s := range []*keyvalue.Store{a, b} {
		wg.Go(func() { h.Run(ctx, i, s) })
	}
	wg.Wait()
	time.Sleep(100 * time.Millisecond)
	h.Check(t, made(), 20)

	// When ctx ends first, the caller is told that nobody knows.
	c := openStore(t, servers, keyvalue.Options{})
	keyvalue.LoseAnswers(c, func() bool { return true })
	keyvalue.Deafen(c)
	short, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer stop()
	_, err := c.Commit(short, 0, catalog.Write{Key: "unknown", Value: []byte("x")})
	require.True(t, errs.Is(err, errs.UnknownOutcome), "%v", err)
}

// Commits go on over kills of the server, each made once.
func TestCommitsOverKills(t *testing.T) {
	servers := natstest.StartT(t, 1)
	s := openStore(t, servers, keyvalue.Options{})
	killed := make(chan error, 1)
	go func() {
		for range 4 {
			time.Sleep(time.Duration(50+rand.IntN(100)) * time.Millisecond)
			servers.Server(0).Kill()
			if err := errors.Join(servers.Server(0).Start(), servers.Ready(t.Context())); err != nil {
				killed <- err
				return
			}
		}
		close(killed)
	}()
	revision, n := uint64(0), 0
	for done := false; !done; n++ {
		select {
		case err := <-killed:
			require.NoError(t, err)
			done = true
		default:
		}
		next, err := s.Commit(t.Context(), revision, catalog.Write{Key: "guard", Value: fmt.Appendf(nil, "%d", n)})
		if errs.Is(err, errs.Unavailable) { // there was no connection: none of it is there
			n--
			continue
		}
		require.NoError(t, err)
		require.Greater(t, next, revision)
		revision = next
	}
	require.EqualValues(t, n, messages(t, servers, "commit"))
	require.Equal(t, entries(t, s), entries(t, openStore(t, servers, keyvalue.Options{})))
}
