package owncatalog

import (
	"context"
	"maps"
	"net/url"
	"strings"

	"github.com/apache/iceberg-go/catalog"
	_ "github.com/apache/iceberg-go/catalog/rest" // registers itself
	_ "github.com/apache/iceberg-go/catalog/sql"  // registers itself
	_ "modernc.org/sqlite"                        // registers itself as a driver

	"github.com/millrace/millrace/errs"
)

// The kinds of catalogs.
const (
	REST = "rest"
	SQL  = "sql"
)

// propName is the property that names the catalog among those of one SQL database.
const propName = "catalog-name"

// defaultName is its name unless a property says otherwise.
const defaultName = "millrace"

// Options say where a catalog is.
type Options struct {
	Kind string // REST or SQL
	// URI is http(s)://… of a REST catalog, sqlite:///file of an SQL one.
	URI string
	// Properties are those of iceberg-go's client, such as "token" or "warehouse".
	Properties map[string]string
}

// New gives a catalog, which it reaches for at the first call.
func New(o Options) (*Catalog, error) {
	u, err := url.Parse(o.URI)
	if err != nil || o.URI == "" {
		return nil, errs.New(errs.InvalidValue, "the catalog's address %q is not one", o.URI)
	}
	props := maps.Clone(o.Properties)
	if props == nil {
		props = map[string]string{}
	}
	props["type"], props["uri"] = o.Kind, o.URI
	name := defaultName
	if n := props[propName]; n != "" {
		name = n
	}
	switch o.Kind {
	case REST:
		if u.Scheme != "http" && u.Scheme != "https" {
			return nil, errs.New(errs.InvalidValue, "a REST catalog's address is http://… or https://…, not %q", o.URI)
		}
	case SQL:
		file, ok := strings.CutPrefix(o.URI, "sqlite://")
		if !ok || !strings.HasPrefix(file, "/") {
			return nil, errs.New(errs.InvalidValue, "an SQL catalog's address is sqlite:///file, not %q: other databases come with a later release", o.URI)
		}
		// Others may be writing: pyiceberg, say.
		props["uri"] = "file:" + file + "?_pragma=busy_timeout(10000)&_txlock=immediate"
		props["sql.driver"], props["sql.dialect"] = "sqlite", "sqlite"
	case "glue", "hive":
		return nil, errs.New(errs.NotImplemented, "catalogs of kind %s come with a later release; there are %s and %s", o.Kind, REST, SQL)
	default:
		return nil, errs.New(errs.InvalidValue, "there are no catalogs of kind %q; there are %s and %s", o.Kind, REST, SQL)
	}
	return &Catalog{open: func(ctx context.Context) (catalog.Catalog, error) { return catalog.Load(ctx, name, props) }}, nil
}
