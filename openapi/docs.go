package openapi

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html"
	"html/template"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"

	"github.com/swaggest/swgui"
	"github.com/swaggest/swgui/v5emb"
	"google.golang.org/grpc/codes"

	"github.com/millrace/millrace/errs"
)

// Paths of the document and its pages.
const (
	DocumentPath   = "/openapi.json"
	DocsPath       = "/docs"
	ErrorsPagePath = "/docs/errors"
)

//go:embed errors.md
var errorsSource string

// DocumentHandler serves the document as JSON.
func DocumentHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-cache")
		_, _ = w.Write(JSON())
	})
}

// DocsHandler serves the document as a page, with everything it needs from
// within the binary. It is mounted at /docs and /docs/*.
func DocsHandler() http.Handler {
	ui := v5emb.NewHandlerWithConfig(swgui.Config{
		Title:       "Millrace",
		SwaggerJSON: DocumentPath,
		BasePath:    DocsPath,
		SettingsUI: map[string]string{
			"validatorUrl":             "null", // the default would ask a public service
			"defaultModelsExpandDepth": "0",
			"docExpansion":             `"list"`,
			"tryItOutEnabled":          "true",
		},
	})
	errorsPage := ErrorsPage()
	policy := pagePolicy(ui)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		if r.URL.Path == ErrorsPagePath {
			errorsPage.ServeHTTP(w, r)
			return
		}
		ui.ServeHTTP(w, r)
	})
}

// pagePolicy is what a browser lets the pages do: run the scripts that are theirs, written
// in the page or served beside it, and talk to this server alone.
func pagePolicy(ui http.Handler) string {
	page := newPage()
	ui.ServeHTTP(page, &http.Request{Method: http.MethodGet, URL: &url.URL{Path: DocsPath}})
	scripts := []string{"'self'"}
	for _, s := range inlineScript.FindAllSubmatch(page.Bytes(), -1) {
		sum := sha256.Sum256(s[1])
		scripts = append(scripts, "'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'")
	}
	return "default-src 'none'; script-src " + strings.Join(scripts, " ") + "; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; " +
		"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}

var inlineScript = regexp.MustCompile(`(?s)<script>(.*?)</script>`)

// memoryPage takes a page that is made to be looked at.
type memoryPage struct {
	bytes.Buffer

	header http.Header
}

func newPage() *memoryPage { return &memoryPage{header: http.Header{}} }

// Header implements http.ResponseWriter.
func (p *memoryPage) Header() http.Header { return p.header }

// WriteHeader implements http.ResponseWriter.
func (p *memoryPage) WriteHeader(int) {}

// ErrorsPage serves the explanation of every code, each at its anchor:
// /docs/errors#table_not_found.
func ErrorsPage() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Cache-Control", "no-cache")
		_, _ = w.Write(renderErrors())
	})
}

// explanations splits errors.md into its introduction and the text of each code,
// in the order of the file.
func explanations() (intro string, order []errs.Code, text map[errs.Code]string) {
	parts := strings.Split(errorsSource, "\n## ")
	_, intro, _ = strings.Cut(parts[0], "\n")
	text = make(map[errs.Code]string, len(parts))
	for _, p := range parts[1:] {
		name, body, _ := strings.Cut(p, "\n")
		code := errs.Code(strings.TrimSpace(name))
		order = append(order, code)
		text[code] = strings.TrimSpace(body)
	}
	return strings.TrimSpace(intro), order, text
}

var errorsTemplate = template.Must(template.New("errors").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Millrace: errors</title>
<link rel="icon" type="image/png" href="/docs/favicon-32x32.png">
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; color: #222; background: #fff; }
code { font: 0.95em ui-monospace, monospace; background: #f2f2f2; padding: 0 .2em; }
h2 { font: 600 1.1rem ui-monospace, monospace; margin: 2rem 0 .2rem; }
h2 a { color: inherit; text-decoration: none; }
section:target { background: #fff7d6; outline: .6rem solid #fff7d6; }
.how { color: #666; font-size: .9rem; margin: 0; }
p { margin: .3rem 0; }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #1b1b1b; } code { background: #333; } .how { color: #aaa; }
  section:target { background: #3a3520; outline-color: #3a3520; }
}
</style>
</head>
<body>
<h1>Errors</h1>
<p>{{.Intro}}</p>
<p><a href="/docs">All operations</a></p>
{{range .Codes}}<section id="{{.Kind.Code}}">
<h2><a href="#{{.Kind.Code}}">{{.Kind.Code}}</a></h2>
<p class="how">{{.Kind.Title}} · HTTP {{.Kind.HTTP}} · gRPC {{.GRPC}} · again: {{if .Kind.Retry}}yes{{else}}no{{end}}</p>
<p>{{.Text}}</p>
</section>
{{end}}</body>
</html>
`))

var renderErrors = sync.OnceValue(func() []byte {
	type entry struct {
		Kind errs.Kind
		GRPC string
		Text template.HTML
	}
	intro, _, text := explanations()
	page := struct {
		Intro template.HTML
		Codes []entry
	}{Intro: inline(intro)}
	for _, k := range errs.Kinds() {
		page.Codes = append(page.Codes, entry{Kind: k, GRPC: codes.Code(k.GRPC).String(), Text: inline(text[k.Code])})
	}
	var b bytes.Buffer
	if err := errorsTemplate.Execute(&b, page); err != nil {
		panic(fmt.Sprintf("openapi: errors page: %v", err)) // all of it is embedded
	}
	return b.Bytes()
})

// inline renders the only Markdown that errors.md uses: paragraphs and `code`.
func inline(text string) template.HTML {
	var b strings.Builder
	for i, part := range strings.Split(html.EscapeString(text), "`") {
		if i%2 == 0 {
			b.WriteString(strings.ReplaceAll(part, "\n\n", "</p>\n<p>"))
		} else {
			b.WriteString("<code>" + part + "</code>")
		}
	}
	return template.HTML(b.String()) // escaped above
}
