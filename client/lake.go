package client

import (
	"context"

	"github.com/millrace/millrace/openapi"
)

// Lake says how far the table is in the lake.
func (t *Table) Lake(ctx context.Context) (openapi.LakeStatus, error) {
	var out openapi.LakeStatus
	resp, err := t.c.api.GetLake(ctx, t.database, t.base)
	return out, decode(resp, err, &out)
}

// Tier takes the table to the lake now: when it returns, every row that was
// acknowledged before the call is there. A round that takes longer than ctx allows goes
// on all the same.
func (t *Table) Tier(ctx context.Context) (openapi.LakeStatus, error) {
	var out openapi.LakeStatus
	resp, err := t.c.api.TierLake(ctx, t.database, t.base, &openapi.TierLakeParams{Timeout: timeoutOf(ctx)})
	return out, decode(resp, err, &out)
}
