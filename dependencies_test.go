package millrace_test

import (
	"go/ast"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	requireLine = regexp.MustCompile(`(?m)^\t(\S+\.\S+) (v\S+)`)
	tableLine   = regexp.MustCompile(`(?m)^\| (\S+\.\S+/\S+) \| (v\S+) \| ([^|]+) \| ([^|]+) \|$`)
)

func readText(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Every module that our code imports stands in docs/dependencies.md with the version
// of go.mod, and nothing else does.
func TestDependenciesAreDocumented(t *testing.T) {
	required := map[string]string{}
	for _, m := range requireLine.FindAllStringSubmatch(readText(t, "go.mod"), -1) {
		required[m[1]] = m[2]
	}
	documented := map[string]string{}
	for _, m := range tableLine.FindAllStringSubmatch(readText(t, "docs/dependencies.md"), -1) {
		documented[m[1]] = m[2]
	}
	imported := map[string]string{}
	goFiles(t, func(file string, f *ast.File) {
		if strings.HasPrefix(file, "internal/deps/") {
			return // holds modules in go.mod that no code imports yet
		}
		for _, spec := range f.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if module := moduleOf(path, required); module != "" {
				imported[module] = required[module]
			}
		}
	})
	for _, module := range slices.Sorted(maps.Keys(imported)) {
		if documented[module] != imported[module] {
			t.Errorf("docs/dependencies.md has %s at %q, go.mod at %q", module, documented[module], imported[module])
		}
	}
	for _, module := range slices.Sorted(maps.Keys(documented)) {
		if imported[module] == "" {
			t.Errorf("docs/dependencies.md has %s, which nothing imports", module)
		}
	}
}

// moduleOf is the required module that a package is in, "" for none.
func moduleOf(path string, required map[string]string) string {
	longest := ""
	for module := range required {
		if (path == module || strings.HasPrefix(path, module+"/")) && len(module) > len(longest) {
			longest = module
		}
	}
	return longest
}
