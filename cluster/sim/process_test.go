package sim_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/cluster/owner"
	"github.com/millrace/millrace/cluster/owner/ownertest"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/objstore/objstoretest"
	"github.com/millrace/millrace/storage"
	"github.com/millrace/millrace/storage/remote"
	"github.com/millrace/millrace/storage/shard"
	"github.com/millrace/millrace/storage/storagetest"
)

// process is a worker process: what the server makes of a worker and a manager.
type process struct {
	w       *world
	name    string
	fs      *vfs.MemFS
	worker  *storage.Worker
	manager *owner.Manager
	keys    *ownertest.Client
	objects *objstoretest.Faulty
	remote  *remote.Store

	gone context.Context //nolint:containedctx // the process's life
	kill context.CancelFunc

	bootSkew, wallSkew atomic.Int64
	noLog              atomic.Bool
	logFaults          atomic.Int64 // of 100 appends
	seed               uint64
	opened             atomic.Uint64

	mu    sync.Mutex
	calls map[millrace.ShardID]int  // of the manager, under way
	after map[millrace.ShardID]bool // what is to be abandoned when they have ended
}

// Boot implements owner.Clock.
func (p *process) Boot() time.Duration {
	return time.Since(p.w.began) + time.Duration(p.bootSkew.Load())
}

// Now implements shard.Clock.
func (p *process) Now() time.Time { return time.Now().Add(time.Duration(p.wallSkew.Load())) }

// sleep waits, unless the process is killed.
func (p *process) sleep(d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-p.gone.Done():
		return errors.New("the process was killed")
	}
}

func (w *world) start(name string, fs *vfs.MemFS) error {
	p := &process{
		w: w, name: name, fs: fs, keys: w.store.Client(), objects: objstoretest.NewFaulty(w.objects), seed: w.rng.Uint64(),
		calls: map[millrace.ShardID]int{}, after: map[millrace.ShardID]bool{},
	}
	p.gone, p.kill = context.WithCancel(context.Background())
	p.bootSkew.Store(int64(w.rng.IntN(7200)) * int64(time.Second))
	p.wallSkew.Store(int64(w.rng.IntN(20)-10) * int64(time.Second))
	p.logFaults.Store(int64(w.rng.IntN(4)))
	log := slog.New(slog.DiscardHandler)
	if w.verbose {
		log = slog.New(slog.NewTextHandler(w.t.Output(), nil)).With(slog.String("process", name))
	}
	var err error
	if p.remote, err = remote.Open(remote.Options{
		Cluster: clusterID, CacheBytes: 64 << 10, Objects: p.objects, Clock: p, Logger: log, Registerer: prometheus.NewRegistry(),
	}); err != nil {
		return err
	}
	o := w.opts
	o.FS, o.Clock, o.Logger, o.Registerer = fs, p, log, prometheus.NewRegistry()
	o.Remote = func(id millrace.ShardID) shard.Remote {
		r := shard.Remote(p.remote.Shard(id))
		if w.bug == earlyPurge {
			return hastyRemote{r, w.streams[id]}
		}
		return r
	}
	if p.worker, err = storage.New(o); err != nil {
		return err
	}
	n := 0
	p.manager = owner.New(owner.Options{
		Worker: name, Info: owner.Info{Roles: []string{owner.RoleWorker}}, Keys: p.keys, Host: p,
		Shards: func() int { return shards }, Clock: p, Logger: log,
		Random: func() string { n++; return fmt.Sprintf("%s-%x-%d", name, p.seed, n) },
		Last:   incarnation(fs), Remember: func(s string) error { return remember(fs, s) },
	})
	w.procs[name] = p
	return p.manager.Start(p.gone)
}

const incarnationFile = "incarnation"

// incarnation is the one that a data directory remembers.
func incarnation(fs vfs.FS) string {
	f, err := fs.Open(incarnationFile)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, _ := io.ReadAll(f)
	return string(b)
}

