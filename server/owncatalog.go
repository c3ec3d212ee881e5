package server

import (
	"strings"

	"github.com/millrace/millrace/objstore"
	"github.com/millrace/millrace/tier/iceberg/owncatalog"
)

// ownCatalog is the catalog that lake tables are committed to; nil when the settings
// name none.
func (s *Settings) ownCatalog(store objstore.Store) (*owncatalog.Catalog, error) {
	if s.LakeCatalog == "" {
		if s.LakeCatalogURI != "" || len(s.LakeCatalogProperties) > 0 {
			return nil, wrong("lake-catalog", "is not set, yet something is said about it")
		}
		return nil, nil //nolint:nilnil // There is none.
	}
	props := map[string]string{}
	for _, p := range s.LakeCatalogProperties {
		key, value, ok := strings.Cut(p, "=")
		if !ok || key == "" {
			return nil, wrong("lake-catalog-properties", "it has a part that is not of the form key=value")
		}
		props[key] = value
	}
	c, err := owncatalog.New(owncatalog.Options{Kind: s.LakeCatalog, URI: s.LakeCatalogURI, Properties: props, Store: store})
	if err != nil {
		return nil, wrong("lake-catalog", "%v", err)
	}
	return c, nil
}

// notSecret are the properties that say where things are.
var notSecret = map[string]bool{
	"warehouse": true, "catalog-name": true, "prefix": true, "glue.id": true, "glue.region": true, "glue.endpoint": true,
}

// withoutSecrets hides the values of properties, but for those that are known to be no
// secret.
func withoutSecrets(properties string) string {
	parts := strings.Split(properties, ",")
	for i, p := range parts {
		switch key, _, ok := strings.Cut(p, "="); {
		case !ok, notSecret[key]:
		default:
			parts[i] = key + "=***"
		}
	}
	return strings.Join(parts, ",")
}
