package guard

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/auth"
	"github.com/millrace/millrace/auth/audit"
	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/router"
)

// Guard is a catalog, and access to its tables, for callers.
type Guard struct {
	cat    *catalog.Catalog
	policy *auth.Policy
	clock  func() time.Time
	// taking is held while the policy takes over the catalog's grants, so that an older
	// state does not replace a newer one.
	taking sync.Mutex
}

var _ router.Access = (*Guard)(nil)

// New makes a guard, whose policy has the grants of the catalog from then on.
func New(cat *catalog.Catalog, policy *auth.Policy, clock func() time.Time) *Guard {
	g := &Guard{cat: cat, policy: policy, clock: clock}
	cat.Changed(func(ch catalog.Changes) {
		if ch.Grants {
			g.take()
		}
	})
	g.take()
	return g
}

func (g *Guard) take() {
	g.taking.Lock()
	defer g.taking.Unlock()
	g.policy.Set(g.cat.Grants())
}

// Allow asks whether the caller may do something to a table, or to everything when t is nil.
func (g *Guard) Allow(ctx context.Context, verb millrace.Verb, t *millrace.Table) error {
	if t == nil {
		return g.policy.Check(ctx, verb, auth.Everything())
	}
	return g.policy.Check(ctx, verb, auth.Table(t))
}

// Describe implements router.Access.
func (g *Guard) Describe(ctx context.Context, t *millrace.Table) error {
	return g.Allow(ctx, millrace.VerbDescribe, t)
}

// Alter implements router.Access.
func (g *Guard) Alter(ctx context.Context, t *millrace.Table) error {
	return g.Allow(ctx, millrace.VerbAlter, t)
}

// Read implements router.Access.
func (g *Guard) Read(ctx context.Context, t *millrace.Table, columns []millrace.ColumnID) (router.Pass, error) {
	return g.pass(ctx, func(ctx context.Context) error { return g.policy.CheckColumns(ctx, t, columns) })
}

// Write implements router.Access.
func (g *Guard) Write(ctx context.Context, t *millrace.Table) (router.Pass, error) {
	return g.pass(ctx, func(ctx context.Context) error { return g.Allow(ctx, millrace.VerbWrite, t) })
}

// pass is what lets a caller do something for a while, and nil for who may do everything.
func (g *Guard) pass(ctx context.Context, check func(context.Context) error) (router.Pass, error) {
	generation := g.policy.Generation()
	if err := check(ctx); err != nil || g.unbound(ctx) {
		return nil, err
	}
	p := &pass{g: g, who: auth.Of(ctx), record: audit.Of(ctx), check: check}
	p.generation.Store(generation)
	return p, nil
}

// unbound says whether the caller may do everything, whatever the grants say.
func (g *Guard) unbound(ctx context.Context) bool {
	if g.policy.Open() {
		return true
	}
	who := auth.Of(ctx)
	return who != nil && who.MayAll()
}

type pass struct {
	g          *Guard
	who        *auth.Principal
	record     *audit.Record
	check      func(context.Context) error
	generation atomic.Uint64
}

// Still implements router.Pass.
func (p *pass) Still() error {
	if !p.who.Expires.IsZero() && !p.g.clock().Before(p.who.Expires) {
		return auth.ErrExpired
	}
	generation := p.g.policy.Generation()
	if generation == p.generation.Load() {
		return nil
	}
	if err := p.check(audit.With(auth.With(context.Background(), p.who), p.record)); err != nil {
		return err
	}
	p.generation.Store(generation)
	return nil
}

// notFound says whether there is no table or database.
func notFound(err error) bool {
	return errs.Is(err, errs.TableNotFound) || errs.Is(err, errs.DatabaseNotFound)
}
