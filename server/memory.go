package server

import (
	"bytes"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	millrace "github.com/millrace/millrace"
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

// The setting cache-size.
const (
	cacheAuto      = "auto"
	minCacheBytes  = 8 << 20
	maxCacheBytes  = 1 << 50
	autoCacheShare = 16 // of the machine's memory, one part in
	minAutoCache   = 64 << 20
	maxAutoCache   = 1 << 30
)

// cacheBytes is what the caches may take, on a machine of so much memory.
func cacheBytes(setting string, memory int64) (int64, error) {
	if setting == cacheAuto {
		return min(max(memory/autoCacheShare, minAutoCache), maxAutoCache), nil
	}
	n, err := millrace.ParseSize(setting)
	if err != nil || n > maxCacheBytes {
		return 0, wrong("cache-size", "%q is neither %s nor a number of KiB, MiB or GiB, like 512MiB", setting, cacheAuto)
	}
	if n < minCacheBytes {
		return 0, wrong("cache-size", "%s is too small; at least %dMiB are needed", setting, minCacheBytes>>20)
	}
	return n, nil
}

// The setting receive-memory.
const (
	minAutoReceive = 128 << 20
	// minReceiveBytes holds the largest message there is.
	minReceiveBytes = 64 << 20
)

// receiveBytes is what bodies that are being received may take, on a machine of so much
// memory.
func receiveBytes(setting string, memory int64) (int64, error) {
	if setting == cacheAuto {
		return min(max(memory/autoCacheShare, minAutoReceive), maxAutoCache), nil
	}
	n, err := sizeOf("receive-memory", setting)
	if err == nil && n < minReceiveBytes {
		err = wrong("receive-memory", "%s is too small; at least %dMiB are needed", setting, minReceiveBytes>>20)
	}
	return n, err
}

// sizeOf is what a setting of a size says.
func sizeOf(setting, text string) (int64, error) {
	n, err := millrace.ParseSize(text)
	if err != nil || n < 1<<20 || n > maxCacheBytes {
		return 0, wrong(setting, "%q is not a number of KiB, MiB or GiB from 1MiB up, like 512MiB", text)
	}
	return n, nil
}

// machineMemory is how much memory the process may use: the machine's, or what its
// control group leaves it; 0 when the system does not tell.
func machineMemory() int64 {
	var total int64
	if b, err := os.ReadFile("/proc/meminfo"); err == nil {
		for line := range bytes.Lines(b) {
			var kib int64
			if _, err := fmt.Sscanf(string(line), "MemTotal: %d kB", &kib); err == nil {
				total = kib << 10
				break
			}
		}
	}
	for _, name := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		b, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		// The word "max" is no number, and a limit above the machine's memory is none.
		if limit, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil && limit < total {
			total = limit
		}
	}
	return total
}
