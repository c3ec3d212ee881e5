package owncatalog

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/apache/iceberg-go/catalog"
	"github.com/apache/iceberg-go/table"

	"github.com/millrace/millrace/errs"
)

func TestNew(t *testing.T) {
	for _, c := range []struct {
		o    Options
		code errs.Code
	}{
		{Options{Kind: REST, URI: "http://127.0.0.1:8181"}, ""},
		{Options{Kind: SQL, URI: "sqlite:///var/lib/catalog.db"}, ""},
		{Options{Kind: REST, URI: "sqlite:///x"}, errs.InvalidValue},
		{Options{Kind: REST}, errs.InvalidValue},
		{Options{Kind: SQL, URI: "sqlite://relative"}, errs.InvalidValue},
		{Options{Kind: SQL, URI: "postgres://h/db"}, errs.InvalidValue},
		{Options{Kind: Glue}, ""},
		{Options{Kind: Glue, URI: "http://127.0.0.1:5000"}, ""},
		{Options{Kind: Glue, URI: "glue://"}, errs.InvalidValue},
		{Options{Kind: Hive, URI: "thrift://h:9083"}, ""},
		{Options{Kind: Hive, URI: "thrift://h,thrift://[::1]:9084"}, ""},
		{Options{Kind: Hive, URI: "thrift://h:9083/path"}, errs.InvalidValue},
		{Options{Kind: Hive, URI: "http://h:9083"}, errs.InvalidValue},
		{Options{Kind: Hive}, errs.InvalidValue},
		{Options{Kind: "paper", URI: "x"}, errs.InvalidValue},
	} {
		if _, err := New(c.o); (err != nil) != (c.code != "") || err != nil && !errs.Is(err, c.code) {
			t.Errorf("%+v: %v", c.o, err)
		}
	}
}

// A catalog that is away when it is first called is there when it has come.
func TestReachedLate(t *testing.T) {
	away := true
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case away:
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.URL.Path == "/v1/config":
			_, _ = w.Write([]byte(`{"defaults":{},"overrides":{}}`))
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"error":{"message":"none","type":"NoSuchTableException","code":404}}`))
		}
	}))
	defer srv.Close()
	c, err := New(Options{Kind: REST, URI: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.LoadTable(t.Context(), table.Identifier{"db", "t"}); err == nil || errors.Is(err, catalog.ErrNoSuchTable) {
		t.Errorf("away: %v", err)
	}
	away = false
	if _, err := c.LoadTable(t.Context(), table.Identifier{"db", "t"}); !errors.Is(err, catalog.ErrNoSuchTable) {
		t.Errorf("come: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func TestSQLite(t *testing.T) {
	c, err := New(Options{Kind: SQL, URI: "sqlite://" + filepath.Join(t.TempDir(), "c.db"), Properties: map[string]string{propName: "mine"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.CreateNamespace(t.Context(), table.Identifier{"db"}, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.CreateNamespace(t.Context(), table.Identifier{"db"}, nil); !errors.Is(err, catalog.ErrNamespaceAlreadyExists) {
		t.Error(err)
	}
	if _, err := c.LoadTable(context.WithoutCancel(t.Context()), table.Identifier{"db", "t"}); !errors.Is(err, catalog.ErrNoSuchTable) {
		t.Error(err)
	}
	if err := c.DropTable(t.Context(), table.Identifier{"db", "t"}); !errors.Is(err, catalog.ErrNoSuchTable) {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
