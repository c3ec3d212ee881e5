package storagetest

import "fmt"

// DiffLogs says where two logs differ first; "" when they do not.
func DiffLogs(want, got []Change) string {
	for i := range max(len(want), len(got)) {
		switch {
		case i >= len(got):
			return fmt.Sprintf("ends at offset %d, should go on to %d with %s", i, len(want), want[i])
		case i >= len(want):
			return fmt.Sprintf("should end at offset %d, goes on to %d with %s", i, len(got), got[i])
		case !want[i].Equal(got[i]):
			return fmt.Sprintf("offset %d holds %s, should hold %s", i, got[i], want[i])
		}
	}
	return ""
}

// DiffStates says how two states differ; "" when they do not.
func DiffStates(want, got map[string]Row) string {
	for k, w := range want {
		if g, ok := got[k]; !ok {
			return fmt.Sprintf("row %s is missing", w)
		} else if !w.Equal(g) {
			return fmt.Sprintf("row %s should be %s", g, w)
		}
	}
	for k, g := range got {
		if _, ok := want[k]; !ok {
			return fmt.Sprintf("row %s should not be there", g)
		}
	}
	return ""
}
