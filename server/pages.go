package server

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/millrace/millrace/errs"
)

// What pages of other origins may send and see, once they may call at all. Credentials
// that a browser adds by itself are never asked for: a page sends its token.
const (
	corsMethods = "GET, HEAD, POST, PUT, PATCH, DELETE"
	corsHeaders = "Accept, Authorization, Content-Encoding, Content-Type, Idempotency-Key, If-Match, If-None-Match, Last-Event-ID, X-Request-Id, X-Writer-Epoch, X-Writer-Id, X-Writer-Seq"
	corsExposed = "ETag, Idempotent-Replayed, Location, Retry-After, WWW-Authenticate, X-Millrace-Stats, X-Request-Id"
	corsMaxAge  = "600" // seconds
)

// anyOrigin stands for every origin.
const anyOrigin = "*"

// pages says which pages in browsers may call: those of our own origin, and those of the
// origins that were set.
type pages struct {
	any     bool
	origins map[string]bool
	own     *http.CrossOriginProtection
}

func newPages(origins []string) *pages {
	p := &pages{origins: map[string]bool{}, own: http.NewCrossOriginProtection()}
	for _, o := range origins {
		if o == anyOrigin {
			p.any = true
			continue
		}
		p.origins[strings.ToLower(o)] = true
	}
	return p
}

// checkOrigins checks the setting: each is as browsers spell it in Origin. Pages of every
// origin may call only where they need a token, which they have from their user: else any
// page that somebody opens could read and change everything.
func (s *Settings) checkOrigins() error {
	for _, o := range s.CORSOrigins {
		if o == anyOrigin {
			if !s.authenticated() {
				return wrong("cors-origins", "is *, and there is no authentication: every page that somebody opens in a browser here could read and change everything; name the origins")
			}
			continue
		}
		u, err := url.Parse(o)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Scheme+"://"+u.Host != o {
			return wrong("cors-origins", "%q is not an origin, such as https://app.example.com or http://localhost:3000: scheme, host and port, nothing behind them", o)
		}
	}
	return nil
}

// allowed says whether pages of an origin other than ours may call.
func (p *pages) allowed(origin string) bool { return p.any || p.origins[strings.ToLower(origin)] }

// admit sets the headers for browsers, and answers their questions beforehand
// (preflights); it says whether the request goes on.
func (p *pages) admit(w http.ResponseWriter, r *http.Request) bool {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'") // the pages of docs have their own
	if p.any || len(p.origins) > 0 {
		h.Add("Vary", "Origin")
	}
	origin := r.Header.Get("Origin")
	preflight := r.Method == http.MethodOptions && origin != "" && r.Header.Get("Access-Control-Request-Method") != ""
	if origin != "" && p.allowed(origin) {
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Expose-Headers", corsExposed)
		if !preflight {
			return p.own.Check(r) == nil || p.foreign(w, r)
		}
		h.Set("Access-Control-Allow-Methods", corsMethods)
		h.Set("Access-Control-Allow-Headers", corsHeaders)
		h.Set("Access-Control-Max-Age", corsMaxAge)
		if r.Header.Get("Access-Control-Request-Private-Network") != "" {
			h.Set("Access-Control-Allow-Private-Network", "true")
		}
		w.WriteHeader(http.StatusNoContent)
		return false
	}
	if preflight || p.own.Check(r) != nil {
		refuse(w, r, errs.New(errs.PermissionDenied, "a page of %q may not call this server: it is of another origin, and not among those of the setting cors-origins", clip(origin)))
		return false
	}
	return true
}

// foreign decides on a request, of an origin that may call, that changes something. When
// every origin may, it has to bring its token itself: what a browser adds unasked, such as
// a client certificate, may be somebody's who knows nothing of the page.
func (p *pages) foreign(w http.ResponseWriter, r *http.Request) bool {
	if p.origins[strings.ToLower(r.Header.Get("Origin"))] || r.Header.Get("Authorization") != "" {
		return true
	}
	refuse(w, r, errs.New(errs.PermissionDenied, "a page of another origin has to bring a token (Authorization) for what changes something"))
	return false
}
