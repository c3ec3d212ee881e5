package server

import (
	"context"
	"encoding/json"
	"expvar"
	"net/http"
	"net/http/pprof"
)

// debugging is what --debug-addr serves, on loopback alone: profiles, goroutines and
// memory of the process, which tell what passes through it.
func debugging() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("/debug/vars", variables)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !loopbackHost(r.Host) { // a page of another site that a browser here has open
			http.Error(w, "loopback names only", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// variables are those of package expvar, without the command line, which may hold passwords.
func variables(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	out := map[string]json.RawMessage{}
	expvar.Do(func(kv expvar.KeyValue) {
		if kv.Key != "cmdline" {
			out[kv.Key] = json.RawMessage(kv.Value.String())
		}
	})
	_ = json.NewEncoder(w).Encode(out) // the client went away
}

// serveDebug opens the address of profiles, when it is set.
func (s *Server) serveDebug(ctx context.Context) error {
	if s.settings.DebugAddr == "" {
		return nil
	}
	var err error
	s.debugAddr, err = s.serveHTTP(ctx, "debug-addr", s.settings.DebugAddr, false, debugging())
	return err
}
