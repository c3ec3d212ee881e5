package e2e

import (
	"context"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The disk of a worker is full for longer than a session lasts: what it cannot take is refused so that clients try
// again, reads go on, nothing acknowledged is lost or doubled, and with room again all goes on without a restart (F7).
func TestClusterDiskFull(t *testing.T) {
	if os.Getenv("E2E_NO_MOUNT") != "" {
		t.Skip("E2E_NO_MOUNT says that nothing can be mounted here")
	}
	f := newFleetOn(t, terrain{host: "127.0.0.1", disk1: 128})
	front := f.fronts[0]
	db := newDB(t, front)
	keyed := create(t, front, db, "keyed", "id BIGINT, v BIGINT", "id", 12)
	log := create(t, front, db, "log", "w BIGINT, n BIGINT", "", 12, obj{"bucket_key": []string{"w"}})
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer func() { stop(); wg.Wait() }()
	rows := newHistory()
	var appenders []*logWriter
	for n := range 6 {
		r := rand.New(rand.NewPCG(1, uint64(n)))
		wg.Go(func() { rows.client(ctx, n, f.doors, keyed.path(), r) })
		a := &logWriter{n: n, kind: []string{"sequence", "key", "plain"}[n%3]}
		appenders = append(appenders, a)
		wg.Go(func() { a.run(ctx, f.doors, log.path(), rand.New(rand.NewPCG(2, uint64(n)))) })
	}
	time.Sleep(2 * time.Second)
	w := f.workers[0]
	empty := w.fill(t, 0)
	t.Logf("%s the disk of worker-1 is full", time.Now().Format("15:04:05.000"))
	f.leave(t, f.workers[1]) // which makes the others take shards, and checkpoints
	f.back(t, f.workers[1])
	time.Sleep(20 * time.Second)
	full := rows.answered()
	require.Eventually(t, func() bool { return rows.answered() > full+20 }, patience, 50*time.Millisecond, "others go on")
	empty()
	t.Logf("%s it has room again", time.Now().Format("15:04:05.000"))
	f.settle(t, patience)
	require.True(t, w.runs(), "without a restart")
	again := rows.answered()
	require.Eventually(t, func() bool { return rows.answered() > again+200 }, patience, 50*time.Millisecond)
	stop()
	wg.Wait()
	rows.readAll(t, f.doors[1], keyed.path())
	sum := checkAppended(t, f.doors[0], log.path(), appenders)
	t.Logf("rows of keyed tables: %d operations answered, %d refused, %d of unknown outcome; longest gap of a client %v", rows.count[done], rows.count[rejected], rows.count[unknown], rows.gaps.longest.Round(time.Millisecond))
	t.Logf("appended rows: %+v", sum)
	require.Equal(t, tally{acknowledged: sum.acknowledged}, sum)
	require.Positive(t, sum.acknowledged)
	rows.check(t)
}

// answered is how many operations were answered so far.
func (h *history) answered() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.count[done]
}
