package remote_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/objstore/objstoretest"
)

func slogOf(w *world) *slog.Logger { return slog.New(w.Log) }

// Shows that whatever is written, checkpointed and lost (the process, what was not
// synced, the shards' disks while the log stays; the object store for a while), the
// worker holds what the model holds: the same changelog at the same offsets, the same
// rows, the same answers to numbered batches.
func TestModel(t *testing.T) {
	seed := seedOf(t)
	for i := range uint64(3) {
		t.Run("", func(t *testing.T) { testModel(t, seed+i) })
	}
}

func testModel(t *testing.T, seed uint64) {
	w := newWorld(t, seed)
	w.tables()
	if w.Rng.IntN(2) == 0 {
		for _, m := range w.Tables {
			m.Options.LocalTTL = []time.Duration{-1, 100 * time.Millisecond}[w.Rng.IntN(2)]
		}
	}
	w.MustOpen()
	done := map[string]int{}
	for range 45 {
		w.write(1 + w.Rng.IntN(30))
		what := "nothing"
		switch w.Rng.IntN(9) {
		case 0, 1:
			what = "publish"
			w.publish()
		case 2:
			what = "checkpoint"
			for _, s := range w.Worker.Shards() {
				require.NoError(t, s.Checkpoint(t.Context()))
			}
		case 3:
			what = "restart"
			w.reopen(func() {})
		case 4:
			what = "crash"
			image := w.Image(w.Rng.IntN(3) * 50)
			w.reopen(func() { w.FS = image })
		case 5:
			what = "lose disks"
			w.objects.Heal()
			w.publish()
			image := w.Image(100)
			w.reopen(func() {
				w.FS = image
				w.loseShards()
			})
		case 6:
			what = "away for a while"
			w.away()
			w.write(20)
			for _, s := range w.Worker.Shards() {
				require.NoError(t, s.Checkpoint(t.Context()))
			}
			w.objects.Heal()
		case 7:
			what = "a call fails"
			w.objects.Add(objstoretest.Fault{After: w.Rng.IntN(20), Err: errAway, Happens: w.Rng.IntN(2) == 0})
		}
		done[what]++
		if w.Rng.IntN(4) == 0 {
			w.objects.Heal()
			w.Check()
		}
	}
	w.objects.Heal()
	w.publish()
	w.Check()
	w.reopen(w.loseShards)
	w.Check()
	w.Close()
	t.Log(done)
}
