package openapi

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/errs"
)

// errors.md explains each code once, in the order of the table, in at least one sentence.
func TestErrorsAreExplained(t *testing.T) {
	var want []errs.Code
	for _, k := range errs.Kinds() {
		want = append(want, k.Code)
	}
	intro, order, text := explanations()
	require.NotEmpty(t, intro)
	require.Equal(t, want, order)
	for code, explanation := range text {
		require.Greater(t, len(explanation), 40, code)
		require.True(t, strings.HasSuffix(explanation, "."), "%s is cut off", code)
		require.Zero(t, strings.Count(explanation, "`")%2, "%s has an open `", code)
	}
}

// The errors page has the anchor that every problem's type points at.
func TestErrorsPage(t *testing.T) {
	w := httptest.NewRecorder()
	DocsHandler().ServeHTTP(w, httptest.NewRequest("GET", ErrorsPagePath, nil))
	require.Equal(t, 200, w.Code)
	require.Equal(t, "text/html; charset=utf-8", w.Header().Get("Content-Type"))
	body := w.Body.String()
	for _, k := range errs.Kinds() {
		require.Contains(t, body, `id="`+string(k.Code)+`"`)
	}
	require.Contains(t, body, "<code>MILLRACE_TOKEN</code>")
	require.Contains(t, body, "gRPC InvalidArgument")
	require.NotContains(t, body, "<script")
}

// The docs page and everything it loads come from within the binary.
func TestDocsPageNeedsNoNetwork(t *testing.T) {
	h := DocsHandler()
	get := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w
	}
	page := get(DocsPath)
	require.Equal(t, 200, page.Code)
	require.Contains(t, page.Body.String(), DocumentPath)
	links := regexp.MustCompile(`(?:src|href)="([^"]+)"`).FindAllStringSubmatch(page.Body.String(), -1)
	require.NotEmpty(t, links)
	for _, l := range links {
		require.True(t, strings.HasPrefix(l[1], DocsPath+"/"), "%s is not ours", l[1])
		require.Equal(t, 200, get(l[1]).Code, l[1])
	}
	require.NotRegexp(t, `https?://[a-z0-9]`, page.Body.String())
}

// The page's policy lets its own scripts run, those that are written in it by their sum,
// and no others; it lets the page talk to this server alone.
func TestDocsPagePolicy(t *testing.T) {
	w := httptest.NewRecorder()
	DocsHandler().ServeHTTP(w, httptest.NewRequest("GET", DocsPath, nil))
	policy := w.Header().Get("Content-Security-Policy")
	scripts := strings.Count(w.Body.String(), "<script>")
	require.Equal(t, 2, scripts)
	require.Equal(t, scripts, strings.Count(policy, "'sha256-"))
	_, own, _ := strings.Cut(w.Body.String(), "<script>")
	own, _, _ = strings.Cut(own, "</script>")
	sum := sha256.Sum256([]byte(own))
	require.Contains(t, policy, base64.StdEncoding.EncodeToString(sum[:]))
	for _, says := range []string{"default-src 'none'", "connect-src 'self';", "frame-ancestors 'none'", "base-uri 'none'"} {
		require.Contains(t, policy, says)
	}
	require.NotContains(t, policy, "unsafe-eval")
	require.NotContains(t, strings.Split(policy, ";")[1], "unsafe-inline")
}

// The document is served as it is.
func TestDocumentHandler(t *testing.T) {
	w := httptest.NewRecorder()
	DocumentHandler().ServeHTTP(w, httptest.NewRequest("GET", DocumentPath, nil))
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	require.Equal(t, string(JSON()), w.Body.String())
}
