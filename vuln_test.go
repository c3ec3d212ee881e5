package millrace_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What make vuln lets pass is exactly what the list says: anything else that is found fails
// it, and so does what is not found any more, and a tool that does not work.
func TestVulnerabilitiesLetPass(t *testing.T) {
	list := filepath.Join(t.TempDir(), "list")
	if err := os.WriteFile(list, []byte("# GO-2026-9 is a remark\nGO-2026-1 go1.2 why\nGO-2026-2 go1.2 why\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		prints, exits, says string
	}{
		{"Vulnerability #1: GO-2026-2\nVulnerability #2: GO-2026-1\nmore", "3", ""},
		{"Vulnerability #1: GO-2026-2\nVulnerability #2: GO-2026-1\nVulnerability #3: GO-2026-9", "3", "not in " + list + ": GO-2026-9"},
		{"Vulnerability #1: GO-2026-2", "3", "take it out of " + list + ": GO-2026-1"},
		{"No vulnerabilities found.", "0", "GO-2026-1 GO-2026-2"},
		{"no such database", "1", "no such database"},
		{"another form", "3", "not understood"},
	} {
		out, err := exec.CommandContext(t.Context(), ".ci/vuln", list, "sh", "-c", `printf '%s\n' "$1"; exit "$2"`, "tool", c.prints, c.exits).CombinedOutput()
		if (err == nil) != (c.says == "") || !strings.Contains(string(out), c.says) {
			t.Errorf("%q, %s: %v\n%s", c.prints, c.exits, err, out)
		}
	}
}

// Where the database of vulnerabilities is not to be had it is said that nothing was looked
// for, and CI does not take that for a pass.
func TestVulnerabilitiesNotLookedFor(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "make", "--no-print-directory", "vuln-db")
	cmd.Env = append(os.Environ(), "GOPROXY=off", "GOMODCACHE="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "NOT LOOKED: the database") {
		t.Errorf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(".ci/run")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), "if make vuln-db </dev/null; then\n  step vuln\nelse\n  echo \"ci: NOT LOOKED FOR VULNERABILITIES") {
		t.Error(".ci/run does not look for vulnerabilities, or does not say when it could not")
	}
}
