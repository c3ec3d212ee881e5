package server

import (
	"os"
	"runtime/debug"
)

// gcPercent trades processor time for memory: buffers and caches are most of the
// heap, and at Go's default of 100 twice their size would be held.
const gcPercent = 50

// boundMemory sets the collector's pace, unless the operator did with GOGC.
func boundMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
