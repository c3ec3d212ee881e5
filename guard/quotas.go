package guard

import (
	"context"
	"strconv"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/auth"
	"github.com/millrace/millrace/catalog"
)

// Quotas lists the quotas by id, a page at a time, for who is admin on everything.
func (g *Guard) Quotas(ctx context.Context, limit int, token string) (page []*millrace.Quota, next string, err error) {
	if err := g.Allow(ctx, millrace.VerbAdmin, nil); err != nil {
		return nil, "", err
	}
	limit, after, err := pageOf(limit, token)
	if err != nil {
		return nil, "", err
	}
	for _, q := range g.cat.Quotas() {
		if uint64(q.ID) <= after {
			continue
		}
		if len(page) == limit {
			return page, strconv.FormatUint(uint64(page[limit-1].ID), 10), nil
		}
		page = append(page, q)
	}
	return page, "", nil
}

// Quota is the quota of a principal, for who is admin on everything; one without limits
// when it has none.
func (g *Guard) Quota(ctx context.Context, principal string) (*millrace.Quota, error) {
	if err := g.Allow(ctx, millrace.VerbAdmin, nil); err != nil {
		return nil, err
	}
	if err := catalog.CheckQuotaName(principal); err != nil {
		return nil, err
	}
	if q := g.cat.Quota(principal); q != nil {
		return q, nil
	}
	return &millrace.Quota{Principal: principal}, nil
}

// SetQuota is catalog.SetQuota, for who is admin on everything.
func (g *Guard) SetQuota(ctx context.Context, principal string, l millrace.Limits) (*millrace.Quota, error) {
	if err := g.Allow(ctx, millrace.VerbAdmin, nil); err != nil {
		return nil, err
	}
	return g.cat.SetQuotaIf(ctx, principal, l, g.mayQuotas(ctx))
}

// DeleteQuota takes a quota away, for who is admin on everything. One that is not there is
// no error.
func (g *Guard) DeleteQuota(ctx context.Context, principal string) error {
	if err := g.Allow(ctx, millrace.VerbAdmin, nil); err != nil {
		return err
	}
	if err := catalog.CheckQuotaName(principal); err != nil {
		return err
	}
	_, err := g.cat.DeleteQuotaIf(ctx, principal, g.mayQuotas(ctx))
	return err
}

// mayQuotas asks again within a change of a quota.
func (g *Guard) mayQuotas(ctx context.Context) func(string) error {
	return func(string) error { return g.policy.May(ctx, millrace.VerbAdmin, auth.Everything()) }
}
