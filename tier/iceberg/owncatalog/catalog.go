package owncatalog

import (
	"context"
	"sync"
	"time"

	ice "github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/catalog"
	"github.com/apache/iceberg-go/table"

	"github.com/millrace/millrace/tier/iceberg"
)

// callTime bounds a call.
const callTime = time.Minute

// Catalog is a catalog of the user's own.
type Catalog struct {
	open func(context.Context) (catalog.Catalog, error)

	mu     sync.Mutex
	client catalog.Catalog // nil until it was reached
}

var _ iceberg.Catalog = (*Catalog)(nil)

// call calls the catalog, which is reached first unless it was.
func (c *Catalog) call(ctx context.Context, f func(context.Context, catalog.Catalog) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	client, err := c.reach(ctx)
	if err != nil {
		return err
	}
	return f(ctx, client)
}

func (c *Catalog) reach(ctx context.Context) (catalog.Catalog, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client == nil {
		client, err := c.open(ctx)
		if err != nil {
			return nil, err
		}
		c.client = client
	}
	return c.client, nil
}

// LoadTable implements iceberg.Catalog.
func (c *Catalog) LoadTable(ctx context.Context, name table.Identifier) (t *table.Table, err error) {
	err = c.call(ctx, func(ctx context.Context, client catalog.Catalog) (err error) {
		t, err = client.LoadTable(ctx, name)
		return err
	})
	return t, err
}

// CommitTable implements iceberg.Catalog.
func (c *Catalog) CommitTable(ctx context.Context, name table.Identifier, requirements []table.Requirement, updates []table.Update) (m table.Metadata, location string, err error) {
	err = c.call(ctx, func(ctx context.Context, client catalog.Catalog) (err error) {
		m, location, err = client.CommitTable(ctx, name, requirements, updates)
		return err
	})
	return m, location, err
}

// DropTable implements iceberg.Catalog.
func (c *Catalog) DropTable(ctx context.Context, name table.Identifier) error {
	return c.call(ctx, func(ctx context.Context, client catalog.Catalog) error { return client.DropTable(ctx, name) })
}

// CreateNamespace implements iceberg.Catalog.
func (c *Catalog) CreateNamespace(ctx context.Context, namespace table.Identifier, props ice.Properties) error {
	return c.call(ctx, func(ctx context.Context, client catalog.Catalog) error {
		return client.CreateNamespace(ctx, namespace, props)
	})
}

// Close ends what the catalog's client holds.
func (c *Catalog) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if closer, ok := c.client.(interface{ Close() error }); ok {
		return closer.Close()
	}
	return nil
}
