package storage_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/shard"
	"github.com/millrace/millrace/storage/storagetest"
)

// two are an owner and another node, with a table of each kind; small settings make
// every write move tails to segments and every few of them a checkpoint.
func two(t *testing.T) (*nodes, *node, *node) {
	c := newNodes(t, 7, 2)
	for _, n := range c.all {
		n.close(t)
		n.Opts.TailBytes, n.Opts.BucketTailBytes, n.Opts.CheckpointBytes = 4<<10, 1<<10, 8<<10
		n.start(t)
	}
	c.create(true)
	c.create(false)
	require.NoError(t, c.lead(c.all[0]))
	t.Cleanup(func() {
		for _, n := range c.all {
			n.close(t)
		}
	})
	return c, c.all[0], c.all[1]
}

func (c *nodes) writeSome(n int) {
	require.Empty(c.t, c.settle(c.sends(c.owner.Worker.Shard(0), n)))
}

// Shows that a follower takes checkpoints of its own and purges nothing of the log; that
// it says how far it is; and that what it holds on disk is what it begins with.
func TestFollower(t *testing.T) {
	c, owner, n := two(t)
	c.stream.Cuts = nil
	owner.close(t) // its checkpoints would purge
	owner.Opts.CheckpointBytes, owner.Opts.CheckpointEvery = 1<<40, time.Hour
	owner.start(t)
	require.NoError(t, c.lead(owner))
	before := c.stream.Purged()
	c.follow(n)
	clear(c.counts)
	for range 40 {
		c.writeSome(10)
	}
	f := n.Worker.Follower(0)
	require.NoError(t, f.CatchUp(context.Background()))
	at, lag := f.Position()
	require.Zero(t, lag)
	require.Equal(t, owner.Worker.Shard(0).Status().LSN, at)
	require.Equal(t, before, c.stream.Purged())
	names, err := n.FS.List(n.Worker.ShardDir(0))
	require.NoError(t, err)
	require.True(t, strings.Contains(strings.Join(names, " "), "manifest-"), "%v", names)
	require.NoError(t, n.Worker.Abandon(context.Background(), 0))
	// The log has lost what the manifest holds: only the files can have it.
	require.NoError(t, n.log.Purge(context.Background(), at/4))
	c.follow(n)
	require.Zero(t, c.counts["restored"])
	require.NoError(t, c.lead(n))
	c.check(n)
}

// Shows that a follower whose reading of the log ends anywhere, also between the entries
// of a record, goes on from there.
func TestFollowerIsCutOff(t *testing.T) {
	ctx := context.Background()
	c, owner, n := two(t)
	c.stream.Cuts = nil
	owner.log.KeepAll()
	n.close(t)
	n.Opts.FollowEvery = time.Hour
	n.start(t)
	c.follow(n)
	for range 8 {
		c.writeSome(15)
	}
	f, cuts := n.Worker.Follower(0), 0
	for k := 1; ; k++ {
		read := 0
		c.stream.Cuts = func() bool {
			read++
			return read == k
		}
		err := f.CatchUp(ctx)
		if err == nil {
			break
		}
		require.True(t, errs.Is(err, errs.Unavailable), "%v", err)
		cuts++
	}
	require.Greater(t, cuts, 10)
	require.NoError(t, c.lead(n))
	c.check(n)
}

