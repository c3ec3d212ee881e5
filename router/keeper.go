package router

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// KeeperCatalog is what a Keeper needs of the catalog, besides what a Router does.
type KeeperCatalog interface {
	// AllTables are all tables.
	AllTables() []*millrace.Table
	// Revision counts the changes made so far.
	Revision() int64
	// ExpirePartitions says that partitions of an auto-partitioned table that begin
	// before a time are never made again.
	ExpirePartitions(ctx context.Context, table millrace.TableID, before time.Time) error
}

// Keeper makes the partitions of auto-partitioned tables ahead of time, ends those that
// are older than is kept, and finishes what a crash or an error left half done of the
// end of a partition. It belongs to one goroutine.
type Keeper struct {
	r         *Router
	cat       KeeperCatalog
	done      map[millrace.TableID]kept
	takeovers takeovers
	dropTime  time.Duration
	hangs     error // of the pass under way: the lake takes calls and does not answer
}

// kept is a table as it was when nothing was left to do for it.
type kept struct {
	partitions []*millrace.Partition
	version    int64
	period     time.Time
	due        time.Time // when something will be left to do; zero: not known
}

// NewKeeper makes a keeper of the router's tables.
func NewKeeper(r *Router, cat KeeperCatalog) *Keeper {
	return &Keeper{r: r, cat: cat, dropTime: dropTime, done: map[millrace.TableID]kept{}, takeovers: takeovers{r: r, tables: map[millrace.TableID]*takeover{}}}
}

const (
	// keepEvery is how soon a table that was made or changed is looked at.
	keepEvery = time.Second
	// keepAtLeast is how often all are, since periods end.
	keepAtLeast = 10 * time.Second
)

