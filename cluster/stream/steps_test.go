package stream

import (
	"math/rand/v2"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/storage/wal"
)

// No step of a purge is above 256 MiB, whatever the sizes of the records are, and small
// records go by more than the few that one dares to take without knowing their sizes.
func TestStepsAreBounded(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		l := &Log{size: prometheus.NewGauge(prometheus.GaugeOpts{})}
		known := 1 + rnd.IntN(3000) // what it has written begins there
		sizes, size := []int{0}, 0
		for lsn := 1; lsn <= 30_000; lsn++ {
			if lsn%1000 == 1 { // by turns
				size = []int{200, 20_000, wal.MaxRecordBytes}[rnd.IntN(3)]
			}
			sizes = append(sizes, size)
			if lsn >= known {
				l.moved(wal.Tail{LSN: millrace.LSN(lsn)}, size)
			}
		}
		steps := 0
		for first := millrace.LSN(1); first < 30_000; steps++ {
			next := l.step(first, 30_000)
			require.Greater(t, next, first)
			bytes := 0
			for lsn := first; lsn < next; lsn++ {
				bytes += sizes[lsn]
			}
			require.LessOrEqual(t, bytes, 256<<20)
			first = next
		}
		total := 0
		for _, n := range sizes[known:] {
			total += n
		}
		require.LessOrEqual(t, steps, known/blindStep+total/(128<<20)+10)
	}
}
