package stream_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/cluster/stream"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/wal"
	"github.com/millrace/millrace/storage/wal/waltest"
)

// history is what happened to the entries that owners appended, against which the
// log is compared: it is the model.
type history struct {
	clock atomic.Int64 // of the test: orders what ended before something else began

	mu      sync.Mutex
	entries map[uint64]*fate
	next    uint64
	acked   int
	codes   map[errs.Code]int
}

// fate is what an entry's owner was told.
type fate struct {
	epoch      millrace.Epoch
	order      int   // in its append
	begun, end int64 // on the clock
	code       errs.Code
	lsn        millrace.LSN // of the append, where it was acknowledged
	data       []byte
}

func newHistory() *history {
	return &history{entries: map[uint64]*fate{}, codes: map[errs.Code]int{}}
}

// append appends n entries with sizes up to max, and remembers what became of them.
func (h *history) append(l *stream.Log, epoch millrace.Epoch, n, max int) error {
	var ids []uint64
	var batch []wal.Entry
	h.mu.Lock()
	for i := range n {
		h.next++
		data := binary.LittleEndian.AppendUint64(nil, h.next)
		data = append(data, waltest.Pattern(h.next, rand.IntN(max))...)
		h.entries[h.next] = &fate{epoch: epoch, order: i, begun: h.clock.Add(1), code: errs.UnknownOutcome, data: data}
		ids, batch = append(ids, h.next), append(batch, wal.Entry{Kind: wal.Data, Data: data})
	}
	h.mu.Unlock()
	lsn, err := l.Append(context.Background(), batch)
	end := h.clock.Add(1)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range ids {
		f := h.entries[id]
		f.end, f.code, f.lsn = end, errs.CodeOf(err), lsn
	}
	if err == nil {
		h.acked++
	} else {
		h.codes[errs.CodeOf(err)]++
	}
	return err
}

func (h *history) acknowledged() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.acked
}

func (h *history) refused(code errs.Code) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.codes[code]
}

// check compares the log with what the owners were told: what was acknowledged is
// there once, where it was said to be and in the order of what came after what; what
// was refused is not there; nothing of an epoch comes behind a later one.
func (h *history) check(t *testing.T, l *stream.Log) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	seen := map[uint64]bool{}
	var epoch millrace.Epoch
	var latest int64 // begin of what came before
	var lastLSN millrace.LSN
	err := l.Replay(context.Background(), 0, func(lsn millrace.LSN, e millrace.Epoch, entry wal.Entry) error {
		require.GreaterOrEqual(t, lsn, lastLSN)
		lastLSN = lsn
		switch entry.Kind {
		case wal.Epoch:
			require.Greater(t, e, epoch)
			epoch = e
			return nil
		case wal.Noop:
			return nil
		default:
		}
		require.Equal(t, epoch, e)
		id := binary.LittleEndian.Uint64(entry.Data)
		f := h.entries[id]
		require.NotNil(t, f, "entry %d was never appended", id)
		require.False(t, seen[id], "entry %d is there twice", id)
		seen[id] = true
		require.Equal(t, f.epoch, e, "entry %d is in another epoch than its owner's", id)
		require.Equal(t, f.data, entry.Data)
		switch f.code {
		case "":
			require.LessOrEqual(t, lsn, f.lsn)
		case errs.UnknownOutcome:
		default:
			require.Fail(t, "refused", "entry %d was refused as %s, and is there", id, f.code)
		}
		require.True(t, f.end == 0 || latest <= f.end, "entry %d ended before something in front of it began", id)
		latest = max(latest, f.begun)
		return nil
	})
	require.NoError(t, err)
	for id, f := range h.entries {
		if f.code == "" {
			require.True(t, seen[id], "entry %d of epoch %d, acknowledged at %d, is not there", id, f.epoch, f.lsn)
		}
	}
	t.Logf("%d entries, %d appends acknowledged, %d entries in the log, refused: %v", len(h.entries), h.acked, len(seen), h.codes)
}

// owner appends until it is told to stop; when it is fenced, or does not know, it
// begins an epoch of its own again.
type owner struct {
	pause  time.Duration // between appends, so that a stream does not fill up
	log    *stream.Log
	epoch  millrace.Epoch
	epochs *atomic.Uint64
}

// takeOver begins the next epoch; it is tried again until it succeeds.
func (o *owner) takeOver(ctx context.Context) error {
	for ctx.Err() == nil {
		if _, err := o.log.Refresh(ctx); err != nil {
			continue
		}
		o.epoch = millrace.Epoch(o.epochs.Add(1))
		if o.epoch <= o.log.Tail().Epoch {
			continue
		}
		if _, err := o.log.Append(ctx, []wal.Entry{wal.EpochEntry(o.epoch)}); err == nil {
			return nil
		}
	}
	return ctx.Err()
}

// run appends until ctx ends; what goes wrong besides what may go wrong is returned.
func (o *owner) run(ctx context.Context, h *history, n, size int) error {
	_ = o.takeOver(ctx) // else ctx is over
	for ctx.Err() == nil {
		switch err := h.append(o.log, o.epoch, 1+rand.IntN(n), size); errs.CodeOf(err) {
		case "", errs.Unavailable, errs.Overloaded:
			if o.log.Writes() != nil {
				_ = o.takeOver(ctx)
			}
		case errs.NotOwner, errs.UnknownOutcome:
			_ = o.takeOver(ctx)
		default:
			return fmt.Errorf("epoch %d: %w", o.epoch, err)
		}
		if o.pause > 0 {
			select {
			case <-time.After(o.pause):
			case <-ctx.Done():
			}
		}
	}
	return nil
}
