package catalog

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// docs/properties.md lists every property that there is, and no other.
func TestPropertiesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/properties.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for line := range strings.Lines(string(page)) {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			for _, m := range regexp.MustCompile("`((?:table|bucket|fields)\\.[^`]+)`").FindAllStringSubmatch(cells[1], -1) {
				listed = append(listed, m[1])
			}
		}
	}
	slices.Sort(listed)
	want := append(slices.Collect(maps.Keys(known)), propBucketNum, propBucketKey, fieldsPrefix+"<column>"+aggSuffix, fieldsPrefix+"<column>"+delimiterSuffix)
	slices.Sort(want)
	if d := cmp.Diff(want, listed); d != "" {
		t.Error(d)
	}
}
