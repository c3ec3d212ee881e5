package client

import (
	"context"
	"iter"

	"github.com/millrace/millrace/openapi"
)

// Grants lists the grants on what the caller is admin of, by id.
func (c *Client) Grants(ctx context.Context) iter.Seq2[openapi.Grant, error] {
	return pages(func(token *string) ([]openapi.Grant, string, error) {
		var out openapi.GrantList
		resp, err := c.api.ListGrants(ctx, &openapi.ListGrantsParams{PageToken: token})
		err = decode(resp, err, &out)
		return out.Grants, out.NextPageToken, err
	})
}

// CreateGrant grants; a grant that says the same is returned as it is.
func (c *Client) CreateGrant(ctx context.Context, g openapi.NewGrant) (openapi.Grant, error) {
	var out openapi.Grant
	resp, err := c.api.CreateGrant(ctx, g)
	return out, decode(resp, err, &out)
}

// DeleteGrant takes a grant back, which may be gone already.
func (c *Client) DeleteGrant(ctx context.Context, id string) error {
	resp, err := c.api.DeleteGrant(ctx, id)
	return decode(resp, err, nil)
}

// Quotas lists all quotas, in the order they were first set.
func (c *Client) Quotas(ctx context.Context) iter.Seq2[openapi.PrincipalQuota, error] {
	return pages(func(token *string) ([]openapi.PrincipalQuota, string, error) {
		var out openapi.QuotaList
		resp, err := c.api.ListQuotas(ctx, &openapi.ListQuotasParams{PageToken: token})
		err = decode(resp, err, &out)
		return out.Quotas, out.NextPageToken, err
	})
}

// Quota is the quota of a principal: user:<name>, group:<name> or default. One that has none
// has no limits.
func (c *Client) Quota(ctx context.Context, principal string) (openapi.Quota, error) {
	var out openapi.Quota
	resp, err := c.api.GetQuota(ctx, principal)
	return out, decode(resp, err, &out)
}

// SetQuota sets the whole quota of a principal.
func (c *Client) SetQuota(ctx context.Context, principal string, q openapi.Quota) (openapi.Quota, error) {
	var out openapi.Quota
	resp, err := c.api.PutQuota(ctx, principal, q)
	return out, decode(resp, err, &out)
}

// DeleteQuota takes the quota of a principal away, which may be gone already.
func (c *Client) DeleteQuota(ctx context.Context, principal string) error {
	resp, err := c.api.DeleteQuota(ctx, principal)
	return decode(resp, err, nil)
}
