package client

import (
	"context"
	"iter"
	"strconv"

	"github.com/millrace/millrace/openapi"
)

// Info says what the server is and can do.
func (c *Client) Info(ctx context.Context) (openapi.Info, error) {
	var out openapi.Info
	resp, err := c.api.GetInfo(ctx)
	return out, decode(resp, err, &out)
}

// Cluster describes workers and shards.
func (c *Client) Cluster(ctx context.Context) (openapi.Cluster, error) {
	var out openapi.Cluster
	resp, err := c.api.GetCluster(ctx)
	return out, decode(resp, err, &out)
}

// Databases lists all databases, by name.
func (c *Client) Databases(ctx context.Context) iter.Seq2[openapi.Database, error] {
	return pages(func(token *string) ([]openapi.Database, string, error) {
		var out openapi.DatabaseList
		resp, err := c.api.ListDatabases(ctx, &openapi.ListDatabasesParams{PageToken: token})
		err = decode(resp, err, &out)
		return out.Databases, out.NextPageToken, err
	})
}

// Database describes a database.
func (c *Client) Database(ctx context.Context, name string) (openapi.Database, error) {
	var out openapi.Database
	resp, err := c.api.GetDatabase(ctx, name)
	return out, decode(resp, err, &out)
}

// CreateDatabase creates a database; with ifNotExists one that is there already
// is returned as it is.
func (c *Client) CreateDatabase(ctx context.Context, d openapi.CreateDatabase, ifNotExists bool) (openapi.Database, error) {
	var out openapi.Database
	resp, err := c.api.CreateDatabase(ctx, &openapi.CreateDatabaseParams{IfNotExists: flag(ifNotExists)}, d)
	return out, decode(resp, err, &out)
}

// DropDatabase drops a database; with cascade its tables too, with ifExists it
// need not be there.
func (c *Client) DropDatabase(ctx context.Context, name string, cascade, ifExists bool) error {
	resp, err := c.api.DropDatabase(ctx, name, &openapi.DropDatabaseParams{Cascade: flag(cascade), IfExists: flag(ifExists)})
	return decode(resp, err, nil)
}

// Tables lists the tables of a database, by name.
func (c *Client) Tables(ctx context.Context, database string) iter.Seq2[openapi.Table, error] {
	return pages(func(token *string) ([]openapi.Table, string, error) {
		var out openapi.TableList
		resp, err := c.api.ListTables(ctx, database, &openapi.ListTablesParams{PageToken: token})
		err = decode(resp, err, &out)
		return out.Tables, out.NextPageToken, err
	})
}

// CreateTable creates a table; with ifNotExists one that is there already is
// returned as it is, which may differ.
func (c *Client) CreateTable(ctx context.Context, database string, t openapi.CreateTable, ifNotExists bool) (openapi.Table, error) {
	var out openapi.Table
	resp, err := c.api.CreateTable(ctx, database, &openapi.CreateTableParams{IfNotExists: flag(ifNotExists)}, t)
	return out, decode(resp, err, &out)
}

// Describe describes the table.
func (t *Table) Describe(ctx context.Context) (openapi.Table, error) {
	var out openapi.Table
	resp, err := t.c.api.GetTable(ctx, t.database, t.base)
	return out, decode(resp, err, &out)
}

// Drop drops the table; with purge its lake files too, with ifExists it need not
// be there.
func (t *Table) Drop(ctx context.Context, purge, ifExists bool) error {
	resp, err := t.c.api.DropTable(ctx, t.database, t.base, &openapi.DropTableParams{Purge: flag(purge), IfExists: flag(ifExists)})
	return decode(resp, err, nil)
}

// Alter changes the table, all steps or none, and describes it as it then is. With
// version not 0 the change is refused with version_mismatch when the table has
// another one.
func (t *Table) Alter(ctx context.Context, steps []openapi.AlterOp, version int64) (openapi.Table, error) {
	var out openapi.Table
	var p openapi.AlterTableParams
	if version != 0 {
		p.IfMatch = new(strconv.Quote(strconv.FormatInt(version, 10)))
	}
	resp, err := t.c.api.AlterTable(ctx, t.database, t.base, &p, openapi.AlterTable{Ops: steps})
	return out, decode(resp, err, &out)
}

// Schemas lists the versions of the table's columns, oldest first.
func (t *Table) Schemas(ctx context.Context) iter.Seq2[openapi.TableSchema, error] {
	return pages(func(token *string) ([]openapi.TableSchema, string, error) {
		var out openapi.TableSchemaList
		resp, err := t.c.api.ListSchemas(ctx, t.database, t.base, &openapi.ListSchemasParams{PageToken: token})
		err = decode(resp, err, &out)
		return out.Schemas, out.NextPageToken, err
	})
}

// Buckets lists owner, offsets and size of each bucket.
func (t *Table) Buckets(ctx context.Context) iter.Seq2[openapi.Bucket, error] {
	return pages(func(token *string) ([]openapi.Bucket, string, error) {
		var out openapi.BucketList
		resp, err := t.c.api.ListBuckets(ctx, t.database, t.base, &openapi.ListBucketsParams{PageToken: token})
		err = decode(resp, err, &out)
		return out.Buckets, out.NextPageToken, err
	})
}

// Offsets resolves a position to the next offset of each bucket.
func (t *Table) Offsets(ctx context.Context, at Position) (openapi.TableOffsets, error) {
	var out openapi.TableOffsets
	resp, err := t.c.api.GetOffsets(ctx, t.database, t.base, &openapi.GetOffsetsParams{At: positionParam(at), Timeout: timeoutOf(ctx)})
	return out, decode(resp, err, &out)
}

// pages ranges over the entries of all pages of a list.
func pages[T any](page func(token *string) ([]T, string, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var token *string
		for {
			entries, next, err := page(token)
			if err != nil {
				var zero T
				yield(zero, err)
				return
			}
			for _, e := range entries {
				if !yield(e, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			token = &next
		}
	}
}

// flag is a query parameter that is left out when false.
func flag(on bool) *bool {
	if !on {
		return nil
	}
	return &on
}
