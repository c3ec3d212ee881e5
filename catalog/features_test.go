package catalog

import (
	"strings"
	"testing"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// A change that a process which is there could not follow is refused, changes nothing, and
// can be made when that process has gone or was upgraded. Others are made meanwhile.
func TestChangeThatAnOlderReleaseCannotFollow(t *testing.T) {
	tc := openMem(t)
	knows := FeatureLake
	tc.oldest = func() (string, FeatureLevel) { return "w1", knows }
	tc.mustCreateDatabase(t, "d")
	tc.mustCreate(t, "d", Spec{Name: "t", Columns: cols("a", "INT"), PartitionBy: []string{"a"}})
	grant := millrace.Grant{Principal: "user:ann", Verbs: readVerb}
	_, _, err := tc.CreateGrant(t.Context(), grant)
	if !errs.Is(err, errs.Unavailable) || !strings.Contains(err.Error(), "process w1 runs an older release") {
		t.Fatal(err)
	}
	if level := tc.FeatureLevel(); level != FeatureTables {
		t.Fatalf("level %d", level)
	}
	tc.reopen(t)
	if n := len(tc.current.Load().grants); n > 0 {
		t.Fatalf("%d grants", n)
	}
	tc.oldest = func() (string, FeatureLevel) { return "w1", knows }
	knows = FeatureNewest
	tc.mustGrant(t, grant)
	if level := tc.FeatureLevel(); level != FeatureGrants {
		t.Fatalf("level %d", level)
	}
}
