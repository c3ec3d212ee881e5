package router

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/admit"
	"github.com/millrace/millrace/errs"
)

// Catalog is what the router needs of the catalog.
type Catalog interface {
	// Table finds a table by name; errs.DatabaseNotFound, errs.TableNotFound.
	Table(ctx context.Context, path millrace.TablePath) (*millrace.Table, error)
	// TableByID finds a table by number; errs.TableNotFound.
	TableByID(ctx context.Context, id millrace.TableID) (*millrace.Table, error)
	// Partitions are all partitions of a table by name: another slice when they changed.
	Partitions(ctx context.Context, table millrace.TableID) ([]*millrace.Partition, error)
	// Partition finds a partition by name; errs.PartitionNotFound.
	Partition(ctx context.Context, table millrace.TableID, name string) (*millrace.Partition, error)
	// PartitionByID finds a partition by number; errs.PartitionNotFound.
	PartitionByID(ctx context.Context, table millrace.TableID, id millrace.PartitionID) (*millrace.Partition, error)
	// EnsurePartition gives the partition with these values, which it makes when there
	// is none; errs.PartitionExpired when it has ended, or its time has passed, and
	// errs.Unavailable while it is being dropped.
	EnsurePartition(ctx context.Context, table millrace.TableID, values []string) (p *millrace.Partition, created bool, err error)
	// SetPartitionState moves a partition on in its life.
	SetPartitionState(ctx context.Context, table millrace.TableID, id millrace.PartitionID, state millrace.PartitionState) (*millrace.Partition, error)
	// DropPartition marks a partition as being dropped.
	DropPartition(ctx context.Context, table millrace.TableID, id millrace.PartitionID) (*millrace.Partition, error)
	// PartitionGone notes that the shards let go of an expired partition.
	PartitionGone(ctx context.Context, table millrace.TableID, id millrace.PartitionID) (*millrace.Partition, error)
	// RemovePartition forgets a partition.
	RemovePartition(ctx context.Context, table millrace.TableID, id millrace.PartitionID) (*millrace.Partition, error)
	// Schemas are all versions of a table's schema; errs.TableNotFound.
	Schemas(ctx context.Context, id millrace.TableID) ([]*millrace.Schema, error)
	// ReserveIDs gives the next n values of a table's auto-increment column, which
	// nobody else gets; errs.IntegerOverflow when there are not so many any more.
	ReserveIDs(ctx context.Context, table millrace.TableID, n int) (first int64, err error)
}

// Signer seals what a client carries for us and brings back unchanged.
type Signer interface {
	// Sign makes an opaque text of a payload.
	Sign(payload []byte) (string, error)
	// Verify gives the payload back; an error when the text is not one of ours.
	Verify(text string) ([]byte, error)
}

// Clock tells the time.
type Clock interface {
	Now() time.Time
}

// Options are a router's components.
type Options struct {
	Catalog    Catalog
	Owners     Owners
	Signer     Signer
	Lake       Lake        // nil: no table has a lake table
	Access     Access      // nil: everybody may do everything
	Quotas     Quotas      // nil: and as much as he likes
	Room       *admit.Room // for what is read for clients; nil: it takes what it needs
	Clock      Clock
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Router routes requests to shards.
type Router struct {
	o         Options
	metrics   *metrics
	spread    spreader
	followers followers
	ending    sync.Mutex // held while a partition takes the steps of its end
	running   runningKeys
	numbers   numbers
	schemas   farSchemas
	// Of keyed tables in the lake.
	keyed        keyedReads
	overlayBytes int64
	foreground   foreground
	dropWait     time.Duration
	// How long reads wait for room: before they have got to something, and after.
	firstPatience, laterPatience time.Duration

	fixed   bool          // no shard ever moves
	letting chan struct{} // snapshots that owners are being asked to let go of
}

// New makes a router.
func New(o Options) *Router {
	if o.Owners == nil {
		o.Owners = Local(nil)
	}
	_, fixed := o.Owners.(Local)
	return &Router{o: o, fixed: fixed, metrics: newMetrics(o.Registerer), overlayBytes: overlayBytes, dropWait: dropWait, firstPatience: firstPatience, laterPatience: laterPatience, letting: make(chan struct{}, maxCalls)}
}

// Table finds a table by "database.table"; when the caller says which table id it
// means, another one of that name is errs.TableRecreated.
func (r *Router) Table(ctx context.Context, path string, id *millrace.TableID) (*millrace.Table, error) {
	tp, err := millrace.ParseTablePath(path)
	if err != nil {
		return nil, errs.New(errs.InvalidName, "%v", err)
	}
	t, err := r.named(ctx, tp)
	if err != nil {
		return nil, err
	}
	if id != nil && *id != t.ID {
		return nil, errs.New(errs.TableRecreated, "table %s is table %d now, not %d: it was dropped and created again", tp, t.ID, *id)
	}
	return t, nil
}

// DropTable removes a table's data from the shards, and from the lake when the catalog says
// that it is to be purged. The catalog has let go of the table before; so every shard is
// asked, also when one has no room for the record.
func (r *Router) DropTable(ctx context.Context, t *millrace.Table) error {
	r.numbers.blocks.Delete(t.ID)
	r.schemas.forget(t.ID)
	ids := r.shards()
	failed := make([]error, len(ids))
	err := r.onEach(ids, func(i int) error {
		failed[i] = r.end(ctx, ids[i], Ending{Table: t.ID})
		return nil
	})
	err = errors.Join(err, errors.Join(failed...))
	if t.Options.Lake == nil || r.o.Lake == nil {
		return err
	}
	return errors.Join(err, r.o.Lake.DropTable(ctx, t))
}

func errAttr(err error) slog.Attr { return slog.Any("err", err) }
