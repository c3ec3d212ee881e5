package owncatalog

import (
	"context"
	"maps"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/apache/iceberg-go/catalog"
	_ "github.com/apache/iceberg-go/catalog/glue" // registers itself
	icehive "github.com/apache/iceberg-go/catalog/hive"
	_ "github.com/apache/iceberg-go/catalog/rest" // registers itself
	_ "github.com/apache/iceberg-go/catalog/sql"  // registers itself
	_ "modernc.org/sqlite"                        // registers itself as a driver

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/objstore"
)

// The kinds of catalogs.
const (
	Glue = "glue"
	Hive = "hive"
	REST = "rest"
	SQL  = "sql"
)

// Properties that we read or set ourselves; the others are iceberg-go's.
const (
	propName         = "catalog-name" // names the catalog among those of one SQL database
	propWarehouse    = "warehouse"
	propGlueEndpoint = "glue.endpoint"
)

// defaultName is a catalog's name unless a property says otherwise.
const defaultName = "millrace"

// hivePort is a metastore's port unless its address has one.
const hivePort = "9083"

// Options say where a catalog is.
type Options struct {
	Kind string // Glue, Hive, REST or SQL
	// URI is http(s)://… of a REST catalog and of another Glue than Amazon's, which needs
	// none, sqlite:///file of an SQL one, thrift://host:port of a metastore; of several
	// metastores that share a database, with commas in between.
	URI string
	// Properties are those of iceberg-go's client, such as "token" or "warehouse".
	Properties map[string]string
	// Store has the lake's files.
	Store objstore.Store
}

// New gives a catalog, which it reaches for at the first call.
func New(o Options) (*Catalog, error) {
	props := maps.Clone(o.Properties)
	if props == nil {
		props = map[string]string{}
	}
	props["type"], props["uri"] = o.Kind, o.URI
	c := &Catalog{store: o.Store}
	var err error
	switch o.Kind {
	case Glue:
		c.fold = true
		err = glue(o.URI, props)
	case Hive:
		c.fold = true
		if o.Store != nil && props[propWarehouse] == "" {
			props[propWarehouse] = o.Store.URI()
		}
		var m *metastore
		if m, err = newMetastore(o.URI); err == nil {
			c.open = func(context.Context) (catalog.Catalog, error) { return icehive.NewCatalogWithClient(m, props), nil }
		}
	case REST:
		err = web(o.URI, "a REST catalog's address")
	case SQL:
		err = sqlite(o.URI, props)
	default:
		err = errs.New(errs.InvalidValue, "there are no catalogs of kind %q; there are %s, %s, %s and %s", o.Kind, REST, Glue, Hive, SQL)
	}
	if err != nil {
		return nil, err
	}
	if c.open == nil {
		name := defaultName
		if n := props[propName]; n != "" {
			name = n
		}
		c.open = func(ctx context.Context) (catalog.Catalog, error) { return catalog.Load(ctx, name, props) }
	}
	register()
	return c, nil
}

// web checks the address of a server of HTTP.
func web(uri, what string) error {
	if u, err := url.Parse(uri); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return errs.New(errs.InvalidValue, "%s is http://… or https://…, not %q", what, uri)
	}
	return nil
}

// glue sets what its client is told of an address.
func glue(uri string, props map[string]string) error {
	if uri == "" {
		return nil
	}
	props[propGlueEndpoint] = uri
	return web(uri, "the address of a Glue that is not Amazon's")
}

// sqlite sets what the client of an SQL catalog is told.
func sqlite(uri string, props map[string]string) error {
	file, ok := strings.CutPrefix(uri, "sqlite://")
	if !ok || !strings.HasPrefix(file, "/") {
		return errs.New(errs.InvalidValue, "an SQL catalog's address is sqlite:///file, not %q: other databases come with a later release", uri)
	}
	// Others may be writing: pyiceberg, say.
	props["uri"] = "file:" + file + "?_pragma=busy_timeout(10000)&_txlock=immediate"
	props["sql.driver"], props["sql.dialect"] = "sqlite", "sqlite"
	return nil
}

// newMetastore reads the addresses of a metastore.
func newMetastore(uris string) (*metastore, error) {
	m := &metastore{}
	m.host, _ = os.Hostname()
	for uri := range strings.SplitSeq(uris, ",") {
		u, err := url.Parse(uri)
		if err != nil || u.Scheme != "thrift" || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" {
			return nil, errs.New(errs.InvalidValue, "a metastore's address is thrift://host:port, not %q", uri)
		}
		port := u.Port()
		if port == "" {
			port = hivePort
		}
		m.addrs = append(m.addrs, net.JoinHostPort(u.Hostname(), port))
	}
	return m, nil
}
