package segment

import (
	"math/bits"
	"sync"
)

// Bodies and read buffers are a few KiB to a few MiB and live for one batch.
// They are kept by powers of two, so that a long read does not make, clear and
// collect one for every batch.
const (
	minPooledBits = 12
	maxPooledBits = 23
)

var bufferPools [maxPooledBits + 1]sync.Pool

// getBytes returns n bytes of any content.
func getBytes(n int) []byte {
	class := max(bits.Len(uint(max(n, 1)-1)), minPooledBits)
	if class > maxPooledBits {
		return make([]byte, n)
	}
	if b, ok := bufferPools[class].Get().(*[]byte); ok {
		return (*b)[:n]
	}
	return make([]byte, n, 1<<class)
}

// putBytes gives back what getBytes returned, or what grew out of it; nobody may
// use it any more.
func putBytes(b []byte) {
	class := bits.Len(uint(cap(b))) - 1 // a buffer of this class or larger
	if class < minPooledBits || class > maxPooledBits {
		return
	}
	b = b[:0]
	bufferPools[class].Put(&b)
}