// Shows that the files of a follower are thrown away when the log is another one, or
// went another way; that they are kept, and everybody is told, when the log has lost its
// end; and that an owner serves neither.
func TestFollowerOfAnotherLog(t *testing.T) {
	ctx := context.Background()
	for name, damage := range map[string]func(c *nodes){
		"another": func(c *nodes) {
			end := c.all[1].log.Tail().LSN
			c.stream.Begin(99)
			for c.stream.Open().Tail().LSN <= end {
				c.stream.Noop()
			}
		},
		"went another way": func(c *nodes) {
			end := c.all[1].log.Tail().LSN
			c.stream.SetBack(3)
			for c.stream.Open().Tail().LSN <= end {
				c.stream.Noop()
			}
		},
		"lost its end": func(c *nodes) { c.stream.SetBack(3) },
	} {
		t.Run(name, func(t *testing.T) {
			c, owner, n := two(t)
			c.stream.Cuts = nil
			for _, nd := range c.all {
				nd.close(t)
				nd.Opts.CheckpointBytes = 1 << 40
				nd.start(t)
			}
			c.owner = nil
			c.stream.Begin(98)
			require.NoError(t, shard.Discard(owner.FS, owner.Worker.ShardDir(0)))
			require.NoError(t, c.lead(owner))
			c.follow(n)
			c.writeSome(50)
			require.NoError(t, n.Worker.Follower(0).CatchUp(ctx))
			require.NoError(t, c.lead(n)) // so that its files have a manifest
			owner.log.Cut()
			n.log.KeepAll()
			require.NoError(t, n.Worker.Shard(0).Checkpoint(ctx))
			n.log.Cut()
			c.leave(owner)
			c.leave(n)
			damage(c)
			_, err := n.Worker.Open(ctx, 0, n.open(c.stream), n.lease())
			require.True(t, errs.Is(err, errs.CorruptData), "%v", err)
			require.Nil(t, n.Worker.Shard(0))
			_, err = n.Worker.Follow(ctx, 0, n.open(c.stream))
			if name == "lost its end" {
				require.True(t, errs.Is(err, errs.CorruptData), "%v", err)
				require.ErrorContains(t, err, "ends at record 3 and was at")
				names, err := n.FS.List(n.Worker.ShardDir(0))
				require.NoError(t, err)
				require.Contains(t, strings.Join(names, " "), "manifest-")
				return
			}
			require.NoError(t, err)
			require.NoError(t, c.lead(n))
			for _, m := range c.tables { // what it serves is the log's
				for b := range m.Buckets {
					_, v, err := n.Worker.Shard(0).Log(m.BucketID(uint16(b)))
					require.NoError(t, err)
					if name == "another" {
						require.Nil(t, v)
					} else if v != nil {
						require.LessOrEqual(t, int(v.End), len(m.Buckets[b].Log))
					}
				}
			}
		})
	}
}

// Shows that a shard can be opened, followed, promoted, handed over and abandoned again
// and again in one process, and leaves nothing behind.
func TestComeAndGo(t *testing.T) {
	c, owner, n := two(t)
	c.stream.Cuts = nil
	for _, nd := range c.all { // a checkpoint of the owner may purge what is not followed yet
		nd.close(t)
		nd.Opts.CheckpointBytes, nd.Opts.CheckpointEvery = 1<<40, time.Hour
		nd.start(t)
	}
	require.NoError(t, c.lead(owner))
	c.writeSome(20)
	base := 0
	for i := range 30 {
		if n.Worker.Follower(0) == nil {
			c.follow(n)
		}
		c.writeSome(5)
		require.NoError(t, n.Worker.Follower(0).CatchUp(context.Background()))
		if i%3 == 2 {
			c.leave(owner)
		} else {
			require.NoError(t, owner.Worker.Resign(context.Background(), 0))
		}
		c.owner = nil
		require.NoError(t, c.lead(n))
		c.check(n)
		owner, n = n, owner
		if i == 3 {
			base = runtime.NumGoroutine()
		}
	}
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= base+5 }, time.Minute, 10*time.Millisecond, "%d goroutines, %d after the first rounds", runtime.NumGoroutine(), base)
}

// Shows that who waits for the end of a follower hears of it, also when it was promoted or
// closed: nobody waits for ever.
func TestFollowerEnds(t *testing.T) {
	c, owner, n := two(t)
	c.stream.Cuts = nil
	c.follow(n)
	first := n.Worker.Follower(0)
	require.NoError(t, n.Worker.Abandon(context.Background(), 0))
	<-first.Stopped()
	c.follow(n)
	second := n.Worker.Follower(0)
	select {
	case <-second.Stopped():
		require.Fail(t, "it goes on")
	default:
	}
	c.leave(owner)
	c.owner = nil
	require.NoError(t, c.lead(n))
	<-second.Stopped()
	require.NoError(t, second.Err())
}