// Run keeps partitions until ctx ends, while it is this process's turn; nil: always. Two
// that keep at once do no harm.
func (k *Keeper) Run(ctx context.Context, turn func() bool) {
	defer k.Wait()
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	seen, last := int64(-1), time.Time{}
	for {
		if turn != nil && !turn() {
			seen = -1 // what others did meanwhile is not known
		} else if rev, now := k.cat.Revision(), k.r.o.Clock.Now(); rev != seen || now.Sub(last) >= keepAtLeast {
			seen, last = rev, now
			k.Pass(ctx)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Wait returns when the lake has taken over what passes began to give it, or cannot.
func (k *Keeper) Wait() { k.takeovers.wg.Wait() }

// Pass does what there is to do now. What cannot be done is tried again by the next one;
// what goes to the lake goes on after it.
func (k *Keeper) Pass(ctx context.Context) {
	there := map[millrace.TableID]bool{}
	k.hangs = nil
	for _, t := range k.cat.AllTables() {
		if !t.Partitioned() {
			continue
		}
		there[t.ID] = true
		err := k.keep(ctx, t)
		if err != nil && ctx.Err() == nil && !errs.Is(err, errs.TableNotFound) {
			k.r.o.Logger.ErrorContext(ctx, "partitions are not kept, it is tried again", slog.String("table", t.Path.String()), errAttr(err))
		}
	}
	for id := range k.done {
		if !there[id] {
			delete(k.done, id)
		}
	}
	k.takeovers.forget(there)
}

// keep does what there is to do for one table.
func (k *Keeper) keep(ctx context.Context, t *millrace.Table) error {
	auto := t.Options.AutoPartition
	now := kept{version: t.Version}
	if auto != nil {
		loc, err := auto.Location()
		if err != nil {
			return errs.Wrap(errs.Internal, "router.Keeper", err)
		}
		now.period = auto.Unit.Start(k.r.o.Clock.Now().In(loc))
	}
	list := func() (err error) {
		now.partitions, err = k.r.o.Catalog.Partitions(ctx, t.ID)
		return err
	}
	if err := list(); err != nil {
		return err
	}
	before, ok := k.done[t.ID]
	due := ok && !before.due.IsZero() && !k.r.o.Clock.Now().Before(before.due)
	if ok && !due && same(before.partitions, now.partitions) && before.version == now.version && before.period.Equal(now.period) {
		return nil
	}
	var busy error // partitions that are made ahead are being dropped, which goes on below
	if auto != nil {
		if busy = k.makeAhead(ctx, t, now.period); busy != nil && !errs.Is(busy, errs.Unavailable) {
			return busy
		}
		if err := k.cat.ExpirePartitions(ctx, t.ID, oldest(auto, now.period)); err != nil {
			return err
		}
	}
	left, err := k.end(ctx, t, &now)
	if err = errors.Join(err, list(), busy); err != nil || left {
		return err
	}
	k.done[t.ID] = now
	return nil
}

// end takes the partitions of a table on in their ends, and says whether the lake has
// some left to take over.
func (k *Keeper) end(ctx context.Context, t *millrace.Table, now *kept) (left bool, err error) {
	var retired []*millrace.Partition
	var failed error // one that cannot end does not keep the others
	for _, p := range now.partitions {
		var err error
		switch {
		case p.Dropping:
			err = k.drop(ctx, t, p)
		case p.State == millrace.PartitionOpen && (t.Options.AutoPartition == nil || !past(t, p, now.period)), p.Gone:
		case t.Options.Lake == nil:
			err = k.drop(ctx, t, p)
		case p.State != millrace.PartitionExpired:
			retired = append(retired, p)
		default:
			var due time.Time
			if due, err = k.r.letGo(ctx, p); !due.IsZero() && (now.due.IsZero() || due.Before(now.due)) {
				now.due = due
			}
		}
		failed = errors.Join(failed, err)
	}
	if len(retired) > 0 {
		k.takeovers.begin(ctx, t, retired)
	}
	return len(retired) > 0, failed
}

// dropTime bounds what a pass waits for one partition to be dropped, unless a test says
// otherwise.
const dropTime = 30 * time.Second

// drop drops a partition. When that of one in the lake took too long, others in the lake
// are left for the next pass: the partitions of all tables wait for the end of this one.
func (k *Keeper) drop(ctx context.Context, t *millrace.Table, p *millrace.Partition) error {
	if t.Options.Lake == nil {
		return k.r.dropPartition(ctx, p)
	}
	if k.hangs != nil {
		return k.hangs
	}
	limited, cancel := context.WithTimeout(ctx, k.dropTime)
	defer cancel()
	err := k.r.dropPartition(limited, p)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		k.hangs = errs.New(errs.Unavailable, "partition %s was not dropped within %s", p.Name, millrace.FormatDuration(k.dropTime))
		return k.hangs
	}
	return err
}

// oldest is the beginning of the oldest period that is kept.
func oldest(a *millrace.AutoPartition, period time.Time) time.Time {
	return a.Unit.Add(period, -a.Retain)
}

// past says whether a partition is of a period before those that are kept. A value that
// is no time, from before the table had a period, is not.
func past(t *millrace.Table, p *millrace.Partition, period time.Time) bool {
	a := t.Options.AutoPartition
	i := slices.Index(t.PartitionBy, a.Column)
	start, err := a.Unit.Parse(t.Columns(t.PartitionBy)[i].Type, p.Values[i], period.Location())
	return err == nil && start.Before(oldest(a, period))
}

// makeAhead makes the partitions from the current period on.
func (k *Keeper) makeAhead(ctx context.Context, t *millrace.Table, period time.Time) error {
	a := t.Options.AutoPartition
	if len(t.PartitionBy) != 1 {
		return nil // what the other columns will hold is not known
	}
	typ := t.Columns(t.PartitionBy)[0].Type
	for i := range a.Precreate {
		_, _, err := k.r.o.Catalog.EnsurePartition(ctx, t.ID, []string{a.Unit.Text(typ, a.Unit.Add(period, i))})
		// One that has ended is not made again.
		if err != nil && !errs.Is(err, errs.PartitionExpired) {
			return err
		}
	}
	return nil
}
