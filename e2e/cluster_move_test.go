package e2e

import (
	"testing"
	"time"
)

// Workers leave and come one after the other, so that each shard moves several times, while clients of all kinds work
// through both fronts and try nothing again: no request fails, and streams go on without loss, repeats or disorder.
//
// E2E_CLUSTER_MOVES is how many workers leave and come back.
func TestClusterPlannedMoves(t *testing.T) {
	f := newFleet(t)
	l := newLoad(t, f)
	defer l.halt()
	l.begin(t)
	epochs := f.epochs(t)
	time.Sleep(time.Second)
	for i := range setting("E2E_CLUSTER_MOVES", 2) {
		w := f.workers[i%len(f.workers)]
		t.Logf("%s worker-%d leaves", time.Now().Format("15:04:05.000"), i%len(f.workers)+1)
		f.leave(t, w)
		f.settle(t, patience)
		t.Logf("%s and comes back", time.Now().Format("15:04:05.000"))
		f.back(t, w)
		f.settle(t, patience)
	}
	time.Sleep(time.Second)
	t.Logf("%d times a shard got an owner", f.epochs(t)-epochs)
	l.end(t)
}