// Shows what those meet who read from a shard that is handed over: a walk over a
// snapshot goes on until Close has waited long enough, then ends with not_owner; who
// waits for changes is woken; and the directory is free when the last reader has left.
func TestResignWithReaders(t *testing.T) {
	ctx := context.Background()
	c, owner, _ := two(t)
	tbl := c.tables[0]
	for range 20 {
		c.writeSome(20)
	}
	s := owner.Worker.Shard(0)
	bucket := uint16(0)
	for b := range tbl.Buckets {
		if len(tbl.Buckets[b].State) > len(tbl.Buckets[bucket].State) {
			bucket = uint16(b)
		}
	}
	require.Greater(t, len(tbl.Buckets[bucket].State), 2)
	sn, err := s.Snapshot()
	require.NoError(t, err)
	rows, err := sn.Rows(ctx, tbl.BucketID(bucket), nil, nil)
	require.NoError(t, err)
	require.True(t, rows.Next())
	woken := make(chan struct{}, 1)
	defer s.Subscribe(woken, []millrace.BucketID{tbl.BucketID(bucket)}).Close()
	select {
	case <-woken:
	default:
	}
	require.NoError(t, s.Resign(ctx))
	<-woken
	<-s.Stopped()
	require.True(t, rows.Next(), "a walk goes on")
	_, err = s.Snapshot()
	require.True(t, errs.Is(err, errs.NotOwner))
	_, _, err = s.Log(tbl.BucketID(bucket))
	require.True(t, errs.Is(err, errs.NotOwner))
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	require.Error(t, s.Close(short))
	require.False(t, rows.Next())
	require.True(t, errs.Is(rows.Close(), errs.NotOwner))
	select {
	case <-s.Closed():
		t.Fatal("closed under a reader")
	default:
	}
	sn.Release()
	<-s.Closed()
	require.NoError(t, owner.Worker.Abandon(ctx, 0))
	require.NoError(t, c.lead(owner))
	c.check(owner)
}

// Shows that a log that refuses for the moment costs the writes it refused and nothing
// else: the shard goes on, also with a drop that was repeated while it was refused.
func TestLogRefuses(t *testing.T) {
	ctx := context.Background()
	c, owner, _ := two(t)
	var hold atomic.Bool
	release := make(chan struct{})
	owner.close(t)
	owner.Opts.Hook = func(point string) {
		if point == "log:before" && hold.Load() {
			<-release
		}
	}
	owner.start(t)
	require.NoError(t, c.lead(owner))
	s := owner.Worker.Shard(0)
	c.writeSome(20)
	refuse := func(on bool) {
		c.stream.SetFault(func() storagetest.Fault {
			if on {
				return storagetest.Refused
			}
			return storagetest.NoFault
		})
	}
	refuse(true)
	for _, o := range c.sends(s, 10) {
		_, err := o.p.Wait(ctx)
		require.True(t, err == nil || errs.CodeOf(err) != errs.UnknownOutcome, "%v", err)
	}
	dropped := make(chan error, 2)
	hold.Store(true)
	for range 2 { // the second while the first is under way
		go func() { dropped <- s.DropTable(ctx, c.tables[1].ID) }()
		time.Sleep(20 * time.Millisecond)
	}
	hold.Store(false)
	close(release)
	err := errors.Join(<-dropped, <-dropped)
	require.True(t, errs.Is(err, errs.Unavailable), "%v", err)
	require.NoError(t, s.Err())
	refuse(false)
	c.writeSome(20)
	c.check(owner)
	require.NoError(t, s.DropTable(ctx, c.tables[1].ID))
	_, v, err := s.Log(c.tables[1].BucketID(0))
	require.NoError(t, err)
	require.Nil(t, v)
}
