package owncatalog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	ice "github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/catalog"
	"github.com/apache/iceberg-go/table"

	"github.com/millrace/millrace/objstore"
	"github.com/millrace/millrace/tier/iceberg"
)

// callTime bounds a call.
const callTime = time.Minute

// Catalog is a catalog of the user's own.
type Catalog struct {
	open  func(context.Context) (catalog.Catalog, error)
	store objstore.Store // of the lake's files
	// fold is for catalogs that know names in lower case only.
	fold bool

	mu     sync.Mutex
	client catalog.Catalog // nil until it was reached
}

var _ iceberg.Catalog = (*Catalog)(nil)

// call calls the catalog, which is reached first unless it was.
func (c *Catalog) call(ctx context.Context, f func(context.Context, catalog.Catalog) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if c.store != nil {
		ctx = context.WithValue(ctx, storeKey{}, c.store)
	}
	client, err := c.reach(ctx)
	if err == nil {
		err = f(ctx, client)
	}
	if err != nil && refused(err) {
		return fmt.Errorf("%w: %w", iceberg.ErrRefused, err)
	}
	return err
}

// named is a name as the catalog has it.
func (c *Catalog) named(name table.Identifier) table.Identifier {
	if !c.fold {
		return name
	}
	out := make(table.Identifier, len(name))
	for i, n := range name {
		out[i] = strings.ToLower(n)
	}
	return out
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
		t, err = client.LoadTable(ctx, c.named(name))
		return err
	})
	return t, err
}

// CommitTable implements iceberg.Catalog.
func (c *Catalog) CommitTable(ctx context.Context, name table.Identifier, requirements []table.Requirement, updates []table.Update) (m table.Metadata, location string, err error) {
	err = c.call(ctx, func(ctx context.Context, client catalog.Catalog) (err error) {
		m, location, err = client.CommitTable(ctx, c.named(name), requirements, updates)
		return err
	})
	return m, location, err
}

// DropTable implements iceberg.Catalog.
func (c *Catalog) DropTable(ctx context.Context, name table.Identifier) error {
	return c.call(ctx, func(ctx context.Context, client catalog.Catalog) error { return client.DropTable(ctx, c.named(name)) })
}

// CreateNamespace implements iceberg.Catalog.
func (c *Catalog) CreateNamespace(ctx context.Context, namespace table.Identifier, props ice.Properties) error {
	return c.call(ctx, func(ctx context.Context, client catalog.Catalog) error {
		err := client.CreateNamespace(ctx, c.named(namespace), props)
		if err == nil || errors.Is(err, catalog.ErrNamespaceAlreadyExists) {
			return err
		}
		// Who may not make one can still use one that is there.
		if there, e := client.CheckNamespaceExists(ctx, c.named(namespace)); e == nil && there {
			return nil
		}
		return err
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
