package owncatalog

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// glueServer is as much of AWS Glue as its client here needs: a change names the version
// of the table that it was made from, and is refused when that is no longer the newest.
type glueServer struct {
	*httptest.Server

	mu        sync.Mutex
	databases map[string]bool
	tables    map[string]map[string]any
	// fault is asked before a request is carried out and after; what it says is the
	// answer. Nil: nothing fails.
	fault func(action string, done bool) (status int, kind string)
}

func newGlueServer(t *testing.T) *glueServer {
	t.Helper()
	g := &glueServer{databases: map[string]bool{}, tables: map[string]map[string]any{}}
	g.Server = httptest.NewServer(g)
	t.Cleanup(g.Close)
	return g
}

func (g *glueServer) options() Options {
	return Options{Kind: Glue, URI: g.URL, Properties: map[string]string{
		"glue.region": "eu-west-1", "glue.access-key-id": "a", "glue.secret-access-key": "s", "glue.max-retries": "1",
	}}
}

func (g *glueServer) set(fault func(action string, done bool) (int, string)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fault = fault
}

func (g *glueServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, action, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	if g.fault != nil {
		if status, kind := g.fault(action, false); status != 0 {
			g.refuse(w, status, kind)
			return
		}
	}
	var in map[string]any
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		g.refuse(w, http.StatusBadRequest, "InvalidInputException")
		return
	}
	status, out := g.do(action, in)
	if g.fault != nil {
		if s, kind := g.fault(action, true); s != 0 {
			g.refuse(w, s, kind)
			return
		}
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(out)
}

func (g *glueServer) refuse(w http.ResponseWriter, status int, kind string) {
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"__type": kind, "Message": kind})
}

func (g *glueServer) do(action string, in map[string]any) (int, map[string]any) {
	no := func(kind string) (int, map[string]any) {
		return http.StatusBadRequest, map[string]any{"__type": kind, "Message": kind}
	}
	name := func(table any) string { return fmt.Sprintf("%v.%v", in["DatabaseName"], table) }
	switch action {
	case "CreateDatabase":
		n := fmt.Sprint(in["DatabaseInput"].(map[string]any)["Name"])
		if g.databases[n] {
			return no("AlreadyExistsException")
		}
		g.databases[n] = true
		return http.StatusOK, map[string]any{}
	case "GetDatabase":
		n := fmt.Sprint(in["Name"])
		if !g.databases[n] {
			return no("EntityNotFoundException")
		}
		return http.StatusOK, map[string]any{"Database": map[string]any{"Name": n}}
	case "GetTable":
		t, ok := g.tables[name(in["Name"])]
		if !ok {
			return no("EntityNotFoundException")
		}
		return http.StatusOK, map[string]any{"Table": t}
	case "CreateTable", "UpdateTable":
		t := in["TableInput"].(map[string]any)
		key := name(t["Name"])
		old, ok := g.tables[key]
		version := 0
		switch {
		case action == "CreateTable" && ok:
			return no("AlreadyExistsException")
		case action == "UpdateTable" && !ok:
			return no("EntityNotFoundException")
		case action == "UpdateTable":
			if want, ok := in["VersionId"]; ok && want != old["VersionId"] {
				return no("ConcurrentModificationException")
			}
			version, _ = strconv.Atoi(old["VersionId"].(string))
		}
		t["DatabaseName"], t["VersionId"] = in["DatabaseName"], strconv.Itoa(version+1)
		g.tables[key] = t
		return http.StatusOK, map[string]any{}
	case "DeleteTable":
		if _, ok := g.tables[name(in["Name"])]; !ok {
			return no("EntityNotFoundException")
		}
		delete(g.tables, name(in["Name"]))
		return http.StatusOK, map[string]any{}
	}
	return no("UnknownOperationException")
}
