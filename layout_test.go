package millrace_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const modulePath = "github.com/millrace/millrace"

// mayImport lists, for each top folder, the top folders whose packages it may
// import besides its own; "." is the root package. Tests may import more.
var mayImport = map[string][]string{
	".":        {},
	"errs":     {},
	"internal": {},
	"row":      {".", "errs"},
	"filter":   {".", "errs", "row"},
	"objstore": {".", "errs", "trace"},
	// Of storage, remote alone knows the object store.
	"storage": {".", "errs", "row", "filter", "internal", "objstore", "trace"},
	"catalog": {".", "errs", "row", "internal", "objstore"},
	"auth":    {".", "errs"},
	"trace":   {".", "errs"},
	// Memory for what is being received and sent.
	"admit":   {"errs"},
	"openapi": {".", "errs"},
	"lake":    {".", "errs", "row", "filter"},
	"router":  {".", "errs", "admit", "row", "filter", "lake", "storage", "trace"},
	"tier":    {".", "errs", "row", "filter", "lake", "objstore", "router", "storage", "trace"},
	"sql":     {".", "errs", "row", "filter", "lake", "storage", "router", "catalog"},
	// What the doors see of the catalog, and what the router asks.
	"guard": {".", "errs", "catalog", "auth", "router"},
	// The front ends declare the interfaces through which they reach data; types of
	// the layers below may stand in them.
	"rest":      {".", "errs", "admit", "row", "filter", "lake", "storage", "router", "catalog", "auth", "guard", "openapi", "sql", "trace"},
	"flightsvc": {".", "errs", "admit", "row", "filter", "lake", "storage", "router", "catalog", "auth", "openapi", "trace"},
	"server": {
		".", "errs", "trace", "admit", "row", "filter", "storage", "router", "catalog", "auth", "guard", "openapi", "objstore", "lake", "tier", "icebergrest", "sql", "rest", "flightsvc", "internal", "cluster", "shardrpc",
	},
	// What processes of a cluster ask of each other's shards.
	"shardrpc": {".", "errs", "router", "storage", "trace"},
	// Everything that speaks NATS; what it implements are interfaces of the others.
	"cluster": {".", "errs", "storage", "catalog", "shardrpc", "trace"},
	// The catalog of stock readers knows the lake's metadata and the tables, not their rows.
	"icebergrest": {".", "errs", "lake", "tier", "catalog", "trace"},
	"client":      {".", "errs", "row", "openapi"},
	"cmd":         {".", "errs", "auth", "row", "filter", "openapi", "server", "client", "sql"},
	// What is run from outside knows nothing of the inside, so that it cannot share
	// its mistakes.
	"e2e": {},
	// The benchmarks measure packages and the binary alike.
	"bench": {".", "errs", "row", "filter", "lake", "tier", "objstore", "storage", "router", "catalog", "auth", "openapi", "server", "client", "internal", "cluster"},
}

// mayImportPackage are single packages that a top folder may import besides.
var mayImportPackage = map[string][]string{
	"e2e": {"cluster/natstest", "objstore/faultproxy", "objstore/objstoretest"}, // starts servers that others made; knows nothing of ours
}

// goFiles parses every Go file of the repository, with its path from the root.
func goFiles(t *testing.T, visit func(file string, f *ast.File)) {
	t.Helper()
	fset := token.NewFileSet()
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && p != "." && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(p, ".go") {
			return nil
		}
		f, err := parser.ParseFile(fset, p, nil, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		visit(filepath.ToSlash(p), f)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func topFolder(p string) string {
	if top, _, ok := strings.Cut(p, "/"); ok {
		return top
	}
	return "."
}

// Every package has exactly one package comment, so that there is one place that
// says what it is for.
func TestPackageComments(t *testing.T) {
	comments, packages := map[string][]string{}, map[string]bool{}
	goFiles(t, func(file string, f *ast.File) {
		if strings.HasSuffix(file, "_test.go") {
			return
		}
		dir := path.Dir(file)
		packages[dir] = true
		if f.Doc != nil && strings.TrimSpace(f.Doc.Text()) != "" {
			comments[dir] = append(comments[dir], file)
		}
	})
	for dir := range packages {
		if n := len(comments[dir]); n != 1 {
			t.Errorf("package %s has %d package comments %v; it has one, in doc.go", dir, n, comments[dir])
		}
	}
	if len(packages) < 15 {
		t.Errorf("only %d packages found", len(packages))
	}
}

// Imports point one way, as the table above says; the linter says the same, with
// reasons, where it is at hand.
func TestImportDirections(t *testing.T) {
	goFiles(t, func(file string, f *ast.File) {
		if strings.HasSuffix(file, "_test.go") && topFolder(file) != "e2e" {
			return
		}
		from := topFolder(file)
		allowed, known := mayImport[from]
		if !known {
			t.Errorf("%s: give folder %q a line in mayImport, and a rule in .golangci.yml", file, from)
			return
		}
		for _, spec := range f.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			to := "."
			if strings.HasPrefix(imported, "github.com/nats-io/") && from != "cluster" && from != "bench" {
				t.Errorf("%s imports %s: only packages below cluster speak NATS", file, imported)
			}
			if slices.Contains(mayImportPackage[from], strings.TrimPrefix(imported, modulePath+"/")) {
				continue
			}
			if rest, ours := strings.CutPrefix(imported, modulePath+"/"); ours {
				to = topFolder(rest + "/")
			} else if imported != modulePath {
				continue
			}
			if to != from && !slices.Contains(allowed, to) {
				t.Errorf("%s imports %s: folder %s may import %v only", file, imported, from, allowed)
			}
		}
	})
}

// doorTakes are the names of package catalog that doors may say: what is asked for and what
// is answered. They have no other catalog than what guard shows them of it (ADR 0008).
var doorTakes = []string{
	"Database", "Spec", "ColumnSpec", "AlterStep", "MaxPage", "MaxColumns",
	"AddColumn", "DropColumn", "RenameColumn", "AlterType", "SetComment", "SetProperties", "ResetProperties",
}

// Doors cannot reach tables past guard: they say no function of the catalog, nor its type.
func TestDoorsGoThroughGuard(t *testing.T) {
	catalogUses, doors := 0, []string{"rest", "flightsvc", "icebergrest", "sql"}
	goFiles(t, func(file string, _ *ast.File) {
		if !slices.Contains(doors, topFolder(file)) || strings.HasSuffix(file, "_test.go") {
			return
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		name := ""
		for _, spec := range f.Imports {
			if spec.Path.Value != strconv.Quote(modulePath+"/catalog") {
				continue
			}
			if name = "catalog"; spec.Name != nil {
				name = spec.Name.Name
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok || name == "" {
				return true
			}
			if of, ok := sel.X.(*ast.Ident); ok && of.Name == name && of.Obj == nil {
				catalogUses++
				if !slices.Contains(doorTakes, sel.Sel.Name) {
					t.Errorf("%s says catalog.%s: doors have the catalog that guard shows them, by an interface of their own", file, sel.Sel.Name)
				}
			}
			return true
		})
	})
	if catalogUses == 0 {
		t.Error("no door says anything of the catalog: this test looks at nothing")
	}
}
