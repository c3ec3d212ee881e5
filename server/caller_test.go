package server

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/auth"
)

// keyring lets in who shows "Bearer <name>".
type keyring []string

func (k keyring) Authenticate(_ context.Context, shown auth.Shown) (*auth.Principal, error) {
	if len(shown.Authorization) == 1 {
		if name, ok := strings.CutPrefix(shown.Authorization[0], "Bearer "); ok && slices.Contains(k, name) {
			return auth.NewPrincipal(name, nil, time.Time{}), nil
		}
	}
	return nil, auth.ErrUnauthenticated
}

func echoCaller() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := auth.Of(r.Context()); p != nil {
			fmt.Fprint(w, p.Name)
		}
	})
}

// Every path but those that tell nothing needs a caller, who comes with the request's
// context; what the others of the cluster ask has its own token, and is the service's doing.
func TestCallers(t *testing.T) {
	f := newTestFront(t, echoCaller())
	f.anyHost = true
	_, _, m := f.get(t, "/v1/x")
	require.Equal(t, "anonymous", m["text"], "while authentication is off")
	f.callers = keyring{"ann"}
	for _, path := range []string{"/", "/v1/info", "/v1/x", "/metrics", "/iceberg/v1/config", "/docsx", "/openapi.json/x", "/healthz/x", "//docs"} {
		for _, headers := range [][]string{nil, {"Authorization", "Bearer bob"}} {
			status, h, m := f.get(t, path, headers...)
			require.Equal(t, 401, status, path)
			require.Equal(t, `Bearer realm="millrace"`, h.Get("WWW-Authenticate"), path)
			if path == "/iceberg/v1/config" {
				require.Equal(t, "NotAuthorizedException", m["error"].(map[string]any)["type"])
			} else {
				require.Equal(t, "unauthenticated", m["code"], path)
			}
		}
	}
	for _, path := range []string{"/healthz", "/readyz", "/openapi.json", "/docs", "/docs/", "/docs/errors"} {
		status, _, _ := f.get(t, path)
		require.Equal(t, 200, status, path)
	}
	_, _, m = f.get(t, "/v1/x", "Authorization", "Bearer ann")
	require.Equal(t, "user:ann", m["text"])
	status, _, _ := f.get(t, "/metrics", "Authorization", "Bearer ann")
	require.Equal(t, 200, status)
	f.serveInternal(echoCaller())
	_, _, m = f.get(t, "/internal/v1/call/1")
	require.Equal(t, "system", m["text"])
}
