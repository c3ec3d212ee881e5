package server

import (
	"strings"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/tier/iceberg/owncatalog"
)

// ownCatalog is the catalog that lake tables are committed to; nil when the settings
// name none.
func (s *Settings) ownCatalog() (*owncatalog.Catalog, error) {
	if s.LakeCatalog == "" {
		if s.LakeCatalogURI != "" || len(s.LakeCatalogProperties) > 0 {
			return nil, wrong("lake-catalog", "is not set, yet something is said about it")
		}
		return nil, nil //nolint:nilnil // There is none.
	}
	if s.LakeCatalog == owncatalog.SQL && !strings.HasPrefix(s.LakeURI, "file://") {
		return nil, errs.New(errs.NotImplemented, "setting lake-catalog is %s, and lake-uri is %q: an SQL catalog of tables in S3 comes with a later release", s.LakeCatalog, s.LakeURI)
	}
	props := map[string]string{}
	for _, p := range s.LakeCatalogProperties {
		key, value, ok := strings.Cut(p, "=")
		if !ok || key == "" {
			return nil, wrong("lake-catalog-properties", "it has a part that is not of the form key=value")
		}
		props[key] = value
	}
	c, err := owncatalog.New(owncatalog.Options{Kind: s.LakeCatalog, URI: s.LakeCatalogURI, Properties: props})
	if e := err; e != nil {
		if errs.Is(e, errs.NotImplemented) {
			return nil, e
		}
		return nil, wrong("lake-catalog", "%v", e)
	}
	return c, nil
}

// withoutSecrets hides the values of properties, but for those that are known to be no
// secret.
func withoutSecrets(properties string) string {
	parts := strings.Split(properties, ",")
	for i, p := range parts {
		switch key, _, ok := strings.Cut(p, "="); {
		case !ok, key == "warehouse", key == "catalog-name", key == "prefix":
		default:
			parts[i] = key + "=***"
		}
	}
	return strings.Join(parts, ",")
}
