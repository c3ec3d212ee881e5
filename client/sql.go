package client

import (
	"context"

	"github.com/millrace/millrace/openapi"
)

// SQL runs one statement and gives its answer whole. A query may answer at most
// 10,000 rows and 16 MiB so; SQLNDJSON and SQLArrow have no limit. Columns is nil
// when the statement gives no rows.
//
// A statement that was sent and not answered is errs.UnknownOutcome: it may be a
// write. Tell with read that it is none, and it is sent again.
func (c *Client) SQL(ctx context.Context, r openapi.SQLRequest, read bool) (openapi.SQLResult, error) {
	var out openapi.SQLResult
	resp, err := c.api.ExecuteSQL(sqlContext(ctx, read), &openapi.ExecuteSQLParams{Timeout: timeoutOf(ctx)}, r, accept(mediaJSON))
	return out, decode(resp, err, &out)
}

// SQLNDJSON runs a query and opens its rows as NDJSON.
func (c *Client) SQLNDJSON(ctx context.Context, r openapi.SQLRequest) (*Stream, error) {
	return c.sqlStream(ctx, r, mediaNDJSON)
}

// SQLArrow runs a query and opens its rows as an Arrow IPC stream.
func (c *Client) SQLArrow(ctx context.Context, r openapi.SQLRequest) (*Stream, error) {
	return c.sqlStream(ctx, r, mediaArrow)
}

func (c *Client) sqlStream(ctx context.Context, r openapi.SQLRequest, mediaType string) (*Stream, error) {
	resp, err := c.api.ExecuteSQL(asRead(ctx), nil, r, accept(mediaType))
	return openStream(resp, err, mediaType)
}

func sqlContext(ctx context.Context, read bool) context.Context {
	if read {
		return asRead(ctx)
	}
	return ctx
}
