package millrace_test

import (
	"strings"
	"testing"

	millrace "github.com/millrace/millrace"
)

// One rule says what the name of a user or group is; a principal has its kind before it, and
// is as long as its name may be.
func TestPrincipals(t *testing.T) {
	long := strings.Repeat("a", millrace.MaxPrincipalName)
	for name, good := range map[string]bool{
		"ann": true, "a b": true, "user:x": true, "Ärzte": true, "ann@example.com": true, long: true, long[:251]: true, long[:250]: true,
		"": false, " ann": false, "ann ": false, "\tann": false, "a\tb": false, "a\x00": false, long + "a": false,
		"a\u00a0b": false, "a\u2003b": false, "a\u200bb": false, "a\u202eb": false, "a\u2028b": false, "\ufeffa": false, "a\xff": false, "a\ufffd": false,
	} {
		if err := millrace.ValidatePrincipalName(name); (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
		for _, prefix := range []string{millrace.UserPrefix, millrace.GroupPrefix} {
			if err := millrace.ValidatePrincipal(prefix + name); (err == nil) != (good && len(prefix+name) <= 256) {
				t.Errorf("%q: %v", prefix+name, err)
			}
		}
	}
	for _, p := range []string{"ann", "role:ann", "User:ann", " user:ann", "default"} {
		if millrace.ValidatePrincipal(p) == nil {
			t.Errorf("%q is a principal", p)
		}
	}
}
