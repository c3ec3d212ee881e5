package millrace_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/licensecheck"
)

// allowedLicences are those under which modules may be linked into the binary: they ask
// for their text and for nothing of ours. MPL-2.0 asks for changes to its own files,
// and there are none.
var allowedLicences = map[string]bool{
	"Apache-2.0": true, "MIT": true, "BSD-2-Clause": true, "BSD-3-Clause": true, "ISC": true, "MPL-2.0": true, "0BSD": true, "CC0-1.0": true, "Unlicense": true,
	"BSD-1-Clause": true, "Zlib": true, "BSD-2-Clause-FreeBSD": true, "BSD-2-Clause-Views": true,
}

// knownTexts are files that are no licence, or one that a person has read.
var knownTexts = map[string]string{
	"modernc.org/memory LICENSE-LOGO":   "where a picture comes from that is not linked",
	"modernc.org/sqlite LICENSE-SQLITE": "public domain",
}

var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|unlicense)([._-]|$)`)

// Every module that is linked into the binary has a licence text that is known and
// allowed, and each of its texts is.
func TestLicences(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}|{{.Dir}}{{end}}{{end}}", "./cmd/millrace").Output()
	if err != nil {
		t.Fatal(err)
	}
	dirs := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if module, dir, ok := strings.Cut(strings.TrimSpace(line), "|"); ok {
			dirs[module] = dir
		}
	}
	if len(dirs) < 50 {
		t.Fatalf("only %d modules are linked", len(dirs))
	}
	for module, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		texts := 0
		for _, e := range entries {
			if e.IsDir() || !licenceFile.MatchString(e.Name()) {
				continue
			}
			b, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			c := licensecheck.Scan(b)
			if len(c.Match) == 0 && knownTexts[module+" "+e.Name()] == "" {
				t.Errorf("%s: %s is no licence that is known", module, e.Name())
			}
			for _, m := range c.Match {
				if !allowedLicences[m.ID] {
					t.Errorf("%s: %s has %s, which is not allowed", module, e.Name(), m.ID)
				}
			}
			texts++
		}
		if texts == 0 {
			t.Errorf("%s has no licence text", module)
		}
	}
}