func remember(fs vfs.FS, s string) error {
	f, err := fs.Create(incarnationFile, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write([]byte(s))
	return errors.Join(err, f.Sync(), f.Close())
}

// crash ends a process without a word, and gives what it leaves on its disk.
func (w *world) crash(p *process, percentUnsynced int) *vfs.MemFS {
	p.kill()
	p.keys.Cut()
	p.objects.Heal()
	p.objects.Add(objstoretest.Fault{Times: -1, Err: errs.New(errs.Unavailable, "the process was killed")})
	image := (&storagetest.World{TB: w.t, Seed: p.seed, FS: p.fs}).Image(percentUnsynced)
	delete(w.procs, p.name)
	p.manager.Kill()
	w.close(p)
	return image
}

func (w *world) close(p *process) {
	p.kill()
	for id := range millrace.ShardID(shards) {
		_ = p.worker.Abandon(context.Background(), id)
	}
	_ = p.worker.Close(context.Background())
	p.remote.Close()
}

// drain ends a process in order.
func (w *world) drain(p *process) {
	ctx, cancel := context.WithTimeout(p.gone, 8*time.Second)
	p.manager.Drain(ctx)
	cancel()
	delete(w.procs, p.name)
	ctx, cancel = context.WithTimeout(p.gone, 20*time.Second)
	_ = p.manager.Stop(ctx)
	cancel()
	w.close(p)
}

func (p *process) log(id millrace.ShardID) *faultyLog {
	return &faultyLog{Log: p.w.streams[id].Open(), p: p, rng: rand.New(rand.NewPCG(p.seed, p.opened.Add(1)))}
}

// Lead implements owner.Host.
func (p *process) Lead(ctx context.Context, id millrace.ShardID, least millrace.Epoch, valid func() error) (millrace.Epoch, error) {
	defer p.call(id)()
	if p.w.bug == staleRead {
		valid = func() error { return nil }
	}
	sh, err := p.open(ctx, id, storage.Lease{MinEpoch: least, Valid: valid})
	if err != nil {
		return 0, err
	}
	p.w.count("led")
	go p.watch(id, sh.Stopped(), sh.Err)
	return sh.Status().Epoch, nil
}

func (p *process) open(ctx context.Context, id millrace.ShardID, on storage.Lease) (*shard.Shard, error) {
	if p.gone.Err() != nil {
		return nil, p.gone.Err()
	}
	if p.worker.Follower(id) != nil {
		sh, err := p.worker.Promote(ctx, id, on)
		if err == nil {
			p.w.count("promoted")
			return sh, nil
		}
		_ = p.worker.Abandon(ctx, id)
	}
	sh, err := p.worker.Open(ctx, id, p.log(id), on)
	if err != nil && !passing(err) {
		p.w.cause(err)
	}
	return sh, err
}

// watch tells when a shard stops by itself.
func (p *process) watch(id millrace.ShardID, stopped <-chan struct{}, why func() error) {
	select {
	case <-stopped:
	case <-p.gone.Done():
		return
	}
	sh, f := p.worker.Shard(id), p.worker.Follower(id)
	if sh != nil && sh.Stopped() == stopped || f != nil && f.Stopped() == stopped {
		err := why()
		p.abandon(id)
		p.manager.Stopped(id, err)
	}
}

// Resign implements owner.Host.
func (p *process) Resign(ctx context.Context, id millrace.ShardID) error {
	defer p.call(id)()
	p.w.count("resigned")
	return p.worker.Resign(ctx, id)
}

// Abandon implements owner.Host: calls for one shard come one at a time.
func (p *process) Abandon(id millrace.ShardID) {
	if p.abandon(id) {
		p.w.broke(fmt.Errorf("shard %d is abandoned by %s while another call is under way", id, p.name))
	}
}

// abandon ends what is open, after the call that is under way, if one is: the worker would
// wait for it in a mutex, and the bubble's clock would stand still for both.
func (p *process) abandon(id millrace.ShardID) (under bool) {
	p.mu.Lock()
	under = p.calls[id] > 0
	p.after[id] = under
	p.mu.Unlock()
	if !under {
		_ = p.worker.Abandon(context.Background(), id)
	}
	return under
}

// call notes that a call for a shard is under way, until end is called.
func (p *process) call(id millrace.ShardID) (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls[id]++
	return func() {
		p.mu.Lock()
		p.calls[id]--
		due := p.calls[id] == 0 && p.after[id]
		if due {
			p.after[id] = false
		}
		p.mu.Unlock()
		if due {
			p.w.count("abandoned after a call")
			_ = p.worker.Abandon(context.Background(), id)
		}
	}
}

// Follow implements owner.Host.
func (p *process) Follow(ctx context.Context, id millrace.ShardID) error {
	defer p.call(id)()
	f, err := p.worker.Follow(ctx, id, p.log(id))
	if err != nil {
		return err
	}
	p.w.count("followed")
	go p.watch(id, f.Stopped(), f.Err)
	return nil
}

// Standings implements owner.Host.
func (p *process) Standings() map[millrace.ShardID]owner.Standing {
	out := map[millrace.ShardID]owner.Standing{}
	for id := range millrace.ShardID(shards) {
		if f := p.worker.Follower(id); f != nil {
			lsn, behind := f.Position()
			out[id] = owner.Standing{LSN: lsn, Behind: behind, Ready: lsn > 0 && behind <= 64}
		}
	}
	return out
}

// passing says whether an error is of those that come and go.
func passing(err error) bool {
	return slices.Contains([]errs.Code{errs.NotOwner, errs.Unavailable, errs.Overloaded, errs.Draining, errs.UnknownOutcome}, errs.CodeOf(err)) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
